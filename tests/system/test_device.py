"""A run on a device: data, rows, draws and state are placed there, and nothing on the way back is missed.

On a pretended device, whose tensors do not meet the CPU's (`pretend.py`), every algorithm runs whole, from the data to
the files, and ends bitwise as on the CPU. Where there is a GPU, `test_gpu.py` runs on it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from support import tiers
from support.outer import cli, run
from support.pretend import Misplaced, there
from support.recipes import CASES, SMALL, Stop, result, stopping
from torch import Tensor, nn

from apiece import algorithm, federate
from apiece.algebra import place as algebra_place
from apiece.algebra.message import Message
from apiece.algebra.piece import Piece
from apiece.data.federation import MadeFederation
from apiece.data.samples import Samples
from apiece.engine import federated, state
from apiece.engine.row import Row
from apiece.errors import UserError
from apiece.lifts.lift import Sequential, Vectorized
from apiece.system import device

QUICK = SMALL | {"rounds": 3, "device": "cuda"}
LIFTS = list(zip(CASES, cycle(("sequential", "vectorized"))))  # a lift catches what it makes on the host, for any case
X = np.random.default_rng(0).normal(size=(120, 4)).astype(np.float32)
Y = np.arange(120) % 3


pytestmark = pytest.mark.usefixtures("no_report")


class Normed(nn.Sequential):
    """A network with statistics."""

    def __init__(self) -> None:
        super().__init__(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 3))


# --- the same run ----------------------------------------------------------------------------------------------------
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:There is a performance drop")  # vmap of a mean over channels-last images
@pytest.mark.parametrize("case, lift", tiers.but(LIFTS[:24:3], LIFTS))
def test_a_run_there_is_bitwise_the_run_here(case, lift, tmp_path):
    """Log, rows, server, models. Nothing crosses, waits or is made elsewhere while clients work, or `there` raises."""
    settings = QUICK | CASES[case] | {"lift": lift}
    federate(out=str(tmp_path / "here"), **(settings | {"device": "cpu"}))
    with there() as pretended:
        federate(out=str(tmp_path / "there"), **settings)
    assert pretended.crossed["in"] > 0 and pretended.crossed["out"] > 0
    assert result(tmp_path / "here") == result(tmp_path / "there")


@pytest.mark.parametrize("buffers", ["average", "local", "drop"])
def test_models_with_statistics_and_what_they_become(buffers):
    settings: dict[str, Any] = {"clients": 3, "split": "iid", "rounds": 2, "steps": 2, "lift": "sequential"}
    module, settings = Normed(), settings | {"buffers": buffers}
    here = federate(module, (X, Y), "fedals(alpha=2)", **settings)
    with there():
        away = federate(module, (X, Y), "fedals(alpha=2)", device="cuda", **settings)
        models = [(here.model(client), away.model(client)) for client in (None, 1)]
    for one, other in models:
        assert all(torch.equal(one[name], other[name]) and other[name].device.type == "cpu" for name in one)
    assert Normed().load_state_dict(models[0][1])


@pytest.mark.parametrize("lift", ["sequential", "vectorized"])
def test_clients_whose_data_are_made_when_asked(lift):
    def make(client: int) -> tuple[Tensor, Tensor]:
        return torch.from_numpy(X[client : client + 9]), torch.from_numpy(Y[client : client + 9])

    module = nn.Linear(4, 3)

    def run(**settings: Any) -> Any:
        place = MadeFederation(make, 50, 9, make(60))
        return federate(module, clients=place, algorithm="scaffold", cohort=7, rounds=2, steps=2, lift=lift,
                        **settings)  # fmt: skip

    here = run().model()
    with there():
        away = run(device="cuda").model()
    assert all(torch.equal(here[name], away[name]) for name in here)


@pytest.mark.slow
def test_what_crosses_does_not_grow_with_the_steps():
    def crossed(steps: str) -> dict[str, int]:
        with there() as pretended:
            federate(**(QUICK | {"algorithm": "scaffold + fedals(alpha=2)", "steps": steps}))
        return pretended.crossed

    assert crossed("2") == crossed("7")


# an algorithm catches a value that its pieces or its server ask a device for
@pytest.mark.slow
@pytest.mark.parametrize(
    "algorithm", tiers.but(("pfedhn",), ["scaffold + fedals(alpha=2)", "fednova", "fedcm + relaxed_init", "pfedhn"])
)
def test_the_host_waits_for_no_value_in_a_round(algorithm, monkeypatch):
    """Of a vectorized call rows, weights and whether they are finite are brought to it, as many copies for any cohort;
    once it has seen which groups there are it asks for nothing else.
    """
    counted: list[dict[str, int]] = []

    def round(self: Any, server: Any, clients: Any, plan: Any) -> Any:
        before, after = dict(pretended.crossed), whole(self, server, clients, plan)
        counted.append({name: pretended.crossed[name] - before[name] for name in ("waits", "out")})
        return after

    whole = federated.Federated.round
    monkeypatch.setattr(federated.Federated, "round", round)
    for cohort in (2, 5):
        with there() as pretended:
            federate(**(QUICK | {"cohort": cohort, "algorithm": algorithm, "lift": "vectorized", "rounds": 6}))
    few, many = counted[:6], counted[6:]
    assert [each["out"] for each in few] == [each["out"] for each in many]
    assert not any(each["waits"] for each in few[4:] + many[4:])


GPU = torch.device("cuda:0")


class Copies:
    """The events of a pretended GPU: when copies were begun and when they were waited for."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch):
        self.order: list[str] = []
        self.calls = 0
        monkeypatch.setattr(torch.cuda, "current_stream", lambda of: SimpleNamespace(record_event=self.event))
        monkeypatch.setattr(Tensor, "is_cuda", True)

    def event(self) -> Any:
        self.calls += 1
        self.order.append(f"begun {self.calls}")
        return SimpleNamespace(synchronize=lambda call=self.calls: self.order.append(f"waited for {call}"))


