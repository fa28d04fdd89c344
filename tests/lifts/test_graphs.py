"""Calls recorded as CUDA graphs, with a recorder that stands for CUDA's: it keeps a list of operations on the tensors
that it saw, and replays it. `tests/system/test_gpu.py` records real graphs where there is a GPU.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from support import tiers
from support.helpers import clusters, federate, gap, mlp, run
from support.numbers import apart, everything
from support.recipes import CASES, SMALL
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx

from apiece import algorithm
from apiece import federate as federated
from apiece.algebra.optim import AdamW
from apiece.algebra.piece import Piece
from apiece.engine.work import Between, Work
from apiece.errors import UserError
from apiece.experiment import choice
from apiece.language import algorithms as named
from apiece.lifts.graphs import MOST, ByCuda, Graphs
from apiece.lifts.lift import Vectorized
from apiece.system.device import fitting

SIZES = (8,) * 6
COHORTS = [(0, 2, 4), (1, 2, 3), (5, 0, 1), (2, 3, 4), (1, 3, 5), (0, 1, 2)]


class Recorder:
    """Records operations on tensors where they lie, as a CUDA graph does, and counts its recordings and replays."""

    def __init__(self) -> None:
        self.recorded = self.replayed = 0

    def __call__(self, function: Callable[[], Sequence[Tensor]]) -> tuple[Callable[[], object], Sequence[Tensor]]:
        graph = make_fx(function)()
        made = [torch.full_like(each, 7) for each in graph()]
        self.recorded += 1

        def replay() -> None:
            self.replayed += 1
            for mine, each in zip(made, graph(), strict=True):
                mine.copy_(each)

        return replay, made


def both(subject: Any, lift: Any, cohorts: Any = COHORTS, work: Any = None, sizes: Any = SIZES, **given: Any) -> float:
    """How far the models of two runs are apart, one under this lift and one vectorized; each round has a step size."""
    work, steps = work or Work(3, None, 4), [0.1 / (t + 1) for t in range(len(cohorts))]
    ran = [
        run(federate(subject, mlp(), **given), clusters(sizes), work, cohorts, steps, each)
        for each in (lift, Vectorized(3))
    ]
    return max(gap(one.params, two.params) for one, two in zip(ran[0].servers, ran[1].servers, strict=True))


SUBJECTS = [
    (named.fedavg(), {"watch": frozenset({"drift", "divergence"})}),
    (named.scaffold() + named.fedals(2) + named.relaxed_init(), {}),
    (named.fedals(2, cohort="held"), {"client": AdamW(), "optimizer_state": "kept"}),
    (named.ditto(lr=0.05, steps=3), {}),
    (named.per_fedavg(batches="whole"), {}),
]


# a subject catches a number or a tensor of one round that its recording keeps
@pytest.mark.parametrize("subject, settings", SUBJECTS, ids=lambda value: getattr(value, "name", ""))
def test_a_recording_means_what_was_written(subject, settings):
    """Once a shape was met twice, it is replayed."""
    recorder = Recorder()
    assert both(subject, Graphs(3, recorder), **settings) < 1e-12
    assert recorder.recorded and recorder.replayed == (len(COHORTS) - 1) * recorder.recorded


@dataclass(frozen=True)
class Later(Piece):
    """Halves the gradient from round `first` on, and quarters it from round `then` on, which it asks only then."""

    first: int = 2
    then: int = 6

    def correct(self, view: Any) -> Any:
        factor = 1.0 if not view.since(self.first) else 0.25 if view.since(self.then) else 0.5
        return (), lambda scratch, g, theta, batch: (scratch, factor * g)


# pieces catch a branch of one round that is replayed in another
@pytest.mark.parametrize("subject", [algorithm(Later(), name="later"), named.fedcog(wait=2, steps=2, samples=8)],
                         ids=lambda subject: subject.name)  # fmt: skip
def test_what_asks_the_round_is_recorded_once_for_each_answer(subject):
    said, recorder, cohorts = list[str](), Recorder(), [(0, 1, 2), (3, 4, 5)] * 5
    lift = Graphs(3, recorder)
    lift.told = said.append
    assert both(subject, lift, cohorts) < 1e-12
    assert not said and recorder.recorded == 3 - (subject.name != "later")
    assert recorder.replayed == len(cohorts) - recorder.recorded


def test_what_asks_it_in_another_way_is_not_recorded():
    @dataclass(frozen=True)
    class Early(Piece):
        def correct(self, view: Any) -> Any:
            factor = 0.5 if view.round < 3 else 1.0
            return (), lambda scratch, g, theta, batch: (scratch, factor * g)

    said, recorder = list[str](), Recorder()
    lift = Graphs(3, recorder)
    lift.told = said.append
    assert both(algorithm(Early(), name="early"), lift) < 1e-12
    assert len(said) == 1 and not recorder.replayed


def test_calls_that_are_not_full_and_ragged_clients():
    """They are filled up and masked."""
    recorder, cohorts = Recorder(), [range(7)] * 4
    assert both(named.scaffold(), Graphs(5, recorder), cohorts, Work(Between(1, 3), None, 4), (8,) * 7) < 1e-12
    assert recorder.replayed


def test_shapes_that_are_never_met_again_are_not_recorded():
    recorder, cohorts = Recorder(), [(0, 1, 2)] * 4
    plan = type("Plan", (Work,), {"count": lambda self, seed, round, name, size: round + 1})
    assert both(named.fedavg(), Graphs(3, recorder), cohorts, plan(3, None, 4)) < 1e-12
    assert not recorder.recorded


@pytest.mark.slow
def test_of_very_many_shapes_some_are_recorded():
    recorder = Recorder()
    plan = type("Plan", (Work,), {"count": lambda self, seed, round, name, size: round % (MOST + 3) + 1})
    assert both(named.fedavg(), Graphs(3, recorder), [(0, 1, 2)] * 2 * (MOST + 3), plan(3, None, 4)) < 1e-12
    assert recorder.recorded == recorder.replayed == MOST


def test_what_cannot_be_recorded_is_computed_kernel_by_kernel():
    """As CUDA refuses to record what waits for a value."""
    said = list[str]()

    def refusing(function: Any) -> Any:
        raise RuntimeError("operation not permitted when stream is capturing")

    lift = Graphs(3, refusing)
    lift.told = said.append
    assert both(named.fedavg(), lift) < 1e-12
    assert len(said) == 1 and "not permitted" in said[0] and "kernel by kernel" in said[0]


class Cuda:
    """Streams of a pretended GPU, and a recording that fails as CUDA's does: its stream stays in place."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch):
        self.stream, self.pools = "caller's", list[str]()
        monkeypatch.setattr(torch.cuda, "CUDAGraph", lambda: None)
        monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: f"pool {len(self.pools)}")
        monkeypatch.setattr(torch.cuda, "current_stream", lambda: self.stream)
        monkeypatch.setattr(torch.cuda, "set_stream", lambda stream: setattr(self, "stream", stream))
        monkeypatch.setattr(torch.cuda, "graph", self.graph)

    @contextmanager
    def graph(self, graph: Any, pool: str, capture_error_mode: str) -> Iterator[None]:
        self.pools.append(pool)
        self.stream = "recording's"
        try:
            yield
        except ZeroDivisionError:
            raise RuntimeError("operation failed due to a previous error during capture") from None


