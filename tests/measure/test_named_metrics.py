"""The named metrics against scikit-learn and NumPy, however the samples are grouped, and what counts as undefined."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import torch
from sklearn import metrics as sk
from torch import Tensor, nn

from apiece.data.tokens import IGNORED
from apiece.lifts.side_by_side import SideBySide
from apiece.measure.evaluate import summary
from apiece.measure.scoring import score, score_each, score_together
from apiece.vector.losses import squared_error
from apiece.vector.metric import Metric
from apiece.vector.metrics import CLASSES, ERRORS, LABELS, PIXELS, TOKENS
from apiece.vector.space import Space
from apiece.vector.task import Task, accuracy

GENERATOR = torch.Generator().manual_seed(0)
N = 40


def drawn(*shape: int) -> Tensor:
    return torch.randn(shape, generator=GENERATOR, dtype=torch.float64)


def whole(high: int, *shape: int) -> Tensor:
    return torch.randint(high, shape, generator=GENERATOR)


def of(metrics, outputs: Tensor, y: Tensor) -> dict[str, float]:
    """The metrics of these predictions, scored in passes of seven samples."""
    task = Task(Space(nn.Linear(1, 1)), squared_error if y.is_floating_point() else zero, metrics)
    x = torch.arange(len(y))[:, None]
    parts = [score(task, lambda x: outputs[x[:, 0]], (x, y), rows) for rows in torch.arange(len(y)).split(7)]
    together = score(task, lambda x: outputs[x[:, 0]], (x, y), torch.arange(len(y))).of(metrics)
    weights = [int(part.targets.sum()) for part in parts]
    for metric in metrics:  # a mean over samples is the mean over their groups
        if metric.over == "samples" and metric.finish is None:
            means = [part.of(metrics)[metric.name] for part in parts]
            assert np.average(means, weights=weights) == pytest.approx(together[metric.name], nan_ok=True)
    return together


def zero(outputs: Tensor, y: Tensor) -> Tensor:
    return outputs.new_zeros(())


def test_an_accuracy_is_not_a_number_where_a_score_is_not():
    """Not where it is minus infinity, as a mask makes it, and not at a token that is IGNORED."""
    outputs = torch.tensor([[0.0, -torch.inf], [torch.nan, 1.0], [0.0, 1.0]])
    assert str(accuracy(outputs, torch.tensor([0, 1, 0])).tolist()) == "[1.0, nan, 0.0]"
    assert accuracy(outputs[None], torch.tensor([[0, IGNORED, 0]])).tolist() == [0.5]
    assert accuracy(outputs[None], torch.tensor([[0, 1, IGNORED]])).isnan().all()


def test_of_classes():
    outputs, y = drawn(N, 4), whole(3, N)  # nobody has the last class, and some are predicted to
    found, p = of(CLASSES, outputs, y), outputs.softmax(1).numpy()
    guessed = p.argmax(1)
    assert found["accuracy"] == pytest.approx(sk.accuracy_score(y, guessed))
    assert found["f1"] == pytest.approx(sk.f1_score(y, guessed, average="macro"))
    areas = [sk.roc_auc_score(y == c, p[:, c]) for c in range(3)]
    assert found["auroc"] == pytest.approx(np.mean(areas))


def test_the_area_of_classes_ranks_confident_scores():
    """Also where softmax in float32, or in float64, is 1; and equal odds are ties wherever their scores stand."""
    y = torch.arange(10) // 5
    for gap in (18.0, 2000.0):
        ranked = torch.stack([torch.zeros(10), gap + torch.arange(10.0)], 1)
        assert of(CLASSES, ranked, y)["auroc"] == of(CLASSES, -ranked, 1 - y)["auroc"] == 1
        three = torch.cat([ranked, torch.full((10, 1), -5000.0)], 1)
        assert of(CLASSES, three, y)["auroc"] == 1
    ties = torch.tensor([[0.0, 1.0], [7.0, 8.0], [1.0, 0.0], [8.0, 7.0]])
    assert of(CLASSES, ties, torch.tensor([0, 1, 0, 1]))["auroc"] == 0.5


def test_of_several_labels():
    outputs, y = drawn(N, 5).round(decimals=0), whole(2, N, 5).float()  # scores with ties
    found = of(LABELS, outputs, y)
    assert found["accuracy"] == pytest.approx(((outputs > 0) == (y > 0)).double().mean().item())
    assert found["f1"] == pytest.approx(sk.f1_score(y, outputs > 0, average="micro"))
    assert found["auroc"] == pytest.approx(sk.roc_auc_score(y, outputs, average="macro"))
    for name in ("f1", "precision", "recall"):
        score_of = getattr(sk, f"{name}_score")
        assert found[f"class_{name}"] == pytest.approx(score_of(y, outputs > 0, average="macro"))


def test_labels_that_are_never_predicted_or_never_true_count_nothing_and_absent_ones_are_left_out():
    y = torch.tensor([[1.0, 1.0, 0.0, 0.0], [1.0, 0.0, 0.0, 0.0]])
    outputs = torch.tensor([[1.0, -1.0, 1.0, -1.0], [-1.0, -1.0, 1.0, -1.0]])
    found = of(LABELS, outputs, y)
    assert found["class_precision"] == pytest.approx(1 / 3) and found["class_recall"] == pytest.approx(1 / 6)
    assert found["class_f1"] == pytest.approx(2 / 3 / 3)


@pytest.mark.parametrize("shape", [(N,), (N, 3)], ids=str)  # catches a mean over samples where columns are meant
def test_of_real_targets(shape):
    y = 3 + 2 * drawn(*shape)
    outputs = y + drawn(*shape)
    found = of(ERRORS, outputs[:, None] if y.dim() == 1 else outputs, y)  # [B, 1] beside [B] is [B]
    assert found["mae"] == pytest.approx(sk.mean_absolute_error(y, outputs))
    assert found["mse"] == pytest.approx(sk.mean_squared_error(y, outputs))
    assert found["rmse"] == pytest.approx(np.sqrt(found["mse"]))
    assert found["r2"] == pytest.approx(sk.r2_score(y, outputs))


@pytest.mark.parametrize("last", [False, True], ids=["channels first", "channels last"])
def test_of_pixels(last):
    outputs, y = drawn(N, 3, 4, 6), whole(2, N, 4, 6)
    y[:, :2, :3] = IGNORED
    known = y != IGNORED
    found = of(PIXELS, outputs.movedim(1, -1) if last else outputs, y)
    true, guessed = y[known].numpy(), outputs.argmax(1)[known].numpy()
    assert found["accuracy"] == pytest.approx(sk.accuracy_score(true, guessed))
    assert found["iou"] == pytest.approx(sk.jaccard_score(true, guessed, average="macro"))


def test_of_tokens():
    outputs, y = drawn(N, 6, 9), whole(9, N, 6)
    y[:, 4:] = IGNORED
    y[0, 1:] = IGNORED
    found, known = of(TOKENS, outputs, y), y != IGNORED
    p = outputs.log_softmax(-1).gather(-1, y.clamp(min=0)[..., None])[..., 0]
    assert found["perplexity"] == pytest.approx(np.exp(-p[known].mean().item()))
    assert found["accuracy"] == pytest.approx((outputs.argmax(-1) == y)[known].double().mean().item())


def test_what_samples_do_not_define_is_left_out():
    outputs = drawn(N, 2)
    assert "auroc" not in of(CLASSES, outputs, torch.ones(N, dtype=torch.int64))
    assert set(of(ERRORS, drawn(N), torch.ones(N))) == {"mae", "rmse", "mse"}
    broken = of((ERRORS[1], ERRORS[2]), torch.full((N,), torch.nan, dtype=torch.float64), drawn(N))
    assert all(np.isnan(value) for value in broken.values()) and "r2" in broken  # diverged, and not undefined
    found = summary(CLASSES[2], [{"auroc": 0.5}, {}, {"auroc": 0.7}])
    assert found["personal_auroc_mean"] == pytest.approx(0.6)
    assert summary(CLASSES[2], [{}, {}]) == {}


def test_a_sample_without_a_target_counts_nothing():
    """Neither in a metric nor in the loss, also where a pass of the predictor holds no other."""
    outputs, y = drawn(N, 6, 9), whole(9, N, 6)
    y[3] = IGNORED
    others = torch.arange(N) != 3
    assert of(TOKENS, outputs, y) == pytest.approx(of(TOKENS, outputs[others], y[others]))
    task, long = Task(Space(nn.Linear(1, 1)), metrics=TOKENS), torch.arange(3)[:, None].expand(3, 9000)
    y = whole(2, 3, 9000)
    y[1] = IGNORED
    found = score(task, lambda x: drawn(len(x), 9000, 2), (long, y), torch.arange(3))
    assert np.isfinite(found.loss) and set(found.of(TOKENS)) == {"accuracy", "perplexity"}
    nothing = score(task, lambda x: drawn(len(x), 9000, 2), (long, y), torch.tensor([1]))
    assert np.isnan(nothing.loss) and nothing.of(TOKENS) == {}


def test_the_worst_tenth_is_the_worst_by_direction():
    values = [{"accuracy": v, "mae": v} for v in np.linspace(0, 1, 20)]
    assert summary(CLASSES[0], values)["personal_accuracy_worst_decile"] == pytest.approx(1 / 38)
    assert summary(ERRORS[0], values)["personal_mae_worst_decile"] == pytest.approx(1 - 1 / 38)


def test_the_three_ways_to_score_agree():
    """One predictor, many one after the other, and many in one call of vmap, of means and of whole predictions."""
    spaces = [Space(nn.Linear(6, 3), dtype=torch.float64) for _ in range(4)]
    models = [(space.ravel(), space.ravel_buffers()) for space in spaces]
    f1 = Metric("own", lambda o, y: torch.as_tensor(sk.f1_score(y, o.argmax(1), average="macro")), over="all")
    task, pool = Task(spaces[0], metrics=(*CLASSES, f1)), (drawn(N, 6), whole(3, N))
    rows = [torch.arange(0, 5), torch.arange(5, 25), torch.arange(20, 40), torch.arange(3, 9)]
    predict = [
        partial(lambda x, theta, buffers: spaces[0].outputs(theta, x, buffers), theta=t, buffers=b) for t, b in models
    ]
    one = [score(task, p, pool, own).of(task.metrics) for p, own in zip(predict, rows, strict=True)]
    each = [found.of(task.metrics) for found in score_each(task, predict, pool, rows)]
    many = [found.of(task.metrics) for found in score_together(task, SideBySide(4, 1), models, pool, rows)]
    for found in (each, many):
        assert [pytest.approx(own) for own in one] == found
    assert all(own["own"] == pytest.approx(own["f1"]) for own in one)
    overall = score(task, predict[0], pool, torch.arange(N))
    assert [overall.of(task.metrics, rows[0])] == [pytest.approx(one[0])]  # clients that share a model


@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
def test_metrics_of_what_is_no_number_are_no_numbers(bad):
    """Of one sample's scores: not 0, not what argmax makes of it, and no area above 1."""
    found = of(CLASSES, drawn(N, 3).index_fill(0, torch.tensor(5), bad), whole(3, N))
    assert np.isnan(found["auroc"]) and len(found) == len(CLASSES)
    if np.isnan(bad):
        assert np.isnan(list(found.values())).all(), found
        for metrics, shape, y in ((LABELS, (N, 3), whole(2, N, 3).float()), (PIXELS, (N, 3, 4, 6), whole(3, N, 4, 6))):
            found = of(metrics, drawn(*shape).index_fill(0, torch.tensor(5), bad), y)
            assert np.isnan(list(found.values())).all() and len(found) == len(metrics), found


def test_a_pixel_that_is_left_out_may_have_any_score():
    outputs, y = drawn(N, 3, 4, 6), whole(3, N, 4, 6)
    y[5, 0] = IGNORED
    plain = of(PIXELS, outputs, y)
    outputs[5, :, 0] = torch.nan
    assert of(PIXELS, outputs, y) == plain
