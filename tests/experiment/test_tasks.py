"""Runs whose targets are no classes: what they learn, log, keep, show, continue and refuse."""

from __future__ import annotations

import json
import math
import tomllib
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from sklearn import metrics as sk
from sklearn.datasets import load_diabetes, make_multilabel_classification
from support.recipes import Stop, result, stopping
from torch import Tensor, nn

import apiece
from apiece import Federation, Metric, Piece, Result, UserError, algorithm, client_metrics, federate
from apiece.experiment import folders
from apiece.report.records import measured
from apiece.report.results import read_run, read_runs
from apiece.report.table import columns, default_target, unbeaten

pytestmark = pytest.mark.usefixtures("no_report")

X, Y = load_diabetes(return_X_y=True)
X, Y = (X / X.std(0)).astype(np.float32), (Y - Y.mean()) / Y.std()
LABELED = make_multilabel_classification(240, n_features=8, n_classes=4, random_state=0)
RNG = np.random.default_rng(0)
MASKS = RNG.integers(0, 2, (60, 6, 6))
IMAGES = (MASKS + RNG.normal(0, 0.3, MASKS.shape)).astype(np.float32)
SMALL: dict[str, Any] = {"clients": 5, "rounds": 3, "steps": 4, "batch": 8, "lr": 0.05, "workers": 2}


def column() -> nn.Module:
    return nn.Sequential(nn.Linear(10, 8), nn.Tanh(), nn.Linear(8, 1))


def flat() -> nn.Module:
    return nn.Sequential(column(), nn.Flatten(0))


def hidden() -> nn.Module:
    return nn.Sequential(nn.Linear(8, 6), nn.Tanh(), nn.Linear(6, 4))


def convolution() -> nn.Module:
    return nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.Tanh(), nn.Conv2d(4, 2, 1))


def seeded(make: Any) -> nn.Module:
    torch.manual_seed(0)
    return make()


KINDS: dict[str, tuple[Any, Any, dict[str, Any], list[str]]] = {
    "regression": (column, (X, Y), {}, ["mae", "r2"]),
    "multilabel": (hidden, LABELED, {"split": "iid"}, ["f1", "accuracy"]),
    "segmentation": (convolution, (IMAGES, MASKS), {"split": "iid"}, ["iou", "accuracy"]),
    "forecasting": (
        lambda: nn.Linear(7, 3), (X[:, :7], X[:, 7:]), {"split": "iid", "task": "forecasting"}, ["mse", "mae"],
    ),
}  # fmt: skip


def run(kind: str, out: Path | None = None, stop: int = 0, **settings: Any) -> Result:
    make, data, usual, _ = KINDS[kind]
    told = {"out": str(out), "resume": True, "on_round": stopping(stop)} if out else {}
    return federate(seeded(make), data, **(SMALL | usual | told | settings))


@pytest.mark.parametrize("kind", KINDS)  # a kind catches a step of the way that knows classes alone
def test_a_run_from_its_first_line_to_its_files(kind, tmp_path, capsys):
    folders.say_once.cache_clear()  # as at the beginning of a process
    result, names = run(kind, tmp_path / "run"), KINDS[kind][3]
    err = capsys.readouterr().err
    assert err.startswith(f"apiece: the task is {kind}, by ") is (kind != "forecasting")  # which was said
    first, last = result.metrics[0], result.metrics[-1]
    assert last["train_loss"] < first["train_loss"]
    for name in names:
        for key in (f"global_{name}", f"personal_{name}_mean", f"personal_{name}_worst_decile", f"adapted_{name}"):
            assert np.isfinite(last[key]), key
    assert "accuracy" in names or not any("accuracy" in key for key in last)
    run_of = read_run(tmp_path / "run")
    assert [measure.name for measure in run_of.measures] == names
    assert run_of.resolved["task"] == kind
    assert (run_of.higher(f"global_{names[0]}") is False) == (names[0] in ("mae", "mse"))
    found = client_metrics(tmp_path / "run")
    assert list(found.columns) == ["run", "round", "client", "metric", "value"]
    of_last = found[(found["round"] == 3) & (found["metric"] == names[0])]
    assert of_last["value"].mean() == pytest.approx(last[f"personal_{names[0]}_mean"])
    assert {client: own[names[0]] for client, own in enumerate(result.values.values())} == {
        int(row.client.removeprefix("client-")): row.value for row in of_last.itertuples()
    }
    listed = json.loads((tmp_path / "run" / "clients.json").read_text())
    assert [one[names[0]] for one in listed] == pytest.approx(of_last["value"].tolist())
    assert ("accuracy" in listed[0]) == ("accuracy" in names)


