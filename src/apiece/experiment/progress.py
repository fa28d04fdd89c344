"""What a run shows while it goes on: a bar with a small curve in a terminal, a line a round in a pipe, or JSON."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from apiece.config.assemble import Experiment
from apiece.experiment.choice import Chosen
from apiece.experiment.result import Info, Told, measures_of
from apiece.report.metrics import Number, numbers
from apiece.storage.log import without_infinities

if TYPE_CHECKING:
    from rich.console import Console

Progress = bool | Literal["json"]  # whether a run shows its rounds, for a reader or for a program
WIDE, CURVE = 110, 24  # columns of a terminal that has room for a curve, and those of the curve
BARS = "▁▂▃▄▅▆▇█"


class Shown(NamedTuple):
    """What there is to show of a round."""

    round: int
    value: str  # of the run's first metric, with its name; the latest that was measured
    new: bool  # whether that was in this round
    curve: list[float]  # its values so far
    left: float | None  # estimated seconds to the end


class Showing(NamedTuple):
    """What shows a run while it goes on."""

    rounds: list[Callable[[Info], None]] = []  # each is called with a round's record
    lift: Callable[[Chosen], None] = lambda chosen: None  # called before the first round


@contextmanager
def shown(experiment: Experiment, progress: Progress) -> Iterator[Showing]:
    """In this context, what shows the run as it is asked for."""
    if progress == "json":
        yield Showing([lambda info: _as_json(experiment, info)])
    elif progress:
        from rich.console import Console

        console = Console()
        with _bar(experiment, console) if console.is_terminal else _lines(experiment) as showing:
            yield showing
    else:
        yield Showing()


def _as_json(experiment: Experiment, info: Mapping[str, Any]) -> None:
    config = experiment.config
    record = {"algorithm": config.algorithm, "seed": config.seed, "rounds": config.rounds, **info}
    print(json.dumps(without_infinities(record), allow_nan=False), flush=True)


@contextmanager
def _lines(experiment: Experiment) -> Iterator[Showing]:
    read, rounds = _reader(experiment), experiment.config.rounds
    print(f"{_title(experiment)}: {_asked(experiment)}", flush=True)

    def show(info: Info) -> None:
        now = read(info)
        left = f", {_clock(now.left)} left" if now.left is not None and now.round < rounds else ""
        value = f": {now.value}" if now.new else ""  # an old one would look as if nothing were learned
        print(f"round {now.round} of {rounds}{value}{left}", flush=True)

    yield Showing([show], tell_lift)


@contextmanager
def _bar(experiment: Experiment, console: Console) -> Iterator[Showing]:
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
    from rich.progress import Progress as Bars

    names = ("said", "curve", "left")
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn()
    with Bars(*columns, *(TextColumn(f"{{task.fields[{name}]}}") for name in names), console=console) as bars:
        console.print(_asked(experiment), highlight=False)
        read, rounds = _reader(experiment), experiment.config.rounds
        task = bars.add_task(_title(experiment), total=rounds, **dict.fromkeys(names, ""))

        def show(info: Info) -> None:
            now = read(info)
            left = "" if now.left is None or now.round == rounds else _ends(now.left)
            small = curve(now.curve) if console.width >= WIDE else ""
            bars.update(task, completed=now.round, said=now.value, curve=small, left=left)

        yield Showing([show], tell_lift)


def _title(experiment: Experiment) -> str:
    return f"{experiment.config.algorithm} seed {experiment.config.seed}"


def _asked(experiment: Experiment) -> str:
    """How many clients a round asks, and whether the run is kept."""
    about = "about " if experiment.config.sampling != "fixed" else ""
    kept = "" if experiment.config.out else "; nothing is kept, as no --out names a folder"
    return f"{about}{experiment.cohort} of {len(experiment.training.participants)} clients a round{kept}"


def tell_lift(chosen: Chosen) -> None:
    """Print which lift the run has, and why; of the runs of several seeds, the first says it for all."""
    print_once(f"clients are computed {chosen.lift.way}, by {chosen.lift!r}; {chosen.why}")


@cache
def print_once(text: str) -> None:
    print(text, flush=True)


def _reader(experiment: Experiment) -> Callable[[Info], Shown]:
    """A function of the rounds in turn that says what there is to show of each."""
    known, rounds = numbers(measures_of(experiment.federated.setup.task)), experiment.config.rounds
    curve, value, began = list[float](), "", list[tuple[float, int]]()

    def read(info: Info) -> Shown:
        nonlocal value
        before = info.history if isinstance(info, Told) and not began else ()  # of a run that was resumed
        measured = False
        for record in (*before, info):
            first = next((m for m in known if m.ranked and m.key in record), None)
            measured = first is not None
            if first is not None:
                curve.append(record[first.key])
                value = _told(first, record[first.key])
        said = value if info["answered"] else "nobody answered: nothing changed"
        measured = measured or not info["answered"]
        now, done = time.monotonic(), info["round"]
        began.append((now, done)) if not began else None  # the first round also compiles and measures: it is left out
        past, since = now - began[0][0], done - began[0][1]
        return Shown(done, said, measured, curve, past / since * (rounds - done) if since else None)

    return read


def _told(number: Number, value: float) -> str:
    heading = f"{number.heading[0].lower()}{number.heading[1:]}"
    return f"{heading} {value:{'.3f' if number.unit == '%' else '.4g'}}"


def curve(values: list[float]) -> str:
    """Values as one line of bars from their least to their largest, the latest of each stretch; "" for fewer than two.

    >>> curve([0.1, 0.2, 0.4, float("nan"), 0.8])
    '▁▂▄ █'
    """
    shown = [values[(i + 1) * len(values) // CURVE - 1] for i in range(CURVE)] if len(values) > CURVE else values
    finite = [v for v in shown if abs(v) < float("inf")]
    if len(finite) < 2:
        return ""
    least, span = min(finite), max(finite) - min(finite) or 1.0
    return "".join(BARS[int((v - least) / span * 7.999)] if abs(v) < float("inf") else " " for v in shown)


def _clock(seconds: float) -> str:
    """Hours, minutes and seconds: 1:02:03."""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{rest:02}"


def _ends(left: float) -> str:
    """How long it still takes, and when that is, with the day unless it is within one."""
    form = "%H:%M" if left < 86400 else "%a %d %b %H:%M"
    return f"{_clock(left)} left, until {time.strftime(form, time.localtime(time.time() + left))}"
