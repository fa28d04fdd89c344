"""FedCOG, Figure 5: what a client generates, after more and more steps."""

from __future__ import annotations

import numpy as np

from apiece.papers.fedcog import _setup as shared
from apiece.papers.fedcog._setup import CIFAR10, NIID1, SETUP
from apiece.papers.fedcog._work import pictured
from apiece.reproduce.card import Card, Scale
from apiece.reproduce.table import OutOfReach

STEPS, CIFAR = (0, 100, 200, 500, 1000), "CIFAR-10 NIID-1"
ROWS = {f"{steps} steps": {"algorithm": f"fedcog(wait=1, steps={steps})", "begin": 50} for steps in STEPS}


def draw(table, figure):
    """One column of pictures for each number of steps, sorted by target class."""
    found = {}
    for row in table.rows:
        try:
            found[row] = np.array(table.of((row, CIFAR), "pictures")[0], dtype=np.uint8)
        except OutOfReach:
            continue
    if not found:
        raise OutOfReach("no cell was run")
    figure.set_size_inches(1.1 * len(found), 8.0)
    for place, (row, pictures) in enumerate(found.items(), 1):
        axes = figure.add_subplot(1, len(found), place)
        axes.imshow(pictures, cmap="gray" if pictures.ndim == 2 else None, vmin=0, vmax=255, interpolation="none")
        axes.set_axis_off()
        axes.set_title(row, fontsize="small")


CARD = Card(
    title="FedCOG, Figure 5: generated images",
    setup=SETUP | CIFAR10 | NIID1 | {"eval_every": 10},
    columns={CIFAR: {}},
    rows=ROWS,
    work=pictured,
    numbers={},
    open=(
        "the client: the first; the model: after 51 rounds of FedAvg; the images: eight of 256, by "
        "target class; what the paper says of this figure is judged by eye; its panel (a), real images, is left out",
        *shared.OPEN,
    ),
    figure=draw,
    scales={
        "smoke": Scale(
            "It runs, and says nothing more.", shared.SMOKE, (0,), rows={"0 steps": {"begin": 1}}
        ),
        "cpu": Scale(
            "20 rounds of FedAvg instead of 50, of 100 local steps instead of 400; one seed, for it is a picture.",
            {"steps": "100"}, (0,), rows={row: {"begin": 20} for row in ROWS},
        ),
        "paper": Scale("As the paper has it; one seed, for it is a picture.", seeds=(0,)),
    },
)  # fmt: skip
