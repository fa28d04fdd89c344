"""The names in a configuration: unknown ones are refused before anything heavy is loaded, known ones are built."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from apiece.algebra.finite import refuse_endless
from apiece.config.settings import AUTO, Config
from apiece.data.catalog import OWN
from apiece.errors import UserError, nearest
from apiece.language import algorithms, optimizers, plugins, schedules, splits
from apiece.language.expression import Functions, as_plugin, build, check_names
from apiece.language.grammar import Call, parse, parse_list
from apiece.language.names import Names

SIDES = {"optimizer": optimizers.CLIENTS, "server": optimizers.SERVERS}
SOURCES: dict[str, Functions] = {
    "split": splits.NAMED,
    "schedule": schedules.NAMED,
    **optimizers.NAMED,
    "augment": Names({name: f"apiece.config.augmentation.{name}" for name in ("flip", "crop")}),
    "model": Names(
        {"opt": "apiece.networks.opt.opt", "opt_lm": "apiece.networks.opt.opt_lm", "hf": "apiece.networks.hf.hf"}
    ),
    "adapter": Names({"lora": "apiece.networks.adapters.lora"}),
    "track": Names(
        {
            "csv": "apiece.experiment.track_files.csv",
            "tensorboard": "apiece.experiment.track_files.tensorboard",
            "mlflow": "apiece.experiment.track_mlflow.mlflow",
            "wandb": "apiece.experiment.track_wandb.wandb",
            "trackio": "apiece.experiment.track_wandb.trackio",
        }
    ),
}


def refuse_unknown(config: Config) -> None:
    """Raise UserError for an unknown name in the settings. With plug-ins any algorithm's name may exist, since theirs
    are not known before they are executed.
    """
    optional = [name for name in ("augment", "adapter", "track") if getattr(config, name) not in ("none", None)]
    for setting in ("split", "schedule", *SIDES, *optional):
        if getattr(config, setting) in (OWN, AUTO):  # of a program, refused when it is needed; of the data
            continue
        with _of(setting, text := getattr(config, setting)):
            calls = parse(text)
            _refuse_other_side(setting, text)
            check_names(calls, SOURCES[setting])
    if {"/", "\\"} & {*config.algorithm} and (plugin := as_plugin(config.algorithm)):  # no name can be a path
        raise UserError(plugin)
    with _of("algorithm", config.algorithm):
        calls = parse(config.algorithm)
        if not config.plugin:
            check_names(calls, plugins.names(algorithms.NAMED))


@contextmanager
def _of(setting: str, text: str) -> Iterator[None]:
    """An error in this context begins with the setting that is wrong."""
    try:
        yield
    except UserError as error:
        said = f"{setting}={text!r}"
        whole = str(error).startswith((said, text or said))  # it names the setting, or begins with its text
        raise error if whole else UserError(f"{said}: {error}") from None


def refuse_unknown_cells(config: Config, rows: str, columns: str) -> None:
    """The same for a grid's rows and columns too; a column may be called `nothing`."""
    from apiece.report.grid_table import NOTHING

    refuse_unknown(config)
    for what, text in (("rows", rows), ("columns", columns)) if not config.plugin else ():
        try:
            terms = [term for terms in parse_list(text) for term in terms if term.name != NOTHING]
            check_names(terms, plugins.names(algorithms.NAMED))
        except UserError as error:
            raise UserError(f"--{what} {text!r}: {error}") from None


def read(setting: str, text: str) -> tuple[Call, ...]:
    """The terms of a setting; an error in how they are written names the setting."""
    with _of(setting, text):
        return parse(text)


def built(setting: str, text: str, source: Functions) -> list[Any]:
    """The objects that these terms make."""
    read(setting, text)
    return build(text, source)


def one(setting: str, text: str) -> Any:
    """The object that the single term of a setting makes."""
    _refuse_other_side(setting, text)
    several = built(setting, text, SOURCES[setting])
    if len(several) != 1:
        raise UserError(f"{setting}={text!r} names {len(several)} things: give one.")
    refuse_endless(several[0])
    return several[0]


def _refuse_other_side(setting: str, text: str) -> None:
    """Refuse the server's optimizer as the clients', a client's optimizer as the server's, and what is neither."""
    allowed = SIDES.get(setting, {})
    for call in read(setting, text) if setting in SIDES else ():
        name = call.name.replace("-", "_")
        if name not in optimizers.NAMED[setting]:
            raise UserError(f"{setting}={text!r}: unknown name {call.name!r}; {nearest(call.name, allowed)}")
        if name not in allowed:
            own, other = ("a client", "the server") if setting == "optimizer" else ("the server", "a client")
            raise UserError(
                f"{setting}={text!r}: {call.name} is an optimizer of {other}, and this setting is of {own}: use "
                f"{' or '.join(allowed)}."
            )
