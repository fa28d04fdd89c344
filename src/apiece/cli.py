"""The command line: arguments become a command of `commands`, and errors become one sentence.

Importing this module and printing help load neither torch nor numpy.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from dataclasses import field, fields, make_dataclass, replace
from io import TextIOWrapper
from pathlib import Path
from signal import SIGINT, SIGTERM, Signals
from typing import Any, NoReturn
from warnings import catch_warnings, filterwarnings

import tyro

from apiece import __version__
from apiece.commands import BY_RANKS, COMMANDS, Completion, Grid, Rehearse, Run, Tune
from apiece.commands.flags import registry
from apiece.commands.parsing import sentences
from apiece.commands.runs import Settings
from apiece.config.names import SOURCES, refuse_unknown
from apiece.config.settings import Config
from apiece.config.tables import EITHER, from_toml, shared
from apiece.errors import USUAL, UserError
from apiece.system import signals

ABOUT = """Federated learning for clients whose data differ. `apiece --version` prints the version.

Exit codes: 0 done, 1 a defect of apiece, 2 input that cannot be used (one sentence says why), 128 + the number of a
signal that ended it (130 Ctrl-C, 143 SIGTERM), 141 the reader of its output has gone."""
ONCE = {
    "--plugin": "--plugin a.py b.py",
    "--seeds": "--seeds 0,1",
    "--input": "--input age income",
    "--config": "one file, and further settings as flags",
}  # flags that are given once, and what to write in place of several
SETTLED = ("run", "grid", "tune", "rehearse")  # the commands that take a run's settings


def main(arguments: list[str] | None = None) -> None:
    """The entry point: exit code 0; 2 with one sentence for bad input; 128 plus the number of a signal that ended it.

    Without `arguments` it takes those of the process, and handles the signals of the process.
    """
    if arguments is None:
        _ready()
        with signals.heeded():
            return main(sys.argv[1:])
    words = list(arguments)
    try:
        if words == ["--version"]:
            return print(f"apiece {__version__}")
        _refuse_repeated(words)
        _refuse_both(words)
        _refuse_usual(words)
        _refuse_column(words)
        _refuse_unknown(words)
        path, words = _config_file(words)
        settings = Config() if path is None else from_toml(path)
        defaults = _under(replace(settings, plugin=()), words)
        with registry(), catch_warnings(), sentences(words, COMMANDS):
            filterwarnings("ignore", "The field .* default value `your own`")  # of a program: a flag may replace it
            command = tyro.extras.subcommand_cli_from_dict(
                COMMANDS if path is None else COMMANDS | _with_defaults(defaults),
                args=words,
                prog="apiece",
                description=ABOUT,
            )
        if isinstance(command, Completion):
            return main(["--tyro-print-completion", command.shell])
        if path is not None and settings.plugin:
            _refuse_unnamed(settings.plugin, command.config.plugin, path)
        _do(command)
        sys.stdout.flush()
    except BrokenPipeError:  # the reader of our output has gone
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(141) from None
    except (UserError, OSError) as error:
        _end(error)
    except KeyboardInterrupt as stop:
        _interrupted(stop)
    except Exception as error:
        plugins = sys.modules.get("apiece.language.plugins")  # which is imported only where one may have been loaded
        if (fault := plugins and plugins.at_fault(error)) is None:
            raise
        _end(fault)


def _ready() -> None:
    """Give the process an output where it has none (`>&-`), and another letter for one that its output lacks."""
    sys.stdout, sys.stderr = (stream or open(os.devnull, "w") for stream in (sys.stdout, sys.stderr))
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")


def _do(command: Any) -> None:
    """Execute the command. With several ranks, all execute a run, a grid, a resumption or a comparison, for which they
    must have the same arguments; the first alone executes any other command.
    """
    if int(os.environ.get("WORLD_SIZE", "1")) == 1:
        if isinstance(command, Run | Grid | Tune):
            command.check()
        return command()
    from apiece.system.ranks import alone, join

    if isinstance(command, BY_RANKS):
        ranks, words = join(), dict(vars(command))
        config = words.pop("config", None)
        ranks.refuse_others({"the command": next(name for name, kind in COMMANDS.items() if isinstance(command, kind))})
        ranks.refuse_others(words | (shared(config) if config else {}))
        command()
    elif int(os.environ["RANK"]) == 0:
        with alone():
            command()


def _end(error: UserError | OSError) -> NoReturn:
    """Print the error in one sentence and exit with the code of bad input. With several ranks, the first prints an
    error that all know of, and each rank prints an error that it alone knows of.
    """
    here, met_by = int(os.environ.get("RANK", "0")), getattr(error, "met_by", None)
    if met_by is None or here == 0:
        rank = here if met_by is None else met_by
        parts = (error.filename, error.strerror or error) if isinstance(error, OSError) else (error,)
        text = " ".join(": ".join(str(part) for part in parts if part).split())
        said = f"rank {rank}: {text}" if rank else text
        print(f"apiece: {said}{'' if text.endswith(('.', '?')) else '.'}", file=sys.stderr)
    raise SystemExit(2) from None


def _interrupted(stop: KeyboardInterrupt) -> NoReturn:
    """Print how to continue, and exit with the signal's code. With several ranks, the first prints it, and so does each
    rank that torchrun ends.
    """
    number = getattr(stop, "number", SIGINT)
    rank, several = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1")) > 1
    how = "interrupted" if number == SIGINT else f"ended by {Signals(number).name}"
    if several and number == SIGTERM:
        how = f"rank {rank}: another rank of this run ended, or torchrun was asked to end"
    goes_on = f"; {stop}" if str(stop) else ""
    if rank == 0 or (several and number == SIGTERM):
        print(f"apiece: {how}{goes_on}.", file=sys.stderr)
    raise SystemExit(128 + number) from None


def _refuse_repeated(words: list[str]) -> None:
    """Refuse one of these flags that is given twice: what one of them says would silently be ignored."""
    for flag, example in ONCE.items():
        if sum(word.partition("=")[0] == flag for word in words) > 1:
            raise UserError(f"{flag} is given more than once, and only the last would count: write {example}.")


def _refuse_usual(words: list[str]) -> None:
    """Refuse a flag that other libraries have for a setting, and name ours."""
    names = [word.partition("=")[0][2:].replace("-", "_") for word in words if word.startswith("--")]
    known = {f.name for f in fields(Config)}
    for name in names if words and words[0] in SETTLED else ():
        if name in USUAL and name not in known:
            flag = name.replace("_", "-")
            raise UserError(f"there is no flag --{flag}; did you mean --{USUAL[name].replace('_', '-')}?")


def _refuse_column(words: list[str]) -> None:
    """Refuse a column's name as the accuracy that tables look for."""
    for name, value in _flags(words):
        if name == "--target" and value[:1].isalpha() and value.lower() not in ("none", "inf", "nan"):
            raise UserError(f"--target={value} is no accuracy; the column that is predicted is --target-column.")


