"""Worker processes: the exact class, with whatever an algorithm and a program bring along."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import threading
from mmap import ACCESS_COPY, mmap
from pathlib import Path

import pytest
import torch
from support import TESTS
from support.workers import federated, images, left, net, rounds
from torch import Tensor, nn

import apiece
from apiece.data.federation import Federation
from apiece.errors import UserError
from apiece.experiment import choice
from apiece.language import algorithms
from apiece.language.expression import catalog
from apiece.lifts import workers as processes
from apiece.lifts.lift import Sequential, Threaded
from apiece.lifts.workers import Processes


@pytest.fixture(scope="module")
def lift():
    workers = Processes(2)
    yield workers
    workers.close()


NAMES = ["fedavg", "scaffold", "fedals", "scaffold_p", "feddyn", "fedcm", "moon", "ditto", "apfl", "fednova"]


@pytest.mark.parametrize("name", NAMES)
def test_the_same_run_bitwise(name, lift):
    assert name in {entry.name for entry in catalog(algorithms.NAMED)}
    subject, data = federated(getattr(algorithms, name)()), images()
    (one, rows), (two, same) = rounds(subject, Sequential(), data), rounds(subject, lift, data)
    assert not torch.equal(one.params, subject.setup.initial)
    assert torch.equal(one.params, two.params) and rows == same


def test_a_programs_own_loss_and_layout(lift):
    """A closure is no obstacle, and a pool's strides are kept: the last bit depends on them."""
    smooth = 0.1
    loss = lambda outputs, y: nn.functional.cross_entropy(outputs, y, label_smoothing=smooth)
    data = images()
    x, y = data.pool
    last = Federation(
        (x.to(memory_format=torch.channels_last), y), data.test_pool, data.train, data.test, list(data.names)
    )
    subject = federated(algorithms.fedavg(), loss)
    for pool in (data, last):
        assert torch.equal(rounds(subject, Sequential(), pool)[0].params, rounds(subject, lift, pool)[0].params)


def test_a_function_that_says_classes_crosses(lift):
    """cloudpickle takes modules along that a function may mean, and `.classes` may be torch.classes."""
    here = {"torch": torch, "classes": 10}
    exec("def loss(outputs, y):\n    return torch.nn.functional.cross_entropy(outputs, y) / loss.classes", here)
    here["loss"].classes = 10
    subject, data = federated(algorithms.fedavg(), here["loss"]), images()
    assert torch.equal(rounds(subject, Sequential(), data)[0].params, rounds(subject, lift, data)[0].params)


@pytest.mark.parametrize(
    "laid_out",
    [Tensor.contiguous, lambda x: x.to(memory_format=torch.channels_last), lambda x: x.mT, lambda x: x.transpose(0, 3),
     lambda x: x[::2], Tensor.bfloat16],
    ids=["plain", "channels last", "turned", "another axis first", "every second", "of a type NumPy does not know"],
)  # fmt: skip
def test_a_pool_is_read_from_its_file_as_it_was(monkeypatch, laid_out):
    monkeypatch.setattr(processes, "PART", 2)
    pool, shelf = laid_out(torch.arange(5.0 * 3 * 4 * 7).reshape(5, 3, 4, 7)), processes.Shelf()
    number, *form = shelf.place(pool)
    shelf.files[number].flush()
    with mmap(shelf.files[number].fileno(), 0, access=ACCESS_COPY) as found:
        monkeypatch.setattr(processes, "_maps", [found])
        read = processes._mapped(number, *form).clone()
        assert torch.equal(read, pool) and read.stride() == pool.clone().stride()


def test_tensors_of_any_type_cross():
    numbers = torch.arange(12.0).reshape(3, 4)
    types = (torch.bfloat16, torch.float16, torch.float64, torch.float8_e4m3fn, torch.complex64, torch.int16)
    for sent in [numbers.to(of) for of in types] + [numbers.bfloat16().T, numbers.bfloat16()[1, 2]]:
        crossed = pickle.loads(processes.dumps((sent,)))[0]
        assert crossed.dtype == sent.dtype and crossed.shape == sent.shape
        assert torch.equal(crossed.to(torch.complex128), sent.to(torch.complex128))


def test_a_pool_is_put_on_the_shelf_once(monkeypatch):
    monkeypatch.setattr(processes, "LARGE", 1000)
    with_files, data = Processes(1), images()
    subject = federated(algorithms.fedavg())
    server, _ = rounds(subject, with_files, data)
    assert len(with_files._shelf._known) == 2  # inputs and labels
    assert torch.equal(server.params, rounds(subject, Sequential(), data)[0].params)
    with_files.close()


KILLED = """
import os, signal, time
from apiece.language import algorithms
from apiece.lifts import workers as processes
from support.workers import federated, images, left, rounds

run = os.getpid()

def loss(outputs, y):
    os.kill(run, signal.SIGKILL)
    time.sleep(0.3)
    return outputs.sum()

processes.LARGE = 1000
data, workers = images(), processes.Processes(2)
rounds(federated(algorithms.fedavg()), workers, data, 1)
print(len(workers._shelf.files), left(os.environ["TMPDIR"]), flush=True)
rounds(federated(algorithms.fedavg(), loss), workers, data, 1)
"""


