"""The table of docs/results/first-run.md: the demo's algorithms on Fashion-MNIST, three seeds, one run folder per cell.

100 clients, Dirichlet(0.1), a tenth of them per round, FedCOG's CNN, 100 rounds of 50 steps. `make results` runs it. It
can be interrupted at any time: a finished cell is kept, and a stopped one is continued. `--data-dir` names the folder
with fashion_mnist.npz, otherwise APIECE_DATA does.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from apiece.config.settings import Config
from apiece.config.tables import flags
from apiece.experiment import folders
from apiece.experiment.launch import ensure
from apiece.report.records import Run, Runs
from apiece.report.results import read_run
from apiece.report.text import markdown, short, told
from apiece.system.files import atomic_write

ROWS = {
    "fedavg": "fedavg",
    "fedinit": "fedinit(beta=0.1)",
    "scaffold": "scaffold",
    "fedals-held": "fedals(alpha=10, cohort=held)",
    "fedals-redrawn": "fedals(alpha=10, cohort=redrawn)",
    "scaffold_p": "scaffold_p",
    "scaffold+relaxed_init": "scaffold + relaxed_init(beta=0.1)",
    "fedinit-delta": "fedinit(beta=0.1, aggregate=delta)",
    "centralized": "centralized",
    "local": "local",
}
SEEDS = (0, 1, 2)
OUT = Path("runs/first-run")
PAGE = Path("docs/results/first-run.md")
BASE = Config(
    data="fashion-mnist",
    split="dirichlet(0.1)",
    clients=100,
    cohort=0.1,
    rounds=100,
    steps="50",
    batch=32,
    lr=0.1,
    clip=10.0,
    model="cnn_fedcog",
    eval_every=10,
    checkpoint_every=10,
)
# accuracies shown are the mean of the last LAST measurements, one every ten rounds: of rounds 80, 90 and 100
LAST = 3
BEGIN, END = "<!-- table -->", "<!-- end of table -->"
HEADINGS = (
    "algorithm",
    "global %",
    "personal %",
    "after local work %",
    "drift, selected",
    "drift, all",
    "steps that count %",
    "numbers up",
    "numbers down",
    "s a round",
    "seeds",
)


def table() -> str:
    """The table as Markdown, from the run folders alone."""
    lines = []
    for name, algorithm in ROWS.items():
        done = [f for seed in SEEDS if folders.ended(f := OUT / name / f"seed-{seed}")]
        if done:
            lines.append(row(Runs(algorithm, tuple(read_run(folder) for folder in done))))
    return markdown(HEADINGS, lines)


def row(runs: Runs) -> list[str]:
    def percent(derive: Callable[[Run], float | None]) -> str:
        return told(runs.over(derive), lambda v: f"{100 * v:.1f}")

    def number(derive: Callable[[Run], float | None], digits: str = ".2f") -> str:
        return told(runs.over(derive), lambda v: format(v, digits))

    def once(key: str) -> str:
        found = runs.over(lambda run: run.last(key))
        return "" if found is None else short(found.mean)

    return [
        f"`{runs.name}`",
        percent(lambda run: run.mean_of_last("global_accuracy", LAST)),
        percent(lambda run: run.mean_of_last("personal_accuracy_mean", LAST)),
        percent(lambda run: run.last("adapted_accuracy")),
        number(lambda run: run.mean_of_last("divergence_selected")),
        number(lambda run: run.last("divergence_all")),
        percent(counted),
        once("numbers_up"),
        once("numbers_down"),
        number(lambda run: run.median("seconds")),
        str(len(runs.runs)),
    ]


def counted(run: Run) -> float | None:
    """The share of local steps that reached the server."""
    done, reached = (run.series(key)[1].sum() for key in ("steps", "steps_counted"))
    return float(reached / done) if done else None


def commands() -> str:
    """The command of each row, all seeds at once."""
    lines = [f'apiece run --algorithm "{ROWS[name]}" $SETTINGS --out runs/first-run/{name}' for name in ROWS]
    return "\n".join(["```", f"SETTINGS='{flags(BASE)} --seeds 0,1,2'", *lines, "```"])


def write_page() -> None:
    """Put the table and the commands between their marks in the page, and leave the rest of the page as it is."""
    before, rest = PAGE.read_text().split(BEGIN)
    after = rest.split(END)[1]
    atomic_write(PAGE, f"{before}{BEGIN}\n{table()}\n\n{commands()}\n{END}{after}".encode())


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data-dir")
    parser.add_argument("--only", choices=ROWS, nargs="*", default=list(ROWS))
    parser.add_argument("--seeds", type=int, nargs="*", default=list(SEEDS))
    chosen = parser.parse_args()
    base = replace(BASE, data_dir=chosen.data_dir)
    for seed in chosen.seeds:
        for name in chosen.only:
            ensure(replace(base, algorithm=ROWS[name], seed=seed), OUT / name / f"seed-{seed}")
            print(name, seed, flush=True)
    write_page()
