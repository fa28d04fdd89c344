"""What an algorithm keeps and sends, from rows and the ledger, and what the papers say of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from typing import Any, NamedTuple

from torch.utils._pytree import keystr, tree_flatten_with_path, tree_leaves

from apiece.algebra.message import MARKS, PerClient
from apiece.algebra.place import Traffic
from apiece.config.assemble import assemble
from apiece.engine.clients import Clients
from apiece.engine.state import Plan
from apiece.lifts.lift import Sequential
from support.wired import CONFIG

SIZE, HEAD = 65 * 8 + 9 * 10, 9 * 10  # CONFIG's mlp(hidden=[8]) on the digits, and its last layer
BODY = SIZE - HEAD


class Listening(NamedTuple):
    """A lift that notes the last answer to every operation."""

    lift: Any
    said: dict[str, Any]

    def run(self, operation: Any, shared: Any, tasks: Any) -> Iterator[Any]:
        for reply in self.lift.run(operation, shared, tasks):
            self.said[operation.__name__] = reply.message
            yield reply


class Cost(NamedTuple):
    """In numbers: what a client and the server keep between rounds, what a client sends and is sent in a round."""

    client: int
    model: int  # of that, the client's own model
    server: int
    up: float
    down: float
    alone: tuple[str, ...]  # what the server reads client by client


@cache
def cost(text: str, weighting: str = "samples", clients: int = CONFIG.clients) -> Cost:
    """From the rows and the ledger of a run over one interval of the longest period, all clients in every round."""
    settings = {"algorithm": text, "lift": "sequential", "drift": "none", "weighting": weighting, "clients": clients}
    config = replace(CONFIG, steps="2", **settings)
    experiment = assemble(config)
    federated, place = experiment.federated, experiment.training
    listening, rounds = Listening(Sequential(), {}), int(federated.setup.periods.longest)
    home = Clients(federated, place, experiment.work, config.seed, listening)
    server, total = federated.start(), Traffic()
    for t in range(rounds):
        server, answer = federated.round(server, home, Plan(list(place.participants), frozenset(), config.lr))
        home.commit(t)
        total = total.plus(answer.traffic)
        assert len(answer.answered) == len(place.participants)
    times, row = rounds * len(place.participants), home.row(place.participants[0])[0]
    kept = tree_leaves((server.params, server.optimizer, server.memory, server.broadcast))
    alone = tuple(
        f"{operation}{keystr(path)}"
        for operation, said in listening.said.items()
        for path, leaf in tree_flatten_with_path(said, is_leaf=lambda node: isinstance(node, MARKS))[0]
        if isinstance(leaf, PerClient)
    )
    model = row["model"].numel() if "model" in row else 0
    sizes = sum(leaf.numel() for leaf in row.values()), model, sum(leaf.numel() for leaf in kept)
    return Cost(*sizes, total.numbers_up / times, total.numbers_down / times, alone)


# --- what the papers say ----------------------------------------------------------------------------------------------
class Claim(NamedTuple):
    """A paper's number in sizes of the model, ours where it is another, and why it is."""

    where: str
    algorithm: str
    what: str  # one of MEASURES
    paper: float
    ours: float | None = None
    why: str = ""


MEASURES = {  # under the papers' uniform weights
    "communication": lambda c: (c.up + c.down) / 2,  # of which FedAvg's is 1
    "up": lambda c: c.up,
    "down": lambda c: c.down,
    "storage": lambda c: SIZE + c.client - c.model,  # a client's: its model, which FedAvg's has too, and what is beside
}


def measured(claim: Claim) -> float:
    """Our number, in sizes of the model."""
    return MEASURES[claim.what](cost(claim.algorithm, "uniform")) / SIZE


