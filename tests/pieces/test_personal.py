"""What clients predict with: personal parameters, models of their own, fine-tuning, and unseen clients."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import torch
from oracles import fedavg_p
from oracles.problem import BODY, HEAD, SIZE, full_batches, probe
from support.against import follow, furthest
from support.helpers import KEEPS_ALL, by_torch, clusters, federate, mlp, models, run
from support.modules import Normed, images
from support.readings import FIXTURES
from torch import nn

from apiece.algebra.composition import Alternate, Period, algorithm
from apiece.algebra.optim import AdamW, Sgd
from apiece.algebra.periods import NEVER
from apiece.algebra.piece import Piece
from apiece.algebra.view import View
from apiece.config.assemble import assemble, chosen_algorithm
from apiece.config.settings import Config
from apiece.contract import check
from apiece.engine.clients import Clients
from apiece.engine.predicting import predicting, predictor
from apiece.engine.row import personal_model
from apiece.engine.stepping import Loop
from apiece.engine.work import Work
from apiece.errors import UserError
from apiece.experiment.run import execute
from apiece.language import algorithms as named
from apiece.lifts.lift import Sequential, Vectorized
from apiece.pieces.fine_tune import passes
from apiece.pieces.per_fedavg import part
from apiece.vector.space import Space

EVERYTHING = np.ones(SIZE, dtype=bool)
VALUES = ["ditto(lr=0.02, steps=3)", "fedsim(inner_personal=0.5)", "fedalt(inner_personal=2)",
    "fedrep(inner_personal=0.5)", "pfedme(restart=batch)", "per_fedavg(batches=whole)",
    "per_fedavg(variant=hessian_free, batches=whole)"]  # fmt: skip
PERSONAL = ["local", "fedper", "lg_fedavg", "fedsim", "fedalt", "fedrep", "ditto", "apfl", "pfedme", "per_fedavg",
    "per_fedavg(variant=hessian_free)", "knn_per", "fedbn(norm=fc1.bias)", "fedavg + fine_tune(steps=3)",
    "fedrep + fine_tune", "ditto + fine_tune", "scaffold + knn_per + fine_tune", "fedals(alpha=2) + apfl",
    *VALUES]  # fmt: skip


def predictions(subject: Any, rounds: int = 3, **settings: Any) -> Any:
    """(federated, server, clients) after rounds in which client 4 never takes part."""
    federated = federate(subject, mlp(), **settings)
    ran = run(federated, clusters(), Work(2, None, 4), [(0, 1, 2, 3)] * rounds)
    return federated, ran.servers[-1], ran.clients


def model_of(subject: Any, client: int, **settings: Any) -> torch.Tensor:
    federated, server, clients = predictions(subject, **settings)
    each = clients.each(client, server.round)
    return predicting(federated.setup, Loop(), server.params, server.buffers, federated.shared(server, 0.1), each)[0]


# --- periods alone ----------------------------------------------------------------------------------------------------
# names catch another part that stays, problems steps counted as everyone's, weights a mean without them
@pytest.mark.parametrize("problem, weights", [("even", "uniform"), ("ragged", "samples")])
@pytest.mark.parametrize(
    "name, personal", [("fedper", HEAD), ("fedsim", HEAD), ("lg_fedavg", BODY), ("local", EVERYTHING)]
)
def test_periods_alone_are_fedavg_p_with_outer_steps_of_one(name, personal, problem, weights):
    """FedPer and FedSim keep the head, LG-FedAvg the body, local all; a new client trains the initial personal part."""
    f = FIXTURES[problem]
    ours = follow(getattr(named, name)(epochs=2, batch=64), f, weights=weights)[1]
    theirs = fedavg_p.run(f, personal=personal, weights=weights)
    assert furthest(ours, theirs) < 1e-10
    met: set[int] = set()
    for t, (r, o) in enumerate(zip(theirs, ours, strict=True)):
        met |= set(f.cohorts[t].tolist())
        for i in range(f.clients):
            new = full_batches(f, i, np.where(personal, f.initial, r.server), 2, f.lr[t], personal)
            mine = np.where(personal, r.models[i], r.server) if i in met else new
            assert np.abs(o.scores[i].numpy() - probe(mine)).max() < 1e-10


def test_fedsim_is_fedavg_p_with_outer_steps_of_one():
    one, two = (predictions(a, client=Sgd(0.9, 0.01))[1].params for a in (named.fedsim(), named.fedavg_p()))
    assert torch.equal(one, two)


@pytest.mark.parametrize("lift", [Sequential(), Vectorized(3)], ids=lambda lift: type(lift).__name__)
def test_fedbn_keeps_norm_layers_and_their_statistics(lift):
    """By hand with torch alone: everything but BatchNorm is averaged, each client goes on with its own BatchNorm."""
    data, work, cohorts = images(), Work(2, None, 4), [(0, 1, 2), (2, 3), (0, 1, 4)]
    federated = federate(named.fedbn(), Normed(), weighting="samples")
    ran = run(federated, data, work, cohorts, lift=lift)
    shared = {k: v.clone() for k, v in Normed().double().state_dict().items()}
    own: dict[int, dict] = {}
    for t, cohort in enumerate(cohorts):
        ends, sizes = [], []
        for i in cohort:
            net = Normed().double()
            net.load_state_dict({**shared, **own.get(i, {})})
            optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
            by_torch(net, optimizer, map(data.samples(i).batch, work.batches(0, t, data.names[i], data.size(i), 2)))
            ends.append({k: v.clone() for k, v in net.state_dict().items()})
            sizes.append(float(data.size(i)))
            own[i] = {k: v for k, v in ends[-1].items() if k.startswith("norm.")}
        for k in [k for k in shared if not k.startswith("norm.")]:
            shared[k] = sum(s * e[k] for s, e in zip(sizes, ends, strict=True)) / sum(sizes)
    server = ran.servers[-1]
    for i in range(5):
        each = ran.clients.each(i, server.round)
        mine = personal_model(federated.setup, server.params, server.buffers, each.row, each.last_round)
        state = federated.setup.task.space.state_dict(*mine)
        for k, v in {**shared, **own[i]}.items():
            assert k.endswith("num_batches_tracked") or torch.allclose(state[k], v, rtol=0, atol=1e-12)


def test_norm_layers_are_found_by_their_kind():
    space = Space(Normed())
    chosen = {e.name for e in space.parameters if space.select("norm")[e.offset]}
    assert chosen == {"norm.weight", "norm.bias"} and bool(space.select_buffers("norm").all())
    assert torch.equal(space.select("!norm"), ~space.select("norm"))
    with pytest.raises(UserError, match="norm"):
        Space(mlp()).select("norm")


# --- the order of training --------------------------------------------------------------------------------------------
def test_an_order_is_a_part_of_an_algorithm():
    both = algorithm(Alternate("head", 2), name="one") + named.fedavg()
    assert both.alternate == Alternate("head", 2) and federate(both, mlp()).setup.recipe.optimizer.count == 2
    with pytest.raises(UserError, match="keep one"):
        _ = named.fedrep() + named.fedalt()
    for wrong in (-1, 1.5):
        with pytest.raises(UserError, match="number of local steps"):
            Alternate("head", wrong)
    with pytest.raises(UserError, match="matches no parameter"):
        _ = federate(algorithm(Alternate("nothing*", 1), name="none"), mlp()).setup.recipe


def test_a_share_of_steps_is_of_each_clients_own():
    """Three steps of four, and one of two: ragged clients, vectorized too."""
    moves = federate(named.fedrep(first=0.75), mlp()).setup.recipe.optimizer.moves
    head = federate(named.fedavg(), mlp()).setup.task.space.select("head")
    for steps, first in ((4, 3), (2, 2), (1, 1), (8, 6)):
        for k in range(steps):
            assert torch.equal(moves(k, steps), head if k < first else ~head)
            assert torch.equal(moves(k, torch.tensor(steps)), moves(k, steps))


def test_a_newcomer_leaves_the_shared_part_bitwise_as_it_is():
    federated, server, clients = predictions(named.fedrep(), client=AdamW(weight_decay=0.1))
    each, shared = clients.each(4, server.round), federated.shared(server, 0.1)
    theta, _ = predicting(federated.setup, Loop(), server.params, server.buffers, shared, each)
    body = federated.setup.task.space.select("body")
    assert torch.equal(theta[body], server.params[body]) and (theta[~body] != federated.setup.initial[~body]).any()


# --- fine-tuning on top of anything ----------------------------------------------------------------------------------
# names catch another model that is gone on from, clients one that never took part
@pytest.mark.parametrize("name", ["fedavg", "ditto", "apfl", "pfedme", "fedrep", "fedbn"])
@pytest.mark.parametrize("client", [0, 4], ids=["seen", "new"])
def test_fine_tuning_goes_on_from_what_the_client_predicts_with(name, client):
    """Two full-batch steps by hand; the order in which FedRep trains is not taken again."""
    base = getattr(named, name)(*(["0.bias"] if name == "fedbn" else []))
    theta = model_of(base, client)
    federated, server, clients = predictions(base)
    x, y = clients.each(client, server.round).samples.all()
    for _ in range(2):
        theta = theta - 0.1 * torch.func.grad(
            lambda v: torch.nn.functional.cross_entropy(federated.setup.task.space.outputs(v, x, server.buffers), y)
        )(theta)
    assert (model_of(base + named.fine_tune(2, batch=100), client) - theta).abs().max() < 1e-12


def test_passes_go_over_every_sample():
    federated, server, clients = predictions(named.fine_tune())
    for client in range(5):
        each = clients.each(client, server.round)
        view = type("View", (), {"draws": each.draws[0]})()
        n, size = int(each.samples.size), min(4, int(each.samples.size))
        rows = passes(view, 3, 4)
        assert sorted(torch.cat(rows).tolist()) == sorted(3 * list(range(n))) and {len(r) for r in rows[:-1]} <= {size}
        assert [len(r) for r in passes(view, 0, 4, 5)] == [size] * 5 and passes(view, 0, 4) == []
        other = clients.each(client, server.round + 1).draws[0]["order"]
        assert n < 2 or not torch.equal(other, each.draws[0]["order"])


@dataclass(frozen=True)
class InTheseBatches(Piece):
    """Trains once more, in batches that end at these rows."""

    ends: tuple[int, ...] = ()

    def personal(self, view: View, theta: torch.Tensor):
        return view.descend(theta, batches=list(torch.arange(self.ends[-1]).tensor_split(self.ends[:-1])))


@pytest.mark.parametrize("norm, alike", [(True, True), (False, False)], ids=["BatchNorm", "no BatchNorm"])
def test_a_last_batch_of_one_joins_the_one_before_where_the_model_cannot_be_trained_on_it(norm, alike):
    """Otherwise a run would end at its measurement, by the chance of how many samples remain."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(6, 5), nn.BatchNorm1d(5) if norm else nn.Tanh(), nn.Linear(5, 3)).double()

    def ends_at(*ends: int) -> torch.Tensor:
        federated = federate(algorithm(InTheseBatches(ends), name="these"), net)
        ran = run(federated, clusters((9,)), Work(2, None, 4), [(0,)])
        server, each = ran.servers[-1], ran.clients.each(0, 1)
        return predicting(
            federated.setup, Loop(), server.params, server.buffers, federated.shared(server, 0.1), each
        )[0]

    assert torch.equal(ends_at(4, 8, 9), ends_at(4, 9)) == alike
    assert not torch.equal(ends_at(4, 9), ends_at(4, 8))


