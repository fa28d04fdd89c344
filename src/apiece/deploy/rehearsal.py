"""`apiece rehearse`: a deployment on one machine with all that a real one has, compared with the same run here."""

from __future__ import annotations

import datetime as dt
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from apiece.config.assemble import Experiment, assemble
from apiece.config.settings import Config
from apiece.consortium import admission, keys, naming
from apiece.consortium import folder as consortium
from apiece.data.arrays import task_of
from apiece.data.catalog import OWN
from apiece.deploy.comparing import compared, remembered
from apiece.deploy.coordinator import SIMULATED, settled
from apiece.deploy.following import requested
from apiece.deploy.phases import Phase
from apiece.deploy.request import Request, Terms
from apiece.deploy.serving import free_port
from apiece.errors import UserError
from apiece.experiment.launch import run_config
from apiece.language.plugins import pinned
from apiece.system import files
from apiece.system.device import to_numpy
from apiece.system.provenance import MARK

READY = 300.0  # seconds in which the processes must be ready
Say = Callable[[str], None]


class Outcome(NamedTuple):
    """What a rehearsal found: in what the two runs differ, the seconds of the deployed one, its phases, and the
    seconds of a phase in which nodes do nothing but tell of their data."""

    differences: list[str]
    seconds: float
    phases: list[Phase]
    floor: float
    rounds: list[dict[str, Any]]


def called(config: Config, home: Path) -> Config:
    """The configuration with clients that are called as nodes may be, and stand in the order of nodes, which is that
    of their names: others, as a table may have them, become `client-0` and so on, in a split of the same samples. What
    is learned is named, as a node with few samples may not see it.
    """
    made = assemble(replace(config, lift="sequential"))
    if made.dataset is None or made.split is None:
        return config
    config, names = replace(config, task=task_of(made.dataset)), made.split.names
    if names == sorted(names) and all(naming.NODE.fullmatch(name) for name in names):
        return config
    files.make_folder(home)
    path, digits = (home / "split.npz").absolute(), len(str(len(names) - 1))
    replace(made.split, names=[f"client-{number:0{digits}}" for number in range(len(names))]).save(path)
    return replace(config, split=f"saved({str(path)!r})")


def deal(config: Config, home: Path) -> list[str]:
    """Write each client's samples into a file of its own, `data/NAME.npz`; gives the names."""
    experiment = assemble(replace(config, lift="sequential"))
    refuse_unfit(experiment)
    federation, known = experiment.federation, experiment.dataset.known if experiment.dataset else None
    (home / "data").mkdir(parents=True)
    for client, name in enumerate(federation.names):
        x, y = federation.samples(client).all()
        x_test, y_test = (part[federation.test_rows(client)] for part in federation.test_pool)
        parts = {"x_train": x, "y_train": y, "x_test": x_test, "y_test": y_test}
        arrays = {key: to_numpy(part) for key, part in parts.items()}
        for key in ("x_train", "x_test"):
            if arrays[key].ndim == 4:  # images: of a file, the channels are last where their shape leaves a doubt
                arrays[key] = np.moveaxis(arrays[key], 1, -1)
        if known is not None and experiment.dataset is not None and experiment.dataset.targets_train is None:
            labels = known.astype(str) if known.dtype == object else known  # no object can be in a file
            arrays |= {key: labels[arrays[key]] for key in ("y_train", "y_test")}
        np.savez(home / "data" / f"{name}.npz", allow_pickle=False, **arrays)
    return list(federation.names)


def refuse_unfit(experiment: Experiment) -> None:
    """Raise UserError for data that cannot be dealt to nodes as arrays."""
    data = experiment.dataset
    if data is None or data.text or data.inputs_train is not None:
        raise UserError("a rehearsal deals arrays of features or images to its nodes: take such data.")
    if empty := [n for i, n in enumerate(experiment.federation.names) if not experiment.federation.test_size(i)]:
        raise UserError(f"{empty[0]!r} would have no test samples: take fewer --nodes or another --split.")


@dataclass
class Deployment:
    """A server and nodes as processes of this machine, in a folder, by name: `serve` and each node's. The nodes are
    started with these further words.
    """

    home: Path
    names: list[str]
    port: int
    more: tuple[str, ...] = ()
    processes: dict[str, subprocess.Popen] = field(default_factory=dict)

    def begin(self, name: str) -> None:
        """Start the server, or a node; one that ended starts again in its own folder, as systemd would start it."""
        place, state = self.home / "consortium", self.home / "nodes" / name
        words = ["join", str(place / "nodes" / name), "--data", str(self.home / "data" / f"{name}.npz")]
        words = [*words, "--state", str(state), *self.more]
        if name == "serve":
            words = ["serve", str(place), "--state", str(self.home / "serve"), "--port", str(self.port)]
        with open(self.home / f"{name}.log", "ab") as log:
            command, nothing = [sys.executable, "-m", "apiece", *words], subprocess.DEVNULL
            self.processes[name] = subprocess.Popen(command, stdout=log, stderr=log, stdin=nothing)

    def wait(self, request: Request) -> None:
        """Return when the run has ended; raises UserError if it failed, or if the server ended before."""
        while (ended := request.ended()) is None:
            if self.processes["serve"].poll() is not None:
                raise UserError("the server of the rehearsal ended before the run did.")
            time.sleep(0.2)
        if ended != "done":
            raise UserError(f"the deployed run {ended}")