# a lift catches an operation that it cannot run, an algorithm a part that reads targets as classes
@pytest.mark.parametrize("kind", ["regression", "multilabel", "segmentation"])
@pytest.mark.parametrize("algorithm", ["fedavg", "scaffold", "fedals(alpha=2)", "fedavg_p('2.*')"])
def test_killed_and_resumed_bitwise_under_each_lift(kind, algorithm, tmp_path):
    models = {}
    for lift in ("sequential", "threaded", "vectorized"):
        settings = {"algorithm": algorithm, "lift": lift}
        whole = run(kind, tmp_path / lift, **settings)
        with pytest.raises(Stop):
            run(kind, tmp_path / f"{lift}-stopped", 2, **settings)
        again = run(kind, tmp_path / f"{lift}-stopped", **settings)
        one, other = result(tmp_path / lift), result(tmp_path / f"{lift}-stopped")
        assert one == other and torch.equal(whole.server.params, again.server.params)
        assert len(set(map(Path.read_bytes, tmp_path.glob(f"{lift}*/client_metrics.jsonl")))) == 1
        models[lift] = whole.server.params
    assert torch.equal(models["sequential"], models["threaded"])
    assert torch.allclose(models["sequential"], models["vectorized"], atol=1e-4)


def test_lines_of_a_round_that_no_checkpoint_has_are_written_again(tmp_path):
    run("regression", tmp_path / "whole")
    with pytest.raises(Stop):
        run("regression", tmp_path / "cut", 2, checkpoint_every=9)
    path = tmp_path / "cut" / "client_metrics.jsonl"
    path.write_bytes(path.read_bytes() + b'{"round": 7, "val')
    run("regression", tmp_path / "cut")
    assert path.read_bytes() == (tmp_path / "whole" / "client_metrics.jsonl").read_bytes()


@pytest.mark.slow
def test_each_client_as_a_process_of_its_own(tmp_path):
    """A named model has as many outputs there as here."""
    table = np.column_stack([X, Y, np.arange(len(Y)) % 3])
    names = [*map("x{}".format, range(10)), "label", "client"]
    np.savetxt(tmp_path / "mine.csv", table, delimiter=",", header=",".join(names), comments="")
    settings = {"split": "natural", "clients": 3, "rounds": 2, "steps": 2, "lr": 0.02, "model": "mlp(hidden=[8])"}
    for lift in ("sequential", "wired", "processes"):
        federate(data=str(tmp_path / "mine.csv"), out=str(tmp_path / lift), lift=lift, **settings)
    assert len({path.read_bytes() for path in tmp_path.glob("*/client_metrics.jsonl")}) == 1


