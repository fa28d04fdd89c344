"""What a run measures: every number of metrics.jsonl, and how terminals, reports and grids show it.

A number that is not in this table was logged by a piece, as `FedExP.step_size`, or by a program's own watcher.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import cache
from typing import Any, Literal, NamedTuple

from apiece.errors import UserError, nearest


class Measure(NamedTuple):
    """A metric as a run's folder knows it: its name, whether a higher value is better, and its unit."""

    name: str
    higher: bool = True
    unit: str = ""

    @property
    def title(self) -> str:
        return TITLES.get(self.name, self.name.replace("_", " "))

    @property
    def best(self) -> str:
        return "highest" if self.higher else "lowest"

    @property
    def worst(self) -> str:
        return "lowest" if self.higher else "highest"

    def told(self, value: float) -> str:
        """A value with its unit."""
        return f"{100 * value:g} %" if self.unit == "%" else f"{value:g} {self.unit}".rstrip()


ACCURACY = Measure("accuracy", unit="%")  # of folders that name no metric
TITLES = {
    "accuracy": "accuracy", "auroc": "AUROC", "f1": "F1", "iou": "IoU", "mae": "mean absolute error",
    "mse": "mean squared error", "perplexity": "perplexity", "r2": "R²", "rmse": "root mean squared error",
}  # fmt: skip


class Number(NamedTuple):
    """A number of each round. With an axis it has a curve, with a column it appears in tables."""

    key: str  # in metrics.jsonl
    section: str  # of the page; also the title above its column
    heading: str  # of its curve
    caption: str  # what is measured
    axis: str = ""
    unit: str = ""
    column: str = ""
    note: str = ""  # under the column's heading, if not the unit
    ranked: bool = False  # whether one value is better than another
    higher: bool = True  # whether the highest is the best, if ranked
    log: bool = False  # whether its curve has a log scale
    on_page_alone: bool = False  # a terminal is too narrow
    read: Literal["last", "median"] = "last"  # the value that a column shows
    choice: str = ""  # its name for `apiece grid --metric`
    sum_of: tuple[str, ...] = ()  # the keys that it is the sum of, if it is not logged itself
    of: str = ""  # the metric whose number it is

    @property
    def scale(self) -> float:
        """The factor from a value to the unit."""
        return 100.0 if self.unit == "%" else 1.0

    def logarithmic(self, low: float, high: float) -> bool:
        """Whether curves whose positive values lie between these have a log scale."""
        return self.log or (self.scale == 1 and high > 1000 * low)

    @property
    def below(self) -> str:
        """The text under the heading of its column."""
        return self.note or self.unit

    @property
    def of_server(self) -> bool:
        """Whether it is measured of the global model."""
        return self.key.startswith("global_")

    @property
    def sentence(self) -> str:
        """The caption with its unit."""
        return f"{capital(self.caption)}{', in percent' if self.unit == '%' else ''}."


def capital(text: str) -> str:
    """The text with a capital at its beginning."""
    return text[:1].upper() + text[1:]


def _measured(of: Measure, first: bool) -> tuple[Number, ...]:
    """The numbers of one metric; `first`: it is the run's first metric, whose choices need not name it."""
    name, title = of.name, of.title
    never = f"{title} on the test sets of clients that never trained"

    def number(choice: str, key: str, column: str, heading: str, caption: str, on_page_alone: bool = False) -> Number:
        shown = {"axis": title, "unit": of.unit, "ranked": True, "higher": of.higher, "of": name}
        choice = choice if first else f"{choice}_{name}"
        alone = on_page_alone or not (first or choice.startswith(("global", "personal")))
        return Number(key, capital(title), heading, caption, column=column, choice=choice, on_page_alone=alone, **shown)

    share = "share of the common test set that the server's model labels correctly" if of == ACCURACY else ""
    return (
        number("global", f"global_{name}", "Global", f"Global {title}",
               share or f"{title} of the server's model on the common test set"),
        number("personal", f"personal_{name}_mean", "Personal", f"Personal {title}",
               f"{title} on each client's own test set of the model that the client predicts with (under FedAvg the "
               "server's), mean over clients"),
        number("worst", f"personal_{name}_worst_decile", "Personal, worst tenth", f"Personal {title}, worst tenth",
               f"personal {title}, mean over the tenth of the clients with the {of.worst}", on_page_alone=True),
        Number(f"personal_{name}_std", capital(title), f"Personal {title}, deviation", "its deviation over clients",
               unit=of.unit),
        number("unmasked", f"personal_{name}_unmasked", "Personal, unmasked", f"Personal {title}, unmasked",
               f"personal {title} where every class is predicted, also those that a client lacks"),
        number("adapted", f"adapted_{name}", "After local training", f"Personal {title} after local training",
               f"personal {title} once clients have trained that model for one more round's local steps, the simplest "
               "personal method; mean over a panel, or over as many clients as cost a quarter of the training"),
        number("unseen", f"unseen_{name}", "Unseen", f"{capital(title)} of unseen clients",
               f"{never}, without adapting to them"),
        number("unseen_unmasked", f"unseen_{name}_unmasked", "Unseen, unmasked",
               f"{capital(title)} of unseen clients, unmasked", f"{never}, without adapting to them, over all classes"),
        number("unseen_adapted", f"unseen_adapted_{name}", "Unseen, adapted",
               f"{capital(title)} of unseen clients, adapted", f"{never}, after local steps"),
    )  # fmt: skip


