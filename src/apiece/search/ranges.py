"""The ranges of `--over "lr=loguniform(1e-3, 1), beta=0..0.2"`, and what their names mean in a run's settings."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, NamedTuple

from apiece.config.names import SOURCES
from apiece.config.settings import Config
from apiece.config.tables import from_table
from apiece.data.catalog import OWN
from apiece.errors import UserError, nearest
from apiece.experiment.identity import NOT_IDENTITY
from apiece.language import algorithms, plugins
from apiece.language.expression import build
from apiece.language.grammar import Call, parse, parse_ranges, written

Value = float | int | str | bool | None
BY_SEARCH = {"algorithm", "rounds", "seed", "metrics", "measure_on", "validation", "eval_every", "panel", "panel_of",
             "drift", "early_stopping", "keep_best", "best_by", "plugin", "device", "lift", "init"}  # fmt: skip
BY_TASK = {"data", "task", "split", "clients", "unseen", "input", "target_column", "client_column", "noise_rgb",
           "noise_brightness"}  # fmt: skip


@dataclass(frozen=True)
class Range:
    """All numbers from `low` to `high`, evenly or evenly in their logarithm; whole ones if both ends are."""

    low: float
    high: float
    log: bool = False

    def __post_init__(self) -> None:
        if not self.low < self.high or (self.log and self.low <= 0):
            allowed = "the first above 0 and below the second" if self.log else "the first below the second"
            raise UserError(f"a range from {self.low:g} to {self.high:g}: give two numbers, {allowed}")

    @property
    def whole(self) -> bool:
        return isinstance(self.low, int) and isinstance(self.high, int)

    @property
    def ends(self) -> tuple[Value, ...]:
        return (self.low, self.high)


@dataclass(frozen=True)
class Choice:
    """One of some values."""

    values: tuple[Value, ...]

    log = False

    @property
    def ends(self) -> tuple[Value, ...]:
        return self.values


def uniform(low: float | int, high: float | int) -> Range:
    """All numbers between two, evenly."""
    return Range(float(low), float(high))


def loguniform(low: float | int, high: float | int) -> Range:
    """All numbers between two, evenly in their logarithm; whole ones if both are written so: loguniform(1, 100)."""
    return Range(low, high, log=True)


def choice(*values: Any) -> Choice:
    """One of some values: choice(sgd, adam)."""
    if len(values) < 2:
        raise UserError("choice needs two values or more")
    return Choice(values)


def _range(low: float | int, high: float | int) -> Range:
    return Range(low, high)


KINDS: Mapping[str, Callable[..., Any]] = {"uniform": uniform, "loguniform": loguniform, "choice": choice}


class Place(NamedTuple):
    """Where a name's value goes: a setting, or an argument of one of the terms of a setting."""

    setting: str
    term: int = -1  # which of its terms; -1: the setting itself
    argument: str = ""


class Space(NamedTuple):
    """The ranges of one algorithm by name, and where each value goes."""

    config: Config
    ranges: Mapping[str, Range | Choice]
    places: Mapping[str, Place]

    def settings(self, values: Mapping[str, Value]) -> dict[str, Any]:
        """The settings in which these values differ from the configuration; UserError for a value that is refused."""
        made: dict[str, Any] = {}
        for name, value in values.items():
            setting, term, argument = self.places[name]
            if not argument:
                made[setting] = value
                continue
            calls = list(parse(made.get(setting, getattr(self.config, setting))))
            calls[term] = _with(calls[term], _known(self.config, setting)[calls[term].name.replace("-", "_")], argument,
                                value)  # fmt: skip
            made[setting] = " + ".join(map(str, calls))
        from_table(made, "--over")
        return made


def read(text: str) -> dict[str, Range | Choice]:
    """The ranges by name; UserError for text that is no list of ranges."""
    try:
        return {name: _made(call) for name, call in parse_ranges(text).items()}
    except UserError as problem:
        raise UserError(f"--over {text!r}: {str(problem).rstrip('.')}.") from None


def _made(call: Call) -> Range | Choice:
    if call.name == "choice":  # its terms are text: choice(sgd, sgd(momentum=0.9))
        plain = [str(value) if isinstance(value, Call) else value for value in call.arguments]
        call = replace(call, arguments=tuple(plain))
    return build(str(call), {**KINDS, "range": _range})[0]


