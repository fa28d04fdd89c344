"""An oracle's fixture on apiece: the same cohorts, batches and step sizes, and each oracle's algorithm as pieces."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import torch
from oracles import ORACLES, ffa_lora, pefll, vhl
from oracles.problem import CLASSES, FEATURES, HIDDEN, PROBE, Fixture, Round
from torch import nn
from torch.utils._pytree import tree_map

from apiece.algebra.broadcast import FederationFacts
from apiece.algebra.composition import Algorithm, Client, Period, Server, StepSize, algorithm, combine
from apiece.algebra.optim import AdamW, Sgd
from apiece.algebra.server_optim import Descent, Nesterov
from apiece.engine.predicting import predictor
from apiece.engine.state import ClientTask
from apiece.engine.state import Server as ServerState
from apiece.engine.stepping import Loop
from apiece.language import algorithms as named
from apiece.lifts.lift import Sequential
from apiece.measure.global_average import evaluated
from apiece.pieces.adapters import Untrained
from apiece.pieces.fednova import FedNova
from apiece.pieces.per_fedavg import MetaStep
from apiece.pieces.vhl import VHL
from support.helpers import KEEPS_ALL, Given, Ran, federate, federation, gap, run
from support.written import (
    WrittenDitto,
    WrittenFedCOG,
    WrittenFedGen,
    WrittenMetaStep,
    WrittenPefll,
    WrittenPfedhn,
    WrittenVHL,
)

COG = ("kd_weight", "dis", "samples", "steps", "batch", "wait", "temperature", "shuffle")
PEFLL = ("lr", "clip", "lambda_h", "lambda_v", "descriptor", "server")
PERSONAL = ("apfl", "pfedme", "fedrep", "knn_per", "fine_tune")


def network() -> nn.Sequential:
    return nn.Sequential(nn.Linear(FEATURES, HIDDEN), nn.Tanh(), nn.Linear(HIDDEN, CLASSES))


def build(oracle: str, **hyper: Any) -> Algorithm:
    """The algorithm that an oracle writes out, at these values (weights, server_lr and cohort are the run's)."""
    relaxed = named.relaxed_init(**{k: hyper[k] for k in ("beta", "aggregate") if k in hyper})
    prox = named.fedprox(hyper.get("mu", 0.1))
    period = hyper.get("alpha", 10) if oracle.startswith("fedals") else 1
    slow = algorithm(Period("body", period), name="slow body") if period > 1 else named.fedavg()
    outer = {k: hyper[k] for k in ("outer_shared", "outer_personal") if k in hyper}
    scale = {k: hyper.get(k, 1.0) for k in ("scale_shared", "scale_personal")}
    steps = [StepSize("body", scale["scale_shared"])] if scale["scale_shared"] != 1 else []
    sizes = combine(steps, "step sizes")
    personal = {"inner_personal": scale["scale_personal"], **outer}
    cog = {k: hyper[k] for k in COG if k in hyper and (oracle, k) != ("moon_fedcog", "temperature")}  # which is MOON's
    generated = algorithm(WrittenFedCOG(lr=hyper.get("input_lr", 0.01), **cog), name="fedcog")
    contrast = named.moon(**{k: hyper[k] for k in ("mu", "temperature") if k in hyper})
    momentum, decay = hyper.get("momentum", 0.0), hyper.get("weight_decay", 0.0)
    known = {k: v for k, v in hyper.items() if k not in ("weights", "server_lr")}
    adaptive = {k: hyper[k] for k in ("lr", "beta1", "beta2", "tau", "initial") if k in hyper}
    inner = Client(Sgd(hyper.get("momentum", 0.9), hyper.get("weight_decay", 5e-5)))

    outer_step = {"lr": hyper.get("server_lr", 0.7), "momentum": hyper.get("momentum", 0.9)}
    adamw = Client(AdamW(weight_decay=hyper.get("decay", 0.01)))

    def outside(*names: str) -> dict[str, Any]:
        return {k: hyper[k] for k in names if k in hyper}

    table = {
        "fedavg": lambda: named.fedavg(),
        "fedprox": lambda: prox,
        "scaffold": lambda: named.scaffold(),
        "fedinit": lambda: relaxed,
        "fedals": lambda: slow,
        "fedals_fedinit": lambda: slow + relaxed,
        "fedals_scaffold": lambda: slow + named.scaffold(),
        "fedals_first_step": lambda: combine(
            [
                *named.fedals(1, phase=hyper.get("phase", "first_step")).parts,
                *named.period("body", hyper["alpha"]).parts,
                *(named.period("0.bias", hyper["third"]).parts if "third" in hyper else []),
            ],
            "fedals",
        ),
        "period": lambda: combine(
            [Period(*block) for block in hyper["blocks"]]
            + ([Server(Nesterov(momentum, hyper["server_lr"]))] if momentum else []),
            "period",
        ),
        **{
            name: lambda name=name: combine(
                [*getattr(named, name)(**outer_step, **outside("blocks", "every", "alpha")).parts, adamw], name
            )
            for name in ("diloco", "streaming_diloco")
        },
        **{name: partial(getattr(named, name), **known) for name in ("rolora", "fed_dpa", "ffa_lora")},
        "fedprox_fedinit_server": lambda: named.fedprox(hyper.get("mu", 0.1), "server") + relaxed,
        "scaffold_difference": lambda: combine(
            [*named.scaffold(hyper.get("control", "difference")).parts, Client(Sgd(momentum, decay))], "scaffold"
        ),
        "scaffold_p_grad": lambda: named.scaffold_p(**personal, init_control="grad") + sizes,
        "fedcog_each_pass": lambda: generated,
        "fedavg_p": lambda: named.fedavg_p(**personal) + sizes,
        "scaffold_p": lambda: named.scaffold_p(**personal) + sizes,
        "fedprox_fedinit": lambda: prox + relaxed,
        "scaffold_fedinit": lambda: named.scaffold() + relaxed,
        "scaffold_p_fedinit": lambda: named.scaffold_p(**personal) + sizes + relaxed,
        "feddyn": lambda: named.feddyn(hyper["alpha"]),
        "feddyn_fedinit": lambda: named.feddyn(hyper["alpha"]) + relaxed,
        "fedcm": lambda: named.fedcm(hyper["alpha"]),
        "fedcm_fedinit": lambda: named.fedcm(hyper["alpha"]) + relaxed,
        "fedsam": lambda: named.fedsam(hyper["rho"]),
        "fedsam_fedinit": lambda: named.fedsam(hyper["rho"]) + relaxed,
        "fednova": lambda: named.fednova(),
        "fedexp": lambda: named.fedexp(hyper["epsilon"], hyper.get("evaluate", "last")),
        "fedavgm": lambda: named.fedavgm(momentum, hyper.get("server_lr", 1.0), hyper.get("form", "hsu")),
        "fedopt": lambda: getattr(named, f"fed{hyper['kind']}")(**adaptive),
        "moon": lambda: contrast,
        "feddecorr": lambda: named.feddecorr(hyper["beta"]),
        "fedcog": lambda: generated,
        "scaffold_fedcog": lambda: named.scaffold() + generated,
        "fedavgm_fedcog": lambda: named.fedavgm(momentum, hyper.get("server_lr", 1.0)) + generated,
        "fedprox_fedcog": lambda: prox + generated,
        "moon_fedcog": lambda: contrast + generated,
        "fedinit_fedcog": lambda: relaxed + generated,
        "fedals_fedcog": lambda: slow + generated,
        "fedals_fedinit_fedcog": lambda: slow + relaxed + generated,
        "fedals_feddyn": lambda: slow + named.feddyn(hyper["strength"]),
        "fedreg": lambda: named.fedreg(**outside("gamma", "steps", "pseudo", "perturbed", "batches")),
        "fedgen": lambda: algorithm(WrittenFedGen(**known), name="fedgen"),
        "vhl": lambda: algorithm(WrittenVHL(**known), name="vhl"),
        "fedadam_fedinit": lambda: named.fedadam(hyper["lr"], tau=hyper["tau"], initial=0.0) + relaxed,
        "ditto": lambda: algorithm(WrittenDitto(**known), name="ditto"),
        "per_fedavg": lambda: combine([_written(p) for p in named.per_fedavg(**known).parts], "per_fedavg"),
        **{name: partial(getattr(named, name), **known) for name in PERSONAL},
        **{
            name: lambda: algorithm(WrittenPefll("linear", "S", **outside(*PEFLL)), inner, name="pefll")
            for name in ("pefll", "pefll_sgd")
        },
        "pfedhn": lambda: algorithm(
            WrittenPfedhn("S", weight_decay=hyper.get("decay", 1e-3), **outside("lr", "clip")), inner, name="pfedhn"
        ),
    }
    return table[oracle]()


def _written(part: Any) -> Any:
    return WrittenMetaStep(part.alpha, part.variant, part.batches) if isinstance(part, MetaStep) else part


def follow(
    subject: Algorithm,
    f: Fixture,
    weights: str = "uniform",
    server_lr: float = 1.0,
    cohort: str = "redrawn",
    alpha: int = 1,
    lift: Any = None,
    keep: bool = True,
    **rest: Any,
) -> tuple[Ran, list[Round]]:
    """Run an algorithm on a fixture; what an oracle hands back of each round, as torch tensors."""
    server = {} if subject.server is not None else {"server": Descent(server_lr)}
    watch = KEEPS_ALL if keep else frozenset()
    setting = FederationFacts((FEATURES,), CLASSES, [f"c{i}" for i in range(f.clients)], range(f.clients), 0)
    module, wide = network(), any(isinstance(piece, VHL) for piece in subject.pieces)
    still = next((piece.which for piece in subject.pieces if isinstance(piece, Untrained)), None)
    if still is not None:  # what is frozen is the module's
        torch.nn.utils.vector_to_parameters(torch.from_numpy(f.initial), module.double().parameters())
    normalized = any(isinstance(piece, FedNova) for piece in subject.pieces)  # under the momentum of the run
    client = Sgd(rest.get("momentum", 0.0) if normalized else 0.0)
    for piece in subject.pieces:
        module = piece.prepare(module)
    federated = federate(subject, module, weighting=weights, watch=watch, setting=setting, client=client, **server)
    initial = vhl.widened(f.initial) if wide else f.initial if still is None else ffa_lora.widened(f.initial, still)
    object.__setattr__(federated.setup, "initial", torch.from_numpy(initial))
    table = {(t, f"c{i}"): torch.from_numpy(rows) for (t, i), rows in f.batches.items()}
    own = {(t, f"c{i}"): torch.from_numpy(pefll.own_batch(t, i, len(f.y[i]))) for t, i in f.batches}
    cohorts = [f.cohorts[t - t % alpha] if cohort == "held" else f.cohorts[t] for t in range(f.rounds)]
    if any(piece.asks_all for piece in subject.pieces):
        cohorts[0] = range(f.clients)
    controls = ("Scaffold", "FedDyn")
    kinds = (type(p).__name__ for p in subject.pieces)
    control = next((kind for kind in kinds if any(name in kind for name in controls)), "")
    predicts = any(p.fills("personal", "predict", "evaluate") for p in subject.pieces)
    seen: list[Any] = []
    works: list[list[ClientTask]] = []

    def copied(each: ClientTask) -> ClientTask:
        return each._replace(row=tree_map(torch.clone, each.row))

    def scores(server: ServerState, lr: float, each: ClientTask) -> torch.Tensor:
        shared, theta = federated.shared(server, lr), evaluated(federated, server)
        return predictor(federated.setup, Loop(), theta, server.buffers, shared, each)(torch.from_numpy(PROBE))

    def look(t: int, clients: Any) -> None:
        rows = [clients.row(c)[0] for c in range(f.clients)]
        name = next((k for k in rows[0] if control and k.startswith(f"memory.{control}.")), None)
        seen.append(
            (
                torch.stack([r["model"] for r in rows]) if keep else None,
                torch.stack([r[name] for r in rows]) if name else None,
            )
        )
        works.append([copied(clients.each(c, t + 1)) for c in range(f.clients)] if predicts else [])

    ran = run(federated, federation(f.x, f.y), Given(table, own), cohorts, f.lr, lift or Sequential(), after=look)
    rounds = [
        Round(s.params, kept, s.memory[control][0] if control else None, of_clients)
        for s, (kept, of_clients) in zip(ran.servers[1:], seen, strict=True)
    ]
    if predicts:
        sizes = zip(rounds, ran.servers[1:], f.lr, works, strict=True)
        rounds = [r._replace(scores=torch.stack([scores(s, lr, each) for each in work])) for r, s, lr, work in sizes]
    return ran, rounds


def furthest(ours: list[Round], theirs: list[Round]) -> float:
    """The largest difference in servers, models kept, control variates and predictions over all rounds."""
    pairs = [
        (a, b)
        for o, t in zip(ours, theirs, strict=True)
        for a, b in zip(o, t, strict=True)
        if a is not None and b is not None
    ]
    return float(np.max([gap(a, b) for a, b in pairs]))  # one that is no number is the largest


def nudged(f: Fixture, seed: int) -> Fixture:
    """The same problem with every first weight and every feature moved by its last bit, up or down."""
    rng = np.random.Generator(np.random.Philox(seed))

    def moved(array: np.ndarray) -> np.ndarray:
        return np.nextafter(array, array + rng.choice((-1.0, 1.0), array.shape))

    return f._replace(initial=moved(f.initial), x=tuple(moved(x) for x in f.x))


def amplified(oracle: str, f: Fixture, **hyper: Any) -> float:
    """What this training makes of a last bit: how far the oracle goes from itself on nudged problems, of four the
    furthest.
    """
    right = ORACLES[oracle].run(f, **hyper)
    return max(furthest(ORACLES[oracle].run(nudged(f, seed), **hyper), right) for seed in range(4))
