"""Randomness is counter-based: words name a stream, and it does not depend on what was drawn before.

`generator(seed, round, client, purpose)` is the same stream on any worker, in any order and after every resumption, so
no generator state is saved. Nothing else in apiece creates random numbers, except a model that draws as it trains: what
it draws follows from a key of such a stream (`vector/draws.py`).
"""

from __future__ import annotations

import hashlib
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


class _Key(ISeedSequence):
    """A key of Philox as it is. Given as `Philox(key=...)` it costs three times as much: entropy is drawn that no one
    uses.
    """

    def __init__(self, key: bytes):
        self.key = key

    def generate_state(self, n_words: int, dtype: Any = np.uint64) -> np.ndarray:
        return np.frombuffer(self.key, "<u8").astype(np.uint64)
