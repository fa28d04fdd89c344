"""FedALS, Figure 1: the consensus distance of each layer over time, under FedAvg."""

from __future__ import annotations

import numpy as np

from apiece.papers.fedals._setup import COLUMNS, OPEN, SETUP, SMOKE
from apiece.report.drawing import gradient, line, scales
from apiece.report.records import Curve
from apiece.reproduce.card import Card, Claim, Number, Scale
from apiece.reproduce.work import runs, sizes_of_layers


def distances(run):
    """[[round, ...], [of one layer at each round, ...], ...]: the mean squared distance of one parameter of each layer
    from the clients' mean, layers in the model's order.
    """
    sizes = sizes_of_layers(run)
    rounds = [metrics["round"] for metrics in run.metrics if "consensus" in metrics]
    every = [metrics["consensus"] for metrics in run.metrics if "consensus" in metrics]
    return [rounds, *([one[layer] / sizes[layer] for one in every] for layer in every[0])]


def half(number):
    """The mean over the rounds and over the first half (0) or the second half (1) of the layers."""
    return lambda run: float(np.mean(np.array_split(distances(run)[1:], 2)[number]))


def draw(table, figure):
    """A line for each layer, from the first (blue) over green and yellow to the last (red)."""
    figure.set_size_inches(4.2 * len(table.columns), 3.3)
    for axes, column in zip(figure.subplots(1, len(table.columns), squeeze=False)[0], table.columns, strict=True):
        rounds, *layers = np.mean(table.of(("FedAvg", column), "distances"), axis=0)
        curves = [Curve(rounds, layer, np.zeros_like(layer)) for layer in layers]
        looks = gradient([f"layer {number}" for number in range(1, len(layers) + 1)])
        for curve, look in zip(curves, looks, strict=True):
            line(axes, curve, look, log=True)
        scales(axes, curves, log=True)
        axes.set(title=column, xlabel="round", ylabel="squared distance of a parameter")
        ends = [axes.plot([], [], color=looks[i].color, label=looks[i].label)[0] for i in (0, -1)]
        axes.legend(handles=ends, frameon=False, loc="lower left", ncols=2)


CARD = Card(
    title="FedALS, Figure 1: consensus distance by layer",
    setup=SETUP | {"algorithm": "fedavg", "steps": "50", "rounds": 400, "drift": "selected"},
    rows={"FedAvg": {}},
    columns={name: COLUMNS[name] for name in ("CIFAR-10", "MNIST")},
    work=runs(distances=distances, early=half(0), late=half(1)),
    numbers={
        "early": Number("first half of the layers, distance of a parameter, 1e-6", 2, 1e6),
        "late": Number("second half of the layers, distance of a parameter, 1e-6", 2, 1e6),
    },
    claims=(
        Claim(
            "the first half of the layers is closer than the second, in every seed",
            "The early layers responsible for extracting representations exhibit lower levels of consensus distance.",
            lambda t: all(
                early < late
                for c in t.columns
                for early, late in zip(t.of(("FedAvg", c), "early"), t.of(("FedAvg", c), "late"), strict=True)
            ),
        ),
    ),
    open=(
        *OPEN, "50 local steps a round, as its Example 1 has it, and 20,000 iterations",
        "a layer's distance: over its number of parameters, as in the authors' code; the paper's sum is not divided",
    ),
    scales={
        "smoke": Scale("It runs.", SMOKE | {"drift": "selected"}, (0,), columns={"MNIST": {}}),
        "cpu": Scale(
            "1,000 iterations instead of 20,000.",
            {"rounds": 20, "eval_every": 5},
            columns={"CIFAR-10": {}, "MNIST": {}},
        ),
        "paper": Scale("As the paper has it.", columns={"CIFAR-10": {}}),
    },
    figure=draw,
)
