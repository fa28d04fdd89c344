"""Randomness is counter-based: words name a stream, and it does not depend on what was drawn before.

`generator(seed, round, client, purpose)` is the same stream on any worker, in any order and after every resumption, so
no generator state is saved. Nothing else in apiece creates random numbers, except a model that draws as it trains: what
it draws follows from a key of such a stream (`vector/draws.py`).
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.random.bit_generator import ISeedSequence


def generator(seed: int, *purpose: object) -> np.random.Generator:
    """The stream named by (seed, *purpose): Philox keyed by a 128-bit hash of the words.

    >>> a, b = generator(0, 3, "client-7", "batches"), generator(0, 3, "client-7", "batches")
    >>> bool((a.random(4) == b.random(4)).all())
    True
    """
    words = "\x1f".join(str(word) for word in (seed, *purpose))
    key: Any = _Key(hashlib.blake2b(words.encode(), digest_size=16).digest())
    return np.random.Generator(np.random.Philox(key))


@contextmanager
def unshared(say: Callable[[str], object]) -> Iterator[None]:
    """In this context nothing should draw from the generators that a process shares: a program's own piece, loss or
    module might. If something does, `say` is called with a sentence on it.
    """
    import torch

    before = torch.get_rng_state(), _of_numpy(), random.getstate()
    yield
    same = torch.equal(before[0], torch.get_rng_state()), before[1] == _of_numpy(), before[2] == random.getstate()
    if moved := [name for name, still in zip(("torch", "NumPy", "Python"), same, strict=True) if not still]:
        say(
            f"this run cannot be repeated: a piece, a loss or a module of your own draws from the random numbers of "
            f"{' and '.join(moved)}, which no seed of the run sets; a piece declares what it draws in its slot `draws`."
        )


def _of_numpy() -> tuple[Any, ...]:
    state: Any = np.random.get_state()
    return (state[1].tobytes(), *state[2:])


class _Key(ISeedSequence):
    """A key of Philox as it is. Given as `Philox(key=...)` it costs three times as much: entropy is drawn that no one
    uses.
    """

    def __init__(self, key: bytes):
        self.key = key

    def generate_state(self, n_words: int, dtype: Any = np.uint64) -> np.ndarray:
        return np.frombuffer(self.key, "<u8").astype(np.uint64)
