"""What a run measures: every number of metrics.jsonl, and how terminals, reports and grids show it.

A number that is not in this table was logged by a piece, as `FedExP.step_size`, or by a program's own watcher.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, NamedTuple


class Metric(NamedTuple):
    """A number of each round. With an axis it has a curve, with a column it appears in tables."""

    key: str  # in metrics.jsonl
    section: str  # of the page; also the title above its column
    heading: str  # of its curve
    caption: str  # what is measured
    axis: str = ""
    unit: str = ""
    column: str = ""
    note: str = ""  # under the column's heading, if not the unit
    ranked: bool = False  # whether the highest is the best
    log: bool = False  # whether its curve has a log scale
    on_page_alone: bool = False  # a terminal is too narrow
    read: Literal["last", "median"] = "last"  # the value that a column shows
    choice: str = ""  # its name for `apiece grid --metric`
    sum_of: tuple[str, ...] = ()  # the keys that it is the sum of, if it is not logged itself

    @property
    def scale(self) -> float:
        """The factor from a value to the unit."""
        return 100.0 if self.unit == "%" else 1.0

    @property
    def below(self) -> str:
        """The text under the heading of its column."""
        return self.note or self.unit

    @property
    def sentence(self) -> str:
        """The caption with its unit."""
        return f"{self.caption[0].upper()}{self.caption[1:]}{', in percent' if self.unit == '%' else ''}."


def _accuracy(choice: str, key: str, column: str, heading: str, caption: str, on_page_alone: bool = False) -> Metric:
    shown = {"axis": "accuracy", "unit": "%", "ranked": True, "on_page_alone": on_page_alone}
    return Metric(key, "Accuracy", heading, caption, column=column, choice=choice, **shown)


def _divergence(key: str, whose: str) -> Metric:
    caption = f"squared distance of {whose} models from the server's new model, mean over clients; in squared units of "
    shown = {"axis": "squared distance", "column": "Divergence", "log": True}
    return Metric(key, "Drift", "Divergence", f"{caption}the parameters", **shown)


def _sent(key: str, what: str, column: str = "") -> Metric:
    heading, ways = key.replace("_", " ").capitalize(), {"up": "clients to the server", "down": "the server to clients"}
    return Metric(key, "Sent", heading, f"{what} sent from {ways[key.rpartition('_')[2]]} so far", column=column)


NEVER_TRAINED = "accuracy on the test sets of clients that never trained"

METRICS = (
    Metric("cohort", "Clients", "Cohort", "clients asked"),
    Metric("answered", "Clients", "Answered", "clients that answered"),
    Metric("skipped", "Clients", "Skipped", "clients left out, as their messages were not finite"),
    Metric("steps", "Clients", "Steps", "local steps of all clients"),
    Metric("steps_counted", "Clients", "Steps counted", "local steps that reached the server"),
    _accuracy("global", "global_accuracy", "Global", "Global accuracy",
              "share of the official test set that the server's model labels correctly"),
    _accuracy("personal", "personal_accuracy_mean", "Personal", "Personal accuracy",
              "accuracy of each client's model on the client's own test set, mean over clients"),
    _accuracy("worst", "personal_accuracy_worst_decile", "Personal, worst tenth", "Personal accuracy, worst tenth",
              "personal accuracy, mean over the tenth of the clients with the lowest", on_page_alone=True),
    Metric("personal_accuracy_std", "Accuracy", "Personal accuracy, deviation", "its deviation over clients", unit="%"),
    _accuracy("unmasked", "personal_accuracy_unmasked", "Personal, unmasked", "Personal accuracy, unmasked",
              "personal accuracy where every class is predicted, also those that a client lacks"),
    _accuracy("adapted", "adapted_accuracy", "After local training", "Personal accuracy after local training",
              "personal accuracy once each client has trained locally", on_page_alone=True),
    _accuracy("unseen", "unseen_accuracy", "Unseen", "Accuracy of unseen clients",
              f"{NEVER_TRAINED}, without adapting to them"),
    _accuracy("unseen_unmasked", "unseen_accuracy_unmasked", "Unseen, unmasked", "Accuracy of unseen clients, unmasked",
              f"{NEVER_TRAINED}, without adapting to them, over all classes"),
    _accuracy("unseen_adapted", "unseen_adapted_accuracy", "Unseen, adapted", "Accuracy of unseen clients, adapted",
              f"{NEVER_TRAINED}, after local steps"),
    Metric("train_loss", "Loss", "Training loss", "mean loss of the cohort's local steps on their own data", "loss"),
    Metric("global_loss", "Loss", "Test loss", "mean loss of the server's model on the official test set", "loss"),
    _divergence("divergence_all", "all clients'"),
    _divergence("divergence_selected", "the cohort's"),
    Metric("update_norm_mean", "Drift", "Update norm",
           "length of a client's update, mean over the cohort; in units of the parameters", "length"),
    Metric("update_norm_std", "Drift", "Update norm, deviation", "its deviation over the cohort"),
    Metric("gradient_dissimilarity", "Drift", "Gradient dissimilarity",
           "how far the clients' gradients differ from their mean; no unit", "dissimilarity", log=True),
    Metric("consensus", "Consensus by layer", "Consensus distance",
           "squared distance of a client's layer from the mean of all clients' layers, mean over clients; in squared "
           "units of the parameters", "squared distance", log=True),
    _sent("numbers_up", "numbers", "Numbers up"),
    _sent("numbers_down", "numbers", "Numbers down"),
    _sent("parameters_up", "parameters of the model"),
    _sent("parameters_down", "parameters of the model"),
    _sent("control_up", "numbers of pieces"),
    _sent("control_down", "numbers of pieces"),
    _sent("bytes_up", "bytes"),
    _sent("bytes_down", "bytes"),
    Metric("bytes", "Sent", "Bytes", "bytes sent both ways", unit="B", column="Bytes", note="up + down",
           sum_of=("bytes_up", "bytes_down")),
    Metric("seconds", "Time", "Seconds", "median over rounds, training only", unit="s", column="Seconds",
           note="a round", read="median"),
    Metric("round", "Time", "Rounds", "rounds done", column="Rounds"),
)  # fmt: skip
BY_KEY = {metric.key: metric for metric in METRICS}
CHOICES = {metric.choice: metric for metric in METRICS if metric.choice}


def others(keys: Iterable[str]) -> list[Metric]:
    """The numbers that pieces and a program's watchers returned, each once, under their own names."""
    own = dict.fromkeys(key for key in keys if key not in BY_KEY)
    givers = {key: key.rpartition(".")[0] or "a watcher" for key in own}
    return [Metric(key, "Logged", key, f"the number that {givers[key]} returns in each round", "value") for key in own]
