"""What the server sends: its own vector (the identity), or a model written for each client by a generator.

The server's gradient is the transpose of the broadcast at the clients' deltas: for the identity, the mean of these. A
broadcast may have memory of its own, which is no gradient's, and may be a recipe that `complete` makes whole once the
task and the federation are known.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from torch import Tensor

from apiece.algebra.message import Weighted
from apiece.algebra.optim import Optimizer
from apiece.algebra.place import Answer, Cohort, Described, Shared, Traffic
from apiece.vector.space import Space


class FederationFacts(NamedTuple):
    """What a recipe may know of the task and the federation that it is completed for.

    >>> FederationFacts(shape=(8, 8), classes=10, names=["ash", "box"], participants=[0, 1], seed=0).task
    'classification'
    """

    shape: tuple[int, ...]  # of a sample
    classes: int
    names: Sequence[str]  # of all clients, those too that never train
    participants: Sequence[int]  # the numbers of those that train
    seed: int
    task: str = "classification"  # the name of what is learned


class Sent(NamedTuple):
    """What was sent: one model for all or a row for each; the transpose; the broadcast's memory from now on; and what
    crossed until then.
    """

    model: Tensor | None  # [D], to every client
    each: dict[int, Tensor] | None  # client -> [D], where models differ: who has none takes no part
    back: Callable[[Answer], tuple[Tensor, Answer]]  # -> (the server's gradient, the answer with all traffic since)
    memory: Any = ()
    traffic: Traffic = Traffic()


class Broadcast(Protocol):
    """What the server sends to the clients of a round: see `Identity`."""

    @property
    def delta(self) -> type: ...

    @property
    def common(self) -> bool: ...

    @property
    def own_batch(self) -> bool: ...

    @property
    def optimizer(self) -> Optimizer | None: ...

    def complete(self, space: Space, setting: FederationFacts | None) -> Broadcast: ...

    def initial(self, theta: Tensor) -> Tensor: ...

    def memory(self, params: Tensor) -> Any: ...

    def send(self, params: Tensor, memory: Any, cohort: Cohort, shared: Shared) -> Sent: ...

    def model(self, params: Tensor, memory: Any, each: Described) -> Tensor: ...


@dataclass(frozen=True)
class Identity:
    """Every client receives the server's vector; the transpose is the weighted mean of the deltas.

    >>> from apiece import Algorithm
    >>> Algorithm("fedavg").broadcast
    Identity()
    """

    delta = Weighted
    common = True  # the server's parameters are a model, and every client is sent it
    own_batch = False  # whether a batch is drawn for a client's descriptor
    optimizer = None

    def complete(self, space: Space, setting: FederationFacts | None) -> Identity:
        """This broadcast for a model's vector space and a federation."""
        return self

    def initial(self, theta: Tensor) -> Tensor:
        """The server's parameters at the start, for an initial model theta [D]."""
        return theta

    def memory(self, params: Tensor) -> Any:
        """The broadcast's memory at the start."""
        return ()

    def send(self, params: Tensor, memory: Any, cohort: Cohort, shared: Shared) -> Sent:
        def back(answer: Answer) -> tuple[Tensor, Answer]:
            return answer.mean.delta, answer

        return Sent(params, None, back)

    def model(self, params: Tensor, memory: Any, each: Described) -> Tensor:
        """What a client is sent outside training, seen before or not, [D]."""
        return params
