"""A round of FedInit's set-up on a GPU: ResNet-18 with GroupNorm, 10 of 100 clients, 5 epochs of 500 images, batch 50.

The bare loop trains clients one by one on the card, as people write it; driftless trains them under each lift that a
GPU has: one by one, a stream each, vectorised, vectorised with convolutions as products, compiled. They take turns,
from the same model and on the same batches, all in one number format. Beside the seconds stand the multiplications and
additions of the convolutions and products over those seconds, as a share of what one large product of matrices reaches
on the card in the same format: the roof; and, of a round of its own, the share of the time in which the card had a
kernel to run. Where there is no GPU, `--device cpu --small` does a little of everything.

    python benchmarks/on_a_gpu.py [--device cuda] [--precision tf32] [--samples 5] [--small]
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from statistics import median
from typing import Any

import torch
from against_bare_loop import LR, bare_round
from rich.console import Console
from rich.table import Table
from torch import Tensor
from torch.nn.functional import cross_entropy
from torch.profiler import ProfilerActivity, profile
from torch.utils.flop_counter import FlopCounterMode

from driftless import algorithms, models
from driftless.choice import compiled, products, threaded, vectorised
from driftless.clients import Clients
from driftless.data.federation import Federation
from driftless.device import multiplying
from driftless.federated import Federated
from driftless.lift import Sequential
from driftless.space import Space
from driftless.state import Plan
from driftless.task import Task
from driftless.work import Work

SHAPE, CLASSES, CLIENTS, GOAL = (3, 32, 32), 10, 10, 4.0  # times the clients one by one


def contenders(device: str, precision: str, samples: int, work: Work) -> tuple[dict[str, Callable[[], Tensor]], float]:
    """(rounds that give their new model as a vector, multiplications and additions of a round)."""
    torch.manual_seed(0)
    count = CLIENTS * samples
    x, y = torch.rand(count, *SHAPE).to(device), torch.randint(CLASSES, (count,)).to(device)
    rows, names = list(torch.arange(count).split(samples)), [f"client-{i}" for i in range(CLIENTS)]
    place = Federation((x, y), (x[:1], y[:1]), rows, rows, names).on(device)
    module = models.resnet18_gn(SHAPE, CLASSES).to(device)
    autocast = torch.bfloat16 if precision == "bfloat16" else None
    space = Space(module, device=device, autocast=autocast)
    federated = Federated(algorithms.fedavg(), Task(space), space.ravel(), space.ravel_buffers())
    server, plan = federated.start(), Plan(list(range(CLIENTS)), frozenset(), LR)
    data = list(zip(x.split(samples), y.split(samples), strict=True))
    steps = [work.count(0, 0, name, samples) for name in names]
    batches = [work.batches(0, 0, name, samples, k).to(device) for name, k in zip(names, steps, strict=True)]

    def lifted(lift: Any) -> Callable[[], Tensor]:
        clients = Clients(federated, place, work, 0, lift)
        return lambda: federated.round(server, clients, plan)[0].params

    with FlopCounterMode(display=False) as counted:
        cross_entropy(module(x[: work.batch]), y[: work.batch]).backward()
    together = (lift(space, device, CLIENTS, 1) for lift in (vectorised, products, compiled))
    lifts = Sequential(), threaded(device, CLIENTS), *together

    def bare() -> Tensor:
        with torch.autocast(torch.device(device).type, autocast, enabled=autocast is not None):
            return space.from_state_dict(bare_round(module, data, batches))[0]

    entries = {"one by one, bare": bare} | {repr(lift): lifted(lift) for lift in lifts}
    return entries, float(counted.get_total_flops() * sum(steps))


def busy(work: Callable[[], Any], device: str) -> float:
    """The share of a round in which the card has a kernel to run; nothing is known of a CPU."""
    if not device.startswith("cuda"):
        return float("nan")
    with profile(activities=[ProfilerActivity.CUDA]) as seen:
        wall = seconds(work, device)
    there = (e for e in seen.events() or [] if e.device_type.name == "CUDA" and not e.is_user_annotation)
    spans = sorted((e.time_range.start, e.time_range.end) for e in there)
    total = end = 0.0
    for begin, until in spans:  # in microseconds; kernels of several streams overlap
        total, end = total + max(0.0, until - max(begin, end)), max(end, until)
    return total / 1e6 / wall


def seconds(work: Callable[[], Any], device: str) -> float:
    """How long it takes until the device has done it."""
    began = time.perf_counter()
    work()
    if device.startswith("cuda"):
        torch.cuda.synchronize()
    return time.perf_counter() - began


def roof(device: str, precision: str, size: int) -> float:
    """Multiplications and additions a second of a product of square matrices."""
    a = torch.rand(size, size, device=device, dtype=torch.bfloat16 if precision == "bfloat16" else torch.float32)
    return 2 * size**3 / min(seconds(lambda: a @ a, device) for _ in range(10))


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--precision", choices=("float32", "tf32", "bfloat16"), default="float32")
    parser.add_argument("--samples", type=int, default=5)
    parser.add_argument("--small", action="store_true", help="two steps of four images: does everything work")
    options = parser.parse_args()
    samples, work, size = (8, Work(2, None, 4), 512) if options.small else (500, Work(None, 5, 50), 8192)
    with multiplying(options.precision):
        compare(options, samples, work, size)


def compare(options: argparse.Namespace, samples: int, work: Work, size: int) -> None:
    """Contenders in turn, and the table."""
    entries, flops = contenders(options.device, options.precision, samples, work)
    made = {name: entry() for name, entry in entries.items()}  # the warm-up, with what is compiled
    first = next(iter(made))
    away = {name: float((model - made[first]).abs().max()) for name, model in made.items()}
    taken: dict[str, list[float]] = {name: [] for name in entries}
    for _ in range(options.samples):
        for name, entry in entries.items():
            taken[name].append(seconds(entry, options.device))
    peak = roof(options.device, options.precision, size)
    table = Table("contender", "seconds", "times as fast", "of the roof", "busy", "away")
    for name, times in taken.items():
        faster = [bare / own for bare, own in zip(taken[first], times, strict=True)]
        spread = f"{median(faster):.2f} ({min(faster):.2f}-{max(faster):.2f})"
        shares = [f"{share:.0%}" for share in (flops / median(times) / peak, busy(entries[name], options.device))]
        table.add_row(name, f"{median(times):.3f}", spread, *shares, f"{away[name]:.0e}")
    best = max(median(b / o for b, o in zip(taken[first], own, strict=True)) for n, own in taken.items() if n != first)
    console = Console(width=None if Console().is_terminal else 120)
    console.print(table)
    said = f"the roof is {peak / 1e12:.1f} TFLOP/s; {best:.2f} times the clients one by one, {GOAL:g} wanted: "
    console.print(said + ("met" if best >= GOAL else "missed"), highlight=False)


if __name__ == "__main__":
    main()
