"""Algorithms on low-rank adapters: their oracles on a network that has some, what they are equal to, what they send."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from oracles import fed_dpa, fedals, fedavg, fedavg_p, ffa_lora, rolora
from oracles.lora import Adapted, Dual, adapted, gradient, mask
from oracles.problem import Fixture, Round
from support.adapters import dual, network
from support.helpers import KEEPS_ALL, Given, Ran, federate, federation, gap, models, run
from torch import Tensor, nn

from apiece.algebra.composition import Algorithm, InTurn, Period, algorithm
from apiece.contract import check
from apiece.errors import UserError
from apiece.experiment import launch
from apiece.language import algorithms as named
from apiece.lifts.lift import Sequential, Vectorized

A, B, LOCAL = mask("lora_A"), mask("lora_B"), mask("local", Dual.of)
ORACLES: dict[str, tuple[Any, dict[str, Any], type[Adapted]]] = {
    "fedit": (fedavg, {}, Adapted),
    "ffa_lora": (ffa_lora, {"frozen": A}, Adapted),
    "fedsa_lora": (fedavg_p, {"personal": B}, Adapted),
    "rolora": (rolora, {"first": B, "second": A}, Adapted),
    "fed_dpa": (fed_dpa, {"local": LOCAL}, Dual),
}


def loaded(module: nn.Sequential, initial: np.ndarray) -> nn.Sequential:
    trained = [p for p in module.parameters() if p.requires_grad]
    nn.utils.vector_to_parameters(torch.from_numpy(initial), trained)
    return module


def followed(subject: Algorithm, f: Adapted, lift: Any = None, **settings: Any) -> Ran:
    module = loaded(dual() if isinstance(f, Dual) else network(), f.initial)
    for piece in subject.pieces:
        module = piece.prepare(module)
    federated = federate(subject, module, **{"watch": KEEPS_ALL, **settings})
    table = {(t, f"c{i}"): torch.from_numpy(rows) for (t, i), rows in f.batches.items()}
    return run(federated, federation(f.x, f.y), Given(table), f.cohorts, f.lr, lift or Sequential())


def off(ran: Ran, rounds: list[Round]) -> float:
    servers = (gap(s.params, torch.from_numpy(r.server)) for s, r in zip(ran.servers[1:], rounds, strict=True))
    return max(*servers, gap(models(ran), torch.from_numpy(rounds[-1].models)))


def test_the_gradient_is_the_derivative_of_the_loss():
    f: Fixture = adapted(Dual)
    module, x, y = dual(), torch.from_numpy(f.x[2]), torch.from_numpy(f.y[2])
    loaded(module, f.initial)
    torch.nn.functional.cross_entropy(module(x), y).backward()
    ours = torch.cat([p.grad.reshape(-1) for p in module.parameters() if p.grad is not None])
    assert gap(ours, gradient(f.initial, f.x[2], f.y[2], Dual.of)) < 1e-14


# weightings catch a mean without weights, a lift a mask that is not stacked
@pytest.mark.parametrize("weights, lift", [("uniform", Sequential()), ("samples", Vectorized(2))], ids=repr)
@pytest.mark.parametrize("name", ORACLES)
def test_equals_its_oracle(name, weights, lift):
    oracle, hyper, kind = ORACLES[name]
    f = adapted(kind)
    ran = followed(getattr(named, name)(), f, lift, weighting=weights)
    assert off(ran, oracle.run(f, **hyper, weights=weights)) < 1e-10


def same(one: Ran, two: Ran) -> bool:
    return torch.equal(one.last, two.last) and torch.equal(models(one), models(two))


def test_what_they_are_equal_to_bitwise():
    f = adapted()
    assert same(followed(named.fedit(), f), followed(named.fedavg(), f))
    assert same(followed(named.fedsa_lora(), f), followed(named.fedavg_p("*lora_B*"), f))


def frozen(module: nn.Module, part: str) -> nn.Module:
    for name, p in module.named_parameters():
        p.requires_grad_(p.requires_grad and part not in name)
    return module


def test_ffa_is_a_freeze_bitwise_and_leaves_the_given_module_as_it_was():
    f, given = adapted(), network()
    prepared = named.ffa_lora().pieces[0].prepare(given)
    assert all(p.requires_grad for n, p in given.named_parameters() if "lora" in n)
    assert [n for n, p in prepared.named_parameters() if p.requires_grad] == [
        f"{k}.lora_B.default.weight" for k in (0, 2, 4)
    ]
    assert prepared[0].base_layer.weight.data_ptr() == given[0].base_layer.weight.data_ptr()  # the base is not copied
    federated = federate(named.fedavg(), frozen(loaded(network(), f.initial), "lora_A"), watch=KEEPS_ALL)
    table = {(t, f"c{i}"): torch.from_numpy(rows) for (t, i), rows in f.batches.items()}
    by_hand = run(federated, federation(f.x, f.y), Given(table), f.cohorts, f.lr)
    assert same(followed(named.ffa_lora(), f), by_hand)


def crossed(name: str, f: Adapted) -> list[tuple[int, int]]:
    """(parameters up, down) of a client in each round, everyone asked."""
    every = f._replace(cohorts=tuple(np.arange(f.clients) for _ in f.cohorts))
    answers = followed(getattr(named, name)(), every).answers
    return [(a.traffic.parameters_up // f.clients, a.traffic.parameters_down // f.clients) for a in answers]


def test_what_crosses():
    f, both = adapted(), adapted(Dual)
    a, b, x = int(A.sum()), int(B.sum()), int((~LOCAL).sum())
    assert crossed("fedit", f) == [(a + b, a + b)] * 6
    assert crossed("ffa_lora", f) == [(b, b)] * 6
    assert crossed("fedsa_lora", f) == [(a, a)] * 6
    assert crossed("rolora", f) == [(b, a + b), (a, b), (b, a), (a, b), (b, a), (a, b)]
    assert crossed("fed_dpa", both) == [(x, x)] * 6


def test_a_model_without_adapters_is_told_what_it_trains():
    plain = nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 3))
    for name in ("fedit", "fedsa_lora", "rolora"):
        with pytest.raises(UserError, match=r"no adapter.*0.weight, 0.bias, 2.weight, 2.bias; give a model with LoRA"):
            _ = federate(getattr(named, name)(), plain).setup.periods
    with pytest.raises(UserError, match="no adapter"):
        named.ffa_lora().pieces[0].prepare(plain)
    with pytest.raises(UserError, match="all that the model trains, 0.lora_A.*: freeze some of it alone"):
        named.ffa_lora("lora").pieces[0].prepare(network())
    with pytest.raises(UserError, match=r"'\*.local.\*' matches no parameter; there are 0.lora_A"):
        _ = federate(named.fed_dpa(), network()).setup.periods


COMPOSED = {
    "fedals": named.fedals(3, head="lora_B"),
    "fedals + relaxed_init": named.fedals(2, head="lora_B") + named.relaxed_init(0.1),
    "scaffold_p": named.scaffold_p("lora_B"),
    "rolora + scaffold": named.rolora() + named.scaffold(),
    "streaming_diloco": named.streaming_diloco(blocks=3),
    "ffa_lora + relaxed_init": named.ffa_lora() + named.relaxed_init(0.1, "delta"),
}


# a sum catches what a frozen base, or a factor that rests, does to a slot
@pytest.mark.slow
@pytest.mark.parametrize("name", COMPOSED)
def test_compositions_keep_the_laws(name):
    assert check(COMPOSED[name], network).vectorized < 1e-10


def test_fedals_on_adapters_is_its_oracle():
    f = adapted()
    ran = followed(named.fedals(3, head="lora_B"), f, weighting="uniform")
    assert off(ran, fedals.run(f, alpha=3, body=A)) < 1e-10


def test_what_rests_keeps_its_optimizers_state_and_counts_no_steps():
    """The momentum of A in rounds of B is bitwise as it was, and SCAFFOLD's variate of A is over its own steps."""
    f = adapted()
    ran = followed(named.rolora() + named.scaffold(), f._replace(cohorts=f.cohorts[:2]), weighting="uniform")
    for i in f.cohorts[0]:
        row: dict[str, Tensor] = ran.clients.row(int(i))[0]
        assert bool((row["memory.Scaffold.variate"][torch.from_numpy(B)] != 0).any())
    split = algorithm(Period("lora", 2), InTurn("lora_A"), name="half of a group rests")
    first, group = federate(split, network()).setup.step_groups
    assert len(first) == 2 and len(set(group.tolist())) == 2


def test_pefll_writes_adapters():
    """The hypernetwork has a head for each array that is trained; every client has the base and adapters of its own."""
    rng = np.random.Generator(np.random.Philox(0))
    x = rng.normal(size=(120, 6)).astype(np.float32)
    y = (x[:, 0] > 0).astype(int) + (x[:, 1] > 0)
    module, split = network().float(), {"clients": 4, "rounds": 2, "steps": 2, "batch": 8, "unseen": 1}
    ran = launch.federate(module, (x, y), "pefll(size=S)", **split)
    setup = ran.experiment.federated.setup
    heads = setup.broadcast.state(ran.server.params, ran.server.broadcast)
    sizes = [len(t) for name, t in heads.items() if "heads" in name and name.endswith("bias")]
    assert sizes == [e.size for e in setup.task.space.parameters] and sum(sizes) == len(A)
    one, unseen = ran.model(client=0), ran.model(client=ran.experiment.federation.unseen[0])
    differ = {name for name in one if not torch.equal(one[name], unseen[name])}
    assert differ == {e.name for e in setup.task.space.parameters}
    module.load_state_dict(unseen)
