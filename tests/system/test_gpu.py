"""What a GPU computes: every algorithm and composition is, but for rounding, what it is on the CPU.

Skipped where there is no GPU. On one: `python -m pytest tests/system/test_gpu.py tests/system/test_device.py -n 8`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from support.numbers import apart, everything
from support.outer import cli
from support.recipes import CASES, SMALL, Stop, result, stopping
from torch import Tensor, nn
from torch.utils._pytree import tree_flatten

from apiece import algorithm, federate
from apiece.algebra.piece import Piece
from apiece.errors import UserError

QUICK = SMALL | {"rounds": 4, "device": "cuda"}
WAYS = [("vectorized", "float64", 1e-9), ("sequential", "float64", 1e-9), ("vectorized", "float32", 2e-3)]
AMPLIFIED = ("accuracy", "gradient_dissimilarity")  # a tie, and a difference of nearly equal numbers: not in float32
LIFTS = "sequential", "vectorized"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU here"),
    pytest.mark.usefixtures("no_report"),
]


@pytest.mark.filterwarnings("ignore:There is a performance drop")
@pytest.mark.parametrize(("lift", "precision", "tolerance"), WAYS)
@pytest.mark.parametrize("case", CASES)
def test_every_algorithm(case, lift, precision, tolerance):
    """Four rounds: under `vectorized` the third and the fourth replay what the second recorded.

    The CPU computes in float64, with which the GPU's float32 agrees in every case. The CPU's own float32 does not under
    `fedbn`: one activation of its ResNet is -1.6e-5 in float64 and 2.7e-5 there, ReLU tells them apart, and BatchNorm
    over batches of 8 carries this on to 0.03 of a weight.
    """
    settings: dict[str, Any] = QUICK | CASES[case] | {"lift": lift, "rounds": 4}
    here = everything(federate(**(settings | {"device": "cpu", "precision": "float64"})))
    there = everything(federate(**(settings | {"precision": precision})))
    assert here.keys() == there.keys()
    kept = [name for name in here if precision == "float64" or not any(word in name for word in AMPLIFIED)]
    away, where = max((apart(here[name], there[name]), name) for name in kept)
    assert away <= tolerance, where


def convolved(**settings: Any) -> dict[str, Tensor]:
    """What three rounds on images make of a network of convolutions."""
    torch.manual_seed(0)
    body = nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 8, 3, stride=2), nn.Flatten()
    rng = np.random.default_rng(0)
    images, labels = rng.normal(size=(120, 1, 12, 12)).astype(np.float32), np.arange(120) % 3
    return federate(nn.Sequential(*body, nn.Linear(32, 3)), (images, labels), clients=4, rounds=3, steps="3",
                    split="iid", **settings).model()  # fmt: skip


# lifts catch a layout, precisions a product that is rounded though nobody asked
@pytest.mark.parametrize("lift", LIFTS)
@pytest.mark.parametrize(
    ("precision", "tolerance"), [("float64", 1e-9), ("float32", 1e-4), ("tf32", 5e-2), ("bfloat16", 1e-1)]
)
def test_convolutions(lift, precision, tolerance):
    one = convolved(lift="sequential", precision="float64")
    other = convolved(lift=lift, precision=precision, device="cuda")
    assert max(apart(one[name], other[name]) for name in one) <= tolerance


# lifts catch statistics that are kept where a call left them
@pytest.mark.filterwarnings("ignore:There is a performance drop")
@pytest.mark.parametrize("lift", LIFTS)
@pytest.mark.parametrize("model", ["resnet20", "resnet18_gn"])
def test_larger_models(lift, model):
    settings = {"model": model, "clients": 5, "rounds": 3, "steps": "1", "batch": 8, "precision": "float64"}
    one, other = (federate(lift=lift, device=name, **settings).model() for name in ("cpu", "cuda"))
    assert max(apart(one[name], other[name]) for name in one) <= 1e-8


# lifts catch a first call of a shape that is computed otherwise than the later ones
@pytest.mark.parametrize("lift", LIFTS)
def test_a_resumed_run_is_the_same(lift, tmp_path):
    settings = QUICK | {"algorithm": "scaffold + relaxed_init", "lift": lift, "model": "cnn"}
    federate(out=str(tmp_path / "whole"), **settings)
    with pytest.raises(Stop):
        federate(out=str(tmp_path / "parts"), on_round=stopping(2), **settings)
    federate(out=str(tmp_path / "parts"), resume=True, **settings)
    whole, parts = result(tmp_path / "whole"), result(tmp_path / "parts")
    logs = [tree_flatten(each.pop("log")) for each in (whole, parts)]  # sums over layers are atomic there
    assert logs[0][1] == logs[1][1] and logs[0][0] == pytest.approx(logs[1][0], rel=1e-5)
    assert whole == parts


@pytest.mark.parametrize("lift", LIFTS)
def test_a_step_size_that_is_too_large(lift):
    with pytest.raises(UserError, match="non-finite"):
        federate(**(QUICK | {"lr": 1e30, "clip": 1e30, "lift": lift}))


@pytest.fixture
def little_memory() -> Iterator[Any]:
    """A function that leaves this process so many GiB of the GPU's memory."""
    whole = torch.cuda.mem_get_info()[1]
    torch.cuda.empty_cache()
    yield lambda gigabytes: torch.cuda.set_per_process_memory_fraction(gigabytes * 2**30 / whole)
    torch.cuda.set_per_process_memory_fraction(1.0)


BIG = {"model": "resnet18_gn", "clients": 24, "rounds": 3, "steps": "1", "batch": 8, "device": "cuda", "unseen": 0}


def test_calls_that_do_not_fit_become_smaller(little_memory, caplog):
    little_memory(6)
    federate(lift="vectorized", **BIG)
    assert "the GPU has no memory for" in caplog.text and "so a call takes" in caplog.text


@pytest.mark.parametrize("lift", LIFTS)
def test_a_model_that_does_not_fit(lift, little_memory):
    little_memory(0.3)
    with pytest.raises(UserError, match="memory") as raised:
        federate(lift=lift, **BIG)
    assert "\n" not in str(raised.value)


@dataclass(frozen=True)
class Added(Piece):
    """Adds a number of the host, which a CUDA graph cannot hold."""

    def correct(self, view: Any) -> Any:
        return (), lambda scratch, g, theta, batch: (scratch, g + torch.tensor(1e-3, device=g.device))


def test_what_cannot_be_recorded_is_computed_all_the_same(caplog):
    images = np.random.default_rng(0).normal(size=(120, 4)).astype(np.float32), np.arange(120) % 3
    settings: dict[str, Any] = {"clients": 8, "split": "iid", "rounds": 4, "steps": 2, "lift": "vectorized"}
    torch.manual_seed(0)
    module, piece = nn.Linear(4, 3), algorithm(Added(), name="added")
    here, there = (federate(module, images, piece, device=name, **settings).model() for name in ("cpu", "cuda"))
    assert "kernel by kernel" in caplog.text
    assert max(apart(here[name], there[name]) for name in here) < 1e-5


def test_a_command(tmp_path):
    ended = cli("run", "--device", "cuda", "--rounds", "3", "--steps", "2", "--out", tmp_path / "run")
    assert ended.code == 0, ended.err
    assert cli("resume", tmp_path / "run", "--rounds", "4").code == 0
