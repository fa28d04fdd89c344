"""Rounds of local training on a GPU: the bare loop on the same card, apiece under each lift, and pfl where it is there.

The bare loop trains clients one by one on the card, as people write it. All contenders start every round at the same
weights and take the same batches, in one number format; float32 is float32 for the bare loop too, although torch alone
would compute its convolutions in TF32. pfl runs in this process, with its samples on the card. The remarks give the
share of a separate round in which the card had a kernel to run, the number of kernels, the share of the roof (one large
product of matrices on the card in the same format) that the model's convolutions and products reach, the peak of the
card's memory, and the distance of a contender's model from the bare loop's, as a share of the round's move.
"""

from __future__ import annotations

import argparse
import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from importlib.util import find_spec
from typing import Any, NamedTuple

import torch
from loops import bare_round
from problem import simple_cnn
from timing import Contender, Goal, Work
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.profiler import ProfilerActivity, profile
from torch.utils.flop_counter import FlopCounterMode

from apiece.data.federation import Federation
from apiece.engine.clients import Clients
from apiece.engine.federated import Federated
from apiece.engine.setup import Setup
from apiece.engine.state import Plan
from apiece.engine.work import Work as LocalWork
from apiece.experiment.choice import by_rule
from apiece.language import algorithms
from apiece.lifts.lift import Sequential, Vectorized
from apiece.networks import models
from apiece.system.device import multiplying
from apiece.vector.space import Space
from apiece.vector.task import Task

BARE, CLASSES = "one by one, bare", 10
SEQUENTIAL, ALSO, AUTO, PFL = "sequential", "kernel by kernel", "apiece, vectorized (auto)", "pfl"


class Set(NamedTuple):
    """A network on images of noise, how many clients train it on how much, and what is asked of apiece."""

    network: Callable[..., nn.Module]
    shape: tuple[int, ...]
    clients: int
    samples: int
    batch: int
    epochs: int
    lr: float
    precision: str
    beside: tuple[str, ...] = ()  # contenders besides the bare loop and what `auto` takes


RESNET, CIFAR, MNIST = (models.resnet18_gn, (3, 32, 32), 10, 500, 50), (3, 32, 32), (1, 28, 28)
SETS = {
    "gpu-resnet18": Set(*RESNET, 5, 0.1, "tf32"),
    "gpu-resnet18-epoch": Set(*RESNET, 1, 0.1, "tf32", (SEQUENTIAL, ALSO)),
    "gpu-lenet": Set(models.lenet, MNIST, 100, 320, 32, 1, 0.05, "float32", (SEQUENTIAL, ALSO, PFL)),
    "gpu-pfl": Set(
        lambda shape, classes: simple_cnn(shape[0], shape[1], classes),
        *(CIFAR, 50, 50, 10, 1, 0.1, "float32", (SEQUENTIAL, ALSO, PFL)),
    ),
    "gpu-softmax": Set(models.softmax_regression, MNIST, 1000, 96, 32, 1, 0.05, "float32", (ALSO, PFL)),
    "gpu-cnn": Set(models.cnn_fedcog, CIFAR, 100, 320, 32, 1, 0.05, "float32"),
    "gpu-resnet20": Set(models.resnet20, CIFAR, 10, 500, 50, 1, 0.1, "tf32", (SEQUENTIAL,)),
    "gpu-resnet18-float32": Set(*RESNET, 1, 0.1, "float32"),
    "gpu-resnet18-bfloat16": Set(*RESNET, 1, 0.1, "bfloat16"),
}


def contenders(of: Set, device: str) -> tuple[dict[str, Callable[[], Tensor]], Tensor, float]:
    """(rounds that return their new model as a vector, the first model, multiplications and additions per round)."""
    torch.manual_seed(0)
    count = of.clients * of.samples
    x, y = torch.randn(count, *of.shape).to(device), torch.randint(CLASSES, (count,)).to(device)
    rows, names = list(torch.arange(count).split(of.samples)), [f"client-{i}" for i in range(of.clients)]
    place = Federation((x, y), (x[:1], y[:1]), rows, rows, names).on(device)
    module, work = of.network(of.shape, CLASSES).to(device), LocalWork(None, of.epochs, of.batch)
    autocast = torch.bfloat16 if of.precision == "bfloat16" else None
    space = Space(module, device=device, autocast=autocast)
    federated = Federated(Setup(algorithms.fedavg(), Task(space, draws=False), space.ravel(), space.ravel_buffers()))
    server, plan = federated.start(), Plan(list(range(of.clients)), frozenset(), of.lr)
    steps = [work.count(0, 0, name, of.samples) for name in names]
    batches = [work.batches(0, 0, name, of.samples, k).to(device) for name, k in zip(names, steps, strict=True)]
    data = list(zip(x.split(of.samples), y.split(of.samples), strict=True))

    def lifted(lift: Any) -> Callable[[], Tensor]:
        clients = Clients(federated, place, work, 0, lift)
        return lambda: federated.round(server, clients, plan)[0].params

    with FlopCounterMode(display=False) as counted:
        cross_entropy(module(x[: of.batch]), y[: of.batch]).backward()

    def bare() -> Tensor:
        with torch.autocast(torch.device(device).type, autocast, enabled=autocast is not None):
            return space.from_state_dict(bare_round(module, data, batches, of.lr))[0]

    entries = {BARE: bare, AUTO: lifted(by_rule(space, device, of.clients, 1))}
    if SEQUENTIAL in of.beside:
        entries["apiece, sequential"] = lifted(Sequential())
    if ALSO in of.beside:
        entries["kernel by kernel: apiece, vectorized"] = lifted(Vectorized(of.clients))
    if PFL in of.beside and find_spec("pfl"):
        flat = [rows.flatten() for rows in batches]
        theirs = [(x[r], y[r]) for (x, y), r in zip(data, flat, strict=True)]
        entries[PFL] = Pfl(module, theirs, of, space).round
    return entries, server.params, float(counted.get_total_flops() * sum(steps))


