"""Memory: what is freed is kept for the next step, for glibc would hand it back to the system and fetch it again, a
fault a page; and what asks for more than there is, is refused.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager

from apiece.errors import UserError, said

TRIM_THRESHOLD, MMAP_THRESHOLD, ARENA_MAX = -1, -3, -8  # mallopt's numbers, from malloc.h
KEPT, FROM_HEAP = 1 << 28, 1 << 26  # bytes free at the heap's end that are kept; the largest block taken from the heap


LACKING = ("allocate memory", "out of memory", "size calculation overflowed", "unpacking long")  # as torch says it


def keep_freed() -> bool:
    """Tell this process's allocator to keep what is freed; whether it can be told (glibc alone).

    Threads share one heap: a heap of their own ends at 64 MiB, and what is beyond comes from the system every time.
    Measured on a step of a LeNet and of a perceptron with 200,000 parameters: a tenth to a seventh less time.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return False
    told = ((ARENA_MAX, 1), (MMAP_THRESHOLD, FROM_HEAP), (TRIM_THRESHOLD, KEPT))
    return all(mallopt(*one) for one in told)


@contextmanager
def enough(what: str) -> Iterator[None]:
    """Raise UserError where this asks for more memory than there is, or for tensors of more numbers than have one."""
    try:
        yield
    except (MemoryError, RuntimeError, TypeError) as error:
        if not isinstance(error, MemoryError) and not any(words in str(error) for words in LACKING):
            raise
        raise UserError(f"{what} asks for more memory than there is ({said(error)}): give smaller sizes.") from error
