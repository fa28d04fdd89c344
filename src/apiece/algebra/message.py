"""What leaves a client: a message of reports, each with a mark that says what the server makes of it."""

from __future__ import annotations

from typing import Any, NamedTuple


class Uniform(NamedTuple):
    """A report averaged over those who answered, without weights.

    Args:
        x: a tensor, of the same shape for every client.

    >>> from dataclasses import dataclass
    >>> from apiece import Piece, View, algorithm, federate
    >>> @dataclass(frozen=True)
    ... class Length(Piece):
    ...     '''Log the mean length of a client's update.'''
    ...     def report(self, view: View):
    ...         return Uniform((view.start - view.end).norm())
    ...     def log(self, memory, g, report, share):
    ...         return {"mean": report.x}
    >>> length = algorithm(Length(), name="length")
    >>> federate("softmax_regression", "digits", length, clients=5, rounds=2, steps=5).metrics[-1]["Length.mean"] > 0
    True
    """

    x: Any


class Weighted(NamedTuple):
    """A report averaged over those who answered, with the weights of the models.

    Args:
        x: a tensor, of the same shape for every client.

    >>> from dataclasses import dataclass
    >>> from apiece import Piece, View, algorithm, federate
    >>> @dataclass(frozen=True)
    ... class Length(Piece):
    ...     '''Log the length of the clients' updates, weighted like their models.'''
    ...     def report(self, view: View):
    ...         return Weighted((view.start - view.end).norm())
    ...     def log(self, memory, g, report, share):
    ...         return {"mean": report.x}
    >>> length = algorithm(Length(), name="length")
    >>> federate("softmax_regression", "digits", length, clients=5, rounds=2, steps=5).metrics[-1]["Length.mean"] > 0
    True
    """

    x: Any


class Sum(NamedTuple):
    """A report summed over those who answered.

    Args:
        x: a tensor, of the same shape for every client.

    >>> from dataclasses import dataclass
    >>> from apiece import Piece, View, algorithm, federate
    >>> @dataclass(frozen=True)
    ... class Steps(Piece):
    ...     '''Log how many local steps all clients took together.'''
    ...     def report(self, view: View):
    ...         return Sum(view.steps * 1.0)
    ...     def log(self, memory, g, report, share):
    ...         return {"all": report.x}
    >>> steps = algorithm(Steps(), name="steps")
    >>> federate("softmax_regression", "digits", steps, clients=5, rounds=2, steps=5).metrics[-1]["Steps.all"]
    25.0
    """

    x: Any


class PerClient(NamedTuple):
    """A report that the server sees client by client: secure aggregation is refused where one is asked for.

    `learn` is given those of all who answered, in the cohort's order, with a leading axis.

    Args:
        x: a tensor, of the same shape for every client.

    >>> from dataclasses import dataclass
    >>> from apiece import Piece, View, algorithm, federate
    >>> @dataclass(frozen=True)
    ... class Longest(Piece):
    ...     '''Log the length of the longest update.'''
    ...     def report(self, view: View):
    ...         return PerClient((view.start - view.end).norm())
    ...     def log(self, memory, g, report, share):
    ...         return {"length": report.x.max()}
    >>> longest = algorithm(Longest(), name="longest")
    >>> result = federate("softmax_regression", "digits", longest, clients=5, rounds=2, steps=5)
    >>> result.metrics[-1]["Longest.length"] > 0
    True
    """

    x: Any


MARKS = (Uniform, Weighted, Sum, PerClient)


class Message(NamedTuple):
    """All that leaves a client at the end of its training.

    >>> from dataclasses import dataclass
    >>> from apiece import Piece, View, algorithm, federate
    >>> @dataclass(frozen=True)
    ... class Rounded(Piece):
    ...     '''delta <- delta to three decimals, before it leaves the client.'''
    ...     def upload(self, view: View, message: Message) -> Message:
    ...         return message._replace(delta=message.delta.round(decimals=3))
    >>> rounded = algorithm(Rounded(), name="rounded")
    >>> len(federate("softmax_regression", "digits", rounded, clients=5, rounds=2, steps=5).metrics)
    2
    """

    delta: Any  # sent - kept, on the groups that are due [D]; marked like a report when it is said
    buffers: Any  # the same for BatchNorm's statistics
    reports: tuple[Any, ...]  # one a piece: marked leaves
    weight: Any  # this client's weight in weighted means
