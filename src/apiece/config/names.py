"""The names in a configuration: refused before anything heavy is loaded where there is no such thing, and built."""

from __future__ import annotations

from types import ModuleType
from typing import Any

from apiece.algebra.finite import refuse_endless
from apiece.config.settings import Config
from apiece.errors import UserError
from apiece.language import algorithms, augmentations, optimisers, plugins, schedules, splits
from apiece.language.expression import Functions, build, check_names, parse, parse_list

SIDES = {"optimizer": optimisers.CLIENTS, "server": optimisers.SERVERS}
SOURCES: dict[str, ModuleType] = {
    "split": splits,
    "schedule": schedules,
    "optimizer": optimisers,
    "server": optimisers,
    "augment": augmentations,
}


def refuse_unknown(config: Config) -> None:
    """Raise UserError for a name in the settings that nothing has. Plug-ins, whose names are not known before they are
    run, may have any algorithm's.
    """
    for setting, source in SOURCES.items():
        text = getattr(config, setting)
        if setting != "augment" or text != "none":
            check_names(parse(text), source)
        _refuse_other_side(setting, text)
    if not config.plugin:
        check_names(parse(config.algorithm), plugins.names(algorithms))


def refuse_unknown_cells(config: Config, rows: str, columns: str) -> None:
    """The same for a grid's rows and columns too, of which one may be called `nothing`."""
    from apiece.report.grid_table import NOTHING

    refuse_unknown(config)
    for what, text in (("rows", rows), ("columns", columns)) if not config.plugin else ():
        try:
            terms = [term for terms in parse_list(text) for term in terms if term.name != NOTHING]
            check_names(terms, plugins.names(algorithms))
        except UserError as error:
            raise UserError(f"--{what} {text!r}: {error}") from None


def one(setting: str, text: str, source: ModuleType | Functions) -> Any:
    """What the one term of a setting makes."""
    _refuse_other_side(setting, text)
    made = build(text, source)
    if len(made) != 1:
        raise UserError(f"{setting}={text!r} names {len(made)} things: give one.")
    refuse_endless(made[0])
    return made[0]


def _refuse_other_side(setting: str, text: str) -> None:
    """Refuse the server's optimiser for the clients', and theirs for its."""
    allowed = SIDES.get(setting, optimisers.__all__)
    for call in parse(text) if setting in SIDES else ():
        if call.name in optimisers.__all__ and call.name not in allowed:
            own, other = ("a client", "the server") if setting == "optimizer" else ("the server", "a client")
            raise UserError(
                f"{setting}={text!r}: {call.name} is an optimiser of {other}, and this setting is of {own}: use "
                f"{' or '.join(allowed)}."
            )