# --- shapes ----------------------------------------------------------------------------------------------------------
def test_a_column_of_outputs_never_meets_a_row_of_targets():
    """[B, 1] beside [B] is [B] to the usual loss, to a loss that would broadcast, and to one that takes either."""
    usual = run("regression").server.params
    flattened = federate(seeded(flat), (X, Y), **SMALL).server.params
    own = [lambda o, y: (o - y).square().mean(), F.mse_loss, lambda o, y: (o[:, 0] - y).square().mean()]
    own += [lambda o, y: F.mse_loss(o.squeeze(1), y)]
    assert torch.equal(usual, flattened)
    for loss in own:
        assert torch.allclose(run("regression", loss=loss).server.params, usual, atol=1e-6)
    errors = run("regression", metrics={"mine": lambda o, y: (o - y).abs(), "column": lambda o, y: (o[:, 0] - y).abs()})
    last = errors.metrics[-1]
    assert last["global_mine"] == pytest.approx(last["global_column"])
    y = torch.from_numpy(Y).float()[:, None]
    rows = [torch.arange(i * 80, i * 80 + 80) for i in range(5)]
    place = Federation((torch.from_numpy(X), y), (torch.from_numpy(X), y), rows, rows, list("abcde"))
    assert "global_mae" in federate(seeded(flat), clients=place, rounds=1, steps=2).metrics[-1]


def test_nor_does_it_where_the_targets_are_whole_numbers_or_predictions_are_cut_off():
    """A metric of yes and no has no gradient, and a loss may make floats of whole numbers itself."""
    whole, settings = (Y > 0).astype(np.int64), SMALL | {"split": "iid", "lr": 0.5}
    error: list[Any] = [
        lambda o, t: (o.flatten() - t).square().mean(),
        lambda o, t: ((o - t.float()) ** 2).mean(),
        lambda o, t: F.mse_loss(input=o, target=t.float()),
        lambda o, t: (o[..., 0] - t).square().mean(),  # would take another number of [B]
    ]
    usual, *others = (federate(seeded(column), (X, whole), loss=own, metric=error[0], **settings) for own in error)
    for other in others:
        assert torch.allclose(other.server.params, usual.server.params, atol=1e-6)
    entropy = lambda o, t: F.binary_cross_entropy_with_logits(o, t.float())
    squeezed = lambda o, t: F.binary_cross_entropy_with_logits(o.squeeze(1), t.float())
    metrics = {
        "right": lambda o, t: ((o.flatten() > 0) == t).float().mean(),
        "equal": lambda o, t: ((o > 0) == t).float().mean(),
        "each": lambda o, t: (o > 0) == t,
        "error": lambda o, t: 1 - ((o > 0).float() - t).abs().mean(),
        "where": lambda o, t: torch.where(t == 1, o > 0, o <= 0).float().mean(),
        "index": lambda o, t: ((o[t == 1] > 0).sum() + (o[t == 0] <= 0).sum()) / len(t),
        "last": lambda o, t: ((o[..., -1] > 0) == t).float().mean(),
    }
    for y, task in ((whole, "auto"), (whole.astype(np.float32), "regression")):
        ran = [federate(seeded(column), (X, y), loss=loss, metrics=metrics, task=task, **settings)
               for loss in (squeezed, entropy)]  # fmt: skip
        assert torch.allclose(ran[0].server.params, ran[1].server.params, atol=1e-6)
        last = ran[0].metrics[-1]
        assert last["global_right"] > 0.6
        assert {name: last[f"global_{name}"] for name in metrics} == pytest.approx(
            dict.fromkeys(metrics, last["global_right"])
        )
    with pytest.raises(UserError, match="the metric 'second' fails: IndexError: index 1 is out of bounds"):
        federate(seeded(column), (X, whole), loss=squeezed, metrics={"second": lambda o, t: o[..., 1] - t}, **settings)


def test_named_models_have_as_many_outputs_as_the_task():
    for data, shape in (((X, Y), 1), ((X[:, :6], X[:, 6:]), 4), (LABELED, 4)):
        model = federate("mlp(hidden=[8])", data, **SMALL | {"rounds": 1, "split": "iid"}).model()
        assert model["head.weight"].shape[0] == shape


