"""What the server sends: its own vector (the identity), or a model written for each client by a generator.

The server's gradient is the transpose of the broadcast at the clients' deltas: for the identity, the mean of these. A
broadcast may have memory of its own, which is no gradient's, and may be a recipe that `complete` makes whole once the
task and the federation are known.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from torch import Tensor

from apiece.algebra.message import Weighted


class FederationFacts(NamedTuple):
    """What a recipe may know of the task and the federation that it is completed for."""

    shape: tuple[int, ...]  # of a sample
    classes: int
    names: Sequence[str]  # of all clients, those too that never train
    participants: Sequence[int]  # the numbers of those that train
    seed: int


class Sent(NamedTuple):
    """What was sent: one model for all or a row for each; the transpose; and the broadcast's memory from now on."""

    model: Tensor | None  # [D], to every client
    each: dict[int, Tensor] | None  # client -> [D], where models differ: who has none takes no part
    back: Callable[[Any], tuple[Tensor, Any]]  # answer -> (the server's gradient, the answer with all phases' traffic)
    memory: Any = ()


@dataclass(frozen=True)
class Identity:
    """Every client receives the server's vector; the transpose is the weighted mean of the deltas."""

    delta = Weighted
    common = True  # the server's parameters are a model, and every client is sent it
    own_batch = False  # whether a batch is drawn for a client's descriptor
    optimizer = None

    def complete(self, space: Any, setting: FederationFacts | None) -> Identity:
        """This broadcast for a model's vector space and a federation."""
        return self

    def initial(self, theta: Tensor) -> Tensor:
        """The server's parameters at the start, for an initial model theta [D]."""
        return theta

    def memory(self, params: Tensor) -> Any:
        """The broadcast's memory at the start."""
        return ()

    def send(self, params: Tensor, memory: Any, cohort: Any, shared: Any) -> Sent:
        def back(answer: Any) -> tuple[Tensor, Any]:
            return answer.mean.delta, answer

        return Sent(params, None, back)

    def model(self, params: Tensor, memory: Any, each: Any) -> Tensor:
        """What a client is sent outside training, seen before or not, [D]."""
        return params