@pytest.mark.parametrize(
    "neutral, of",
    [
        (named.fine_tune(epochs=0), named.fedavg()),
        (named.fine_tune(steps=0), named.fedavg()),
        (named.fedper(epochs=0), algorithm(Period("head", NEVER), name="head")),
        (named.apfl(0.0, "fixed"), named.fedavg()),
    ],
    ids=str,
)
def test_a_neutral_value_predicts_the_same(neutral, of):
    for client in range(5):
        assert torch.equal(model_of(neutral, client), model_of(of, client))


def test_neighbors_without_weight_decide_as_the_model():
    federated, server, clients = predictions(named.knn_per(weight=0.0))
    for client in range(5):
        each = clients.each(client, server.round)
        x = each.samples.all()[0]
        predict = predictor(federated.setup, Loop(), server.params, server.buffers, federated.shared(server, 0.1), each)
        expected = federated.setup.task.space.outputs(server.params, x, server.buffers).log_softmax(-1)
        assert (predict(x) - expected).abs().max() < 1e-14
        assert (predict(x).logsumexp(-1)).abs().max() < 1e-12


def test_parts_of_a_batch():
    x = torch.arange(7)
    for of in (2, 3):
        assert torch.equal(torch.cat([part(x, p, of) for p in range(of)]), x)
    assert [part(x[:1], p, 3).tolist() for p in range(3)] == [[0], [0], [0]]
    assert all(len(part(x[:2], p, 3)) == 1 for p in range(3))


