"""What stands in the place of an answer that did not come."""

from __future__ import annotations

from typing import NamedTuple


class Failure(NamedTuple):
    """Why a message has no answer."""

    why: str
