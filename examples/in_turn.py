"""Loss against bytes and against the largest message: FedAvg, DiLoCo, Streaming DiLoCo, FedALS on a language model.

A small OPT that reads bytes learns tiny Shakespeare. Its roles are dealt to eight clients, all of them in every round;
AdamW goes on from round to round in all four. DiLoCo synchronizes once in PERIOD rounds, Streaming DiLoCo one fragment
of the layers a round, FedALS the head in every round and the body once in PERIOD. Writes table.md and in-turn.png into
--out. It can be interrupted at any time: a finished run is kept, and a stopped one is continued.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

import numpy as np

from apiece.config.settings import Config
from apiece.experiment.launch import ensure
from apiece.report.drawing import series, style
from apiece.report.records import Run, Runs
from apiece.report.results import read_run
from apiece.report.text import markdown, told
from apiece.system.files import atomic_write

PERIOD = 4
ROWS = {
    "fedavg": "fedavg",
    "diloco": f"diloco(every={PERIOD})",
    "streaming-diloco": f"streaming_diloco(blocks={PERIOD}, every={PERIOD})",
    "fedals": f"fedals(alpha={PERIOD})",
}
BASE = Config(
    data="tinyshakespeare",
    split="shards(1, by=natural)",
    clients=8,
    rounds=100,
    steps="10",
    batch=16,
    lr=0.002,
    optimizer="adamw",
    optimizer_state="kept",
    weighting="uniform",
    model="opt_lm(length=64, hidden=96, layers=3)",
    clip=1.0,
    eval_every=4,
    checkpoint_every=4,
    panel=1,
    drift="none",
)
SMALL = {"clients": 3, "rounds": 8, "steps": "2", "batch": 4, "model": "opt_lm(length=16, hidden=16, layers=3)"}
HEADINGS = ("algorithm", "loss", "MB sent", "largest message up, KB", "seeds")


def largest(run: Run) -> float:
    """The largest message of a client to the server, in bytes: a round's mean over clients, which is one for all here.
    What is sent down is as large, but for the first round, which sends everybody the whole model.
    """
    return float((np.diff(run.series("bytes_up")[1], prepend=0.0) / run.series("answered")[1]).max())


def table(rows: list[Runs]) -> str:
    """The table as Markdown, from the runs alone."""
    lines = []
    for row in rows:
        loss = told(row.over(lambda run: run.last("global_loss")), lambda v: f"{v:.3f}")
        sent = told(row.over(lambda run: run.last("bytes_up") + run.last("bytes_down")), lambda v: f"{v / 1e6:.2f}")
        peak = told(row.over(largest), lambda v: f"{v / 1e3:.1f}")
        lines.append([f"`{row.name}`", loss, sent, peak, str(len(row.runs))])
    return markdown(HEADINGS, lines)


def picture(rows: list[Runs], out: Path) -> None:
    """The loss against bytes, a line a row, and the last loss against the largest message, a point a row."""
    from matplotlib.figure import Figure

    with style():
        figure = Figure(figsize=(10, 3.4), layout="constrained", facecolor="white")
        left, right = figure.subplots(1, 2)
        for look, row in zip(series(row.name for row in rows), rows, strict=True):
            curve = row.curve("global_loss", "bytes")
            if curve is not None:
                left.plot(curve.x / 1e6, curve.mean, color=look.color, label=look.label)
            last = [run.last("global_loss") for run in row.runs]
            right.plot([largest(run) / 1e3 for run in row.runs], last, "o", color=look.color)
        left.set(xlabel="MB sent, up and down", ylabel="loss of a token on the test set")
        right.set(xlabel="largest message up (KB)", ylabel="loss after the last round")
        figure.legend(*left.get_legend_handles_labels(), loc="outside right center", frameon=False)
        figure.savefig(out, dpi=110)


def main(words: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data-dir")
    parser.add_argument("--out", type=Path, default=Path("runs/in-turn"))
    parser.add_argument("--seeds", type=int, nargs="*", default=[0])
    parser.add_argument("--small", action="store_true", help="a few small steps, which say nothing")
    asked = parser.parse_args(words)
    base = replace(BASE, data_dir=asked.data_dir, **(SMALL if asked.small else {}))
    for seed in asked.seeds:
        for name, algorithm in ROWS.items():
            ensure(replace(base, algorithm=algorithm, seed=seed), asked.out / name / f"seed-{seed}")
            print(name, seed, flush=True)
    folders = {name: [asked.out / name / f"seed-{seed}" for seed in asked.seeds] for name in ROWS}
    rows = [Runs(ROWS[name], tuple(read_run(folder) for folder in folders[name])) for name in ROWS]
    atomic_write(asked.out / "table.md", f"{table(rows)}\n".encode())
    picture(rows, asked.out / "in-turn.png")
    print(table(rows))


if __name__ == "__main__":
    main()