def test_a_second_model_changes_nothing_of_the_first():
    plain = models(run(federate(named.fedavg(), mlp(), watch=KEEPS_ALL), clusters(), Work(2, None, 4), [(0, 1, 2)] * 3))
    for second in (named.ditto(), named.apfl(), named.knn_per(), named.fine_tune()):
        ran = run(federate(second, mlp(), watch=KEEPS_ALL), clusters(), Work(2, None, 4), [(0, 1, 2)] * 3)
        assert torch.equal(models(ran), plain)


def test_a_clients_own_model_is_withheld_by_no_synchronization():
    """Beside a head that is never sent and a body that waits, the second model moves whole in every round."""
    slow = named.fedals(3) + named.fedper()
    for kind in (named.ditto(), named.apfl(), named.pfedme(lam=1.0)):
        federated = federate(kind + slow, mlp())
        ran = run(federated, clusters(), Work(2, None, 4), [(0, 1)])
        moved = ran.clients.row(0)[0][f"memory.{type(kind.pieces[0]).__name__}.model"][0] != federated.setup.initial
        assert moved.float().mean() > 0.9


# a value catches a branch of its piece that the default does not take
@pytest.mark.slow
@pytest.mark.parametrize("text", VALUES)
def test_a_value_beside_the_default_keeps_the_contract(text):
    check(chosen_algorithm(text))


