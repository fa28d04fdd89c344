"""Flower's simulation of a deployed run: the same app with virtual nodes, on this machine, without certificates."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

from apiece.config.settings import Config
from apiece.deploy import flower_commands as flower
from apiece.deploy.flower_commands import Connection
from apiece.deploy.node import Settings
from apiece.deploy.rehearsal import Say, ask_for, both, called, deal, differences, home_of, plugins_of, told
from apiece.deploy.request import FOLDER, Terms
from apiece.deploy.serving import free_port
from apiece.deploy.supervise import Kept, kept
from apiece.errors import UserError
from apiece.experiment.launch import run_config
from apiece.system import files

BEGIN = 120.0  # seconds in which Flower must take the run


def rehearse_virtually(config: Config, nodes: int, deadline: float, folder: Path | None, say: Say) -> list[str]:
    """As `rehearsal.rehearse`, with virtual nodes; gives in what the two runs differ."""
    terms = Terms(nodes, nodes, deadline)
    with home_of(folder) as home:
        found = simulate(config, home, terms, say)
        told(found, say)
        return found


def simulate(config: Config, home: Path, terms: Terms, say: Say) -> list[str]:
    """Run a configuration on so many virtual nodes, and in processes of this machine: folders `deployed` and `wired`;
    gives in what the two runs differ.
    """
    config = called(both(config, terms.nodes), home)
    names = deal(config, home)
    for name in names:
        data = str((home / "data" / f"{name}.npz").absolute())
        Settings(name, data, config.model, plugins_of(config), task=config.task).save(home / "nodes" / name)
    connection = Connection((home / "flower").absolute(), free_port(), None)
    connection.write()
    files.make_folder(home / "serve" / FOLDER)
    request = ask_for(config, home.absolute(), "deployed", terms)
    link = Kept("the SuperLink", flower.simulating(connection.port), flower.environment(connection.home),
                home / "superlink.log", say)  # fmt: skip
    with kept([link]):
        link.look()
        say(f"the run begins on {len(names)} virtual nodes: {config.algorithm}, {config.rounds} rounds")
        began = _submitted(connection, request.path, home / "nodes", len(names))
        while (ended := request.ended()) is None:
            if not link.runs:
                raise UserError(f"Flower's simulation ended before the run did: see {link.log}.")
            time.sleep(0.2)
    if ended != "done":
        raise UserError(f"the simulated run {ended}")
    seconds = time.monotonic() - began
    say(f"the run has ended after {seconds:.0f} seconds; now the same run in processes of this machine")
    run_config(replace(config, out=str(home / "wired")), progress=False)
    return differences(home, names, run=request.name)


def _submitted(connection: Connection, request: Path, nodes: Path, count: int) -> float:
    """Submit the run once the SuperLink answers; gives the moment."""
    end = time.monotonic() + BEGIN
    while True:
        try:
            flower.submit_virtual(connection, request, nodes, count)
            return time.monotonic()
        except UserError:
            if time.monotonic() > end:
                raise
            time.sleep(1.0)
