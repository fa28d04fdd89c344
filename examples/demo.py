"""A complete comparison on scikit-learn's bundled digits: six algorithms and the two reference rows, a table and a
report.

20 clients, Dirichlet(0.1), half of the clients per round. `make demo` runs it; it takes about 40 seconds on two cores.
docs/demo.png is a copy of its runs/demo/accuracy.png.
"""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from apiece.config.settings import Config
from apiece.experiment.launch import run_config
from apiece.experiment.references import compare
from apiece.report.drawing import series, style
from apiece.report.results import read_runs
from apiece.report.summary import REFERENCES

ROWS = {
    "fedavg": "fedavg",
    "fedinit": "fedinit(beta=0.1)",
    "scaffold": "scaffold",
    "fedals": "fedals(alpha=5)",
    "scaffold_p": "scaffold_p",
    "scaffold+relaxed_init": "scaffold + relaxed_init(beta=0.1)",
    "centralized": "centralized",
    "local": "local",
}
OUT = Path("runs/demo")


def picture(folders: list[Path], out: Path) -> None:
    """Personal accuracy against rounds and against bytes, one line per row."""
    from matplotlib.figure import Figure

    rows = read_runs(folders)
    with style():
        figure = Figure(figsize=(10, 2.6), layout="constrained", facecolor="white")
        for axes, against, label in zip(
            figure.subplots(1, 2), ("round", "bytes"), ("round", "MB sent, up and down"), strict=True
        ):
            for look, row in zip(series(row.name for row in rows), rows, strict=True):
                curve = row.curve("personal_accuracy_mean", against)
                if curve is not None and (against == "round" or row.name not in REFERENCES):
                    axes.plot(
                        curve.x / (1 if against == "round" else 1e6),
                        100 * curve.mean,
                        color=look.color,
                        label=look.label,
                    )
            axes.set(xlabel=label, ylabel="personal accuracy (%)")
        figure.legend(*figure.axes[0].get_legend_handles_labels(), loc="outside right center", frameon=False)
        figure.savefig(out, dpi=110)


if __name__ == "__main__":
    shutil.rmtree(OUT, ignore_errors=True)
    base = Config(
        data="digits",
        split="dirichlet(0.1)",
        clients=20,
        cohort=0.5,
        rounds=16,
        steps="10",
        batch=32,
        lr=0.1,
        clip=10.0,
        eval_every=2,
    )
    for name, algorithm in ROWS.items():
        Console().rule(algorithm)
        run_config(replace(base, algorithm=algorithm, out=str(OUT / name)), progress=False)
    picture([OUT / name for name in ROWS], OUT / "accuracy.png")
    compare([OUT / name for name in ROWS], references=False, out=OUT / "report.html")
