"""A client's two halves of a pipeline, beside its training: its descriptor there, and the transpose back."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from apiece.algebra.generators import Pipeline
from apiece.algebra.message import PerClient, Sum
from apiece.algebra.place import Shared
from apiece.engine.setup import Setup
from apiece.engine.state import ClientTask, Reply, finite
from apiece.engine.stepping import Stepping


def embed(setup: Setup, stepping: Stepping, shared: Shared, client: ClientTask) -> Reply:
    """The first half of a pipeline on the client: its descriptor."""
    v = _pipeline(setup).descriptor(shared.vector, client)
    return Reply(PerClient(v), (), {}, finite(v))


def embed_back(setup: Setup, stepping: Stepping, shared: Shared, client: ClientTask) -> Reply:
    """The last half of a pipeline on the client: the transpose of `embed`, same samples, at the d v it was sent."""
    d_v = client.sent
    assert isinstance(d_v, Tensor), "the last half of a pipeline goes to those alone who are sent a d v"

    def along(phi: Tensor) -> tuple[Tensor, Any]:
        return (_pipeline(setup).descriptor(phi, client) * d_v).sum(), ()

    d_phi = stepping.differentiate(along, shared.vector)[0]
    return Reply(Sum(d_phi), (), {}, finite(d_phi))


def _pipeline(setup: Setup) -> Pipeline:
    assert isinstance(setup.broadcast, Pipeline), "a descriptor is asked for by a pipeline alone"
    return setup.broadcast
