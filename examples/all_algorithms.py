"""The table of docs/results/all-algorithms.md: every algorithm, tuned alike, one run folder per cell.

Fashion-MNIST, 20 clients with two classes each, half of them per round, and 5 more that never train, LeNet, 100 rounds
of 20 steps of 32, three seeds. The step size of every algorithm is the one of STEP_SIZES with the best mean of its
clients' accuracies after 30 rounds of a separate seed, on a search set cut out of the training images: no test image is
used. If the best is the smallest or the largest, the search continues in that direction.

The personal methods are then run with few samples per client too. Those below Local there run once more with a change
that should bring them up to it: if it does, their way of working kept them below, and not an error.
`make all-algorithms` runs it; a finished cell is kept, and a stopped one is continued. `--data-dir` names the folder
with fashion_mnist.npz, otherwise APIECE_DATA does.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path
from statistics import mean, median, stdev
from typing import Any, NamedTuple

from apiece.config.settings import Config
from apiece.config.tables import flags
from apiece.engine.clients import BadClient
from apiece.experiment.folders import ended
from apiece.experiment.launch import ensure
from apiece.report.records import Run, Runs
from apiece.report.results import read_run
from apiece.report.text import markdown, short, told
from apiece.system.files import atomic_write

OUT = Path("runs/all-algorithms")
PAGE = Path("docs/results/all-algorithms.md")
STEP_SIZES = (0.03, 0.1, 0.3)
FURTHER = (0.003, 0.01, *STEP_SIZES, 1.0, 3.0)
SEEDS = (0, 1, 2)
SEARCH_SEED, SEARCH_ROUNDS, SEARCH_SAMPLES = 100, 30, 10_000
FEW, FEW_ROUNDS = 2_500, 30  # training samples in all (a hundred per client) and rounds, if clients have few
LONG = 150  # rounds for slow learners
GLOBAL = (
    "centralized",
    "fedavg",
    "fedprox",
    "fedavgm",
    "fedadam(lr=0.01)",
    "fedyogi(lr=0.01)",
    "fedadagrad(lr=0.01)",
    "fedexp",
    "fednova",
    "scaffold",
    "feddyn",
    "fedcm",
    "fedsam",
    "moon",
    "feddecorr",
    "fedreg(batches=2)",
    "fedgen(alpha=1, beta=1)",
    "vhl",
    "fedcog(samples=64, steps=30)",
    "fedinit",
    "fedals(alpha=10, cohort=held)",
    "fedals(alpha=10, cohort=redrawn)",
    "fedals(alpha=10, cohort=held) + scaffold",
    "scaffold + relaxed_init(beta=0.1)",
)
PERSONAL = (
    "local",
    "fedavg + fine_tune(epochs=1)",
    "scaffold + fine_tune(epochs=1)",
    "fedavg_p",
    "scaffold_p",
    "scaffold_p + relaxed_init(beta=0.1)",
    "lg_fedavg",
    "fedalt",
    "fedrep",
    "ditto",
    "apfl",
    "pfedme",
    "per_fedavg",
    "per_fedavg(variant=hessian_free)",
    "knn_per",
    "pfedhn",
    "pefll",
    "pefll + class_mask",
)
ROWS = (*GLOBAL, *PERSONAL)


class Examined(NamedTuple):
    """A changed row with few samples: with another value, for longer, or at another row's step size."""

    algorithm: str
    like: str  # the row whose step size it takes
    rounds: int = FEW_ROUNDS


