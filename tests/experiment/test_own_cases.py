"""Models and data of one's own under the papers' algorithms: lifts agree, and a stopped run is continued bitwise."""

import functools
import json
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support.recipes import Stop, stopping
from support.results import same_models
from torch import Tensor, nn

from apiece import federate
from apiece.errors import UserError
from apiece.experiment.result import Result

ALGORITHMS = (
    "fedavg",
    "scaffold",
    "fedals(2)",
    "fedavg_p",
    "scaffold_p",
    "relaxed_init(0.1)",
    "fedcog(samples=8)",
    "pefll",
)
SETTINGS = {"clients": 3, "rounds": 3, "steps": 2, "batch": 8, "split": "iid", "lr": 0.05, "panel": 2}


class Gru(nn.Module):
    def __init__(self):
        super().__init__()
        self.recurrent, self.out = nn.GRU(2, 6, batch_first=True), nn.Linear(6, 1)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        states, _ = self.recurrent(x)
        return (self.out(states)[..., 0] * mask).sum(1) / mask.sum(1)


class Attending(nn.Module):
    """A transformer of ten tokens, with a mask and dropout."""

    def __init__(self):
        super().__init__()
        self.embed, self.out = nn.Embedding(10, 8), nn.Linear(8, 3)
        self.encoder = nn.TransformerEncoderLayer(8, 2, 12, dropout=0.1, batch_first=True)

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        z = self.encoder(self.embed(input_ids), src_key_padding_mask=~attention_mask.bool())
        return self.out((z * attention_mask[..., None]).sum(1) / attention_mask.sum(1, keepdim=True))


class Heads(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.kind, self.size = nn.Linear(5, 8), nn.Linear(8, 3), nn.Linear(8, 1)

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        z = torch.tanh(self.body(x))
        return {"logits": self.kind(z), "size": self.size(z)[:, 0]}


def both(out: Any, y: Any) -> Tensor:
    return nn.functional.cross_entropy(out["logits"], y["kind"]) + (out["size"] - y["size"]).square().mean()


def weighted(scores: Tensor, y: Tensor) -> Tensor:
    return nn.functional.cross_entropy(scores, y, weight=torch.tensor([1.0, 2.0, 3.0]))


def sure(scores: Tensor, y: Tensor) -> Tensor:
    return scores.softmax(1).gather(1, y[:, None])[:, 0]


def caught(scores: Tensor, y: Tensor) -> Tensor:
    return ((scores.argmax(1) == 2) & (y == 2)).sum() / (y == 2).sum()


def table() -> Any:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(x[:, :3], columns=["a", "b", "c"])
    frame["a"] = frame["a"].where(x[:, 4] > -1.2)
    frame["color"] = np.array(["red", "green", "blue"])[labels]
    frame["label"] = labels
    return frame


@functools.cache
def folder() -> str:
    """Dark and light images of unequal size, one folder a class; it is left to the system's own cleaning."""
    from PIL import Image

    path = Path(tempfile.mkdtemp())
    for i in range(60):
        (path / str(i % 2)).mkdir(exist_ok=True)
        pixels = np.random.default_rng(i).integers(0, 160, (7 + i % 3, 8, 3)) + 90 * (i % 2)
        Image.fromarray(pixels.astype(np.uint8)).save(path / str(i % 2) / f"{i}.png")
    return str(path)


def hugging_face() -> Any:
    datasets = pytest.importorskip("datasets")
    return datasets.Dataset.from_dict({"size": x[:, 0], "rest": x[:, 1:].tolist(), "kind": labels, "note": ["-"] * 90})


rng = np.random.default_rng(0)
x = rng.standard_normal((90, 5)).astype(np.float32)
labels = (x[:, 0] > 0).astype(int) + (x[:, 1] > 0)
ragged = [rng.standard_normal((n, 2)).astype(np.float32) for n in rng.integers(2, 6, 90)]
tokens = [rng.integers(1, 10, n).tolist() for n in rng.integers(2, 6, 90)]
pictures = rng.standard_normal((90, 1, 8, 8)).astype(np.float32)
CASES: dict[str, tuple[Callable[[], nn.Module | str], Callable[[], Any], dict[str, Any]]] = {
    "table": (lambda: nn.Sequential(nn.LazyLinear(8), nn.ReLU(), nn.Linear(8, 3)), table, {}),
    "images": (lambda: "cnn", folder, {"resize": 8}),
    "hugging_face": (
        lambda: nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 3)),
        hugging_face,
        {"input": ["size", "rest"], "target_column": "kind"},
    ),
    "batch_norm_dropout": (
        lambda: nn.Sequential(nn.Linear(5, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.3), nn.Linear(8, 3)),
        lambda: (x, labels),
        {},
    ),
    "regression": (lambda: nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 1)), lambda: (x, x[:, 0] * 2.5), {}),
    "several_labels": (
        lambda: nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 4)),
        lambda: (x, x[:, :4] > 0),
        {},
    ),
    "segmentation": (
        lambda: nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(), nn.Conv2d(4, 2, 3, padding=1)),
        lambda: (pictures, (pictures[:, 0] > 0).astype(int)),
        {"task": "segmentation"},
    ),
    "heads": (
        Heads,
        lambda: (x, {"kind": labels, "size": x[:, 2]}),
        {"loss": both, "metric": lambda out, y: (out["size"] - y["size"]).abs()},
    ),
    "own_loss_and_metrics": (
        lambda: nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 3)),
        lambda: (x, labels),
        {"loss": weighted, "metrics": [sure, caught, "f1"]},
    ),
    "forecasting": (Gru, lambda: (ragged, np.array([one.sum() for one in ragged])), {"task": "forecasting"}),
    "transformer": (Attending, lambda: ({"input_ids": tokens}, labels), {}),
    "adapters": (
        lambda: nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 3)),
        lambda: (x, labels),
        {"adapter": "lora(r=2, targets='0,2')"},
    ),
}  # fmt: skip


