"""What the curves of a report show: each metric with its heading, its caption and its axis."""

from __future__ import annotations

from typing import NamedTuple

from apiece.report.results import Runs
from apiece.report.table import drift_key


class Measure(NamedTuple):
    """A curve: the metric, its heading, caption and axis, and how values are drawn."""

    key: str
    title: str
    caption: str
    axis: str
    scale: float = 1.0
    log: bool = False
    against: str = "round"


def _accuracy(key: str, title: str, caption: str, against: str = "round") -> Measure:
    return Measure(key, title, caption, "accuracy (%)", 100, False, against)


GLOBAL = "Share of the official test set that the server's model labels rightly, in per cent"
PERSONAL = "Accuracy of each client's model on the client's own test set, mean over clients, in per cent"
UNSEEN = "Accuracy on the test sets of clients that never trained"
SENT = ", against bytes sent up and down so far."
ACCURACY = (
    _accuracy("global_accuracy", "Global accuracy", f"{GLOBAL}."),
    _accuracy("personal_accuracy_mean", "Personal accuracy", f"{PERSONAL}."),
    _accuracy(
        "personal_accuracy_worst_decile",
        "Worst tenth of the clients",
        "Personal accuracy, mean over the tenth of the clients that does worst, in per cent.",
    ),
    _accuracy(
        "adapted_accuracy",
        "Personal accuracy after local training",
        "Accuracy on each client's own test set once it has trained locally, mean over clients, in per cent.",
    ),
    _accuracy(
        "personal_accuracy_unmasked",
        "Personal accuracy without the class mask",
        "Personal accuracy where every class is predicted, also those that a client lacks, in per cent.",
    ),
    _accuracy("unseen_accuracy", "Unseen clients", f"{UNSEEN}, without adapting to them, in per cent."),
    _accuracy(
        "unseen_accuracy_unmasked", "Unseen clients without the class mask", f"{UNSEEN}, of all classes, in per cent."
    ),
    _accuracy("unseen_adapted_accuracy", "Unseen clients, adapted", f"{UNSEEN}, after local steps, in per cent."),
)
COST = (
    _accuracy("global_accuracy", "Global accuracy for bytes sent", GLOBAL + SENT, "bytes"),
    _accuracy("personal_accuracy_mean", "Personal accuracy for bytes sent", PERSONAL + SENT, "bytes"),
)
LOSS = (
    Measure("train_loss", "Training loss", "Mean loss of the cohort's local steps on their own data; no unit.", "loss"),
    Measure("global_loss", "Test loss", "Mean loss of the server's model on the official test set; no unit.", "loss"),
)


def drift(rows: list[Runs]) -> tuple[Measure, ...]:
    """How far clients are apart, by the divergence that more rows measured."""
    who = "all clients'" if drift_key(rows) == "divergence_all" else "the cohort's"
    return (
        Measure(
            drift_key(rows),
            "Divergence",
            f"Squared distance of {who} models from the server's new model, mean over clients; squared units of the "
            "parameters.",
            "squared distance",
            log=True,
        ),
        Measure(
            "update_norm_mean",
            "Update norm",
            "Length of a client's update, mean over the cohort; in units of the parameters.",
            "length",
        ),
        Measure(
            "gradient_dissimilarity",
            "Gradient dissimilarity",
            "How far the clients' gradients differ from their mean; no unit.",
            "dissimilarity",
            log=True,
        ),
    )
