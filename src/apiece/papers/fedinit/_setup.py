"""The set-up that FedInit's tables and figures share (its section 5.1, and its authors' simulator)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from apiece.reproduce.card import ACCURACY, Claim, Number
from apiece.reproduce.table import Table
from apiece.reproduce.work import best, curve, last, runs, smoothed

SETUP = {
    "data": "cifar10", "model": "resnet18_gn", "clients": 100, "cohort": 10, "epochs": 5, "batch": 50, "rounds": 500,
    "lr": 0.1, "schedule": "exponential(0.998)", "optimizer": "sgd(weight_decay=0.001)", "clip": 10.0,
    "weighting": "uniform", "augment": "flip + crop(4, 0.5)", "noise_rgb": 0.1, "noise_brightness": 0.1, "panel": 1,
    "drift": "none", "checkpoint_every": 50,
}  # fmt: skip
METHODS = {
    "FedAvg": {"algorithm": "fedavg"},
    "FedAdam": {"algorithm": "fedadam(lr=0.1, beta1=0.9, beta2=0.99, tau=0.01, initial=0)"},
    "FedSAM": {"algorithm": "fedsam(rho=0.1)"},
    "SCAFFOLD": {"algorithm": "scaffold(control=difference)"},
    "FedDyn": {"algorithm": "feddyn(alpha=0.1)", "schedule": "exponential(0.9995)"},
    "FedCM": {"algorithm": "fedcm(alpha=0.1)"},
    "FedInit": {"algorithm": "fedinit(beta=0.1)"},
}
READINGS = {  # other readings of Algorithm 1
    "FedInit, delta": {"algorithm": "fedinit(beta=0.1, aggregate=delta)"},
    "FedInit, first current": {"algorithm": "fedinit(beta=0.1, first=current)"},
}
MODELS = {"ResNet-18-GN": {"model": "resnet18_gn"}, "VGG-11": {"model": "vgg11"}}


def setting(clients: int, alpha: float) -> dict[str, Any]:
    """Ten clients a round, of 100 or 200, and the Dirichlet coefficient of their data."""
    batch = {100: 50, 200: 25}[clients]
    return {"split": f"dirichlet_refill({alpha})", "clients": clients, "cohort": 10, "batch": batch}


COLUMNS = {f"{10 * 100 // n} %-{n}, Dir-{alpha}": setting(n, alpha) for n in (100, 200) for alpha in (0.6, 0.1)}
WIDE, HARD = "10 %-100, Dir-0.6", "10 %-100, Dir-0.1"
FEW, FEW_HARD = "5 %-200, Dir-0.6", "5 %-200, Dir-0.1"
SMOKE = {
    "data": "digits", "model": "cnn", "clients": 6, "cohort": 2, "batch": 32, "epochs": 1, "rounds": 2,
    "noise_rgb": 0.0, "augment": "none", "checkpoint_every": 1,
}  # fmt: skip
CROPPED = {"augment": "flip + crop(4)"}  # as the cells of the scale cpu were run
SMALL = {"model": "cnn_fedcog", "rounds": 60, "checkpoint_every": 10} | CROPPED  # what fits on two cores
SHORT = SMALL | {"rounds": 40}  # where a card has many rows
BETTER = (
    "our FedInit method performs better than the other benchmarks with good stability across different experimental "
    "setups"
)
BEARS = (
    "When the participation ratio decreases to 5%, the accuracy drops only about 0.1% while FedAvg drops almost 1.88%"
)
LATE = ("paper",)  # where training ends: after few rounds most clients have not taken part yet
BLURRED = (
    "spreads that the text at hand does not print as numbers, or as 0.9 and more, are left out; where it has 0.19 or "
    "0.29, 0.12 or 0.22 may be meant"
)
LEAST = "After incorporating the RI, the test accuracy achieves at least 2% improvement on each setup"
IN_SMALL = "FedCOG's CNN with 62,006 parameters instead of ResNet-18, every image cropped instead of half"
NEARLY_ALL = "Of so few rounds, the best of the last 50 is nearly the best of all."
OPEN = (
    "5 local epochs in batches of 50 (100 clients) and 25 (200 clients), weight decay 0.001, gradients clipped at norm "
    "10, beta = 0.1, FedSAM's rho = 0.1, FedCM's and FedDyn's alpha = 0.1: from the authors' simulator",
    "FedAdam's beta1 = 0.9, beta2 = 0.99, tau = 0.01 and its second moment from 0: from there, too",
    "flips and crops, of half of the images each, of which the paper says nothing: as in the authors' code",
    "sampling with replacement: clients draw classes by their own Dirichlet weights, and a class whose images are all "
    "given away is filled up again (`dirichlet_refill`), as in the authors' code",
    "the models: ResNet-18 with ImageNet's stem and GroupNorm of two groups, as in the authors' code; VGG-11 without "
    "BatchNorm and hidden linear layers",
    "the strengths of the two noises, which are in no published code: 0.1 each, on training images alone",
    "the filter that smooths accuracies: the mean of 5 measurements; then the best of the last 50",
    "the aggregation: the paper's line 16 (the mean of the clients' models); “delta” is the authors' code (the mean of "
    "their updates from their relaxed starts)",
    "the model that a client is relaxed from before it first took part: the initial one (line 1); “first current” "
    "starts such a client at the server's model",
    "how relaxed starts are added to another method, for which the paper has no equation: that method takes the "
    "relaxed start as its round's start, as in the authors' code; its server gets the mean of line 16 or of “delta”",
    "participants: exactly ten of all, uniformly; the authors' code draws each client by itself",
    "SCAFFOLD's control variates: from the difference of models, as in the authors' code, weight decay and all",
)
NUMBERS = {
    "accuracy": Number("accuracy, smoothed, the best of the last 50, %", 2, 100.0),
    "last": ACCURACY._replace(title="accuracy after the last round, %"),
    "best": ACCURACY._replace(title="accuracy, best over rounds, %"),
}
DRIFT = {
    "divergence_all": Number("divergence over all clients after the last round", 3),
    "divergence_selected": Number("divergence over the round's clients after the last round", 3),
}
READ = {
    "accuracy": smoothed("global_accuracy"), "last": last("global_accuracy"), "best": best("global_accuracy"),
    "curve": curve("global_accuracy"),
}  # fmt: skip
READ_DRIFT = READ | {
    "divergence_all": last("divergence_all"), "divergence_selected": last("divergence_selected"),
    "divergence": curve("divergence_all"),
}  # fmt: skip
WORK, WORK_DRIFT = runs(**READ), runs(**READ_DRIFT)


def with_relaxed(method: str, beta: float = 0.1, more: str = "") -> dict[str, Any]:
    """The settings of a method with relaxed initialization added to it. Added to FedAvg it is FedInit, and is written
    so: then a cell has FedInit's run.
    """
    if method == "FedAvg":
        return {"algorithm": f"fedinit(beta={beta}{more})"}
    one = METHODS[method]
    return one | {"algorithm": f"{one['algorithm']} + relaxed_init(beta={beta}{more})"}


def by_model(rows: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """The rows for each of the two models."""
    return {f"{name}: {row}": {**made, **model} for name, model in MODELS.items() for row, made in rows.items()}


def drop(t: Table, row: str) -> float:
    """By how much the mean of a row falls from 10 % of 100 clients to 5 % of 200, at Dir-0.1."""
    return t.mean((row, HARD)) - t.mean((row, FEW_HARD))


def gain(t: Table, row: str, other: str, column: str, name: str = "accuracy") -> float:
    """By how much the mean of a row lies above that of another, in percentage points for accuracies."""
    return 100 * (t.mean((row, column), name) - t.mean((other, column), name))


def first(exceptions: Mapping[tuple[str, str], str]) -> tuple[Claim, ...]:
    """FedInit has the highest mean of all methods: a claim for each model and column. `exceptions`: whom the paper's
    own table has first.
    """
    claims: list[Claim] = []
    for model in MODELS:
        rows = [f"{model}: {row}" for row in METHODS]
        for column in COLUMNS:
            but = exceptions.get((model, column))
            name = f"{model}, {column}: FedInit highest" + (f" (its own table has {but} first)" if but else "")
            claims.append(Claim(name, BETTER, partial(_highest, f"{model}: FedInit", rows, column), LATE))
    return tuple(claims)


def _highest(row: str, rows: Sequence[str], column: str, t: Table) -> bool:
    return t.highest(row, rows=rows, columns=[column])
