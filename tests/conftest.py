"""One thread a process: the tensors here are small, and two threads for them only wait for each other.

Every run asks what is installed. While tests run this does not change, but where a test puts something on the path: it
is read once a process, and for every other path.

A test that takes longer than a fast one may, and does not bear `slow`, fails. What torch loads at its first derivative
under vmap (sympy, eight hundred files) is loaded before the first test, so that none is charged for it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Generator
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
import torch
from support import tiers

torch.set_num_threads(1)
torch.func.vmap(torch.func.grad(torch.sin))(torch.zeros(1))


def once_a_path(ask: Callable[..., Any]) -> Callable[..., Any]:
    """The same question with its answers kept, for as long as the path and its folders are as they were."""

    @cache
    def kept(path: tuple[Any, ...], words: tuple[Any, ...], named: frozenset[tuple[str, Any]]) -> Any:
        return ask(*words, **dict(named))

    def asked(*words: Any, **named: Any) -> Any:
        there = [folder or "." for folder in sys.path if os.path.exists(folder or ".")]
        path = tuple((os.path.abspath(folder), os.stat(folder).st_mtime_ns) for folder in there)
        return kept(path, words, frozenset(named.items()))

    return asked


metadata.entry_points, metadata.version = once_a_path(metadata.entry_points), once_a_path(metadata.version)


@pytest.fixture
def no_report(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs draw no page, which takes longer than they do."""
    from apiece.report import page

    monkeypatch.setattr(page, "write_report", lambda _, out, *rest: Path(out))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What is about one oracle runs in one worker, where each of its runs is made once."""
    for item in items:
        given = getattr(item, "callspec", None)
        if given is not None and "oracle" in given.params:
            item.add_marker(pytest.mark.xdist_group(given.params["oracle"]))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, Any]:
    began = tiers.Moment.now()
    result = yield
    if item.get_closest_marker("slow") is None:
        tiers.refuse_slow(began)
    return result