def space(config: Config, ranges: Mapping[str, Range | Choice], known: set[str]) -> Space:
    """Where the names' values go in this configuration; `known` gathers the names that have a place. UserError for an
    ambiguous name, and for a value at the end of a range that is refused.
    """
    everywhere = _places(config)
    places = {}
    for name in ranges:
        plain = name.replace("-", "_")
        found = everywhere.get(plain, [])
        if len({one for _, one in found}) > 1:
            raise UserError(
                f"--over: {name!r} is {' and '.join(dict.fromkeys(full for full, _ in found))} with the algorithm "
                f"{config.algorithm!r}: write one of these."
            )
        if found and (same := [other for other, place in places.items() if place == found[0][1]]):
            raise UserError(f"--over: {same[0]!r} and {name!r} are one setting, {found[0][0]}: keep one of them.")
        if found:
            places[name] = found[0][1]
    known.update(places)
    made = Space(config, {name: _typed(ranges[name], config, places[name]) for name in places}, places)
    for name, of in made.ranges.items():
        for value in of.ends:
            made.settings({name: value})
    return made


def refuse_unknown_names(configs: list[Config], ranges: Mapping[str, Any], known: set[str]) -> None:
    """Raise UserError for a name that has a place in none of the configurations."""
    for name in [name for name in ranges if name not in known]:
        plain = name.replace("-", "_").removeprefix("run.")
        why = (
            "the search itself decides it" if plain in BY_SEARCH | NOT_IDENTITY
            else "another value would be another task" if plain in BY_TASK else ""
        )  # fmt: skip
        if why:
            raise UserError(f"--over: {name!r} cannot be tuned, as {why}: leave it out.")
        allowed = {one for config in configs for one in _shortest(config)}
        raise UserError(f"--over: there is no setting or argument {name!r}; {nearest(plain, allowed)}")


def _shortest(config: Config) -> set[str]:
    """The shortest name of each place that means this place alone."""
    names: dict[Place, str] = {}
    for name, found in _places(config).items():
        if len({place for _, place in found}) == 1:
            place = found[0][1]
            names[place] = min(names.get(place, name), name, key=len)
    return set(names.values())


def _places(config: Config) -> dict[str, list[tuple[str, Place]]]:
    """By every name that may be written: its full names with their places."""
    found: dict[str, list[tuple[str, Place]]] = {}

    def add(short: str, full: str, place: Place) -> None:
        for name in {short, full}:
            found.setdefault(name, []).append((full, place))

    for one in fields(Config):
        if one.name not in BY_SEARCH | BY_TASK | NOT_IDENTITY:
            add(one.name, f"run.{one.name}", Place(one.name))
    for setting in ("algorithm", "optimizer", "server", "schedule", "adapter", "model", "augment"):
        text, known = getattr(config, setting), _known(config, setting)
        calls = parse(text) if text and text != OWN else ()
        names = [call.name.replace("-", "_") for call in calls]
        for place, name in enumerate(names):
            label = name if names.count(name) == 1 else f"{name}.{1 + names[:place].count(name)}"
            for argument in _arguments(known[name]) if name in known else ():
                full, own = f"{label}.{argument}", Place(setting, place, argument)
                # of another setting than the algorithm, a setting's own name stays the setting: lr is not average.lr
                short = argument if setting == "algorithm" or argument not in found else full
                add(short, full, own)
    return found


def _known(config: Config, setting: str) -> Mapping[str, Callable[..., Any]]:
    return plugins.names(algorithms.NAMED, config.plugin) if setting == "algorithm" else SOURCES[setting]


def _arguments(function: Callable[..., Any]) -> list[str]:
    parameters = inspect.signature(function).parameters.values()
    return [p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]


def _with(call: Call, function: Callable[..., Any], argument: str, value: Value) -> Call:
    """The term with another value of an argument, which may stand at its place or under its name."""
    place = _arguments(function).index(argument)
    if place < len(call.arguments):
        return replace(call, arguments=(*call.arguments[:place], value, *call.arguments[place + 1 :]))
    rest = tuple((key, old) for key, old in call.keywords if key.replace("-", "_") != argument)
    return replace(call, keywords=(*rest, (argument, value)))


def _typed(of: Range | Choice, config: Config, place: Place) -> Range | Choice:
    """A range between whole numbers has all numbers between them where a setting or an argument is no whole number."""
    if isinstance(of, Choice) or not of.whole:
        return of
    if place.argument:
        name = parse(getattr(config, place.setting))[place.term].name.replace("-", "_")
        taken = inspect.signature(_known(config, place.setting)[name]).parameters[place.argument]
        kind = str(type(taken.default) if taken.annotation is inspect.Parameter.empty else taken.annotation)
    else:
        kind = str(Config.__annotations__[place.setting])
    return replace(of, low=float(of.low), high=float(of.high)) if "float" in kind and "int" not in kind else of


def told(values: Mapping[str, Value]) -> str:
    """Values as text: lr=0.0312, beta=0.1."""
    texts = {
        k: f"{v:.4g}" if isinstance(v, float) else v if isinstance(v, str) else written(v) for k, v in values.items()
    }
    return ", ".join(f"{name}={text}" for name, text in sorted(texts.items()))