def test_the_default_draws_nothing_and_a_factor_of_one_is_no_part():
    assert named.ditto().pieces[0].draws(None) == () != named.ditto(steps=3).pieces[0].draws(None)
    for make in (named.fedsim, named.fedalt, named.fedrep):
        assert make(inner_personal=1.0).parts == make().parts != make(inner_personal=0.5).parts


@pytest.mark.parametrize("text", VALUES)
def test_a_value_beside_the_default_is_in_the_name(text):
    plain = chosen_algorithm(text.partition("(")[0])
    assert chosen_algorithm(text).name != plain.name


# --- from the command line ----------------------------------------------------------------------------------------
# a name catches a way to predict that a run does not measure or serve
@pytest.mark.parametrize("name", PERSONAL)
def test_runs_and_serves_clients_never_seen(name):
    config = Config(
        algorithm=name, clients=5, rounds=2, cohort=3, steps="2", batch=8, model="mlp(hidden=[8])", unseen=1, lr=0.05
    )
    result = execute(assemble(replace(config, eval_every=1)))
    last = result.metrics[-1]
    wanted = {"personal_accuracy_mean", "unseen_accuracy", "adapted_accuracy", "unseen_adapted_accuracy"}
    assert wanted <= set(last) and all(np.isfinite(last[k]) for k in wanted)
    assert all(torch.isfinite(v).all() for c in range(5) for v in result.model(c).values())
    assert isinstance(result.clients, Clients)