EXAMINED = (
    Examined("fedavg + fine_tune(epochs=20)", "fedavg + fine_tune(epochs=1)"),
    Examined("ditto(lam=0.1)", "ditto"),
    Examined("pfedme(step_size=0.05)", "pfedme"),
    Examined("per_fedavg(alpha=0.001, variant=hessian_free)", "per_fedavg"),
    Examined("local", "local", LONG),
    Examined("pfedhn", "pfedhn", LONG),
    Examined("pefll", "pefll", LONG),
)
BASE = Config(
    data="fashion-mnist",
    split="classes(2)",
    clients=25,
    unseen=5,
    cohort=0.5,
    rounds=100,
    steps="20",
    batch=32,
    clip=10.0,
    model="lenet",
    drift="selected",
    eval_every=10,
    checkpoint_every=50,
    workers=1,
)
# accuracies shown are the mean of the last LAST measurements, one every ten rounds: of rounds 80, 90 and 100; with few
# samples only the last measurement
LAST = 3
BEGIN, END = "<!-- table -->", "<!-- end of table -->"
FEW_HEADINGS = (
    "algorithm",
    "global %",
    "personal %",
    "worst tenth %",
    "after 20 steps %",
    "unseen %",
    "seeds",
    "below",
)
HEADINGS = (
    "algorithm",
    "step size",
    "global %",
    "personal %",
    "worst tenth %",
    "unseen %",
    "after 20 steps %",
    "seen, after 20 steps %",
    "drift",
    "numbers up",
    "numbers down",
    "time",
    "seeds",
    "below",
)


def cut(name: str, data_dir: str | None, parts: Callable[[Any, Any], dict[str, Any]]) -> str:
    """The path of an .npz with these parts of the data, made from the data and an order of the training samples."""
    import numpy as np

    from apiece.data.sources import load

    path = OUT / f"{name}.npz"
    if not path.is_file():
        data = load(BASE.data, data_dir)
        order = np.random.Generator(np.random.Philox(SEARCH_SEED)).permutation(len(data.y_train))
        path.parent.mkdir(parents=True, exist_ok=True)
        np.savez(path, **parts(data, order))
    return str(path)


def search_set(data_dir: str | None) -> str:
    """Training and test sets, both cut out of the training images."""

    def parts(data: Any, order: Any) -> dict[str, Any]:
        kept, held = order[SEARCH_SAMPLES:], order[:SEARCH_SAMPLES]
        training = {"x_train": data.x_train[kept], "y_train": data.y_train[kept]}
        return training | {"x_test": data.x_train[held], "y_test": data.y_train[held]}

    return cut("search", data_dir, parts)


def few_set(data_dir: str | None) -> str:
    """A few of the training images, and all test images."""

    def parts(data: Any, order: Any) -> dict[str, Any]:
        training = {"x_train": data.x_train[order[:FEW]], "y_train": data.y_train[order[:FEW]]}
        return training | {"x_test": data.x_test, "y_test": data.y_test}

    return cut("few", data_dir, parts)


def folder_of(algorithm: str) -> Path:
    return OUT / "".join(c if c.isalnum() or c in "_.+=-" else "" if c in ") " else "-" for c in algorithm)


def search_folder(algorithm: str, lr: float) -> Path:
    return folder_of(algorithm) / f"search-{lr:g}"


def cell(config: Config) -> str:
    """Run one cell, continue it, or keep it; a run that diverges is a result, which a file in its folder records."""
    folder = Path(config.out or "")
    try:
        if not (folder / "diverged.txt").is_file():
            ensure(config, folder)
    except BadClient as error:
        atomic_write(folder / "diverged.txt", f"{error}\n".encode())
    return str(folder)


def searches(rows: Iterable[str], data_dir: str | None) -> list[Config]:
    """The cells of the search that must run now; none once every row's best has neighbors on both sides."""
    base = replace(BASE, data=search_set(data_dir), clients=20, unseen=0, rounds=SEARCH_ROUNDS, seed=SEARCH_SEED)
    return [
        replace(base, algorithm=a, lr=lr, data_dir=None, out=str(search_folder(a, lr)))
        for a in rows
        for lr in (STEP_SIZES if any(not tried(a, lr) for lr in STEP_SIZES) else beside(a))
        if not tried(a, lr)
    ]


def beside(algorithm: str) -> list[float]:
    """The step sizes next to the best so far."""
    at = FURTHER.index(chosen(algorithm))
    return [FURTHER[i] for i in (at - 1, at + 1) if 0 <= i < len(FURTHER)]


def tried(algorithm: str, lr: float) -> bool:
    folder = search_folder(algorithm, lr)
    return ended(folder) or (folder / "diverged.txt").is_file()


def chosen(algorithm: str) -> float:
    """The step size with the best mean of the clients' accuracies at the end of the search."""
    return max(FURTHER, key=lambda lr: searched(algorithm, lr) or 0.0)