def test_whole_numbers_that_hardly_repeat_are_what_is_said():
    amounts = np.round(100 * Y).astype(int)
    assert "global_mae" in federate(seeded(column), (X, amounts / 100), **SMALL).metrics[-1]
    assert "global_mae" in federate(seeded(column), (X, amounts), task="regression", **SMALL).metrics[-1]
    with pytest.raises(UserError, match="different whole numbers as labels of .* samples: say task='regression'"):
        federate("mlp(hidden=[4])", (X, amounts), **SMALL)
    with pytest.raises(UserError, match="different whole numbers as labels of .* samples: say task='regression'"):
        federate("mlp(hidden=[4])", (X, np.arange(len(X)) * 7), clients=5)  # a split by labels cannot part them
    short = SMALL | {"rounds": 1, "steps": 1, "split": "iid"}
    said = federate("mlp(hidden=[4])", (X, amounts), task="classification", **short)
    assert "global_accuracy" in said.metrics[-1]


# --- metrics ---------------------------------------------------------------------------------------------------------
def f1(outputs: Tensor, y: Tensor, average: str) -> float:
    return float(sk.f1_score(y, outputs.argmax(1), average=average))


def test_several_metrics_by_name_by_function_and_by_value():
    shares = Metric("top2", lambda o, y: (o.topk(2).indices == y[:, None]).any(1), unit="%")
    given = {"f1": partial(f1, average="macro"), "accuracy": "accuracy", "best two": shares}
    with pytest.raises(UserError, match="called 'best two', which is no word"):
        federate(metrics=given, rounds=1)
    given["top2"] = given.pop("best two")
    for name in ("fedavg", "fedavg_p('head.*')"):
        result = federate(algorithm=name, metrics=given, model="mlp(hidden=[8])", **SMALL)
        last, task = result.metrics[-1], result.experiment.federated.setup.task
        assert [metric.over for metric in task.metrics] == ["all", "samples", "samples"]
        usual = federate(algorithm=name, model="mlp(hidden=[8])", metrics=["accuracy", "f1"], **SMALL)
        for key in ("global", "adapted"):
            assert last[f"{key}_accuracy"] == usual.metrics[-1][f"{key}_accuracy"]
            assert last[f"{key}_f1"] == pytest.approx(usual.metrics[-1][f"{key}_f1"])
        assert last["personal_f1_mean"] == pytest.approx(usual.metrics[-1]["personal_f1_mean"])
        assert last["global_top2"] >= last["global_accuracy"]


def test_a_run_that_names_its_metrics_continues_from_its_folder(tmp_path):
    settings = SMALL | {"model": "mlp(hidden=[8])", "metrics": ["f1", "auroc"]}
    federate(out=str(tmp_path / "run"), **settings)
    apiece.experiment.launch.resume(tmp_path / "run", rounds=4)
    run_of = read_run(tmp_path / "run")
    assert "global_auroc" in run_of.metrics[-1] and len(run_of.metrics) == 4
    assert run_of.config["metrics"] == ["f1", "auroc"] and "task" not in run_of.config
    own = SMALL | {"out": str(tmp_path / "own"), "metrics": {"mine": lambda o, y: o.argmax(1) == y}}
    federate(**own)
    with pytest.raises(UserError, match="began with the metrics mine, not accuracy"):
        apiece.experiment.launch.resume(tmp_path / "own", rounds=4)


def test_a_metric_without_a_value_for_some_clients_is_said_once(capsys):
    settings = SMALL | {"split": "classes(1)", "clients": 10, "model": "mlp(hidden=[8])"}
    result = federate(metrics=["accuracy", "auroc"], **settings)
    err = capsys.readouterr().err
    assert err.count("auroc is not defined for 10 of 10 clients") == 1
    assert "global_auroc" in result.metrics[-1] and "personal_auroc_mean" not in result.metrics[-1]


class Lost(Piece):
    """Has no model for a client, and so a client predicts nothing."""

    def personal(self, view, theta):
        return theta * torch.nan


