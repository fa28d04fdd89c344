"""FedCOG, MOON and FedDecorr beyond their oracles: the laws of what is generated, shapes, sources, compositions."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from support import tiers
from support.helpers import KEEPS_ALL, FullBatch, clusters, federate, federation, gap, mlp, models, run
from support.modules import Convolutional, skewed
from torch import nn

from apiece.algebra.composition import algorithm
from apiece.algebra.server_optim import Momentum
from apiece.config.assemble import chosen_algorithm
from apiece.contract import check
from apiece.engine.stepping import Batched, Loop
from apiece.errors import UserError
from apiece.language import algorithms as named
from apiece.lifts.lift import Sequential, Vectorized
from apiece.measure.observed import sheet
from apiece.pieces.fedcog import FedCOG, allocation, balance, jensen_shannon
from apiece.pieces.feddecorr import correlation
from apiece.pieces.generation import Inputs, Network
from apiece.pieces.samples import log_probabilities
from apiece.report.pictures import read
from apiece.vector.task import TaskView

SEEN: list[Any] = []
SMALL: dict[str, Any] = {"kd_weight": 0.5, "samples": 12, "steps": 4, "batch": 5, "lr": 0.1}


@dataclass(frozen=True)
class Watched(FedCOG):
    """Hands its view out to a test."""

    def objective(self, view, loss):
        SEEN.append((view, loss, super().objective(view, loss)))
        return SEEN[-1][-1]


def views(piece, module=None, data=None, rounds=3, lr=0.3, steps=6, **settings):
    """(view, loss, objective) of every participation, all clients each round."""
    SEEN.clear()
    data = data or skewed()
    cohorts = [list(range(len(data.names)))] * rounds
    run(federate(algorithm(piece, name="watched"), module or mlp(), **settings), data, FullBatch(steps), cohorts, lr)
    return list(SEEN)


# --- what is generated ----------------------------------------------------------------------------------------------
@pytest.mark.slow
@pytest.mark.parametrize("source", [{}, {"source": Network(latent=8, width=16)}], ids=["inputs", "network"])
def test_inputs_are_labeled_by_the_global_model_and_missed_by_the_local_one(source):
    """The global model's loss is less than at first; the local's mistakes, and their distance, more than with dis=0.

    Not than at first, for what is complementary is what a local model misses already, and noise is what no model knows.
    """
    piece = Watched(dis=2.0, samples=60, lr=0.05, **source)
    for view, _, _ in views(piece, lr=0.5, steps=40)[-3:]:
        before, after = piece.generate(view, 0), piece.generate(view)
        alone = replace(piece, dis=0.0).generate(view)
        assert torch.equal(before.y, after.y)
        assert F.cross_entropy(after.outputs, after.y) < 0.5 * F.cross_entropy(before.outputs, before.y)
        local = [view.task.outputs(view.model, made.x) for made in (alone, after)]
        wrong = [1 - scores.softmax(-1).gather(1, after.y[:, None]).mean() for scores in local]
        apart = [
            jensen_shannon(*(log_probabilities(s, False) for s in both))
            for both in zip((alone.outputs, after.outputs), local, strict=True)
        ]
        assert wrong[1] > wrong[0] + 0.01 and apart[1] > apart[0]


def test_the_teachers_outputs_are_those_on_the_final_inputs():
    piece = Watched(**SMALL)
    for view, _, _ in views(piece):
        made = piece.generate(view)
        assert torch.equal(made.outputs, view.task.outputs(view.sent, made.x))


def test_a_new_client_has_no_disagreement():
    piece, without = Watched(**SMALL), Watched(**{**SMALL, "dis": 0.0})
    for view, _, _ in views(piece):
        assert torch.equal(piece.generate(view).x, without.generate(view).x) == view.fresh


def test_targets_are_the_papers_example():
    assert allocation(torch.tensor([500, 0, 400, 200, 400]), 256).tolist() == [
        0,
        128,
        26,
        77,
        25,
    ]  # A.1.1: 25.6, 76.8, 25.6


@pytest.mark.parametrize("samples", [1, 7, 256, 1000])
def test_targets_are_exactly_as_many_as_asked_by_largest_remainder(samples):
    rng = np.random.Generator(np.random.Philox(samples))
    for classes in (1, 2, 10, 100):
        for _ in range(20):
            counts = rng.integers(0, 40, classes)
            need = counts.max() - counts
            need = need if need.any() else np.ones_like(need)
            got = allocation(torch.from_numpy(counts), samples).numpy()
            assert got.sum() == samples and (abs(got - samples * need / need.sum()) < 1).all()
            assert need.sum() == classes or (got[need == 0] == 0).all()


def test_a_balanced_client_gets_every_class():
    assert allocation(torch.full((10,), 7), 256).tolist() == [26] * 6 + [25] * 4
    assert [float(w) for w in balance(torch.full((10,), 7), torch.float64)] == [1.0, 0.0]
    assert [float(w) for w in balance(torch.tensor([5, 5] + [0] * 8), torch.float64)] == [
        0.2,
        0.8,
    ]  # two classes of CIFAR-10


def test_disagreement_is_stable_and_at_most_log_2():
    logits = torch.tensor([[800.0, -800.0, 0.0]], dtype=torch.float64, requires_grad=True)
    p, q = (log_probabilities(s, False) for s in (logits, logits.flip(1)))
    js = jensen_shannon(p, q)
    assert float(js.detach()) == pytest.approx(np.log(2), abs=1e-12)
    assert torch.isfinite(torch.autograd.grad(js, logits)[0]).all()


def test_disagreement_that_is_nearly_whole_still_has_a_gradient():
    """Equation (2) at p and q almost disjoint; as KL(m || p) + KL(m || q) of probabilities cut to [0.01, 0.99], the sum
    cut to [0, 1], it has none."""
    logits = torch.tensor([[6.0, -6.0, 0.0]], dtype=torch.float64, requires_grad=True)
    scores = logits, logits.flip(1)
    js = jensen_shannon(*(log_probabilities(s, False) for s in scores))
    assert float(torch.autograd.grad(js, logits, retain_graph=True)[0].norm()) > 1e-3
    p, q = (s.softmax(-1).clamp(0.01, 0.99) for s in scores)
    m = ((p + q) / 2).clamp(0.01, 0.99)
    wrong = (0.5 * ((m * (m / p).log()).sum() + (m * (m / q).log()).sum())).clamp(0, 1)
    assert float(torch.autograd.grad(wrong, logits)[0].norm()) == 0 and float(js.detach()) < np.log(2)


@pytest.mark.parametrize("distribution", ["complementary", "uniform"])
def test_targets_of_every_client(distribution):
    piece = Watched(**{**SMALL, "targets": distribution})
    for view, _, _ in views(piece, rounds=1):
        mine = int(view.who)
        counts = torch.bincount(piece.generate(view, 0).y, minlength=3).tolist()
        assert counts == ([4, 4, 4] if distribution == "uniform" else [0 if c == mine else 6 for c in range(3)])


# --- when it acts -----------------------------------------------------------------------------------------------------
def test_it_waits():
    data, cohorts = clusters(), [[0, 1, 2], [1, 2, 3], [0, 3, 4]]
    plain, waiting, now = (
        run(federate(a, mlp(), watch=KEEPS_ALL), data, FullBatch(2), cohorts)
        for a in (named.fedavg(), named.fedcog(**{**SMALL, "wait": 2}), named.fedcog(**SMALL))
    )
    same = [torch.equal(a.params, b.params) for a, b in zip(plain.servers, waiting.servers, strict=True)]
    assert same == [True, True, True, False]
    assert not torch.equal(plain.servers[1].params, now.servers[1].params)


@pytest.mark.parametrize("rounds", [1, 2])
def test_passes_over_the_generated_set(rounds):
    """Five of twelve a step: every input is distilled once before any is distilled twice."""
    piece = Watched(**{**SMALL, "kd_weight": 1.0})
    view, loss, objective = views(piece, rounds=rounds, steps=5)[-1]
    made, batch = piece.generate(view), view.data.all()
    teacher = made.outputs.log_softmax(-1)
    for k, rows in enumerate(([0, 1, 2, 3, 4], [5, 6, 7, 8, 9], [10, 11, 0, 1, 2])):
        k_th = Watched(**{**SMALL, "kd_weight": 1.0}).objective(view._replace(step=lambda k=k: k), loss)
        student = view.task.outputs(view.model, made.x[rows]).log_softmax(-1)
        kl = (teacher[rows].exp() * (teacher[rows] - student)).sum(-1).mean()
        assert gap(k_th(view.model, batch), loss(view.model, batch) + kl) < 1e-12


def test_personal_parameters_teach_as_the_client_has_them():
    piece = Watched(**SMALL)
    algorithm_ = named.fedavg_p() + algorithm(piece, name="watched")
    SEEN.clear()
    run(federate(algorithm_, mlp()), skewed(), FullBatch(2), [[0, 1, 2]] * 2)
    for view, _, _ in SEEN[3:]:
        whole = torch.where(view.shared, view.sent, view.model)
        assert torch.equal(piece.generate(view).outputs, view.task.outputs(whole, piece.generate(view).x))
        assert not torch.equal(whole, view.sent) and not torch.equal(whole, view.model)


# --- any shape, several labels ----------------------------------------------------------------------------------------


# sources and shapes catch a size taken from another axis
@pytest.mark.parametrize("source", [{}, {"source": Network(latent=5, width=6)}], ids=["inputs", "network"])
@pytest.mark.parametrize("shape", [(1, 8, 8), (3, 9, 7), (2, 4), (6,)])
def test_any_shape_of_inputs_and_both_lifts(shape, source):
    images = len(shape) == 3
    module = Convolutional(shape[0]) if images else nn.Sequential(nn.Flatten(), mlp(int(np.prod(shape))))
    data, subject = skewed((5, 4, 6), shape), algorithm(FedCOG(**SMALL, **source), name="fedcog")
    one, two = (
        run(federate(subject, module, watch=KEEPS_ALL), data, FullBatch(2), [[0, 1, 2]] * 2, lift=lift)
        for lift in (Sequential(), Vectorized(3))
    )
    assert gap(one.last, two.last) < 1e-10 and gap(models(one), models(two)) < 1e-10


def test_several_labels_a_sample():
    """One label a target, as many of each as would balance the client's; KL and JS label by label."""
    rng = np.random.Generator(np.random.Philox(0))
    x = [rng.normal(size=(n, 6)) for n in (10, 8)]
    y = [(rng.random((len(part), 3)) < (0.9, 0.5, 0.1)).astype(np.float64) for part in x]
    piece = Watched(**{**SMALL, "kd_weight": "counts", "samples": 40})
    for view, loss, _ in views(piece, data=federation(x, y), loss=F.binary_cross_entropy_with_logits):
        counts = torch.from_numpy(y[int(view.who)]).sum(0)
        made = piece.generate(view)
        assert made.y.shape == (40, 3) and bool((made.y.sum(1) == 1).all())
        assert made.y.sum(0).tolist() == allocation(counts.long(), 40).tolist()
        batch, need = view.data.all(), counts.max() - counts
        p, q = made.outputs[:5].sigmoid(), view.task.outputs(view.model, made.x[:5]).sigmoid()
        kl = (p * (p / q).log() + (1 - p) * ((1 - p) / (1 - q)).log()).mean()
        want = (counts.sum() * loss(view.model, batch) + need.sum() * kl) / (counts.sum() + need.sum())
        first = piece.objective(view._replace(step=lambda: 0), loss)
        assert gap(first(view.model, batch), want) < 1e-12