def searched(algorithm: str, lr: float) -> float | None:
    folder = search_folder(algorithm, lr)
    return read_run(folder).last("personal_accuracy_mean") if ended(folder) else None


def runs(rows: Iterable[str], seeds: Iterable[int], data_dir: str | None) -> list[Config]:
    base = replace(BASE, data_dir=data_dir)
    return [
        replace(base, algorithm=a, lr=chosen(a), seed=seed, out=str(folder_of(a) / f"seed-{seed}"))
        for seed in seeds
        for a in rows
    ]


def with_few(rows: Iterable[str], seeds: Iterable[int], data_dir: str | None) -> list[Config]:
    """The cells with few samples per client: the personal methods with the step sizes found, and EXAMINED."""
    base, rows = replace(BASE, data=few_set(data_dir), data_dir=None), set(rows)
    asked = [Examined(a, a) for a in ("fedavg", *PERSONAL)] + list(EXAMINED)
    return [
        replace(
            base, algorithm=e.algorithm, rounds=e.rounds, lr=chosen(e.like), seed=seed, out=str(few_folder(e, seed))
        )
        for seed in seeds
        for e in asked
        if e.like in rows
    ]


def few_folder(examined: Examined, seed: int) -> Path:
    longer = "" if examined.rounds == FEW_ROUNDS else f"{examined.rounds}-rounds-"
    return folder_of(examined.algorithm) / f"few-{longer}{seed}"


def run_all(cells: list[Config], jobs: int) -> None:
    """Run the cells, `jobs` at a time, each in a process of its own with one thread."""
    with ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn")) as pool:
        for done in pool.map(cell, cells):
            print(done, flush=True)


def results(algorithm: str) -> Runs | None:
    return runs_in(algorithm, [folder_of(algorithm) / f"seed-{seed}" for seed in SEEDS])


def few_results(examined: Examined) -> Runs | None:
    return runs_in(examined.algorithm, [few_folder(examined, seed) for seed in SEEDS])


def runs_in(name: str, folders: Iterable[Path]) -> Runs | None:
    """The runs in those of the folders that have ended."""
    found = tuple(read_run(folder) for folder in folders if ended(folder))
    return Runs(name, found) if found else None


def table() -> str:
    """The table as Markdown, from the run folders alone."""
    found = {a: r for a in ROWS if (r := results(a)) is not None}
    return markdown(HEADINGS, [row(a, r, found) for a, r in found.items()])


def few_table() -> str:
    """The same table for clients with few samples."""
    found = {a: r for a in ("fedavg", *PERSONAL) if (r := few_results(Examined(a, a))) is not None}
    return markdown(FEW_HEADINGS, [few_row(f"`{a}`", r, marked(a, r, found, last=1)) for a, r in found.items()])


def examined_table() -> str:
    """The changed rows with few samples, each beside a Local of as many rounds."""
    lines = []
    for e in EXAMINED:
        local, runs = few_results(Examined("local", "local", e.rounds)), few_results(e)
        if runs and local:
            name = f"`{e.algorithm}`" + (f", {e.rounds} rounds" if e.rounds != FEW_ROUNDS else "")
            lines.append(few_row(name, runs, below("local", 1.0, "personal_accuracy_mean", runs, local, last=1)))
    return markdown(FEW_HEADINGS, lines)


def few_row(name: str, runs: Runs, mark: str) -> list[str]:
    keys = ("global_accuracy", "personal_accuracy_mean", "personal_accuracy_worst_decile")
    shown = [
        told(runs.over(lambda run, k=k: run.last(k)), percent) for k in (*keys, "adapted_accuracy", "unseen_accuracy")
    ]
    return [name, *shown, str(len(runs.runs)), mark]


def row(algorithm: str, runs: Runs, found: dict[str, Runs]) -> list[str]:
    def once(key: str) -> str:
        value = runs.over(lambda run: run.last(key))
        return "" if value is None else short(value.mean)

    return [
        f"`{algorithm}`",
        f"{runs.runs[0].config['lr']:g}",
        told(runs.over(accuracy("global_accuracy")), percent),
        told(runs.over(accuracy("personal_accuracy_mean")), percent),
        told(runs.over(accuracy("personal_accuracy_worst_decile")), percent),
        told(runs.over(lambda run: run.last("unseen_accuracy")), percent),
        told(runs.over(lambda run: run.last("unseen_adapted_accuracy")), percent),
        told(runs.over(lambda run: run.last("adapted_accuracy")), percent),
        told(runs.over(lambda run: run.mean_of_last("divergence_selected", LAST)), lambda v: f"{v:.2f}"),
        once("numbers_up"),
        once("numbers_down"),
        pace(runs, found),
        str(len(runs.runs)),
        marked(algorithm, runs, found),
    ]