def _divergence(key: str, whose: str) -> Number:
    caption = f"squared distance of {whose} models from the server's new model, mean over clients; in squared units of "
    shown = {"axis": "squared distance", "column": "Divergence", "log": True}
    return Number(key, "Drift", "Divergence", f"{caption}the parameters", **shown)


def _sent(key: str, what: str, column: str = "") -> Number:
    heading, ways = key.replace("_", " ").capitalize(), {"up": "clients to the server", "down": "the server to clients"}
    return Number(key, "Sent", heading, f"{what} sent from {ways[key.rpartition('_')[2]]} so far", column=column)


BEFORE = (
    Number("cohort", "Clients", "Cohort", "clients asked"),
    Number("answered", "Clients", "Answered", "clients that answered"),
    Number("skipped", "Clients", "Skipped", "clients left out, as their messages were not finite"),
    Number("steps", "Clients", "Steps", "local steps of all clients"),
    Number("steps_counted", "Clients", "Steps counted", "local steps that reached the server"),
)  # fmt: skip
AFTER = (
    Number("train_loss", "Loss", "Training loss", "mean loss of the cohort's local steps on their own data", "loss"),
    Number("global_loss", "Loss", "Test loss", "mean loss of the server's model on the common test set", "loss"),
    _divergence("divergence_all", "all clients'"),
    _divergence("divergence_selected", "the cohort's"),
    Number("update_norm_mean", "Drift", "Update norm",
           "length of a client's update, mean over the cohort; in units of the parameters", "length"),
    Number("update_norm_std", "Drift", "Update norm, deviation", "its deviation over the cohort"),
    Number("gradient_dissimilarity", "Drift", "Gradient dissimilarity",
           "how far the clients' gradients differ from their mean; no unit", "dissimilarity", log=True),
    Number("consensus", "Consensus by layer", "Consensus distance",
           "squared distance of a client's layer from the mean of the cohort's layers, mean over the cohort; in "
           "squared units of the parameters", "squared distance", log=True),
    _sent("numbers_up", "numbers", "Numbers up"),
    _sent("numbers_down", "numbers", "Numbers down"),
    _sent("parameters_up", "parameters of the model"),
    _sent("parameters_down", "parameters of the model"),
    _sent("control_up", "numbers of pieces"),
    _sent("control_down", "numbers of pieces"),
    _sent("bytes_up", "bytes"),
    _sent("bytes_down", "bytes"),
    Number("bytes", "Sent", "Bytes", "bytes sent both ways, each message with its head", unit="B", column="Bytes",
           note="up + down", sum_of=("bytes_up", "bytes_down")),
    Number("seconds", "Time", "Seconds", "median over rounds, training only", unit="s", column="Seconds",
           note="a round", read="median"),
    Number("round", "Time", "Rounds", "rounds done", column="Rounds"),
)  # fmt: skip
BY_KEY = {number.key: number for number in (*BEFORE, *AFTER)}  # those that every run has


@cache
def numbers(measures: tuple[Measure, ...] = (ACCURACY,)) -> tuple[Number, ...]:
    """All numbers of runs with these metrics, in the order of tables and pages."""
    own = [number for place, of in enumerate(measures) for number in _measured(of, first=not place)]
    return (*BEFORE, *own, *AFTER)


@cache
def by_key(measures: tuple[Measure, ...]) -> dict[str, Number]:
    """The same by their keys in metrics.jsonl."""
    return {number.key: number for number in numbers(measures)}


def choices(measures: tuple[Measure, ...] = (ACCURACY,)) -> dict[str, Number]:
    """The numbers that a grid may show, by the names that it calls them by."""
    return {number.choice: number for number in numbers(measures) if number.choice}


def named(choice: str, measures: tuple[Measure, ...]) -> Number:
    """The number that a grid shows by this name; UserError where runs with these metrics have none."""
    known = choices(measures)
    if choice not in known:
        raise UserError(f"--metric: there is no metric {choice!r}; {nearest(choice, known)}")
    return known[choice]


def tenth(clients: int) -> int:
    """How many of so many clients the worst tenth are, and the best: one at least."""
    return max(1, clients // 10)


def refuse_target(target: float | None, unit: str) -> None:
    """Raise UserError for a target that a metric of this unit never has."""
    if target is not None and (not math.isfinite(target) or (unit == "%" and not 0 < target <= 1)):
        allowed = "lie in (0, 1]" if unit == "%" and math.isfinite(target) else "be finite"
        raise UserError(f"target={target} must {allowed}.")


def others(keys: Iterable[str], measures: tuple[Measure, ...] = (ACCURACY,)) -> list[Number]:
    """The numbers that pieces and a program's watchers returned, each once, under their own names."""
    own = dict.fromkeys(key for key in keys if key not in by_key(measures))
    givers = {key: key.rpartition(".")[0] or "a watcher" for key in own}
    return [Number(key, "Logged", key, f"the number that {givers[key]} returns in each round", "value") for key in own]


def to_toml(measures: Iterable[Measure]) -> list[dict[str, str]]:
    """The metrics as run.toml has them."""
    return [{"name": m.name, "better": "higher" if m.higher else "lower", "unit": m.unit} for m in measures]


def from_toml(table: Any) -> tuple[Measure, ...]:
    """The inverse; accuracy for a folder that names none."""
    rows = [row for row in table if isinstance(row, dict) and row.get("name")] if isinstance(table, list) else []
    made = [Measure(str(row["name"]), row.get("better") != "lower", str(row.get("unit", ""))) for row in rows]
    return tuple(made) or (ACCURACY,)
