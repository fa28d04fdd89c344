"""The group of commands for real machines: `apiece deploy init | ... | run | status | stop | resume`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Union

from tyro.conf import OmitSubcommandPrefixes, subcommand

from apiece.commands.consortium import DEPLOY
from apiece.commands.deploy import RUNNING

Chosen = Union[tuple(Annotated[kind, subcommand(name)] for name, kind in (DEPLOY | RUNNING).items())]  # noqa: UP007


@dataclass(frozen=True)
class Deploy:
    """A consortium on real machines: its keys and certificates, and its runs."""

    command: OmitSubcommandPrefixes[Chosen]  # pyright: ignore
    """What is to be done."""

    def __call__(self) -> None:
        from apiece.consortium import library

        library()
        self.command()