def test_samples_that_are_no_numbers_are_refused():
    data = federation([np.zeros((4, 6), dtype=np.int64)], [np.zeros(4, dtype=np.int64)], dtype=torch.int64)
    with pytest.raises(UserError, match="real numbers"):
        run(
            federate(named.fedcog(**SMALL), nn.Sequential(nn.Embedding(5, 3), nn.Flatten(), nn.Linear(18, 3))),
            data,
            FullBatch(1),
            [[0]],
        )


@pytest.mark.parametrize(
    "text, source",
    [
        ("fedcog", Inputs()),
        ("fedcog(source=inputs)", Inputs()),
        ("fedcog(source=network)", Network()),
        ("fedcog(source=network(latent=8, width=16), samples=5)", Network(8, 16)),
        ("moon + fedcog(dis=0, source=network(8))", Network(8)),
    ],
)
def test_where_inputs_come_from_is_said_in_the_expression(text, source):
    made = chosen_algorithm(text)
    assert made.pieces[-1].source == source and made.name == text


# --- compositions -----------------------------------------------------------------------------------------------------
COMPOSED = {
    "fedprox": lambda: named.fedprox(0.1),
    "scaffold": lambda: named.scaffold(),
    "moon": lambda: named.moon(),
    "relaxed_init": lambda: named.relaxed_init(0.1),
    "fedals": lambda: named.fedals(2),
    "fedals + relaxed_init": lambda: named.fedals(2) + named.relaxed_init(0.1),
    "scaffold_p + feddecorr": lambda: named.scaffold_p(outer_personal=0.5) + named.feddecorr(0.1),
}


