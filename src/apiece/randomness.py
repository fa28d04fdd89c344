"""Randomness is counter-based: words name a stream, and it does not depend on what was drawn before.

`generator(seed, round, client, purpose)` is the same stream on any worker, in any order and after every resumption, so
no generator state is saved. Nothing else in apiece creates random numbers, except a model that draws as it trains: what
it draws follows from a key of such a stream (`vector/draws.py`).
"""

from __future__ import annotations

import hashlib

import numpy as np


def generator(seed: int, *purpose: object) -> np.random.Generator:
    """The stream named by (seed, *purpose): Philox keyed by a 128-bit hash of the words.

    >>> a, b = generator(0, 3, "client-7", "batches"), generator(0, 3, "client-7", "batches")
    >>> bool((a.random(4) == b.random(4)).all())
    True
    """
    words = "\x1f".join(str(word) for word in (seed, *purpose))
    key = int.from_bytes(hashlib.blake2b(words.encode(), digest_size=16).digest(), "little")
    return np.random.Generator(np.random.Philox(key=key))