class Pfl:
    """pfl's own loop in a thread, which waits between two rounds; each starts at the same weights."""

    def __init__(self, module: nn.Module, users: list[tuple[Tensor, Tensor]], of: Set, space: Space):
        self.module, self.users, self.of, self.space = module, users, of, space
        self.initial = {name: value.clone() for name, value in module.state_dict().items()}
        self.asked, self.answered, self.made = threading.Semaphore(0), threading.Semaphore(0), torch.zeros(0)
        self.thread = threading.Thread(target=self._run, daemon=True)

    def round(self) -> Tensor:
        """Its next round."""
        if not self.thread.is_alive():
            self.thread.start()
        self.asked.release()
        self.answered.acquire()
        return self.made

    def _run(self) -> None:
        import asyncio

        from peers.pfl_loop import rounds

        asyncio.set_event_loop(asyncio.new_event_loop())  # a thread has none by itself
        rounds(self.module, self.users, self.of.batch, self.of.epochs, self.of.lr, self.asked.acquire, self._end)

    def _end(self) -> None:
        self.made = self.space.from_state_dict(self.module.state_dict())[0]
        self.module.load_state_dict(self.initial)
        self.answered.release()


class Seen(NamedTuple):
    """Of a round on the card: the share in which a kernel ran, how many there were, and the peak of memory in GiB."""

    busy: float
    kernels: int
    memory: float


def seen(work: Callable[[], Any], device: str) -> Seen:
    """What a round does on the card."""
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    with profile(activities=[ProfilerActivity.CUDA]) as recorded:
        wall = seconds(work, device)
    there = [e for e in recorded.events() or [] if e.device_type.name == "CUDA" and not e.is_user_annotation]
    spans = sorted((e.time_range.start, e.time_range.end) for e in there)
    total = end = 0.0
    for begin, until in spans:  # in microseconds; kernels may overlap
        total, end = total + max(0.0, until - max(begin, end)), max(end, until)
    return Seen(total / 1e6 / wall, len(spans), torch.cuda.max_memory_reserved() / 2**30)


def seconds(work: Callable[[], Any], device: str) -> float:
    """The seconds until the device has done the work."""
    began = time.perf_counter()
    work()
    if device.startswith("cuda"):
        torch.cuda.synchronize()
    return time.perf_counter() - began


def roof(device: str, precision: str, size: int) -> float:
    """Multiplications and additions per second in a product of square matrices."""
    a = torch.rand(size, size, device=device, dtype=torch.bfloat16 if precision == "bfloat16" else torch.float32)
    return 2 * size**3 / min(seconds(lambda: a @ a, device) for _ in range(10))


@contextlib.contextmanager
def work(of: Set, options: argparse.Namespace) -> Iterator[Work]:
    """Contenders on one card."""
    if options.small:
        of = of._replace(clients=2, samples=8, batch=4, epochs=1)
    device = options.device
    with multiplying(of.precision):
        entries, first, flops = contenders(of, device)
        made, away, looked = dict[str, Tensor](), dict[str, float](), dict[str, Seen]()
        for name, entry in entries.items():  # the warm-up, with all recordings:
            made[name] = [entry() for _ in range(3 if name == AUTO else 1)][-1]
            away[name] = float((made[name] - made[BARE]).norm() / (made[BARE] - first).norm())
            if device.startswith("cuda") and of.epochs == 1:  # there are too many kernels in five
                looked[name] = seen(entry, device)
        peak = roof(device, of.precision, 512 if options.small else 8192)

        def remark(name: str, wall: float) -> str:
            there = looked.get(name)
            card = f", busy {there.busy:.0%}, {there.kernels:,} kernels, {there.memory:.1f} GiB" if there else ""
            return f"{flops / wall / peak:.1%} of the roof{card}, {away[name]:.0e} away"

        remarks = lambda walls: {name: remark(name, wall) for name, wall in walls.items()}
        timed = {name: Contender(partial(seconds, entry, device), 1, 1) for name, entry in entries.items()}
        card = torch.cuda.get_device_name(device) if device.startswith("cuda") else device
        said = f"the roof is {peak / 1e12:.1f} TFLOP/s in {of.precision} on {card}"
        goals = Goal("apiece", BARE, 0.25), Goal("apiece", PFL, 0.5)
        yield Work(timed, BARE, goals=goals, remarks=remarks, said=lambda rows: [said])
