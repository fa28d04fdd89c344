"""Streams of clients on a GPU: what is read was made before, on pretended streams that know only what they waited for.

`tests/system/test_device.py` runs the lift itself where there is a GPU.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from apiece.engine.state import Reply
from apiece.experiment.choice import by_rule, lift_of
from apiece.lifts.lift import Threaded
from apiece.lifts.streams import Streamed

CLIENTS = 7


class Stream:
    """Knows what was done on it and on those that it waited for, when it did."""

    active = threading.local()

    def __init__(self, device: Any = None):
        self.device, self.known = torch.device("cpu"), set[Any]()

    def wait_event(self, event: set[Any]) -> None:
        self.known |= event

    def record_event(self) -> set[Any]:
        return set(self.known)


@pytest.fixture
def callers(monkeypatch):
    """The stream that is current in the test's own thread."""
    main = Stream()

    @contextmanager
    def stream(of: Stream) -> Iterator[None]:
        Stream.active.now = of
        try:
            yield
        finally:
            del Stream.active.now

    monkeypatch.setattr(torch.cuda, "Stream", Stream)
    monkeypatch.setattr(torch.cuda, "stream", stream)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device=None: getattr(Stream.active, "now", main))
    return main


@pytest.fixture
def recorded(monkeypatch):
    """The tensors whose memory waits for a stream, with it."""
    held: list[tuple[Tensor, Stream]] = []
    monkeypatch.setattr(Tensor, "record_stream", lambda self, of: held.append((self, of)), raising=False)
    return held


def operation(how: Any, shared: Any, client: int) -> Reply:
    own = torch.cuda.current_stream()
    assert "shared" in own.known, "read before it was made"
    own.known.add(client)
    return Reply({"model": torch.full((2,), float(client))}, (), {}, True)


def told() -> Any:
    return SimpleNamespace(buffers=torch.zeros(0))


def tasks() -> Iterator[Callable[[], int]]:
    return (lambda client=client: client for client in range(CLIENTS))


@pytest.mark.parametrize("workers", [1, 3])
def test_what_is_read_was_made_before(callers, recorded, workers):
    lift = Streamed(workers)
    callers.known.add("shared")
    for client, reply in enumerate(lift.run(operation, told(), tasks())):
        assert client in callers.known, "a reply that is not waited for"
        assert client == 0 or any(leaf is reply.message["model"] and of is callers for leaf, of in recorded)
    assert client == CLIENTS - 1
    lift.close()


def test_what_the_first_client_makes_for_all_was_made_before(callers, recorded):
    """A mask that an algorithm keeps, say: in the first round and in later ones."""
    lift, kept = Streamed(3), list[str]()
    callers.known.add("shared")

    def keeping(*of: Any) -> Reply:
        own = torch.cuda.current_stream()
        if not kept:
            kept.append("mask")
            own.known.add("mask")
        assert "mask" in own.known, "read before it was made"
        return operation(*of)

    for _ in range(2):
        assert len(list(lift.run(keeping, told(), tasks()))) == CLIENTS
    lift.close()


def test_clients_wait_for_the_round_and_not_for_each_other(callers, recorded):
    """But for those that had the same stream before."""
    lift, before = Streamed(2), dict[int, tuple[Any, set[Any]]]()
    callers.known.add("shared")

    def noting(how: Any, shared: Any, client: int) -> Reply:
        before[client] = threading.get_ident(), set(torch.cuda.current_stream().known)
        return operation(how, shared, client)

    assert len(list(lift.run(noting, told(), tasks()))) == CLIENTS
    for client in range(1, CLIENTS):
        thread, known = before[client]
        assert known - {"shared", 0} == {c for c in range(1, client) if before[c][0] == thread}
    lift.close()


def test_streams_wait_for_each_round(callers, recorded):
    """A worker's stream outlives a round, and the next one's model is made after it."""
    lift, known = Streamed(2), list[set[Any]]()

    def noting(*of: Any) -> Reply:
        known.append(set(torch.cuda.current_stream().known))
        return operation(*of)

    for made in ("shared", "the next model"):
        callers.known.add(made)
        list(lift.run(noting, told(), tasks()))
        assert len(known) == CLIENTS and all(made in own for own in known)
        known.clear()
    lift.close()


def test_clients_of_several_threads_have_several_streams(callers, recorded):
    met, used = threading.Barrier(2, timeout=60), set[int]()

    def both(how: Any, shared: Any, client: int) -> Reply:
        if client:  # the first is alone
            met.wait()
            used.add(id(torch.cuda.current_stream()))
        return Reply({}, {}, {}, True)

    lift = Streamed(2)
    callers.known.add("shared")
    list(lift.run(both, told(), (lambda client=client: client for client in range(5))))
    assert len(used) == 2 and id(callers) not in used
    lift.close()


def test_threads_on_a_gpu_have_streams_and_those_of_the_cpu_none():
    def experiment(device: str) -> Any:
        config = SimpleNamespace(lift="threaded", device=device, workers=2)
        return SimpleNamespace(
            config=config, federated=SimpleNamespace(setup=SimpleNamespace(task=SimpleNamespace(space=None)))
        )

    assert type(lift_of(experiment("cuda:1")).lift) is Streamed and type(lift_of(experiment("cpu")).lift) is Threaded
    convolutional = SimpleNamespace(parameters=[SimpleNamespace(shape=(1, 1, 3, 3))], size=1000)
    assert type(by_rule(convolutional, "cpu", 9, 2)) is Threaded