def test_a_recording_that_fails_leaves_the_callers_stream_and_no_pool(monkeypatch):
    """Other threads compute on the caller's stream: what ran on another beside them would be read too early."""
    cuda, recorder = Cuda(monkeypatch), ByCuda()
    with pytest.raises(RuntimeError, match="previous error"):
        recorder(lambda: 1 / 0)
    assert cuda.stream == "caller's"
    monkeypatch.setattr(torch.cuda, "CUDAGraph", lambda: SimpleNamespace(replay=None))
    recorder(lambda: [])
    recorder(lambda: [])
    assert cuda.stream == "caller's" and cuda.pools == ["pool 0", "pool 1", "pool 1"]


def test_the_reason_is_the_first_of_a_chain():
    try:
        try:
            raise ValueError("asks for a value\nand more")
        except ValueError:
            raise RuntimeError("operation failed due to a previous error during capture")  # noqa: B904
    except RuntimeError as error:
        raised = error

    def refusing(function: Any) -> Any:
        raise raised

    said, lift = list[str](), Graphs(3, refusing)
    lift.told = said.append
    assert both(named.fedavg(), lift) < 1e-12
    assert len(said) == 1 and said[0].endswith("kernel by kernel: asks for a value")


# algorithms catch what a recording keeps of one round, or cannot hold
@pytest.mark.filterwarnings("ignore:There is a performance drop")
@pytest.mark.parametrize("case", tiers.but(("pefll", "fedgen + fedals, absentees"), CASES))
def test_every_algorithm_is_recorded_and_the_same(case, monkeypatch, caplog, no_report):
    """Four rounds in float64: all that the run computes and logs, beside clients one after the other."""
    settings = SMALL | CASES[case] | {"lift": "vectorized", "precision": "float64", "rounds": 4}
    alone, recorder = everything(federated(**(settings | {"lift": "sequential"}))), Recorder()
    monkeypatch.setattr(choice, "vectorized", lambda space, device, cohort, workers: Graphs(cohort, recorder))
    together = everything(federated(**settings))
    away, where = max((apart(alone[name], together[name]), name) for name in alone)
    assert away < 1e-9, where
    assert "kernel by kernel" not in caplog.text


def scarce(most: int) -> Callable[[Any], Any]:
    """A lift's call for which there is memory up to `most` clients."""

    def call(self: Any, function: Callable, shared: Any, pool: Any, clients: Any) -> Any:
        if len(clients.who) > most:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has none.")
        return function(shared, pool, clients)

    return call


def test_calls_become_smaller_until_they_fit(monkeypatch):
    """And it is said how many clients fit."""
    said = list[str]()
    lift = Graphs(6, Recorder())
    lift.told = said.append
    monkeypatch.setattr(Graphs, "call", scarce(2))
    whole = run(federate(named.scaffold(), mlp()), clusters(SIZES), Work(3, None, 4), [range(6)] * 4)
    ran = run(federate(named.scaffold(), mlp()), clusters(SIZES), Work(3, None, 4), [range(6)] * 4, lift=lift)
    assert gap(ran.last, whole.last) < 1e-12
    assert lift.chunk == 2 and said == [
        "the GPU has no memory for 6 clients in one call, so a call takes 3",
        "the GPU has no memory for 3 clients in one call, so a call takes 2",
    ]
    assert [key[1] for key in lift.programs] and all(program.recording for program in lift.programs.values())


def test_one_client_that_does_not_fit_is_told(monkeypatch):
    monkeypatch.setattr(Graphs, "call", scarce(0))
    lift = Graphs(6, Recorder())
    lift.told = lambda said: None
    with pytest.raises(UserError, match=r"one client at a time \(tried to allocate 2.00 gib\).*cpu\.$"), fitting():
        both(named.fedavg(), lift, [range(6)] * 4)