def _refuse_unknown(words: list[str]) -> None:
    """Refuse an unknown name in a run's own flags, for which the command line need not be parsed: that takes as long as
    all else. `Run.check` refuses every other one, as a file's, and those of a run with plug-ins.
    """
    several = int(os.environ.get("WORLD_SIZE", "1")) > 1  # ranks agree on who says it, once they have met
    if several or words[:1] != ["run"] or {"-h", "--help"} & {*words} or _given(words, "plugin"):
        return
    flags = {f"--{name}": name for name in ("algorithm", *SOURCES)}
    refuse_unknown(replace(Config(), **{flags[name]: value for name, value in _flags(words) if name in flags}))


def _flags(words: list[str]) -> Iterator[tuple[str, str]]:
    """Each flag and what follows it, unless this is the next flag."""
    for word, following in zip(words, [*words[1:], "--"]):
        name, equals, value = word.partition("=")
        if equals or not following.startswith("--"):
            yield name, value if equals else following


def _given(words: list[str], setting: str) -> bool:
    return any(word.partition("=")[0] == f"--{setting}" for word in words)


def _refuse_both(words: list[str]) -> None:
    """Refuse two flags of which the second would silently make the first ineffective."""
    for one, other in EITHER:
        if _given(words, one) and _given(words, other):
            raise UserError(f"--{one} and --{other} are both given, and only --{other} would count: leave one out.")


def _under(defaults: Config, words: list[str]) -> Config:
    """A file's settings as defaults for the flags; a flag also clears the setting that it replaces."""
    usual = Config()
    pairs = [*EITHER, *(pair[::-1] for pair in EITHER)]
    cleared = {other: getattr(usual, other) for one, other in pairs if _given(words, one)}
    return replace(defaults, **cleared)


def _config_file(words: list[str]) -> tuple[str | None, list[str]]:
    """Take `--config FILE` out of the arguments of a command that takes settings: flags override its values. The run
    that is rehearsed is such a file, too.
    """
    if words[:1] == ["rehearse"] and words[1:] and not words[1].startswith("-"):
        if not (path := Path(words[1]) / "run.toml").is_file():
            raise UserError(f"{words[1]} is no folder of a run, without run.toml: give one, or flags alone.")
        return str(path), words
    for i, word in enumerate(words):
        name, equals, value = word.partition("=")
        if words[0] in SETTLED and name == "--config":
            if not equals and i + 1 == len(words):
                raise UserError("--config needs the path of a TOML file.")
            return value if equals else words[i + 1], words[:i] + words[i + (1 if equals else 2) :]
    return None, words


def _refuse_unnamed(recorded: tuple[str, ...], named: tuple[str, ...], path: str) -> None:
    """Refuse the plug-ins of a configuration file unless the flags name them too."""
    from apiece.language import plugins

    plugins.agreed(recorded, named, path)


def _with_defaults(defaults: Config) -> dict[str, type]:
    """The commands that take settings, with these as defaults; a grid does not take the algorithm among them."""

    def taking(command: type, own: Config) -> type:
        config = ("config", Settings, field(default_factory=lambda: own))
        return make_dataclass(f"{command.__name__}From", [config], bases=(command,), frozen=True)

    named = {"run": Run, "tune": Tune, "rehearse": Rehearse}
    grid = taking(Grid, replace(defaults, algorithm=Config().algorithm))
    return {name: taking(command, defaults) for name, command in named.items()} | {"grid": grid}


if __name__ == "__main__":
    main()
