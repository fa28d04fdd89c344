"""Random numbers that pieces ask for, from streams named by round, client and piece."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from apiece.randomness import generator
from apiece.system.typed import from_array


def draw(
    requests: tuple[Draw, ...],
    seed: int,
    round: int,
    name: str,
    piece: str,
    steps: int,
    dtype: torch.dtype,
    sample: tuple[int, ...] = (),
    samples: int = 0,
) -> dict[str, Tensor]:
    """What a piece asked to be drawn for one client in one round; draws per step or sample have a leading axis of
    these, draws per run name neither client nor round.
    """
    out: dict[str, Tensor] = {}
    leading: dict[str, tuple[int, ...]] = {"round": (), "step": (steps,), "sample": (samples,), "run": ()}
    for request in requests:
        whose = ("run",) if request.each == "run" else (round, name)
        rng = generator(seed, "draws", *whose, piece, request.name)
        asked = request.shape(sample) if callable(request.shape) else request.shape
        shape = (*leading[request.each], *asked)
        values = rng.standard_normal(shape) if request.distribution == "normal" else rng.random(shape)
        out[request.name] = from_array(np.asarray(values)).to(dtype)
    return out


class Draw(NamedTuple):
    """A request for random numbers: standard normal or uniform on [0, 1), of this shape, once a round, a step, a
    training sample or a run; those of a run are the same for every client and round.

    Args:
        name: by which the piece finds its numbers, in `view.draws`.
        shape: of one draw; where it follows from the data, a function of the shape of one sample's input.
        distribution: "normal" or "uniform".
        each: "round", "step", "sample" or "run".

    >>> noise = Draw("noise", (2,), each="step")
    >>> draw((noise,), seed=0, round=3, name="ash", piece="Noisy", steps=5, dtype=torch.float32)["noise"].shape
    torch.Size([5, 2])
    """

    name: str
    shape: tuple[int, ...] | Callable[[tuple[int, ...]], tuple[int, ...]]
    distribution: str = "normal"
    each: str = "round"
