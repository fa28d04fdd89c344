"""`apiece join`: a node's side of Flower, kept running, once its data are found good."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from apiece.consortium import keys
from apiece.consortium.certificates import certificate
from apiece.consortium.private import load
from apiece.deploy import doorway, own_data
from apiece.deploy import flower_commands as flower
from apiece.deploy.node import Node, Settings
from apiece.deploy.parts import Whole
from apiece.deploy.refusals import why_ended
from apiece.deploy.serving import free_port
from apiece.deploy.supervise import Kept, kept
from apiece.errors import UserError
from apiece.language import algorithms, plugins
from apiece.system import files

LOOK = 0.5  # seconds between looks


def node_of(folder: Path) -> tuple[str, str]:
    """(the name, the server) of a node's folder, as the coordinator sent it; raises UserError for what is missing."""
    name, server = keys.node_of(folder)
    again, made = "ask the coordinator for the folder again", f"`apiece join {folder} --make-key` makes it"
    needed = {"ca.crt": again, "node.key": made}
    for file, do in needed.items():
        if not (folder / file).is_file():
            raise UserError(f"{folder / file} is missing: {do}.")
    certificate(folder / "ca.crt")
    load(folder / "node.key")
    return name, str(server)


def join(
    folder: Path, state: Path, settings: Settings, server: str, say: Callable[[str], None], until: Callable[[], bool]
) -> None:
    """Check the node's plug-ins and data, then keep it connected until `until` says so."""
    plugins.names(algorithms.NAMED, settings.plugin)
    settings.save(state)
    node = Node(state, settings, say)
    told = own_data.facts(node.dataset, settings.name)
    doorway.opened(state, Whole(node.answer))
    port, home = free_port(), state / "flower"
    files.make_folder(home)
    files.make_folder(state / "log")
    command = flower.supernode(server, folder / "ca.crt", folder / "node.key", state, port)
    flower.secret(state)
    logs, environment = state / "log", flower.environment(home)
    node_log, executor_log = logs / "supernode.log", logs / "superexec.log"
    explain = lambda written: why_ended(written, server, folder / "ca.crt")
    processes = [
        Kept("the SuperNode", command, environment, node_log, say, quick=60.0, explain=explain),
        Kept("its SuperExec", flower.node_superexec(state, port), environment, executor_log, say),
    ]
    classes = f", {len(told.labels)} classes" if told.labels else ""
    say(
        f"node {settings.name!r} is ready: {told.samples} training and {told.tests} test samples of shape {told.shape}"
        f"{classes}, for {told.task}; it waits for the runs of {server}."
    )
    with kept(processes):
        while not until():
            for process in processes:
                process.look()
            time.sleep(LOOK)
