"""The commands that run clients on machines of their own: `apiece serve | join | rehearse`, `apiece deploy run`, ..."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

from tyro.conf import Positional, arg

from apiece.commands.arguments import Json, Quiet
from apiece.commands.consortium import Consortium, make_key
from apiece.commands.runs import Settings
from apiece.config.names import refuse_unknown
from apiece.config.settings import Config, TaskName, check
from apiece.errors import UserError

STATE = "/var/lib/apiece"
State = Annotated[str, arg(metavar="FOLDER", help="The folder of `apiece serve`.")]
Name = Annotated[str, arg(metavar="RUN", help="A run's name, as `apiece deploy status` shows it.")]


@dataclass(frozen=True)
class Serve:
    """On the coordinator: keep the server running, and the runs it was asked for. It ends with Ctrl-C or SIGTERM."""

    folder: Positional[Consortium]
    state: State = STATE
    host: str = "127.0.0.1"
    """Where it listens. Behind a proxy that lets nodes reach /v1/fleet alone, keep this: whoever reaches the port
    itself can run programs on every node."""
    port: int = 8000
    """The port."""

    def __call__(self) -> None:
        from apiece.consortium import library

        library()
        from apiece.deploy.serving import Coordinator
        from apiece.experiment.folders import alone

        state = Path(self.state)
        coordinator = Coordinator(Path(self.folder).absolute(), state.absolute(), self.host, self.port, _say)
        state.mkdir(parents=True, exist_ok=True)
        with alone(state):
            coordinator.serve(lambda: False)


@dataclass(frozen=True)
class Join:
    """On a node: check its own data, and take part in the coordinator's runs with them. It ends with Ctrl-C or
    SIGTERM. No path and no program ever comes from the coordinator: what a run needs of this kind is named here.
    """

    folder: Positional[Annotated[str, arg(metavar="NODE", help="The node's folder, as the coordinator sent it.")]]
    data: str = ""
    """The node's own data: an .npz, .parquet, .csv or .jsonl file, or a folder of such or of images. A test part in it
    (x_test, a column `split`) is used; else a fifth is held out."""
    make_key: bool = False
    """Before the node joins, once: make its key, which stays here, and the request.toml for the coordinator."""
    state: Annotated[str, arg(metavar="FOLDER")] = STATE
    """The folder in which this node keeps its runs: what algorithms remember of it, and its models."""
    server: Annotated[str | None, arg(metavar="HOST:PORT")] = None
    """Another address of the server than the folder says."""
    model: str = "auto"
    """A model that only this node's owner may name, such as hf(...)."""
    plugin: tuple[str, ...] = ()
    """Files with algorithms that this node runs; a run may ask for them by the hash of their content."""
    input: tuple[str, ...] = ()
    """Columns of a table that the model reads."""
    target_column: str | None = None
    """The column of a table that is predicted."""
    prepare: Literal["onehot", "ordinal", "plain"] | None = None
    """How a table becomes numbers; on all nodes alike."""
    resize: str | None = None
    """The size to which images are resized."""
    task: TaskName = "auto"
    """What is learned; auto reads it off the targets."""

    def __call__(self) -> None:
        if self.make_key and self.data:
            raise UserError("--make-key makes a key, and the node joins by a second command: leave --data out.")
        if not (self.make_key or self.data):
            raise UserError("a node joins with its own data: give --data, or --make-key for its key alone.")
        from apiece.consortium import library

        library()
        if self.make_key:
            return make_key(Path(self.folder))
        from apiece.consortium import naming
        from apiece.deploy.joining import join, node_of
        from apiece.deploy.node import Settings as Own
        from apiece.experiment.folders import alone

        folder, state = Path(self.folder), Path(self.state)
        name, server = node_of(folder)
        server = server if self.server is None else str(naming.server(self.server))
        given = {name: getattr(self, name) for name in ("input", "target_column", "prepare", "resize", "task")}
        plugin = tuple(str(Path(file).absolute()) for file in self.plugin)
        own = Own(name, str(Path(self.data).absolute()), self.model, plugin, **given)
        state.mkdir(parents=True, exist_ok=True)
        with alone(state):
            join(folder, state, own, server, _say, lambda: False)