def pace(runs: Runs, found: dict[str, Runs]) -> str:
    """Seconds per round over FedAvg's: medians over rounds and seeds, because the machine's other load varies."""
    seconds = {name: median(m["seconds"] for run in r.runs for m in run.metrics) for name, r in found.items()}
    return f"{seconds[runs.name] / seconds['fedavg']:.2f}" if "fedavg" in seconds else ""


def accuracy(key: str) -> Callable[[Run], float | None]:
    return lambda run: run.mean_of_last(key, LAST)


def marked(algorithm: str, runs: Runs, found: dict[str, Runs], last: int = LAST) -> str:
    """`below` of the row's reference: for clients that predict with models of their own, their accuracy is compared
    with Local's; for any other row, its global model is compared with 0.9 of FedAvg's.
    """
    personal = algorithm in PERSONAL
    name, share, key = ("local", 1.0, "personal_accuracy_mean") if personal else ("fedavg", 0.9, "global_accuracy")
    return below(name, share, key, runs, found[name], last) if name in found else ""


def below(name: str, share: float, key: str, runs: Runs, reference: Runs, last: int = LAST) -> str:
    """The reference's name if the row is below this share of it by more than two standard errors of the differences,
    seed by seed; "" for one seed.
    """
    other = {run.config["seed"]: run.mean_of_last(key, last) for run in reference.runs}
    apart = [
        mine - share * theirs
        for run in runs.runs
        if (mine := run.mean_of_last(key, last)) is not None and (theirs := other.get(run.config["seed"])) is not None
    ]
    if len(apart) < 2:
        return ""
    return f"{share:g} {name}" if mean(apart) < -2 * stdev(apart) / len(apart) ** 0.5 else ""


def percent(value: float) -> str:
    return f"{100 * value:.1f}"


def search_table() -> str:
    """The results of the search: the clients' mean accuracy at each step size."""
    lines = []
    for a in ROWS:
        if any(tried(a, lr) for lr in FURTHER):
            lines.append([f"`{a}`", *(seen_by_search(a, lr) for lr in FURTHER)])
    return markdown(["algorithm", *(f"{lr:g}" for lr in FURTHER)], lines)


def seen_by_search(algorithm: str, lr: float) -> str:
    value = searched(algorithm, lr)
    return percent(value) if value is not None else "diverged" if tried(algorithm, lr) else ""


def command() -> str:
    return f'```\napiece run --algorithm "ROW" --lr STEP {flags(BASE)} --seeds 0,1,2 --out runs/ROW\n```'


def write_page() -> None:
    """Put the tables between their marks in the page, and leave the rest of the page as it is."""
    before, rest = PAGE.read_text().split(BEGIN)
    after = rest.split(END)[1]
    parts = (
        (table(), command()),
        ("The search (clients' mean accuracy, %):", search_table()),
        (f"With {FEW // BASE.clients} samples per client, {FEW_ROUNDS} rounds:", few_table()),
        ("Marked rows, with a change:", examined_table()),
    )
    text = "\n\n".join(part for pair in parts for part in pair)
    atomic_write(PAGE, f"{before}{BEGIN}\n{text}\n{END}{after}".encode())


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data-dir", default=os.environ.get("APIECE_DATA"))
    parser.add_argument("--only", nargs="*", default=list(ROWS))
    parser.add_argument("--seeds", type=int, nargs="*", default=list(SEEDS))
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    asked = parser.parse_args()
    while cells := searches(asked.only, asked.data_dir):
        run_all(cells, asked.jobs)
    run_all(runs(asked.only, asked.seeds, asked.data_dir), asked.jobs)
    run_all(with_few(asked.only, asked.seeds, asked.data_dir), asked.jobs)
    write_page()
