"""Float samples [n, a, b] reach a model of one's own in the shape that it takes, and named models as images."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from apiece.data.federation import Federation
from apiece.errors import UserError
from apiece.experiment.launch import federate
from apiece.randomness import generator

RNG = generator(0, "sequences test")
X, Y = RNG.standard_normal((60, 8, 6)).astype(np.float32), np.arange(60) % 3
QUICK: dict[str, Any] = {"rounds": 1, "steps": 2, "clients": 3, "split": "iid"}


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cells, self.head = nn.GRU(6, 5, batch_first=True), nn.Linear(5, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.cells(x)[0][:, -1])


class Mean(nn.Module):
    """Runs on images too, but with an output of another shape."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(x.mean(1))


class Either(nn.Module):
    """Takes both, and means other numbers by them."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(48, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head((x * x.dim()).flatten(1))


CONVOLUTION = nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.Flatten(), nn.Linear(48, 3))
OVER_TIME = nn.Sequential(nn.Conv1d(8, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(16, 3))
READ = {  # the neighbors on both sides of each decision
    "recurrent": (Recurrent(), (8, 6), "are sequences"),
    "transformer": (
        nn.Sequential(nn.TransformerEncoderLayer(6, 2, 8, 0.0, batch_first=True), Mean()),
        (8, 6),
        "are seq",
    ),
    "mean over time": (Mean(), (8, 6), "are sequences"),
    "convolution over time": (OVER_TIME, (8, 6), "are sequences"),
    "images": (CONVOLUTION, (1, 8, 6), "are images"),
    "either": (Either(), (1, 8, 6), "both as images and as sequences"),
    "either alike": (nn.Sequential(nn.Flatten(), nn.Linear(48, 3)), (1, 8, 6), ""),
}


@pytest.mark.parametrize("kind", READ)
def test_a_model_of_ones_own_gets_the_shape_that_it_takes(kind, caplog):
    module, shape, said = READ[kind]
    result = federate(module, (X, Y), **QUICK)
    place = result.experiment.federation
    assert tuple(place.test_pool[0].shape[1:]) == shape and said in caplog.text and (said or not caplog.text)
    given = Federation(place.pool, place.test_pool, place.train, place.test, place.names)
    again = federate(module, clients=given, **{k: v for k, v in QUICK.items() if k not in ("clients", "split")})
    assert torch.equal(again.server.params, result.server.params)


def test_named_models_and_pixels_are_read_as_before(caplog):
    named = federate("mlp(hidden=[4])", (X, Y), **QUICK)
    pixels = federate(CONVOLUTION, ((X * 9).astype(np.uint8), Y), **QUICK)
    for result in (named, pixels):
        assert tuple(result.experiment.federation.test_pool[0].shape[1:]) == (1, 8, 6)
    assert "images" not in caplog.text
    four = federate(CONVOLUTION, (X[:, None], Y), **QUICK)  # four dimensions are images
    assert tuple(four.experiment.federation.test_pool[0].shape[1:]) == (1, 8, 6)


def test_a_model_that_takes_neither_is_told_the_shape_that_was_given():
    with pytest.raises(UserError, match=r"does not take samples of shape \[8, 6\]"):
        federate(nn.Linear(5, 3), (X, Y), **QUICK)
