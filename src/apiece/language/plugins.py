"""Algorithms from outside the package: plug-in files (`--plugin file.py`), and entry points of installed packages.

Expressions name a plug-in's public functions as they name built-in algorithms. A file is recorded with the hash of its
content (`/home/me/centered.py#sha256=...`) and loaded when an expression is read; an entry point is imported when its
name is used or listed, and not before. A plug-in is a program: one that only a run folder or a configuration file names
is not run (`agreed`). Importing this module loads nothing heavy.
"""

from __future__ import annotations

import functools
import hashlib
import inspect
import sys
import traceback
from collections.abc import Sequence
from difflib import get_close_matches
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import ModuleType
from typing import Any

from apiece.errors import UserError, meant, said, typed
from apiece.language.expression import functions
from apiece.language.names import Constructor, Names
from apiece.system.provenance import GROUP, MARK

MODULE = "apiece_plugin_"  # how the modules of plug-ins are named, before the hash
HAS = {  # what has no such attribute -> what helps
    "Samples": "a client's samples have size, all() for all of them, and batch(rows) for some",
    "Tensor": "a model is one vector [D], and view.task.by_tensor(function, theta) gives each parameter's part",
} | dict.fromkeys(("Uniform", "Weighted", "Sum", "PerClient"), "its tensor is .x, as in report.x")
HELP = {  # words of an error -> what helps
    "can't set attribute": "a view and a message do not change: return message._replace(delta=...)",
    "replace() should be called on dataclass instances": "of a message it is message._replace(delta=...)",
    "cannot assign to field": "a piece does not change: what lasts is in its server_memory or client_memory",
    "non-frozen dataclass from a frozen one": "write @dataclass(frozen=True) above the piece",
    "Piece.__init__()": "write @dataclass(frozen=True) above a piece that has values",
    "keyword-only argument: 'name'": "give what its row in a table is called, name='mine'",
    "Retraining.__call__()": "view.descend takes start, objective, batches, optimizer, lr and correct",
}


def names(builtin: Names, files: Sequence[str] = ()) -> Names:
    """The names of expressions: the built-in algorithms, the functions of plug-in files, and entry points.

    Raises UserError for a file that cannot be used, or whose function has the name of another algorithm; such an entry
    point is refused only where it is named, so that other installed packages break nothing else.
    """
    origin = dict.fromkeys(builtin, "a built-in algorithm")
    makers = dict(builtin.made)
    for entry in files:
        path, plugin = _load(entry)
        for name, function in functions(plugin).items():
            if name in origin:
                raise UserError(f"the plugin {path} defines {name!r}, the name of {origin[name]}: take another name.")
            origin[name] = f"an algorithm of the plugin {path}"
            makers[name] = functools.partial(_checked, function, f"the plugin {path}")
    for point in entry_points(group=GROUP):
        name = point.name.replace("-", "_")
        if name in origin:
            makers[name] = functools.partial(_refuse, f"{_called(point)} has the name of {origin[name]}: remove one.")
        else:
            origin[name] = _called(point)
            makers[name] = functools.partial(_installed, point)
    return Names(builtin.places, makers, builtin.listed)


def pinned(files: Sequence[str]) -> tuple[str, ...]:
    """The files as they are recorded, with absolute paths and hashes of their contents; a given hash is checked."""
    return tuple(f"{path}{MARK}{digest}" for path, _, digest in map(_read, files))


def agreed(recorded: Sequence[str], named: Sequence[str], where: str | Path) -> tuple[str, ...]:
    """The plug-ins that the file `where` has recorded, at the paths that the command names.

    Raises UserError for a plug-in that the command does not name, or that is not the recorded one: whoever sent the
    file may have written anything there. A recorded hash decides, wherever the file lies now; without one, the path
    does.
    """
    return tuple(_agreed(entry, pinned(named), where) for entry in recorded)


def _agreed(entry: str, named: Sequence[str], where: str | Path) -> str:
    path, _, digest = entry.partition(MARK)
    for other in named:
        there, _, found = other.partition(MARK)
        if digest == found if digest else Path(path).resolve() == Path(there).resolve():
            return other
    wanted = f"the plugin {path}" + (f" with the SHA-256 {digest}" if digest else "")
    if digest and Path(path) in (Path(other.partition(MARK)[0]) for other in named):
        raise UserError(
            f"the plugin {path} has changed since {where} was written (its SHA-256 was {digest[:12]}...): put the old "
            "file back to go on, or begin another run, in another folder, with the new one."
        )
    given = "".join(f"; {there} has {found}" for there, _, found in (other.partition(MARK) for other in named))
    raise UserError(
        f"{where} names {wanted}, and a program that a file names is run only where the command names it too{given}: "
        f"read that file, and if you trust it, say --plugin {path}."
    )


def hashes(files: Sequence[str]) -> list[str]:
    """The hashes of recorded files: results depend on these, and not on where the files lie."""
    return [entry.rpartition(MARK)[2] for entry in files]