@contextmanager
def deployment(home: Path, names: list[str], say: Say, more: tuple[str, ...] = ()) -> Iterator[Deployment]:
    """A deployment that is ready, whose nodes are started with these further words; its processes end with this
    context.
    """
    made = Deployment(home, names, free_port(), more)
    place = home / "consortium"
    consortium.make(place, names, naming.server(f"localhost:{made.port}"), _now())
    for name in names:
        keys.make_key(place / "nodes" / name)
        admission.admit(place, place / "nodes" / name / "request.toml", _now())
    say(f"{place} has an authority, the server's certificate, and the keys of {len(names)} nodes")
    try:
        made.begin("serve")
        until(home / "serve.log", "ready:", made.processes["serve"])
        for name in names:
            made.begin(name)
        for name in names:
            until(home / f"{name}.log", "is ready:", made.processes[name])
        say(f"the server and {len(names)} nodes are running")
        yield made
    finally:
        for process in reversed(made.processes.values()):
            process.terminate()
        for process in reversed(made.processes.values()):
            _end(process)


def until(log: Path, word: str, process: subprocess.Popen) -> None:
    """Return when a process has written this into its log; raises UserError if it ends or takes too long."""
    end = time.monotonic() + READY
    while time.monotonic() < end:
        text = log.read_text(errors="replace") if log.exists() else ""
        if word in text:
            return
        if process.poll() is not None:
            raise UserError(f"a process of the rehearsal ended: {' '.join(text.split())[-500:]}")
        time.sleep(0.2)
    raise UserError(f"a process of the rehearsal was not ready within {READY:g} seconds: see {log}.")


def ask_for(config: Config, home: Path, out: str, terms: Terms) -> Request:
    """Ask the deployment's server for the run of a configuration."""
    usual = Config()
    simulated: dict[str, Any] = {name: getattr(usual, name) for name in SIMULATED} | {"data": OWN}
    config = replace(config, **simulated, out=str(home / out))
    return requested(home / "serve", settled(config, terms.nodes), terms)


def differences(
    home: Path, names: list[str], deployed: str = "deployed", wired: str = "wired", run: str = "deployed"
) -> list[str]:
    """In what a deployed run of that name differs from the wired one: both are folders in `home`."""
    found = compared(home / deployed, home / wired)
    for name in names:
        found += remembered(home / "nodes" / name / "runs" / run, home / wired / "clients" / name)
    return found


def rehearse(config: Config, nodes: int, deadline: float, folder: Path | None, say: Say) -> Outcome:
    """Deploy, run, and compare with the run of `--lift wired`; see `Outcome`."""
    terms = Terms(nodes, nodes, deadline)
    with home_of(folder) as home:
        config = called(both(config, nodes), home)
        names = deal(config, home)
        plugin = plugins_of(config)
        own = ("--model", config.model, "--task", config.task, *(["--plugin", *plugin] if plugin else []))
        with deployment(home, names, say, own) as made:
            outcome = tried(config, made, terms, say)
        told(outcome.differences, say)
        return outcome


def plugins_of(config: Config) -> tuple[str, ...]:
    """The files of a configuration's plug-ins."""
    return tuple(entry.partition(MARK)[0] for entry in pinned(config.plugin))


@contextmanager
def home_of(folder: Path | None) -> Iterator[Path]:
    """The folder of a rehearsal, which must be new; without one, a folder that does not stay."""
    if folder is None:
        with tempfile.TemporaryDirectory(prefix="apiece-rehearsal-") as made:
            yield Path(made)
    elif folder.exists():
        raise UserError(f"{folder} exists: give a new --folder.")
    else:
        yield folder


def told(differences: list[str], say: Say) -> None:
    """Say whether the deployed run and the wired one are the same, and in what they differ."""
    for difference in differences[:10]:
        say(difference)
    what = "are the same to the bit" if not differences else "are not the same"
    say(f"the deployed run and `apiece run --lift wired` {what}.")


def both(config: Config, nodes: int) -> Config:
    """The configuration of the deployed run and of the wired one: every node trains."""
    return replace(config, clients=nodes, unseen=0, lift="wired", on_bad_client="skip", seeds=())


def tried(config: Config, made: Deployment, terms: Terms, say: Say, word: str = "") -> Outcome:
    """Run a configuration in a deployment and in processes of this machine: folders `deployed` and `wired`."""
    home, names, began = made.home, made.names, time.monotonic()
    request = ask_for(config, home, f"deployed{word}", terms)
    say(f"the run begins: {config.algorithm}, {config.rounds} rounds")
    made.wait(request)
    seconds = time.monotonic() - began
    say(f"the run has ended after {seconds:.0f} seconds; now the same run in processes of this machine")
    run_config(replace(config, out=str(home / f"wired{word}")), progress=False)
    taken = json.loads(request.path.with_suffix(".taken").read_text())
    lines = (home / f"deployed{word}" / "metrics.jsonl").read_text().splitlines()
    found = differences(home, names, f"deployed{word}", f"wired{word}", request.name)
    phases = [Phase(*phase) for phase in taken["phases"]]
    return Outcome(found, seconds, phases, taken["floor"], [json.loads(line) for line in lines])


def _now() -> dt.datetime:
    return dt.datetime.now(dt.UTC)


def _end(process: subprocess.Popen) -> None:
    try:
        process.wait(20)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