@pytest.mark.slow
def test_a_run_that_is_killed_leaves_nothing(tmp_path):
    """Neither files, which have no name while it runs, nor workers, nor their complaints, though one is at work."""
    ended = subprocess.run(
        [sys.executable, "-c", KILLED],
        capture_output=True,  # until the last process that could write has ended
        text=True,
        timeout=300,
        env=os.environ | {"TMPDIR": str(tmp_path), "PYTHONPATH": os.pathsep.join([str(TESTS), *sys.path])},
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (-signal.SIGKILL, "2 []\n", "")
    assert not left(str(tmp_path))


def test_an_error_there_is_raised_here(lift):
    def loss(outputs, y):
        raise ArithmeticError("no loss today")

    with pytest.raises(ArithmeticError, match="no loss today"):
        rounds(federated(algorithms.fedavg(), loss), lift, images())


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_a_worker_that_is_lost_is_replaced(number, caplog):
    """One that ended, and one that says nothing; the run is the same."""
    workers, subject, data = Processes(2), federated(algorithms.scaffold()), images()
    rounds(subject, workers, data, 1)
    workers._processes.patience = 2.0  # beyond the slowest answer until now, which began by importing
    (lost, kept) = workers.pids()
    os.kill(lost, number)
    one, rows = rounds(subject, workers, data)
    two, same = rounds(subject, Sequential(), data)
    assert torch.equal(one.params, two.params) and rows == same
    assert kept in workers.pids() and lost not in workers.pids() and len(workers.pids()) == 2
    assert not Path(f"/proc/{lost}").exists()
    said = {signal.SIGKILL: "ended before it answered", signal.SIGSTOP: "said nothing for "}[number]
    assert [said in message and "a new one is asked" in message for message in caplog.messages] == [True]
    workers.close()


@pytest.mark.slow
@pytest.mark.parametrize(
    "number, patience, said",
    [
        (signal.SIGKILL, 300, "worker process ended .* fewer --workers"),
        (signal.SIGSTOP, 0.5, "said nothing for .* --patience"),
    ],
)
def test_work_that_loses_two_workers_stops_the_run(number, patience, said):
    def loss(outputs, y):
        os.kill(os.getpid(), number)
        return outputs.sum()

    workers = Processes(2, patience)
    with pytest.raises(UserError, match=said):
        rounds(federated(algorithms.fedavg(), loss), workers, images(), 1)
    workers.close()
    assert not workers.pids()


def locked():
    """A loss with something that no other process can have."""
    lock = threading.Lock()

    def loss(outputs, y):
        with lock:
            return nn.functional.cross_entropy(outputs, y)

    return loss


def test_what_cannot_be_sent_is_said_in_one_sentence(lift):
    with pytest.raises(UserError, match=r"cannot send .* '_thread.lock' object; take lift='threaded'"):
        rounds(federated(algorithms.fedavg(), locked()), lift, images())


def test_auto_leaves_out_processes_where_something_cannot_be_sent(monkeypatch):
    monkeypatch.setattr(choice, "WORTH", 0.0)
    x, y = images().pool
    settings = {"rounds": 1, "steps": "1", "batch": 4, "clients": 2, "split": "iid", "workers": 2, "drift": "none"}
    result = apiece.federate(net(), (x.permute(0, 2, 3, 1), y), loss=locked(), **settings)
    assert len(result.metrics) == 1


def test_an_error_of_the_system_there_is_not_a_lost_worker(lift):
    def loss(outputs, y):
        raise EOFError("the end of a file")

    with pytest.raises(EOFError, match="the end of a file"):
        rounds(federated(algorithms.fedavg(), loss), lift, images())


# a lift catches a choice that is made whatever was measured
@pytest.mark.slow
@pytest.mark.parametrize("expected", [Processes, Threaded, Sequential])
def test_auto_takes_the_fastest_of_the_exact_class(expected, monkeypatch, tmp_path):
    """Which one it is, is written down; the numbers are those of the others."""
    monkeypatch.setattr(choice, "WORTH", 0.0)
    measured = choice.seconds

    def timed(experiment, lift, some):
        measured(experiment, lift, some)
        return 1.0 + (type(lift) is not expected)

    monkeypatch.setattr(choice, "seconds", timed)
    x, y = images().pool
    x = x.permute(0, 2, 3, 1)
    settings = {"rounds": 2, "steps": "2", "batch": 16, "clients": 4, "split": "iid", "workers": 2}
    one = apiece.federate(net(), (x, y), out=str(tmp_path / "run"), **settings)
    two = apiece.federate(net(), (x, y), lift="threaded", **settings)
    written = (tmp_path / "run" / "run.toml").read_text()
    assert f'lift = "{"Sequential()" if expected is Sequential else f"{expected.__name__}(2)"}"' in written
    assert all(torch.equal(a, b) for a, b in zip(one.model().values(), two.model().values(), strict=True))
    monkeypatch.setattr(choice, "seconds", None)  # what goes on takes what it took, unmeasured
    again = apiece.federate(net(), (x, y), out=str(tmp_path / "run"), resume=True, **settings)
    assert type(again.clients.lift) is expected and torch.equal(again.server.params, one.server.params)


@pytest.mark.parametrize("allowed, ranks, filled", [(4, 1, 4), (4, 2, 2), (1, 1, 1), (1, 2, 1)])
def test_cores_are_those_that_this_process_may_fill(allowed, ranks, filled, monkeypatch):
    """As many as a cpuset or a scheduler lets it, and its share of them beside other ranks."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(allowed)), raising=False)
    monkeypatch.setenv("LOCAL_WORLD_SIZE", str(ranks))
    assert choice.cores() == filled