def said(of: Tensor) -> state.Reply:
    return state.Reply(Message(of, torch.ones(0), (), of.sum()), Row(of, steps=of.sum()), {}, of.sum())


def test_the_host_waits_once_for_all_that_it_reads(monkeypatch):
    """Of a GPU, whose copies to the host are begun together: of a tree, and so of a call's replies."""
    copies = Copies(monkeypatch)
    monkeypatch.setattr(Tensor, "detach", lambda self: copies.order.append("copied") or self)
    reply = said(torch.ones(2)).crossing(GPU)
    assert copies.order == 4 * ["copied"] + ["begun 1"]
    assert reply.arrived().row.model.tolist() == [1, 1]
    assert copies.order[5:] == ["waited for 1"]


@pytest.mark.parametrize(("lift", "calls"), [(Sequential(), 5), (Vectorized(2), 3)])
def test_the_host_waits_for_a_call_when_the_next_is_under_way(lift, calls, monkeypatch):
    """So that a GPU has work while its replies are read; and replies come in order, each whole."""
    copies = Copies(monkeypatch)
    samples = Samples((torch.ones(1),), torch.ones(1), 1)
    each = state.ClientTask((), 0, -1, Row(), samples, torch.ones(1, 1), 1, (), (), 1.0)
    tasks = [lambda c=c: each._replace(sent=torch.full((2,), float(c))) for c in range(5)]
    told = algebra_place.Shared(0, 0.1, (), torch.zeros(0, device="meta"), ())
    replies = lift.run(lambda how, shared, each: said(each.sent), told, tasks)
    assert [reply.row.model.tolist() for reply in replies] == [[c, c] for c in range(5)]
    overlapped = [event for call in range(1, calls) for event in (f"begun {call + 1}", f"waited for {call}")]
    assert copies.order == ["begun 1", *overlapped, f"waited for {calls}"]


# devices catch a state that stays where it was made, lifts rows stacked there
@pytest.mark.slow
@pytest.mark.parametrize("lift", ["sequential", "vectorized"])
@pytest.mark.parametrize("first", ["cuda", "cpu"])
def test_a_run_goes_on_on_another_device(first, lift, tmp_path):
    """Bitwise, what is logged too, where the lift is named: `auto` takes threads here and vectorizes there."""

    def go(name: str, **settings: Any) -> None:
        whole = QUICK | {"algorithm": "scaffold + relaxed_init", "lift": lift} | settings
        federate(out=str(tmp_path / name), resume=True, **whole)

    def part(on: str, **settings: Any) -> None:
        if on == "cpu":
            return go("moved", device="cpu", **settings)
        with there():
            go("moved", device="cuda", **settings)

    go("never", device="cpu")
    with pytest.raises(Stop):
        part(first, on_round=stopping(2))
    part("cpu" if first == "cuda" else "cuda")
    assert result(tmp_path / "never") == result(tmp_path / "moved")


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_a_run_made_there_where_there_is_none(tmp_path):
    """Its folder says cuda: resuming wants another device by name; its models are read and served as they are."""
    folder = tmp_path / "run"
    with there():
        federate(out=str(folder), **QUICK)
    refused = cli("resume", folder)
    assert refused.code == 2 and "--device cpu" in refused.err and refused.err.count("\n") == 1
    assert cli("resume", folder, "--device", "cpu").code == 0
    assert cli("export", folder, "--client", "client-1", "--out", tmp_path / "model.safetensors").code == 0