# another piece catches a term of its own that inputs are made with, or that is forgotten beside them
@pytest.mark.slow
@pytest.mark.parametrize("other", tiers.but(("scaffold",), COMPOSED))
def test_added_to_anything(other):
    check(COMPOSED[other]() + named.fedcog(**SMALL))


@pytest.mark.slow
def test_added_to_fedavgm_with_a_network_by_counts():
    subject = algorithm(FedCOG(**{**SMALL, "kd_weight": "counts"}, source=Network(4, 6)), name="fedcog by a network")
    check(subject, server=Momentum(), weighting="uniform")


# --- features in objectives -------------------------------------------------------------------------------------------
# ways to differentiate catch a graph cut under vmap, values the last layer left in or out
@pytest.mark.parametrize("how", [Loop(), Batched(1, False)], ids=repr)
@pytest.mark.parametrize("what", ["outputs", "features"])
def test_outputs_and_features_are_differentiable(how, what):
    federated = federate(named.fedavg(), mlp())
    task = TaskView(federated.setup.task, federated.setup.initial_buffers, how.differentiate)
    x, theta = torch.from_numpy(np.random.Generator(np.random.Philox(0)).normal(size=(4, 6))), federated.setup.initial
    value = lambda at: (getattr(task, what)(at, x).square().sum(), ())
    g, step = (
        how.differentiate(value, theta)[0],
        1e-6 * torch.randn(len(theta), dtype=torch.float64, generator=torch.Generator().manual_seed(0)),
    )
    assert abs(float(value(theta + step)[0] - value(theta - step)[0] - 2 * g @ step)) < 1e-14
    assert bool((g[-18:] == 0).all()) == (what == "features") and bool((g[:35] != 0).any())


