"""The group of commands for real machines: `apiece deploy init | add | admit | revoke | renew | key`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any, Union

from tyro.conf import OmitSubcommandPrefixes, arg, subcommand

from apiece.commands.consortium import DEPLOY

Chosen = Union[tuple(Annotated[kind, subcommand(name)] for name, kind in DEPLOY.items())]  # noqa: UP007


@dataclass(frozen=True)
class Deploy:
    """A consortium on real machines: its keys and certificates."""

    command: OmitSubcommandPrefixes[Chosen]  # pyright: ignore

    def __call__(self) -> None:
        self.command()