# --- what the pretended device finds ---------------------------------------------------------------------------------
@dataclass(frozen=True)
class Added(Piece):
    """A correction of one's own."""

    to: Callable[[Tensor], Tensor]

    def correct(self, view: Any) -> Any:
        return (), lambda scratch, g, theta, batch: (scratch, self.to(g))


MISTAKES: dict[str, Callable[[Tensor], Tensor]] = {
    "a vector made on the CPU": lambda g: g + torch.zeros(len(g)),
    "a number made on the CPU": lambda g: g * torch.ones(()),
    "indices made on the CPU": lambda g: g[torch.arange(len(g))],
    "a value waited for": lambda g: g / float(g.norm().clamp(min=1.0)),
    "a decision waited for": lambda g: g if g.sum() > 0 else -g,
    "a mask of unknown length": lambda g: g.index_put((g > 0,), g[g > 0]),
    "a way out and back": lambda g: g.cpu().to(g.device),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_are_found(mistake):
    settings = {"clients": 3, "split": "iid", "rounds": 1, "steps": 2, "lift": "sequential"}
    piece = algorithm(Added(MISTAKES[mistake]), name="added")
    federate(nn.Linear(4, 3), (X, Y), piece, **settings)  # fine on the CPU
    with there(), pytest.raises(Misplaced):
        federate(nn.Linear(4, 3), (X, Y), piece, device="cuda", **settings)


def test_tensors_cross_in_one_file():
    """What moves a tensor or waits for it is in `device.py`; a module is moved where it becomes a vector space."""
    crosses = re.compile(r"\.(cpu|cuda|numpy|item|pin_memory)\(|\.to\([^)]*device")
    source = Path(device.__file__).parents[1]
    found = {str(path.relative_to(source)) for path in source.rglob("*.py") if crosses.search(path.read_text())}
    assert found - {"vector/space.py"} == {"system/device.py"}


# --- names -----------------------------------------------------------------------------------------------------------
def test_devices_by_name(monkeypatch):
    assert device.named("cpu") == torch.device("cpu")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert [device.named(name).index for name in ("cuda", "cuda:0", "cuda:1")] == [None, 0, 1]
    with pytest.raises(UserError, match="cuda:2.*cuda:0 to cuda:1"):
        device.named("cuda:2")


def test_processes_of_clients_are_the_cpus():
    ended = run(lift="wired", device="cuda")
    assert ended.code == 2 and "device=cuda" in ended.err and ended.err.count("\n") == 1


@pytest.mark.parametrize("precision", ["float32", "tf32", "float64"])
def test_what_a_gpu_multiplies_is_rounded_where_asked_alone(precision):
    """While the run lasts, for products, convolutions and recurrent layers alike, and torch's own questions go on."""
    backends, seen = torch.backends, list[Any]()

    def allowed() -> tuple[Any, ...]:
        layers = (each.fp32_precision == "tf32" for each in (backends.cudnn.conv, backends.cudnn.rnn))
        return backends.cuda.matmul.allow_tf32, backends.cudnn.allow_tf32, *layers

    before = allowed()
    settings = QUICK | {"precision": precision, "on_round": lambda info: seen.append(allowed())}
    federate(**(settings | {"device": "cpu"}))
    assert {*seen} == {before}
    seen.clear()
    with there():
        federate(**settings)
    assert {*seen} == {4 * (precision == "tf32",)} and allowed() == before
    assert torch.get_float32_matmul_precision() == "highest"


def test_numbers_are_filled_where_they_are_needed():
    like = torch.zeros(3, dtype=torch.float64)
    assert device.scalar(2, like).dtype == torch.int64 and device.scalar(True, like).dtype == torch.bool
    assert device.scalar(like[0], like) is not None and device.scalar(2, like, torch.float64).dtype == torch.float64


def test_a_model_for_which_the_device_has_no_memory_is_refused_in_one_sentence(monkeypatch, no_report):
    def full(*_: Any) -> Tensor:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB. GPU 0 has none.")

    monkeypatch.setattr("apiece.vector.space._placed", full)
    with pytest.raises(UserError, match=r"too little memory for this run.*\(tried to allocate 20.00 mib\)"):
        federate(**SMALL)
