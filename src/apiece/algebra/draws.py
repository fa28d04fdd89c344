"""Random numbers that pieces ask for, from streams named by round, client and piece."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from apiece.algebra.piece import Draw
from apiece.randomness import generator


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
    out, leading = {}, {"round": (), "step": (steps,), "sample": (samples,), "run": ()}
    for request in requests:
        whose = ("run",) if request.each == "run" else (round, name)
        rng = generator(seed, "draws", *whose, piece, request.name)
        asked = request.shape(sample) if callable(request.shape) else request.shape
        shape = (*leading[request.each], *asked)
        values = rng.standard_normal(shape) if request.distribution == "normal" else rng.random(shape)
        out[request.name] = torch.from_numpy(np.asarray(values)).to(dtype)
    return out
