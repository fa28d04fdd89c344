"""What a person sees of deployed runs: their rounds as they come, and where each stands."""

from __future__ import annotations

import re
import time
import zlib
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from apiece.config.settings import Config, check
from apiece.deploy import flower_commands as flower
from apiece.deploy.request import FOLDER, Request, Terms, requests
from apiece.deploy.serving import reached, running
from apiece.errors import UserError, nearest
from apiece.experiment import folders
from apiece.storage import log

LOOK = 1.0  # seconds


def requested(state: Path, config: Config, terms: Terms) -> Request:
    """Ask the coordinator of a folder for a run; it is named after the folder that the run will be in."""
    out = Path(str(config.out))
    word = re.sub(r"[^a-z0-9-]+", "-", out.name.lower()).strip("-") or "run"
    request = Request(state / FOLDER / f"{word}-{zlib.crc32(str(out).encode()):08x}.toml")
    request.refuse_existing()
    folders.refuse_existing(out)
    request.write(config, terms)
    return request


def named(state: Path, name: str) -> Request:
    """The run of a name; raises UserError if there is none."""
    known = {request.name: request for request in requests(state)}
    if name not in known:
        raise UserError(f"there is no run {name!r}; {nearest(name, known)}")
    return known[name]


def go_on(request: Request, rounds: int | None = None) -> str:
    """Let a run go on that was stopped or failed, and one that is done if it gets another number of rounds; gives what
    to tell. Raises UserError for rounds that it cannot have, and while it goes on.
    """
    from apiece.experiment.identity import refuse_rounds
    from apiece.experiment.lifecycle import go_on_after_stop

    config, ended = request.read()[0], request.ended()
    folder, goes_on = Path(str(config.out)), "begins anew, as none of its rounds is done"
    begun = (folder / "run.toml").is_file()
    there = folders.recorded(folder).rounds if begun and ended is not None else config.rounds
    another = rounds is not None and rounds != there
    if ended is None:
        if another:
            raise UserError(f"run {request.name!r} is going on with {there} rounds: stop it first.")
        request.stop.unlink(missing_ok=True)
        return f"run {request.name!r} is going on already."
    if ended == "done" and not another:
        return f"run {request.name!r} is done: see {folder}; --rounds N gives it more than its {there} rounds."
    if another:
        config = replace(config, rounds=rounds)
        check(config)
        if begun:
            refuse_rounds(folder, config)
        request.change(config)
    if begun:
        go_on_after_stop(folder)
        goes_on = "goes on from its last checkpoint"
    else:
        request.forget_told()  # the nodes' data may have been mended meanwhile
    request.reopen()
    return f"run {request.name!r} {goes_on}{f', and has {rounds} rounds now' if another else ''}."


def stop(request: Request) -> str:
    """Let a run end after its present round; gives what to tell."""
    if (ended := request.ended()) is not None:
        return f"run {request.name!r} has ended already: {ended.rstrip('.')}."
    request.stop.touch()
    return f"run {request.name!r} ends after its present round, or at once if it has not begun."


def personalize(request: Request) -> list[str]:
    """Give each node that was not in training a model; gives what the run's log says of it."""
    if request.ended() != "done":
        raise UserError(f"run {request.name!r} is not done: wait for its end, or nodes join it between rounds.")
    before = len(_log(request))
    request.newcomers.touch()
    while request.newcomers.exists():
        time.sleep(LOOK)
    return _log(request)[before:]


def _log(request: Request) -> list[str]:
    return request.log.read_text("utf-8", "replace").splitlines() if request.log.is_file() else []


def follow(request: Request, quiet: bool) -> None:
    """Print the rounds of a run and its notes as they come, until it ends; raises UserError if it fails."""
    shown, told, folder = 0, 0, Path(str(request.read()[0].out))
    while True:
        ended, notes = request.ended(), _log(request)
        for line in notes[told:] if not quiet else ():
            print(line, flush=True)
        shown, told = _show(folder, shown, quiet), len(notes)
        if ended is not None:
            break
        time.sleep(LOOK)
    if ended.startswith("failed: "):
        raise UserError(ended.removeprefix("failed: "))
    page = folder / "report.html"  # a run that was stopped before its first round has none
    print(f"run {request.name!r}: {ended}" + (f"; see {page}." if page.is_file() else "."))


def _show(folder: Path, shown: int, quiet: bool) -> int:
    """Print the rounds after those that were shown; gives how many there are."""
    rounds = _rounds(folder)
    for info in rounds[shown:] if not quiet else ():
        measured = [f"{key} {value:.4g}" for key, value in info.items() if key.startswith(("global_", "personal_"))]
        told = ", ".join([f"{info['answered']} of {info['cohort']} answered", *measured[:3]])
        print(f"round {info['round']}: {told}", flush=True)
    return max(shown, len(rounds))


def _rounds(folder: Path) -> list[dict[str, Any]]:
    """The rounds that are done; a run that is stopped writes its last one once more."""
    return list({info["round"]: info for info in log.logged(folder / log.NAME)}.values())


class Standing(NamedTuple):
    """Where a run stands."""

    name: str
    state: str  # done; failed: and why; at work; or what it waits for
    done: int  # rounds
    rounds: int
    algorithm: str
    out: str
    said: str  # the last line of its log, or nothing


class Status(NamedTuple):
    """The nodes that Flower lets in, by name, why the server does not answer, if it does not, and the runs."""

    nodes: dict[str, str]
    problem: str
    runs: list[Standing]

    def lines(self) -> list[str]:
        """For a terminal."""
        told = [f"node {name}: {node}" for name, node in self.nodes.items()]
        told += [f"the server does not answer: {self.problem}"] if self.problem else []
        for run in self.runs:
            of = f", {run.done} of {run.rounds} rounds, {run.algorithm}, {run.out}" if run.out else ""
            told.append(f"run {run.name}: {run.state}{of}")
            told += [f"    {run.said}"] if run.said else []
        return told or ["there is no node and no run yet."]

    def table(self) -> dict[str, Any]:
        """For other programs."""
        return self._asdict() | {"runs": [run._asdict() for run in self.runs]}


def status(state: Path) -> Status:
    """Where the nodes and the runs of a coordinator's folder stand."""
    connection, nodes, problem = reached(state), dict[str, str](), ""
    try:
        nodes = {node.name: node.status for node in sorted(flower.registered(connection))}
    except UserError as error:
        problem = str(error)
    return Status(nodes, problem, [_standing(request) for request in requests(state)])


def _standing(request: Request) -> Standing:
    try:
        config, _ = request.read()
        done = len(_rounds(Path(str(config.out))))
    except UserError as error:
        return Standing(request.name, str(error), 0, 0, "", "", "")
    waits = "waits for its nodes" if request.told() is None else "at work"
    where = request.ended() or (waits if running(request) else "waits for the server")
    out, said = str(config.out), "".join(_log(request)[-1:])
    return Standing(request.name, where, done, config.rounds, config.algorithm, out, said)
