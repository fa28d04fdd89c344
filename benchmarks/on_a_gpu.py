"""A round of FedInit's set-up on a GPU: ResNet-18 with GroupNorm, 10 of 100 clients, 5 epochs of 500 images, batch 50.

The bare loop trains clients one by one on the card, as people write it; apiece trains them under each lift that a GPU
has: one by one, one stream each, vectorized, vectorized with convolutions as products, compiled. The remarks give the
multiplications and additions per second of the convolutions and products, as a share of the roof, which is one large
product of matrices on the card in the same format; the share of a separate round in which the card had a kernel to run;
and the distance of a contender's model from the bare loop's.
"""

from __future__ import annotations

import argparse
import contextlib
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from loops import bare_round
from timing import Contender, Goal, Work
from torch import Tensor
from torch.nn.functional import cross_entropy
from torch.profiler import ProfilerActivity, profile
from torch.utils.flop_counter import FlopCounterMode

from apiece.data.federation import Federation
from apiece.engine.clients import Clients
from apiece.engine.federated import Federated
from apiece.engine.setup import Setup
from apiece.engine.state import Plan
from apiece.engine.work import Work as LocalWork
from apiece.experiment.choice import compiled, products, threaded, vectorized
from apiece.language import algorithms
from apiece.lifts.lift import Sequential
from apiece.networks import models
from apiece.system.device import multiplying
from apiece.vector.space import Space
from apiece.vector.task import Task

SHAPE, CLASSES, CLIENTS, LR = (3, 32, 32), 10, 10, 0.1
BARE, GOAL = "one by one, bare", 0.25


def contenders(
    device: str, precision: str, samples: int, work: LocalWork
) -> tuple[dict[str, Callable[[], Tensor]], float]:
    """(rounds that return their new model as a vector, multiplications and additions per round)."""
    torch.manual_seed(0)
    count = CLIENTS * samples
    x, y = torch.rand(count, *SHAPE).to(device), torch.randint(CLASSES, (count,)).to(device)
    rows, names = list(torch.arange(count).split(samples)), [f"client-{i}" for i in range(CLIENTS)]
    place = Federation((x, y), (x[:1], y[:1]), rows, rows, names).on(device)
    module = models.resnet18_gn(SHAPE, CLASSES).to(device)
    autocast = torch.bfloat16 if precision == "bfloat16" else None
    space = Space(module, device=device, autocast=autocast)
    federated = Federated(Setup(algorithms.fedavg(), Task(space, draws=False), space.ravel(), space.ravel_buffers()))
    server, plan = federated.start(), Plan(list(range(CLIENTS)), frozenset(), LR)
    data = list(zip(x.split(samples), y.split(samples), strict=True))
    steps = [work.count(0, 0, name, samples) for name in names]
    batches = [work.batches(0, 0, name, samples, k).to(device) for name, k in zip(names, steps, strict=True)]

    def lifted(lift: Any) -> Callable[[], Tensor]:
        clients = Clients(federated, place, work, 0, lift)
        return lambda: federated.round(server, clients, plan)[0].params

    with FlopCounterMode(display=False) as counted:
        cross_entropy(module(x[: work.batch]), y[: work.batch]).backward()
    together = (lift(space, device, CLIENTS, 1) for lift in (vectorized, products, compiled))
    lifts = Sequential(), threaded(device, CLIENTS), *together

    def bare() -> Tensor:
        with torch.autocast(torch.device(device).type, autocast, enabled=autocast is not None):
            return space.from_state_dict(bare_round(module, data, batches, LR))[0]

    entries = {BARE: bare} | {f"apiece, {lift!r}": lifted(lift) for lift in lifts}
    return entries, float(counted.get_total_flops() * sum(steps))


def busy(work: Callable[[], Any], device: str) -> float:
    """The share of a round in which the card has a kernel to run."""
    with profile(activities=[ProfilerActivity.CUDA]) as seen:
        wall = seconds(work, device)
    there = (e for e in seen.events() or [] if e.device_type.name == "CUDA" and not e.is_user_annotation)
    spans = sorted((e.time_range.start, e.time_range.end) for e in there)
    total = end = 0.0
    for begin, until in spans:  # in microseconds; kernels of several streams overlap
        total, end = total + max(0.0, until - max(begin, end)), max(end, until)
    return total / 1e6 / wall


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
def work(options: argparse.Namespace) -> Iterator[Work]:
    """Contenders on one card, from the same model and on the same batches, all in one number format."""
    samples, local, size = (8, LocalWork(2, None, 4), 512) if options.small else (500, LocalWork(None, 5, 50), 8192)
    device, precision = options.device, options.precision
    with multiplying(precision):
        entries, flops = contenders(device, precision, samples, local)
        made = {name: entry() for name, entry in entries.items()}  # the warm-up, with all compilation
        away = {name: float((model - made[BARE]).abs().max()) for name, model in made.items()}
        peak = roof(device, precision, size)

        def remarks(walls: dict[str, float]) -> dict[str, str]:
            return {name: remark(name, wall) for name, wall in walls.items()}

        def remark(name: str, wall: float) -> str:
            kernels = f", busy {busy(entries[name], device):.0%}" if device.startswith("cuda") else ""
            return f"{flops / wall / peak:.0%} of the roof{kernels}, {away[name]:.0e} away"

        timed = {name: Contender(partial(seconds, entry, device), 1, 1) for name, entry in entries.items()}
        said = f"the roof is {peak / 1e12:.1f} TFLOP/s in {precision} on {device}"
        yield Work(timed, BARE, goals=[Goal("apiece", BARE, GOAL)], remarks=remarks, said=lambda rows: [said])