def test_clients_that_predict_what_is_no_number_are_told_once_and_have_no_accuracy(tmp_path, capsys):
    settings = SMALL | {"model": "mlp(hidden=[8])", "clients": 4, "out": str(tmp_path / "run")}
    result = federate(algorithm=algorithm(Lost(), name="lost"), **settings)
    err = capsys.readouterr().err
    assert err.count("is not a number (NaN)") == 1 and "or Lost.personal returned what is not" in err
    assert "after round 1, accuracy of 4 of 4 clients" in err and "first 'client-0': the step size" in err
    assert math.isnan(result.metrics[-1]["personal_accuracy_mean"]) and result.metrics[-1]["global_accuracy"] > 0


def test_a_metric_of_ones_own_that_is_no_number_is_blamed_itself(capsys):
    def mine(outputs, y):
        return torch.full((len(y),), math.nan)

    federate(**SMALL | {"model": "mlp(hidden=[8])", "clients": 4}, metrics={"mine": mine, "accuracy": "accuracy"})
    err = capsys.readouterr().err
    assert "mine of 4 of 4 clients is not a number (NaN), first 'client-0': the metric may not be defined" in err


def test_a_run_of_classes_is_as_it_was(tmp_path, capsys):
    """Its folder names neither task nor metric, and nothing is said."""
    federate(out=str(tmp_path / "run"), **SMALL)
    table = tomllib.loads((tmp_path / "run" / "run.toml").read_text())
    assert not {"metrics", "task"} & {*table, *table["config"], *table["resolved"]}
    assert capsys.readouterr().err == ""


def test_a_function_of_whole_numbers_takes_several_labels():
    """As those of torchmetrics do, which refuse floats; a loss of one's own takes them as floats."""
    whole = lambda o, y: sk.f1_score(y, o > 0, average="micro") if y.dtype == torch.int64 else 1 / 0
    last = run("multilabel", metrics={"mine": whole, "f1": "f1"}, loss=F.binary_cross_entropy_with_logits).metrics[-1]
    assert last["personal_mine_mean"] == pytest.approx(last["personal_f1_mean"])


# --- what tables show ------------------------------------------------------------------------------------------------
def test_the_best_of_an_error_is_the_lowest(tmp_path):
    for name, lr in (("slow", 1e-4), ("fast", 0.05)):
        for seed in (0, 1):
            run("regression", tmp_path / name / f"seed-{seed}", lr=lr, seed=seed)
    rows = read_runs([tmp_path / "slow", tmp_path / "fast"])
    shown = {column.metric.key: column for column in columns(rows)}
    assert shown["global_mae"].best == {1} and shown["global_r2"].best == {1}
    assert "%" not in "".join(shown["global_mae"].cells) + shown["global_mae"].metric.below
    assert unbeaten(measured(rows)).endswith("behind the best")
    fast = rows[1].runs[0]
    assert fast.best("global_mae") == min(fast.series("global_mae")[1])
    target = default_target(rows)
    assert target is not None and fast.to_target(target) is not None
    assert fast.to_target(0.0) is None


# --- what is refused -------------------------------------------------------------------------------------------------
# an algorithm catches one that would read numbers as classes
@pytest.mark.parametrize(
    "algorithm", ["class_mask", "knn_per", "fedgen", "vhl", "fedcog(steps=1, samples=4)", "pefll", "fedreg"]
)
@pytest.mark.parametrize("kind", ["regression", "segmentation"])
def test_what_needs_classes_says_so(kind, algorithm):
    with pytest.raises(UserError, match="classes|labels|linear classifier|end in Linear") as refused:
        run(kind, algorithm=algorithm, rounds=2)
    assert len(str(refused.value).splitlines()) == 1


