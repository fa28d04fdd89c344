"""The coordinator's part of a run: the loop of every run, with clients that are nodes."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from apiece.config.assemble import DTYPES, Experiment, assemble, chosen_algorithm, cohort_size
from apiece.config.settings import Config
from apiece.data.catalog import OWN
from apiece.data.tasks import AUTO
from apiece.deploy.facts import Facts, federation
from apiece.deploy.newcomers import fitting, newcomers, personalized
from apiece.deploy.phases import Nodes, Phases, Stopped, gathered
from apiece.deploy.request import Request
from apiece.errors import UserError, said
from apiece.experiment import folders
from apiece.experiment.launch import watched
from apiece.experiment.result import Round
from apiece.experiment.stopping import STOP
from apiece.language.plugins import pinned
from apiece.system import files

SIMULATED = (  # settings of data that are read and divided in one place
    "data", "data_dir", "input", "target_column", "client_column", "prepare", "fit", "resize", "split", "clients",
    "unseen", "validation", "measure_on", "noise_rgb", "noise_brightness",
)  # fmt: skip


def settled(config: Config, nodes: int) -> Config:
    """The settings of a deployed run that begins with so many nodes: its data are the nodes' own, and clients work
    where these are. Raises UserError for settings that only a simulation has, and for what no run could begin with.
    """
    if config.out is None:
        raise UserError("a deployed run needs a folder for what it makes: give --out.")
    usual = Config()
    for name in SIMULATED:
        if (value := getattr(config, name)) not in (getattr(usual, name), OWN):
            raise UserError(
                f"{name}={value!r} is for simulated clients, and nodes have their own data, which `apiece join` says "
                "how to read: leave it out."
            )
    if config.init is not None or config.seeds:
        raise UserError("a deployed run takes neither --init nor --seeds: leave them out, and begin one run a seed.")
    chosen_algorithm(config.algorithm, config.plugin)
    cohort_size(config, nodes)
    out, plugin = str(Path(config.out).absolute()), pinned(config.plugin)  # the server works in another folder
    return replace(config, data=OWN, lift="wired", out=out, plugin=plugin, on_bad_client="skip")


class Joined(Exception):
    """Further nodes take part from now on: the run goes on with them from its last checkpoint."""

    def __init__(self, facts: list[Facts]) -> None:
        self.facts = facts


def coordinate(request: Request, nodes: Nodes) -> None:
    """Run, or continue, what was asked for, to its end. How it ended is written beside the request."""
    lock, turned_away = FileLock(request.lock, timeout=5), set[str]()
    try:
        with lock:
            request.begin()
            while request.ended() is None:
                try:
                    _run(request, nodes, turned_away)
                except Stopped:
                    request.end("stopped while it waited for nodes: what counts are the rounds before")
                except Joined as joined:
                    request.keep_told([*(request.told() or []), *map(asdict, joined.facts)])
                    request.say(f"{', '.join(facts.name for facts in joined.facts)} takes part from now on.")
            if request.newcomers.exists():
                try:
                    personalized(request, nodes)
                except UserError as error:  # the run itself is done
                    request.say(f"no node got a model: {error}")
                request.newcomers.unlink()
    except Timeout:
        return  # another process is at work on it
    except UserError as error:
        request.say(f"the run ended: {error}")
        request.end(f"failed: {error}")
    except Exception as error:  # `apiece serve` begins it again, from the last checkpoint
        request.say(f"the run's process ended with {type(error).__name__}: {said(error)}; it is begun again.")
        raise


def _run(request: Request, nodes: Nodes, turned_away: set[str]) -> None:
    config, terms = request.read()
    told, began = request.told(), time.monotonic()
    if told is None:
        found = gathered(nodes, terms.nodes, terms.patience, request.say, request.stop.exists)
        if not found:
            return request.end("stopped before its first round")
        told = [asdict(facts) for facts in found]
        request.keep_told(told)
    floor = time.monotonic() - began  # where all nodes were there: messages, and next to no work
    facts = [Facts.of(each) for each in told]
    if config.task not in (AUTO, facts[0].task):
        raise UserError(
            f"task={config.task!r} is asked for, and the nodes' data are for {facts[0].task}: leave --task out, or let "
            f"every node join with --task {config.task}."
        )
    names, timed = [each.name for each in facts], list[Phases]()

    def connect(_: str, text: str) -> Phases:
        asked = terms.quorum, terms.deadline, request.say, request.stop.exists
        timed.append(Phases(nodes, names, request.name, text, *asked))
        return timed[-1]

    def made(of: list[Facts]) -> Experiment:
        return assemble(fitting(config, facts), clients=federation(of, connect, DTYPES[config.precision]))

    experiment = made(facts)
    folder = Path(str(config.out))
    there = (folder / "run.toml").is_file()
    if not there and folder.is_dir():
        _clear_unbegun(folder)

    def look(round: Round) -> Mapping[str, Any] | str | None:
        absent = len(round.plan.cohort) - int(round.info["answered"])
        why, timed[-1].refusals = timed[-1].refusals, []
        if why and not round.info["answered"]:
            raise UserError(
                f"no node's answer counted in round {round.number} (the first: {why[0].rstrip('.')}): mend it, and "
                "`apiece deploy resume` goes on with this round; what the run itself asks for is mended in a new run."
            )
        if absent:
            request.say(f"round {round.number}: {absent} of {len(round.plan.cohort)} nodes did not count.")
        return STOP if request.stop.exists() else None

    def welcome(info: Any) -> None:
        if int(info["round"]) < config.rounds and (more := newcomers(nodes, facts, turned_away, request.say)):
            if _size(experiment) != _size(made([*facts, *more])):
                turned_away.update(who := [each.name for each in more])
                why = "this algorithm's server has a size that follows from the number of nodes"
                return request.say(f"{', '.join(who)} cannot join: {why}, and the run has begun.")
            raise Joined(more)

    result = watched(experiment, folder, welcome, False, there, [look])
    taken = {"floor": floor, "phases": [phase for phases in timed for phase in phases.taken]}
    files.atomic_write(request.path.with_suffix(".taken"), json.dumps(taken).encode())
    request.end(f"stopped after round {result.server.round}" if request.stop.exists() else "done")


def _size(experiment: Experiment) -> int:
    """How many numbers the server has; where it has a model of models, this may follow from the number of clients."""
    return len(experiment.federated.start().params)


def _clear_unbegun(folder: Path) -> None:
    """Remove a folder that a start left before its run.toml, if nothing is in it."""
    if all(path.name in folders.UNDECIDED for path in folder.iterdir()):
        return
    raise UserError(f"{str(folder)!r} exists and is no run: take another --out.")