def test_features_of_one_sample_are_not_correlated():
    assert float(correlation(torch.randn(1, 5, generator=torch.Generator().manual_seed(0)))) == 0.0
    z = torch.tensor([[1.0, 1.0], [2.0, 2.0], [3.0, 3.0]], dtype=torch.float64)
    assert float(correlation(z)) == pytest.approx(2.0**2 / 3, abs=1e-6)  # M_12 = N - 1 for equal features, over N


# --- pictures ---------------------------------------------------------------------------------------------------------
@pytest.mark.slow
def test_pictures_of_what_was_generated_are_in_the_report(tmp_path):
    from apiece import federate as runs

    out = tmp_path / "run"
    settings: dict[str, Any] = {"rounds": 2, "clients": 4, "cohort": 2, "steps": "2", "batch": 8, "out": str(out)}
    runs("mlp(hidden=[8])", "digits", "fedcog(steps=3, samples=20)", **settings)
    sheets = read(out)
    assert list(sheets) == ["FedCOG, 0 steps", "FedCOG, 3 steps"] and all(s.shape == (18, 108) for s in sheets.values())
    assert not np.array_equal(*sheets.values())
    page = (out / "report.html").read_text()
    assert "FedCOG, 3 steps" in page and "data:image/png" in page


def test_a_sheet_of_pictures():
    x = np.arange(2.0).reshape(2, 1, 1, 1) * np.ones((1, 3, 2, 2))
    page = sheet(x, (0.5, 0.5, 0.5), (0.5, 0.5, 0.5))
    assert page.shape == (3, 6, 3) and float(page[0, 0, 0]) == 0.5 and float(page[0, 3, 0]) == 1.0