def _read(entry: str) -> tuple[Path, bytes, str]:
    """A plug-in's absolute path, content and hash; raises UserError where another hash is recorded."""
    name, _, recorded = entry.partition(MARK)
    path = Path(name).absolute()
    try:
        content = path.read_bytes()
    except OSError as error:
        what = "that this run was made with cannot be read" if recorded else "cannot be read"
        do = "put it back" if recorded else f"{meant(name)}give the path of a Python file"
        raise UserError(f"the plugin {path} {what} ({error.strerror}): {do}.") from None
    digest = hashlib.sha256(content).hexdigest()
    if recorded and recorded != digest:
        raise UserError(
            f"the plugin {path} is not as it was when this run was made (its SHA-256 was {recorded[:12]}..., and is "
            f"{digest[:12]}...): put the old file back, or start a new run."
        )
    return path, content, digest


def _load(entry: str) -> tuple[Path, ModuleType]:
    """The module of a plug-in file; it is run once, for the same content is the same module."""
    path, content, digest = _read(entry)
    name = f"{MODULE}{digest[:16]}"
    if name not in sys.modules:
        import cloudpickle

        module = ModuleType(name)
        module.__file__ = str(path)
        sys.modules[name] = module  # dataclasses look up their annotations there
        cloudpickle.register_pickle_by_value(module)  # worker processes cannot import it
        try:
            exec(compile(content, str(path), "exec", dont_inherit=True), module.__dict__)
        except (Exception, SystemExit) as error:
            del sys.modules[name]
            raise _fault(f"the plugin {path} cannot be loaded", error, str(path)) from error
    if not functions(sys.modules[name]):
        raise UserError(f"the plugin {path} has no public function that makes an algorithm: define one in it.")
    return path, sys.modules[name]


def _installed(point: EntryPoint) -> Constructor:
    try:
        found = point.load()
    except (Exception, SystemExit) as error:
        raise _fault(f"{_called(point)} cannot be loaded", error) from error
    if not inspect.isfunction(found):
        raise UserError(f"{_called(point)} is no function: name one that makes an algorithm.")
    return _checked(found, _called(point))


def _checked(function: Constructor, source: str) -> Constructor:
    """The constructor; whatever error it raises becomes a UserError of one sentence."""

    @functools.wraps(function)
    def made(*arguments: Any, **keywords: Any) -> Any:
        from apiece.algebra.composition import Algorithm

        try:
            result = function(*arguments, **keywords)
        except UserError:
            raise
        except Exception as error:
            raise _fault(f"{source} fails", error, function.__code__.co_filename) from error
        if not isinstance(result, Algorithm):
            raise UserError(
                f"{function.__name__} of {source} gave a value of type {type(result).__name__}, no Algorithm: return "
                "algorithm(..., name=...), and put an underscore before the name of any other function."
            )
        return result

    return made


def at_fault(error: Exception) -> UserError | None:
    """The error in one sentence with the slot and the line of a plug-in that raised it; None if none has a part."""
    from apiece.algebra.returned import blamed

    files = {module.__file__ for name, module in sys.modules.items() if name.startswith(MODULE)}
    path = next((name for name, *_ in reversed(traceback.extract_tb(error.__traceback__)) if name in files), "")
    slot = f"{blame} of " if (blame := blamed(error)) else ""
    return _fault(f"{slot}the plugin {path} fails", error, path) if path else None


def _refuse(problem: str) -> Constructor:
    raise UserError(problem)


def _called(point: EntryPoint) -> str:
    return f"the entry point {point.name!r} ({point.value}) of {point.dist.name if point.dist else 'a distribution'}"


def _fault(source: str, error: BaseException, file: str = "") -> UserError:
    """The source and its error in one sentence, with the last line in `file` that raised it, or its last line."""
    frames = [(frame.filename, frame.lineno) for frame in traceback.extract_tb(error.__traceback__)]
    outside = [(name, line) for name, line in frames if name != __file__ and "importlib" not in name]
    places = [frame for frame in outside if frame[0] == file] or outside
    if isinstance(error, SyntaxError) and error.filename:
        places = [(error.filename, error.lineno)]
    where, line = places[-1] if places else ("", 0)
    place = "" if not places else f"line {line}: " if where in source else f"{where}, line {line}: "
    if isinstance(error, SyntaxError):
        what = f"{type(error).__name__}: {error.msg}"
    else:
        what = said(error) if isinstance(error, UserError) else typed(error)
    return UserError(f"{source}: {place}{what}{_help(error)}.")


def _help(error: BaseException) -> str:
    """What helps against mistakes that own pieces often have; "" for others."""
    if isinstance(error, AttributeError) and type(error.obj).__name__ == "View":
        fields: Sequence[str] = getattr(error.obj, "_fields", ())
        near = get_close_matches(error.name or "", fields, n=1)
        return f"; {f'did you mean {near[0]!r}? A' if near else 'a'} view has {', '.join(fields)}"
    if isinstance(error, AttributeError) and (has := HAS.get(type(error.obj).__name__)):
        return f"; {has}"
    return next((f"; {helps}" for words, helps in HELP.items() if words in str(error)), "")
