"""FedALS, Figure 1: the consensus distance of each layer over time, under FedAvg."""

from __future__ import annotations

import numpy as np

from apiece.papers.fedals._setup import COLUMNS, OPEN, SETUP, SMOKE
from apiece.papers.fedals._work import DERIVED, distances, half
from apiece.report.drawing import gradient, line, scales
from apiece.report.records import Curve
from apiece.reproduce.card import Card, Claim, Number, Scale
from apiece.reproduce.work import runs

SENTENCE = "The early layers responsible for extracting representations exhibit lower levels of consensus distance."
DRAWN = {"whole_distances": "squared distance", "distances": "squared distance of a parameter"}


def closer(early: str, late: str):
    """Whether one number is below another in every column and seed."""
    return lambda t: all(low < high for c in t.columns for low, high in zip(
        t.of(("FedAvg", c), early), t.of(("FedAvg", c), late), strict=True))  # fmt: skip


def draw(table, figure):
    """A line for each layer, from the first (blue) over green and yellow to the last (red)."""
    figure.set_size_inches(4.2 * len(table.columns), 3.3 * len(DRAWN))
    rows = figure.subplots(len(DRAWN), len(table.columns), squeeze=False)
    for of_row, (name, y) in zip(rows, DRAWN.items(), strict=True):
        for axes, column in zip(of_row, table.columns, strict=True):
            rounds, *layers = np.mean(table.of(("FedAvg", column), name), axis=0)
            curves = [Curve(rounds, layer, np.zeros_like(layer)) for layer in layers]
            looks = gradient([f"layer {number}" for number in range(1, len(layers) + 1)])
            for curve, look in zip(curves, looks, strict=True):
                line(axes, curve, look, log=True)
            scales(axes, curves, log=True)
            axes.set(title=column, xlabel="round", ylabel=y)
            ends = [axes.plot([], [], color=looks[i].color, label=looks[i].label)[0] for i in (0, -1)]
            axes.legend(handles=ends, frameon=False, loc="best", ncols=2)


CARD = Card(
    title="FedALS, Figure 1: consensus distance by layer",
    setup=SETUP | {"algorithm": "fedavg", "steps": "50", "rounds": 400, "drift": "selected"},
    rows={"FedAvg": {}},
    columns={name: COLUMNS[name] for name in ("CIFAR-10", "MNIST")},
    work=runs(distances=distances, early=half(0), late=half(1)),
    derived=DERIVED,
    numbers={
        "whole_early": Number("first half of the layers, distance", 2),
        "whole_late": Number("second half of the layers, distance", 2),
        "whole_late_but_last": Number("second half without the last layer, distance", 2),
        "early": Number("first half of the layers, distance of a parameter, 1e-6", 2, 1e6),
        "late": Number("second half of the layers, distance of a parameter, 1e-6", 2, 1e6),
        "late_but_last": Number("second half without the last layer, distance of a parameter, 1e-6", 2, 1e6),
    },
    claims=tuple(
        Claim(f"the first half of the layers is closer than the second{less}, by {said}, in every seed", SENTENCE,
              closer(f"{of}early", f"{of}late{which}"))
        for of, said in (("whole_", "the distance"), ("", "the distance of a parameter"))
        for which, less in (("", ""), ("_but_last", " without the last layer"))
    ),
    open=(
        *OPEN, "50 local steps a round, as its Example 1 has it, and 20,000 iterations",
        "a layer's distance: the paper defines (1/K) sum_k ||mean - theta_k||^2, of a layer its part, and the authors' "
        "code divides it by the layer's number of parameters; this page has both",
        "its step size is not searched: the search is of the paper's section 7, and this figure of its introduction",
    ),
    scales={
        "smoke": Scale("It runs.", SMOKE | {"model": "resnet20", "rounds": 1, "drift": "selected"}, (0,),
                       columns={"MNIST": {}}),
        "cpu": Scale("1,000 iterations instead of 20,000.", {"rounds": 20, "eval_every": 5, "checkpoint_every": 1}),
        "paper": Scale("As the paper has it.", columns={"CIFAR-10": {}}),
    },
    figure=draw,
)  # fmt: skip
