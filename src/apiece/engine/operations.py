"""All that a client can be asked for in a round, by name."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, update_wrapper

from apiece.algebra.place import Shared
from apiece.engine.client import train
from apiece.engine.pipeline import embed, embed_back
from apiece.engine.setup import Setup
from apiece.engine.state import ClientTask, Reply
from apiece.engine.stepping import Stepping

OPERATIONS = {what.__name__: what for what in (train, embed, embed_back)}
Operation = Callable[[Stepping, Shared, ClientTask], Reply]


def operations(setup: Setup) -> dict[str, Operation]:
    """Every operation of an algorithm on a task."""
    return {name: update_wrapper(partial(what, setup), what) for name, what in OPERATIONS.items()}