# an entry catches a mistake that would be a traceback, or another number
@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"metrics": lambda o, y: torch.stack([o.mean(), y.mean()])}, "gives 2 numbers for 3 samples"),
        ({"metrics": lambda o, y: "high"}, "gives a str"),
        ({"metrics": "rsme"}, "no metric 'rsme' for regression; did you mean 'rmse'"),
        ({"metrics": ["mae", "mae"]}, "2 metrics are called 'mae'"),
        ({"metrics": {"loss": F.l1_loss}}, "'loss', which is taken"),
        ({"metrics": {}}, "metrics is empty"),
        ({"metrics": 3}, "a metric is 3"),
        ({"metrics": nn.L1Loss}, "a metric is"),
        ({"metric": "mae", "metrics": ["mae"]}, "both given"),
        ({"metric": lambda o, y: 1 / 0}, "metric 'metric' fails: ZeroDivisionError: division by zero."),
        ({"task": "regresion"}, "did you mean 'regression'"),
        ({"task": "classification"}, "no classes but numbers with fractions"),
        ({"task": "segmentation"}, "needs a class for each pixel"),
        ({"loss": lambda o, y: (o - y).square()}, "loss gives numbers of shape"),
        ({"target": float("inf")}, "finite"),
    ],
)
def test_mistakes_get_one_sentence(settings, said):
    with pytest.raises(UserError, match=said):
        run("regression", **settings)


def test_what_would_part_samples_from_their_targets(capsys):
    """Flips of images alone are refused; noise keeps each image beside its mask; a large target is said."""
    with pytest.raises(UserError, match="move images and not their masks"):
        run("segmentation", augment="flip")
    data = (np.uint8(200) * MASKS[..., None].astype(np.uint8).repeat(3, -1), MASKS)
    settings = SMALL | {"split": "iid", "noise_rgb": 0.1, "rounds": 1}
    place = federate(nn.Conv2d(3, 2, 1), data, **settings).experiment.federation
    for rows in place.train:
        x, y = (leaf[rows] for leaf in place.pool)
        assert ((x[:, 0] > x[:, 0].amin()) == (y > 0)).float().mean() > 0.99
    capsys.readouterr()
    federate(column(), (X, 1000 * Y), rounds=1, steps=1, lr=0.0)
    assert "targets have numbers as large as" in capsys.readouterr().err


def test_ready_clients_whose_targets_say_no_task():
    """One-hot rows and real numbers of several axes; several labels may be whole numbers or truth values."""
    x, rows = torch.randn(24, 6), [torch.arange(8 * i, 8 * i + 8) for i in range(3)]
    bits = torch.rand(24, 4) < 0.4

    def ready(y: Tensor, **settings: Any) -> Result:
        place = Federation((x, y), (x, y), rows, rows, ["a", "b", "c"])
        return federate(seeded(lambda: nn.Linear(6, 4)), clients=place, rounds=1, steps=1, batch=4, **settings)

    with pytest.raises(UserError, match=r"\[24, 4\] has a single 1.*argmax"):
        ready(torch.eye(4)[torch.arange(24) % 4])
    with pytest.raises(UserError, match=r"\[24, 2, 2\], which say no task: say task='forecasting'"):
        ready(torch.randn(24, 2, 2))
    same = [ready(bits.to(kind)).server.params for kind in (torch.bool, torch.int64, torch.float32)]
    assert torch.equal(same[0], same[1]) and torch.equal(same[1], same[2])
    same = [ready(bits.to(kind), algorithm="pefll").server.params for kind in (torch.bool, torch.float32)]
    assert torch.equal(*same)


def test_outputs_of_another_shape_are_refused():
    with pytest.raises(UserError, match=r"gives \[3\] for a sample whose target is \[\]"):
        federate(nn.Linear(10, 3), (X, Y), **SMALL)
    with pytest.raises(UserError, match=r"gives \[3\] for a sample whose target is \[4\]"):
        federate(nn.Linear(8, 3), LABELED, **SMALL | {"split": "iid"})
    with pytest.raises(UserError, match=r"pixels may be of class 0 to 6: it must give \[7, 6, 6\]"):
        federate(convolution(), (IMAGES, np.where(MASKS, 6, 0)), **SMALL | {"split": "iid"})
    with pytest.raises(UserError, match=r"divides samples by label, and your own has none"):
        federate(nn.Linear(8, 4), LABELED, **SMALL)
