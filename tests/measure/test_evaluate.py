"""What is measured of the models, by its definition."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import cycle
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from support.outer import config
from torch import Tensor, nn

from apiece.config.assemble import assemble
from apiece.engine import predicting
from apiece.engine.clients import Clients
from apiece.engine.stepping import Loop
from apiece.experiment import lifecycle
from apiece.experiment.result import Result
from apiece.experiment.run import execute
from apiece.lifts.lift import Parallel, Vectorized
from apiece.lifts.side_by_side import SideBySide
from apiece.measure import evaluate
from apiece.measure.evaluate import At, Evaluation, Panel, _groups, summary
from apiece.measure.global_average import HELD, global_model
from apiece.measure.scoring import score, score_each
from apiece.pieces.newcomer import Newcomer
from apiece.vector.metric import Metric
from apiece.vector.task import ACCURACY, accuracy

ALPHA = 4
SETTINGS: dict[str, Any] = {"model": "mlp(hidden=[8])", "split": "dirichlet(0.3)", "steps": "5", "unseen": 1,
    "batch": 16}  # fmt: skip


def made(**settings: Any) -> Result:
    return execute(assemble(config(**(SETTINGS | settings))))


def outputs(result: Result, theta: Tensor, x: Tensor) -> Tensor:
    federated = result.experiment.federated
    return federated.setup.task.space.outputs(theta, x, result.server.buffers)


def own_accuracy(result: Result, theta: Tensor, client: int) -> float:
    place = result.experiment.federation
    x, y = (leaf[place.test_rows(client)] for leaf in place.test_pool)
    return float(accuracy(outputs(result, theta, x), y).double().mean())


@pytest.fixture(scope="module")
def averaged() -> Result:
    return made()


def test_global(averaged):
    x, y = averaged.experiment.federation.test_pool
    scores = outputs(averaged, averaged.server.params, x)
    last = averaged.metrics[-1]
    assert last["global_accuracy"] == float((scores.argmax(1) == y).double().mean())
    assert last["global_loss"] == pytest.approx(float(F.cross_entropy(scores, y)), rel=1e-6)


def test_personal_is_the_mean_over_clients_on_their_own_test_sets(averaged):
    each = {c: own_accuracy(averaged, averaged.server.params, c) for c in range(6)}
    assert averaged.accuracy == pytest.approx({f"client-{c}": value for c, value in each.items()})
    seen, last = np.array([each[c] for c in range(5)]), averaged.metrics[-1]
    assert last["personal_accuracy_mean"] == pytest.approx(seen.mean())
    assert last["personal_accuracy_std"] == pytest.approx(seen.std())
    assert last["personal_accuracy_worst_decile"] == pytest.approx(seen.min())
    assert last["unseen_accuracy"] == pytest.approx(each[5])


def test_a_clients_test_set_is_apart_from_all_training_data_and_has_its_classes(averaged):
    split, dataset = averaged.experiment.split, averaged.experiment.dataset
    assert split is not None and dataset is not None
    tests = np.concatenate(split.test)
    assert len(np.unique(tests)) == len(tests) <= len(dataset.y_test)
    counts, own = (
        split.counts(dataset.y_train, 10),
        np.stack([np.bincount(dataset.y_test[t], minlength=10) for t in split.test]),
    )
    share = counts / counts.sum(0) * own.sum(0)
    assert np.abs(share - own).max() <= 1


def test_worst_decile():
    values = np.linspace(0, 1, 40)
    found = summary(ACCURACY, [{"accuracy": value} for value in np.random.default_rng(0).permutation(values)])
    assert found["personal_accuracy_worst_decile"] == pytest.approx(values[:4].mean())
    assert summary(ACCURACY, []) == {}
    assert summary(ACCURACY, [{"accuracy": 0.5}])["personal_accuracy_worst_decile"] == 0.5


def test_clients_that_are_measured_together_score_what_each_does():
    """Bitwise: of samples that are trees as well, of any number each, in groups of few samples and clients."""
    rng = torch.Generator().manual_seed(0)
    x, extra, y = torch.randn(40, 3, generator=rng), torch.randn(40, 3, generator=rng), torch.arange(40) % 3
    weights = torch.randn(5, 3, 3, generator=rng)
    rows = dict(enumerate(torch.arange(40).split([9, 1, 12, 17, 1])))
    each = Metric("each", lambda scores, y: F.cross_entropy(scores, y, reduction="none"))
    task: Any = SimpleNamespace(metrics=(each,), loss=F.cross_entropy)
    trees: list[tuple[Any, Callable]] = [(x, lambda x, w: x @ w), ((x, extra), lambda pair, w: (pair[0] + pair[1]) @ w)]
    for tree, of in trees:
        predict = [partial(of, w=w) for w in weights]
        for group in _groups(rows, samples=20, clients=2):
            own = [rows[client] for client in group]
            together = score_each(task, [predict[client] for client in group], (tree, y), own)
            alone = [score(task, predict[client], (tree, y), rows[client]) for client in group]
            assert [one.of((each,)) for one in together] == [one.of((each,)) for one in alone]
    assert list(_groups(rows, 20, 2)) == [[0, 1], [2], [3, 4]] and list(_groups(rows, 100, 3)) == [[0, 1, 2], [3, 4]]
    assert list(_groups(rows, 5, 9)) == [[0], [1], [2], [3], [4]]


def test_scores_do_not_depend_on_the_pieces(averaged):
    task, pool = averaged.experiment.federated.setup.task, averaged.experiment.federation.test_pool
    rows = torch.arange(0, 360, 2)
    predict = lambda x: outputs(averaged, averaged.server.params, x)
    whole = score(task, predict, pool, rows)
    parts = [score(task, predict, pool, part) for part in rows.split(50)]
    assert torch.equal(whole.values[0], torch.cat([part.values[0] for part in parts]))
    assert whole.loss == pytest.approx(sum(p.loss * len(p.targets) for p in parts) / len(rows), rel=1e-6)


def trained(result: Result, since: int) -> list[int]:
    """The clients that trained in round `since` or later."""
    return [c for c in result.clients.touched() if result.clients.last_round(c) >= since]


HOW = cycle([("held", "samples"), ("redrawn", "uniform"), ("held", "uniform"), ("redrawn", "samples")])


# rounds catch an interval counted one off, cohorts one who trained in another, weightings a mean without them
@pytest.mark.parametrize("rounds, cohort, weighting", [(t, *how) for t, how in zip((1, 2, 3, 4, 5, 7, 8, 10), HOW)])
def test_the_virtual_average_of_fedals(rounds, cohort, weighting):
    """The body: the mean over the clients that trained since its last synchronization, with its weights n_k / n or
    1 / S; the head: the server.
    """
    algorithm = f"fedals(alpha={ALPHA}, cohort={cohort})"
    result = made(algorithm=algorithm, cohort=0.4, rounds=rounds, weighting=weighting)
    federated, server = result.experiment.federated, result.server
    who, body = trained(result, rounds // ALPHA * ALPHA), federated.setup.task.space.select("body")
    theta, _, virtual = global_model(federated, server, result.clients)
    expected = server.params
    if rounds % ALPHA:
        sizes = [float(result.experiment.federation.size(c)) if weighting == "samples" else 1.0 for c in who]
        own = [size * result.clients.row(c)[0]["model"].double() for c, size in zip(who, sizes, strict=True)]
        expected = torch.where(body, (torch.stack(own).sum(0) / sum(sizes)).to(theta.dtype), server.params)
    assert bool(who) == bool(rounds % ALPHA) == virtual
    assert torch.equal(theta[~body], server.params[~body])
    torch.testing.assert_close(theta, expected, rtol=0, atol=1e-7)
    x, y = result.experiment.federation.test_pool
    assert result.metrics[-1]["global_accuracy"] == float(accuracy(outputs(result, theta, x), y).double().mean())


@pytest.mark.parametrize("weighting", ["samples", "uniform"])
def test_the_virtual_average_is_what_a_synchronization_would_make(weighting):
    """After one round of everybody nothing tells a period of 2 from one of 1 but that the body was not synchronized."""
    open, closed = (made(algorithm=f"fedals(alpha={a})", rounds=1, weighting=weighting) for a in (2, 1))
    theta = global_model(open.experiment.federated, open.server, open.clients)[0]
    assert not torch.equal(open.server.params, closed.server.params)
    torch.testing.assert_close(theta, closed.server.params, rtol=0, atol=1e-7)


def test_the_mean_over_rows_is_the_same_in_threads(monkeypatch):
    """Blocks of two rows: the same sums in any number of threads."""
    result = made(algorithm=f"fedals(alpha={ALPHA}) + scaffold_p", rounds=ALPHA + 1)
    monkeypatch.setattr("apiece.measure.global_average.SUMMED", 2)
    assert len(result.clients.touched()) > 4
    alone, *threaded = (
        global_model(result.experiment.federated, result.server, result.clients, threads)[0]
        for threads in (None, Parallel(1), Parallel(2))
    )
    assert not torch.equal(alone, result.server.params) and all(torch.equal(alone, theta) for theta in threaded)


@pytest.mark.parametrize("algorithm", ["fedavg_p", "scaffold_p + relaxed_init(beta=0.1)", "local"])
def test_personal_parameters(algorithm):
    """Each predicts with its own; the global model, and a stranger, with the uniform mean of those ever touched."""
    result = made(algorithm=algorithm, cohort=0.4, rounds=2)
    federated, server, clients = result.experiment.federated, result.server, result.clients
    personal = federated.setup.periods.never
    theta, _, virtual = global_model(federated, server, clients)
    own = torch.stack([clients.row(c)[0]["model"] for c in clients.touched()])
    assert virtual and 0 < len(own) < 5
    torch.testing.assert_close(
        theta, torch.where(personal, own.double().mean(0).float(), server.params), rtol=0, atol=1e-7
    )
    for client in range(6):
        row, seen = clients.row(client)
        if seen < 0 and algorithm == "local":
            continue  # where nothing is shared a newcomer trains its own: tests/pieces/test_personal.py
        mine = torch.where(personal, row["model"], server.params) if seen >= 0 else theta
        name = result.experiment.federation.names[client]
        assert result.accuracy[name] == pytest.approx(own_accuracy(result, mine, client)), name
        state = federated.setup.task.space.from_state_dict(result.model(client))[0]
        torch.testing.assert_close(state, mine, rtol=0, atol=0)


def test_adapted_is_after_one_rounds_local_work_from_what_a_client_predicts_with():
    result = made(algorithm="fedavg_p", rounds=3)
    federated, clients = result.experiment.federated, result.clients
    after = {}
    for client in range(6):
        theta = federated.setup.task.space.from_state_dict(result.model(client))[0].clone().requires_grad_()
        each = clients.each(client, result.server.round)
        for rows in each.batches:
            x, y = each.samples.batch(rows)
            (gradient,) = torch.autograd.grad(F.cross_entropy(outputs(result, theta, x), y), theta)
            theta = (theta - 0.1 * gradient).detach().requires_grad_()
        after[client] = own_accuracy(result, theta, client)
    last = result.metrics[-1]
    assert last["adapted_accuracy"] == pytest.approx(np.mean([after[c] for c in range(5)]), abs=1e-6)
    assert last["unseen_adapted_accuracy"] == pytest.approx(after[5], abs=1e-6)
    assert last["unseen_accuracy"] == pytest.approx(result.accuracy[result.experiment.federation.names[5]])


def after_work(result: Result, client: int) -> tuple[Tensor, Any]:
    """(parameters after a round's local work on the loss alone, by hand; the predictor that is measured then)."""
    federated, each = result.experiment.federated, result.clients.each(client, result.server.round)
    theta = result.server.params.clone().requires_grad_()
    for rows in each.batches:
        x, y = each.samples.batch(rows)
        (gradient,) = torch.autograd.grad(F.cross_entropy(outputs(result, theta, x), y), theta)
        theta = (theta - 0.1 * gradient).detach().requires_grad_()
    server = result.server
    predict = predicting.adapted(
        federated.setup, Loop(), server.params, server.buffers, federated.shared(server, 0.1), each
    )
    return theta.detach(), predict


def adapted(result: Result, predict: Any) -> float:
    """The mean accuracy of these predictors, client -> (x -> scores), over the clients that train."""
    place, values = result.experiment.federation, []
    for client in place.participants:
        x, y = (leaf[place.test_rows(client)] for leaf in place.test_pool)
        values.append(float((predict(client)(x).argmax(1) == y).double().mean()))
    return float(np.mean(values))


def test_after_local_work_a_masked_client_still_predicts_only_its_classes():
    result = made(algorithm="fedavg + class_mask", split="classes(2)", steps="1")
    x, masked = result.experiment.federation.test_pool[0], {}
    for client in range(5):
        theta, predict = after_work(result, client)
        known = result.clients.each(client, result.server.round).samples.all()[1].unique()
        masked[client] = torch.full((10,), -torch.inf).index_fill(0, known, 0.0)
        assert len(known) == 2 and torch.isinf(predict(x)).sum() == 8 * len(x)
        torch.testing.assert_close(predict(x), outputs(result, theta, x) + masked[client], rtol=0, atol=1e-5)
    told = adapted(result, lambda c: lambda x: outputs(result, after_work(result, c)[0], x) + masked[c])
    assert result.metrics[-1]["adapted_accuracy"] == pytest.approx(told, abs=1e-6)
    assert told != adapted(result, lambda c: lambda x: outputs(result, after_work(result, c)[0], x))


def test_after_local_work_neighbors_are_those_of_the_new_features():
    result = made(algorithm="knn_per(count=1, weight=1.0)")
    space = result.experiment.federated.setup.task.space

    def nearest(client: int) -> Any:
        theta = after_work(result, client)[0]
        keys, y = result.clients.each(client, result.server.round).samples.all()
        far = lambda x: torch.cdist(*(space.features(theta, part, result.server.buffers) for part in (x, keys)))
        return lambda x: F.one_hot(y[far(x).argmin(1)], 10)

    told = adapted(result, nearest)
    assert result.metrics[-1]["adapted_accuracy"] == pytest.approx(told, abs=1e-6)
    assert told != adapted(result, lambda c: lambda x: outputs(result, after_work(result, c)[0], x))


def test_one_run_says_what_the_class_mask_does():
    """Trained alike, so that what is measured without the mask is what the algorithm alone has."""
    settings = {"split": "classes(2)", "unseen": 1}
    masked, plain = (made(algorithm=name, **settings).metrics for name in ("fedavg + class_mask", "fedavg"))
    for one, other in zip(masked, plain, strict=True):
        assert one["personal_accuracy_unmasked"] == pytest.approx(other["personal_accuracy_mean"], abs=1e-12)
        assert one["unseen_accuracy_unmasked"] == pytest.approx(other["unseen_accuracy"], abs=1e-12)
    assert masked[-1]["personal_accuracy_mean"] > masked[-1]["personal_accuracy_unmasked"]
    assert not {key for key in plain[-1] if "unmasked" in key}


def test_a_metric_of_ones_own():
    def margin(scores: Tensor, y: Tensor) -> Tensor:
        return scores[torch.arange(len(y)), y]

    result = execute(assemble(config(**SETTINGS), metric=margin))
    x, y = result.experiment.federation.test_pool
    expected = margin(outputs(result, result.server.params, x), y)
    assert result.metrics[-1]["global_margin"] == pytest.approx(float(expected.double().mean()))


def test_the_panel_is_spread_and_fixed():
    experiment = assemble(config(clients=20))
    result = execute(experiment)
    evaluation = Evaluation(experiment.federated, experiment.federation, result.clients, Panel(5), 1)
    assert list(evaluation(result.server, 0.1, everyone=False)[1]) == [0, 4, 8, 12, 16]
    assert list(evaluation(result.server, 0.1, everyone=True)[1]) == list(range(20))


def test_a_panel_in_turns_takes_everyone_in_time():
    panel, clients = Panel(4, turns=3), list(range(10, 23))
    taken = [panel.of(clients, round) for round in (3, 6, 9, 12)]
    assert sorted(sum(taken, [])) == clients and max(map(len, taken)) <= 4
    assert panel.of(clients, 15) == taken[0] and panel.of([], 3) == []


def test_measured_in_turns():
    """Other clients at each evaluation, everyone at the end, and the same run."""
    same, turns = (execute(assemble(config(panel=2, panel_of=of, rounds=4))) for of in ("same", "turns"))
    assert torch.equal(same.server.params, turns.server.params) and same.accuracy == turns.accuracy
    key = "personal_accuracy_mean"
    assert any(one[key] != other[key] for one, other in zip(same.metrics[:-1], turns.metrics[:-1], strict=True))


def test_so_many_adapt_at_the_end_that_it_costs_a_quarter_of_the_training(monkeypatch):
    """A panel of them, if one is given, or ten at the least, if so many trained, spread over all; who has nothing to be
    tested on is left out.
    """
    asked: list[int] = []
    measure = Evaluation._after_work
    monkeypatch.setattr(Evaluation, "_after_work", lambda self, c, *more: asked.append(c) or measure(self, c, *more))
    for panel, cohort, rounds, count in (
        (2, 11, 1, 2), (2, 11, 9, 2), (5, 3, 1, 5),
        (None, 3, 1, 3), (None, 3, 3, 9), (None, 3, 4, 10), (None, 11, 1, 10), (None, 11, 4, 11), (None, 11, 9, 12),
    ):  # fmt: skip
        asked.clear()
        made(clients=13, cohort=cohort, panel=panel, rounds=rounds)
        assert len(asked) == count + 1 and asked[-1] == 12  # which is the unseen one
    asked.clear()
    place = made(clients=200, cohort=60, rounds=1, split="iid", unseen=1).experiment.federation
    assert len(asked) == 15 + bool(len(place.test_rows(199))) and all(len(place.test_rows(c)) for c in asked)


def test_where_nobody_can_be_measured_it_is_found_out_once(monkeypatch):
    calls: list[bool] = []
    own = Evaluation.__call__
    monkeypatch.setattr(Evaluation, "__call__", lambda self, *of, **more: calls.append(True) or own(self, *of, **more))
    place = made(clients=3, rounds=1).experiment.federation
    none = replace(place, test=[rows[:0] for rows in place.test])
    result = execute(assemble(config(**SETTINGS | {"rounds": 1}), clients=none))
    assert len(calls) == 2 and result.accuracy == {} and "adapted_accuracy" not in result.metrics[-1]


def test_very_many_clients_are_not_measured_one_by_one(monkeypatch):
    monkeypatch.setattr(lifecycle, "LISTED", 12)
    assert len(made(clients=12, rounds=1, panel=2).accuracy) == 12
    assert len(made(clients=13, rounds=1, panel=2).accuracy) == 3  # and the unseen one


def test_clients_without_test_samples_have_no_accuracy():
    result = execute(assemble(config(clients=700, cohort=5, rounds=1)))
    place = result.experiment.federation
    empty = [place.names[c] for c in range(700) if not len(place.test_rows(c))]
    assert empty and not set(empty) & set(result.accuracy) and len(result.accuracy) == 700 - len(empty)


@pytest.mark.parametrize(
    "algorithm", ["local", "ditto", "fedper", "apfl", "pefll", "pfedhn", "fedavg + fine_tune(epochs=2)"]
)
def test_many_models_in_one_call_are_measured_as_each_alone(algorithm):
    result = made(algorithm=algorithm, lift="vectorized", clients=7, rounds=2)
    evaluation = Evaluation(result.experiment.federated, result.experiment.federation, result.clients, Panel(5), 1)
    assert evaluation.by_model and not evaluation.uniform
    asked = {c: rows for c in range(7) if len(rows := result.experiment.federation.test_rows(c))}
    assert len({len(rows) for rows in asked.values()}) > 1  # shorter ones are padded
    at = At(result.server.params, result.server.buffers, result.server, 0.1)
    alone = {client: ways[""]["accuracy"] for client, ways in evaluation._each(asked, at).items()}
    for lift in (Vectorized(3), Vectorized(3, 2), SideBySide(3, 2)):  # the last call is a smaller one
        together = evaluation._together(asked, lift, 500, at)
        assert list(together) == list(asked)
        assert {client: ways[""]["accuracy"] for client, ways in together.items()} == pytest.approx(alone)
    alone = {result.experiment.federation.names[client]: value for client, value in alone.items()}
    assert len(set(alone.values())) > 1 and result.accuracy == pytest.approx(alone)


class Stubborn(nn.Module):
    """Asks a tensor for its value, which vmap has none of."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(64, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(x.flatten(1)) * (1.0 if float(x.sum()) > 0 else 2.0)


@pytest.mark.slow
@pytest.mark.parametrize("module", [None, Stubborn()], ids=["cnn", "one that vmap cannot run"])
def test_small_models_are_measured_together_under_any_lift(monkeypatch, module):
    """The accuracies of each alone, for any number of workers; a pass for each where there is no other way."""
    together, alone, each = [], [], Evaluation._each
    own = evaluate.score_together
    monkeypatch.setattr(evaluate, "score_together", lambda *of: together.append(len(of[2])) or own(*of))
    monkeypatch.setattr(Evaluation, "_each", lambda self, asked, at: alone.append(asked) or each(self, asked, at))
    settings = SETTINGS | {"algorithm": "local", "model": "cnn", "lift": "sequential", "rounds": 2, "eval_every": 1}

    def accuracy(workers: int) -> dict[int, float]:
        return execute(assemble(config(**settings, workers=workers), module=module)).accuracy

    found = accuracy(1)  # of who never trained at the end alone; what failed once is not tried again
    assert (together, len(alone)) == (([5, 6], 0) if module is None else ([5], 2))
    assert accuracy(2) == found
    monkeypatch.setattr(evaluate, "MANY", HELD)  # no model is so small
    assert accuracy(1) == pytest.approx(found) and len(set(found.values())) > 1


@pytest.mark.parametrize("algorithm", ["knn_per", "pefll + class_mask"])
def test_what_is_no_model_is_measured_client_by_client(algorithm):
    result = made(algorithm=algorithm, lift="vectorized", rounds=1)
    evaluation = Evaluation(result.experiment.federated, result.experiment.federation, result.clients, Panel(5), 1)
    assert not evaluation.by_model and len(result.accuracy) == 6


def normed(**more: Any) -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 8), nn.BatchNorm1d(8, **more), nn.ReLU(), nn.Linear(8, 10))


@pytest.mark.parametrize("lift", ["sequential", "vectorized"])
@pytest.mark.parametrize("algorithm", ["fedavg", "fedper"])
@pytest.mark.parametrize(
    ("module", "buffers"), [(normed(), "drop"), (normed(track_running_stats=False), "average")], ids=["drop", "none"]
)
def test_a_model_that_normalizes_by_the_batch_is_measured_on_each_clients_own(module, buffers, algorithm, lift):
    """Neither on its samples among all others', nor on copies of them that fill up a batch."""
    settings = SETTINGS | {"algorithm": algorithm, "lift": lift, "clients": 7, "rounds": 2, "buffers": buffers}
    result = execute(assemble(config(**settings), module=module))
    place, space, sizes = result.experiment.federation, result.experiment.federated.setup.task.space, set[int]()
    for client in place.participants:
        x, y = (leaf[place.test_rows(client)] for leaf in place.test_pool)
        sizes.add(len(y))
        theta, buffers_ = space.from_state_dict(result.model(client=client))
        right = accuracy(space.outputs(theta, x, buffers_), y).double().mean()
        assert result.accuracy[place.names[client]] == pytest.approx(float(right))
    assert len(sizes) > 1 and max(sizes) <= 100  # in one pass each


class OnACard(Tensor):
    """Places that claim to be on a GPU."""

    is_cuda = True
    __torch_function__ = torch._C._disabled_torch_function_impl  # what is made of them claims nothing


@pytest.mark.parametrize("module, alike", [(normed(), True), (nn.Sequential(nn.Flatten(), nn.Linear(64, 10)), False)])
def test_a_model_that_normalizes_by_the_batch_meets_the_same_batches_on_every_device(module, alike):
    result = execute(assemble(config(**SETTINGS | {"rounds": 1, "buffers": "drop"}), module=module))
    task, pool = result.experiment.federated.setup.task, result.experiment.federation.test_pool
    rows, met = torch.arange(320), {Tensor: list[int](), OnACard: list[int]()}
    for kind, sizes in met.items():

        def predict(x: Tensor, sizes: list[int] = sizes) -> Tensor:
            sizes.append(len(x))
            return outputs(result, result.server.params, x)

        score(task, predict, pool, rows.as_subclass(kind))
    assert met[Tensor] == [100, 100, 100, 20]
    assert met[OnACard] == (met[Tensor] if alike else [320])


def test_who_never_trained_is_trained_for_a_measurement_at_the_end_alone(monkeypatch):
    """Twenty passes over its data: of a hundred clients of whom ten take part, ninety would train at every round's."""
    asked: list[int] = []
    own = Newcomer.personal
    monkeypatch.setattr(
        Newcomer, "personal", lambda self, view, theta: asked.append(view.who) or own(self, view, theta)
    )
    result = made(algorithm="local(epochs=1)", clients=6, cohort=2, rounds=2, eval_every=1)
    drawn = {client for t in range(2) for client in result.experiment.cohort_of(t)}
    first, rest = asked[: len(result.experiment.cohort_of(0))], asked[len(result.experiment.cohort_of(0)) :]
    assert set(first) == set(result.experiment.cohort_of(0)) and set(rest) >= set(range(6))
    assert "personal_accuracy_mean" in result.metrics[0] and drawn < set(result.experiment.federation.participants)


@pytest.mark.slow
@pytest.mark.parametrize(
    "algorithm, drawn",
    [("local", {5}), ("fedper + fedcog(samples=8)", {5}), ("pefll", set()), ("ditto", set(range(5))),
     ("fine_tune", set(range(6))), ("knn_per", set(range(6)))],
)  # fmt: skip
def test_nothing_is_drawn_for_who_predicts_with_what_it_has(monkeypatch, algorithm, drawn):
    """Batches and draws are for who works before it predicts: a newcomer (client 5), or all of whom a piece asks it."""
    result, asked, each = made(algorithm=algorithm, rounds=2, cohort=1.0), set(), Clients.each
    monkeypatch.setattr(Clients, "each", lambda self, client, *of: asked.add(client) or each(self, client, *of))
    evaluation = Evaluation(result.experiment.federated, result.experiment.federation, result.clients, Panel(5), 1)
    assert evaluation(result.server, 0.1, everyone=True)[1] == result.values
    assert asked == drawn
