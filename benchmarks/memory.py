"""The peak memory of a run of many clients, beside a bare PyTorch loop over the same clients.

    python benchmarks/memory.py          LeNet with 1,000 clients, ResNet-18 with 100
    python benchmarks/memory.py --small  a tenth of the clients, to try it

Each number is the peak of a process of its own (its resident set by getrusage), a few rounds of two steps a client.
Both sides have the same images, made up as bytes where a data set would be read. The bare loop is what people write:
the images as one tensor of floats, a module, a copy of it for each client of the round, torch.optim.SGD, the mean of
state dicts. The run is `federate` under `auto`, with its measurements. The goal: at most 1.3 times the loop's peak.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
from typing import Any, NamedTuple

import numpy as np

MOST = 1.3


class Subject(NamedTuple):
    """A model of apiece, its images and its clients."""

    model: str
    shape: tuple[int, int, int]
    clients: int
    cohort: int
    each: int  # samples of a client


SUBJECTS = {
    "lenet": Subject("lenet", (1, 28, 28), 1000, 100, 60),
    "resnet18": Subject("resnet18_gn", (3, 32, 32), 100, 10, 500),
}
ROUNDS, STEPS, BATCH, LR, TESTED = 2, 2, 50, 0.01, 1000


def data(of: Subject) -> tuple[Any, Any, Any, Any]:
    """Images as bytes [n, H, W] or [n, H, W, C] and labels, for training and for test."""
    rng, count = np.random.default_rng(0), of.clients * of.each + TESTED
    channels, high, wide = of.shape
    x = rng.integers(0, 256, (count, high, wide, *([channels] if channels > 1 else [])), dtype=np.uint8)
    y = rng.integers(10, size=count)
    return x[TESTED:], y[TESTED:], x[:TESTED], y[:TESTED]


def bare(of: Subject) -> None:
    """The loop that people write."""
    import torch
    from loops import bare_round

    from apiece.networks import models

    torch.manual_seed(0)
    module = getattr(models, of.model)(of.shape, 10)
    x, y, x_test, y_test = data(of)
    images, tested = (torch.from_numpy(a).reshape(len(a), *a.shape[1:3], -1).movedim(-1, 1) / 255 for a in (x, x_test))
    labels, wanted = torch.from_numpy(y), torch.from_numpy(y_test)
    shards = torch.arange(len(images)).split(of.each)
    for t in range(ROUNDS):
        cohort = shards[t * of.cohort : (t + 1) * of.cohort]
        batches = [torch.arange(of.each).repeat(STEPS).split(BATCH)[:STEPS]] * len(cohort)
        module.load_state_dict(bare_round(module, [(images[s], labels[s]) for s in cohort], batches, LR))
        with torch.no_grad():
            right = torch.cat([module(some).argmax(1) for some in tested.split(100)]) == wanted
        print(f"{int(right.sum())} of {TESTED} right", file=sys.stderr)


def run(of: Subject) -> None:
    """The same as a run of apiece."""
    from apiece import federate

    x, y, x_test, y_test = data(of)
    federate(
        of.model, {"train": (x, y), "test": (x_test, y_test)}, clients=of.clients, cohort=of.cohort, split="iid",
        rounds=ROUNDS, steps=str(STEPS), batch=BATCH, lr=LR, drift="none",
    )  # fmt: skip


def peak(words: list[str]) -> float:
    """MiB of the process that measures one side."""
    ended = subprocess.run([sys.executable, __file__, *words], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    return float(ended.stdout.split()[-1])


def main() -> None:
    """Measure each side in a process of its own, and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--only", choices=SUBJECTS, nargs="+", default=list(SUBJECTS))
    parser.add_argument("--side", choices=("bare", "run"))
    options = parser.parse_args()
    for name in options.only:
        of = SUBJECTS[name]
        of = of._replace(clients=of.clients // 10, cohort=of.cohort // 10) if options.small else of
        if options.side:
            {"bare": bare, "run": run}[options.side](of)
            print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
            continue
        words = ["--only", name, *(["--small"] if options.small else [])]
        loop, ours = (peak([*words, "--side", side]) for side in ("bare", "run"))
        print(
            f"{name}, {of.clients} clients, {of.cohort} a round: the loop {loop:.0f} MiB, apiece {ours:.0f} MiB, "
            f"{ours / loop:.2f} of it; at most {MOST:g} allowed"
        )


if __name__ == "__main__":
    main()