@dataclass(frozen=True)
class RunNodes:
    """On the coordinator: begin a run on the nodes, with the settings of `apiece run`, and show its rounds. Ctrl-C ends
    what is shown; the run goes on.
    """

    state: State = STATE
    nodes: int = 2
    """The run begins once so many nodes are there. All that are there take part, and others join between rounds."""
    quorum: int = 1
    """How many answers each phase needs; with fewer it is tried again, and nothing counts."""
    deadline: float = 300.0
    """Seconds after which a node that has not answered is absent in that round."""
    detach: bool = False
    """Show nothing, and return at once."""
    quiet: Quiet = False
    config: Settings = field(default_factory=Config)

    def __call__(self) -> None:
        from apiece.deploy.coordinator import settled
        from apiece.deploy.following import follow, requested
        from apiece.deploy.request import Terms
        from apiece.deploy.serving import reached, tell_if_down

        check(self.config)
        refuse_unknown(self.config)
        reached(Path(self.state))
        terms = Terms(self.nodes, self.quorum, self.deadline)
        request = requested(Path(self.state), settled(self.config, self.nodes), terms)
        print(f"run {request.name!r} is asked for; its notes are in {request.log}.")
        tell_if_down(Path(self.state), print)
        if not self.detach:
            follow(request, self.quiet)


@dataclass(frozen=True)
class Status:
    """On the coordinator: the nodes, and the runs."""

    state: State = STATE
    json: Json = False

    def __call__(self) -> None:
        from apiece.deploy.following import status

        found = status(Path(self.state))
        print(json.dumps(found.table(), indent=2) if self.json else "\n".join(found.lines()))


@dataclass(frozen=True)
class Stop:
    """End a run after its present round, or before its first; `apiece deploy resume` lets it go on."""

    name: Positional[Name]
    state: State = STATE

    def __call__(self) -> None:
        from apiece.deploy.following import named, stop

        print(stop(named(Path(self.state), self.name)))


@dataclass(frozen=True)
class ResumeNodes:
    """Let a run go on that was stopped or failed; with --rounds, also a run that is done."""

    name: Positional[Name]
    rounds: int | None = None
    """Another number of rounds, no fewer than are done: the result is the run that had them from the start."""
    state: State = STATE

    def __call__(self) -> None:
        from apiece.deploy.following import go_on, named
        from apiece.deploy.serving import tell_if_down

        request = named(Path(self.state), self.name)
        print(go_on(request, self.rounds))
        if request.ended() is None:
            tell_if_down(Path(self.state), print)


@dataclass(frozen=True)
class Newcomers:
    """Give every node that is there, and was not in a run's training, a model made for it by the run's algorithm."""

    name: Positional[Name]
    state: State = STATE

    def __call__(self) -> None:
        from apiece.deploy.following import named, personalize
        from apiece.deploy.serving import tell_if_down

        tell_if_down(Path(self.state), print)
        for line in personalize(named(Path(self.state), self.name)):
            print(line)


@dataclass(frozen=True)
class Rehearse:
    """Deploy on this machine alone, with certificates and keys: a server and nodes, to whose folders the data of a run
    are dealt, and compare the result with that of `apiece run --lift wired`. It takes the settings of `apiece run`, or
    those of a run's folder, which flags override.
    """

    run: Positional[Annotated[str | None, arg(metavar="RUN", help="The folder of a run with these settings.")]] = None
    nodes: int = 3
    """How many nodes."""
    folder: str | None = None
    """A new folder, in which everything stays to be looked at; without it, nothing stays."""
    deadline: float = 300.0
    """Seconds that a node may take for an answer."""
    virtual: bool = False
    """Virtual nodes of Flower's simulation, without certificates and keys: a hundred of them fit one machine; needs
    ray."""
    config: Settings = field(default_factory=Config)

    def __call__(self) -> None:
        from apiece.consortium import library

        library()
        from apiece.deploy.rehearsal import rehearse
        from apiece.deploy.simulation import rehearse_virtually

        check(self.config)
        refuse_unknown(self.config)
        folder = None if self.folder is None else Path(self.folder)
        begin = rehearse_virtually if self.virtual else rehearse
        begin(self.config, self.nodes, self.deadline, folder, _say)


def _say(text: str) -> None:
    print(f"apiece: {text}", flush=True)


RUNNING = {"run": RunNodes, "status": Status, "stop": Stop, "resume": ResumeNodes, "personalize": Newcomers}