def run(case: str, algorithm: str, **settings: Any) -> Result:
    model, data, given = CASES[case]
    torch.manual_seed(0)
    module = model()
    if case == "table" and isinstance(module, nn.Module):
        module(torch.zeros(2, 6))
    if case == "adapters":
        pytest.importorskip("peft")
    return federate(module, data(), algorithm, **SETTINGS | given | settings)


LIFTS = ["sequential", "threaded", "vectorized"]


@pytest.mark.parametrize("lift", LIFTS)  # each gathers and stacks trees, masks, adapters and buffers by code of its own
@pytest.mark.parametrize("case", CASES)  # each has inputs, targets, loss or memory of another form
def test_a_stopped_run_goes_on_bitwise(case, lift, tmp_path, no_report):
    """Scaffold on fedals keeps rows at clients, and the stop is amid an interval of the body."""
    warnings.simplefilter("ignore")
    settings: dict[str, Any] = {"algorithm": "fedals(2) + scaffold", "lift": lift}
    whole = run(case, **settings)
    with pytest.raises(Stop):
        run(case, out=tmp_path / "run", on_round=stopping(1), **settings)
    same_models(whole, run(case, out=tmp_path / "run", resume=True, **settings))


def by_name(case: str, path: Path) -> dict[str, Any]:
    """The same kind of run from files and names alone, of which a client's own process is made."""
    if case == "transformer":  # rows of tokens of unequal length, of which attention masks the padding
        lines = [{"text": "ab" * (1 + i % 4), "label": i % 3, "client": f"c{i % 3}"} for i in range(60)]
        (path / "texts.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        model = "opt(hidden=8, layers=1, heads=2, length=12)"
        return {"data": str(path / "texts.jsonl"), "model": model, "split": "natural"}
    np.savez(path / "table.npz", x_train=x, y_train=x[:, 0] * 2.5 if case == "regression" else labels)
    adapter = {"adapter": "lora(r=2, targets=all-linear)"} if case == "adapters" else {}
    return {"data": str(path / "table.npz"), "model": "mlp(hidden=[8])"} | adapter


@pytest.mark.slow
@pytest.mark.parametrize("case", ["regression", "adapters", "transformer"])  # real targets, frozen weights, masks
def test_each_client_a_process_is_bitwise_one_process(case, tmp_path, no_report):
    if case == "adapters":
        pytest.importorskip("peft")
    given: dict[str, Any] = SETTINGS | by_name(case, tmp_path) | {"algorithm": "fedals(2) + scaffold", "rounds": 2}
    whole = federate(**given, lift="sequential")
    with pytest.raises(Stop):
        federate(**given, lift="wired", out=tmp_path / "run", on_round=stopping(1))
    same_models(whole, federate(**given, lift="wired", out=tmp_path / "run", resume=True))


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_every_case_under_every_algorithm(case, tmp_path, no_report):
    """Where an algorithm has no meaning, or a lift cannot run the model, one sentence says so."""
    warnings.simplefilter("ignore")
    ran = 0
    for number, algorithm in enumerate(ALGORITHMS):
        try:
            whole = run(case, algorithm, lift="sequential")
        except UserError as error:
            assert algorithm in ("fedcog(samples=8)", "pefll") and str(error).endswith(".") and "\n" not in str(error)
            continue
        ran += 1
        same_models(whole, run(case, algorithm, lift="threaded"))
        out = tmp_path / str(number)
        with pytest.raises(Stop):
            run(case, algorithm, lift="sequential", out=out, on_round=stopping(1))
        same_models(whole, run(case, algorithm, lift="sequential", out=out, resume=True))
        try:
            stacked = run(case, algorithm, lift="vectorized").model()
        except UserError as error:
            assert "take lift='threaded'" in str(error)
            continue
        one = whole.model()
        assert (
            max(float((one[name] - stacked[name]).abs().max()) for name in one if one[name].is_floating_point()) < 1e-3
        )
    assert ran >= 6