TABLE_9 = {  # communication, storage
    "fedavg": (1, 1),
    "fedadam": (1, 2),
    "fedsam": (1, 2),
    "scaffold": (2, 2),
    "feddyn": (1, 2),
    "fedcm": (2, 2),
    "fedinit": (1, 1),
}
LENGTH = (
    "clients send their difference alone, and one number, K lr, as FedCM's Algorithm 2 has it: of the two vectors, the "
    "server's direction goes down only"
)
NOT_STORED = {
    "fedadam": "the moments are the server's: 2 sizes there, once, and none on a client",
    "fedsam": "the point of the ascent lives for a step and is not kept",
    "fedcm": "the server's direction is sent in every round, which the communication counts, and is not kept",
}
RELAXED = "relaxed_init(beta=0.1)"
AS_THE_CODE = "feddyn(mean=model) + relaxed_init(beta=0.1, aggregate=delta)"
APART = (
    "the mean of the ends, which the paper's server takes, no longer tells FedDyn's mean of end - start: "
    f"both are sent; at the paper's cost it is `{AS_THE_CODE}`, the authors' code's form"
)
NORM = "a client also says the norm of its update: one number"
EMBEDDED, DESCRIPTOR = 2 * 11, int(1 + CONFIG.clients / 4)  # a linear embedding of ten labels, and what it gives
ZEROS = "variates are kept for personal parameters too, where they stay zero"

COG, SENT = "fedcog(samples=12, steps=3)", "communication"
BASELINES, ADDED = (
    "fedprox scaffold moon fedsam feddecorr fedavgm fedexp".split(),
    "fedavgm fedprox scaffold moon".split(),
)


def said(where: str, *rows: tuple[Any, ...]) -> list[Claim]:
    """What a paper says at one place."""
    return [Claim(where, *row) for row in rows]


CLAIMS = [
    *said(
        "FedInit, Table 9",
        *((n, SENT, sent, *[1.5 + 0.5 / SIZE, LENGTH] * (n == "fedcm")) for n, (sent, _) in TABLE_9.items()),
        *((n, "storage", kept, *((1, NOT_STORED[n]) if n in NOT_STORED else ())) for n, (_, kept) in TABLE_9.items()),
    ),
    *said(
        "FedInit, 5.2: relaxed without additional communication",
        *(
            (f"{n} + {RELAXED}", SENT, TABLE_9[n][0], *[1.5, APART] * (n == "feddyn"))
            for n in TABLE_9
            if n != "fedinit"
        ),
        (AS_THE_CODE, SENT, 1),
    ),
    *said(
        "FedALS, Table 2: head / tau + body / (alpha tau)",
        *((f"fedals(alpha={alpha})", SENT, (HEAD + BODY / alpha) / SIZE) for alpha in (1, 5, 10)),
    ),
    *said(
        "FedALS, Algorithm 4: control variables go with their layers",
        ("fedals(alpha=3) + scaffold", SENT, 2 * (HEAD + BODY / 3) / SIZE),
    ),
    *said("FedCOG, 4.3: nothing but the model, as FedAvg", (COG, SENT, 1)),
    *said("FedCOG, 4.1: the last local model", (COG, "storage", 1)),
    *said(
        "FedCOG, 6.1: of the baselines SCAFFOLD alone has double cost",
        *((n, SENT, 1 + (n == "scaffold"), *[1 + 0.5 / SIZE, NORM] * (n == "fedexp")) for n in BASELINES),
    ),
    *said("FedCOG, Table 3: added to others", *((f"{n} + {COG}", SENT, 1 + (n == "scaffold")) for n in ADDED)),
    *said(
        "FedAvg-P, 3.1, and Scaffold-P, 4.1: what is personal is not sent",
        *(
            (f"{n}_p", way, size * BODY / SIZE)
            for n, size in (("fedavg", 1), ("scaffold", 2))
            for way in ("up", "down")
        ),
        ("fedavg_p", "storage", 1),
        ("scaffold_p", "storage", 1 + BODY / SIZE, 2, ZEROS),
    ),
    *said(
        "PeFLL, 3: three small quantities each way",
        *(("pefll(embedding=linear)", way, (EMBEDDED + DESCRIPTOR + SIZE) / SIZE) for way in ("up", "down")),
    ),
    *said("PeFLL, 2: clients may drop in and out", ("pefll(embedding=linear)", "storage", 1)),
    *said("PeFLL, 2: pFedHN's descriptors lie on the server", *(("pfedhn", w, 1) for w in ("up", "down", "storage"))),
]
