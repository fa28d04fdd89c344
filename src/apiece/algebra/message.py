"""What leaves a client: a message of reports, each with a mark that says what the server makes of it."""

from __future__ import annotations

from typing import Any, NamedTuple


class Uniform(NamedTuple):
    """A report averaged over those who answered, without weights."""

    x: Any


class Weighted(NamedTuple):
    """A report averaged over those who answered, with the weights of the models."""

    x: Any


class Sum(NamedTuple):
    """A report summed over those who answered."""

    x: Any


class PerClient(NamedTuple):
    """A report that the server sees client by client: secure aggregation is refused where one is asked for.

    `learn` is given those of all who answered, in the cohort's order, with a leading axis.
    """

    x: Any


class Message(NamedTuple):
    """All that leaves a client at the end of its training."""

    delta: Any  # sent - kept, on the groups that are due [D]; marked like a report when it is said
    buffers: Any  # the same for BatchNorm's statistics
    reports: tuple[Any, ...]  # one a piece: marked leaves
    weight: Any  # this client's weight in weighted means
