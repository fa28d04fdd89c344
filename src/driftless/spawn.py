"""Processes of our own: begun from a server that has torch imported, and that never ran the user's script."""

from __future__ import annotations

import multiprocessing
import sys
import types
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import Any, NamedTuple


class Live(NamedTuple):
    """A process that runs, and the bytes to and from it."""

    process: Any
    pipe: Connection

    def end(self) -> None:
        """Close the pipe and kill the process."""
        self.pipe.close()
        self.process.kill()
        self.process.join()


def context(preload: Iterable[str]) -> Any:
    """Where processes come from: a server that imported these modules, or a new interpreter where there is none."""
    quick = "forkserver" in multiprocessing.get_all_start_methods()
    made: Any = multiprocessing.get_context("forkserver" if quick else "spawn")
    if quick:
        made.set_forkserver_preload(list(preload))
    return made


def begin(context: Any, serve: Callable, *arguments: Any) -> Live:
    """A process that runs serve(pipe, *arguments) and goes with this one."""
    ours, theirs = context.Pipe()
    process = context.Process(target=serve, args=(theirs, *arguments), daemon=True)
    with _without_script():
        process.start()
    theirs.close()
    return Live(process, ours)


@contextmanager
def _without_script() -> Iterator[None]:
    """Start a process that does not import the script that runs: it needs nothing of it, and must not run it again."""
    script, sys.modules["__main__"] = sys.modules["__main__"], types.ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = script
