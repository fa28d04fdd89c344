"""Nodes that come after others: what they tell, who fits, and a model for one that was not in training."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from apiece.algebra.generators import Table
from apiece.config.assemble import DTYPES, assemble
from apiece.config.model import of_text
from apiece.config.settings import Config
from apiece.deploy.facts import Facts, federation, united
from apiece.deploy.phases import TELLING, Nodes, Phases, telling
from apiece.deploy.request import Request
from apiece.engine.predicting import remakes
from apiece.engine.setup import Setup
from apiece.errors import UserError
from apiece.experiment import identity
from apiece.experiment.run import trained
from apiece.measure.evaluate import Panel
from apiece.wired.remote import Remote
from apiece.wired.remote_clients import RemoteClients, RemoteEvaluation
from apiece.wired.server import Wired

Say = Callable[[str], None]


def fitting(config: Config, facts: Sequence[Facts]) -> Config:
    """The configuration with the nodes' task, and with the model that `auto` means for text where theirs are texts."""
    task, model = facts[0].task, config.model
    if model == "auto" and facts[0].kind == "int64":
        model = of_text(task == "language-modeling")
    return replace(config, task=task, model=model)


def newcomers(nodes: Nodes, facts: list[Facts], turned_away: set[str], say: Say) -> list[Facts]:
    """What nodes tell that are there and do not take part yet; those whose data do not fit are turned away."""
    strangers = sorted(set(nodes.online()) - {each.name for each in facts} - turned_away)
    if not strangers:
        return []
    found = []
    for name, told in telling(nodes, strangers, time.monotonic() + TELLING, say).items():
        try:
            federation([*facts, told], lambda *_: Phases(nodes, [], "", "", 1, 1.0, say))
            if unknown := set(united([*facts, told])) - set(united(facts)):
                raise UserError(f"the run does not know its classes {sorted(map(str, unknown))}.")
        except UserError as error:
            say(f"node {name!r} cannot join: {error}")
        else:
            found.append(told)
    turned_away |= set(strangers) - {told.name for told in found}
    return found


def personalized(request: Request, nodes: Nodes) -> None:
    """Give every node that is there and was not in training a model made for it, by the message that measures: it keeps
    the model, and tells its values.
    """
    config, terms = request.read()
    facts = [Facts.of(each) for each in request.told() or []]
    new, folder = newcomers(nodes, facts, set(), request.say), Path(str(config.out))
    if not new:
        return request.say("no node is there that was not in training and whose data fit.")

    names = [each.name for each in [*facts, *new]]
    quorum = 0  # who does not answer gets no model, and nobody waits for it

    def place(of: list[Facts]) -> Remote:
        connect = lambda _, text: Phases(nodes, names, request.name, text, quorum, terms.deadline, request.say)
        return federation(of, connect, DTYPES[config.precision])

    everyone = place([*facts, *new])
    config = fitting(config, facts)
    result = trained(assemble(config, clients=place(facts)), folder)
    experiment: Any = replace(result.experiment, training=everyone)  # the run's text is that of its own clients
    digest = identity.digest(experiment.config, folder)
    clients = RemoteClients(experiment, folder, digest, Wired(1))
    measure = RemoteEvaluation(experiment.federated, everyone, clients, Panel(1))
    lr = result.experiment.plan(max(result.server.round - 1, 0)).lr
    way = _way(experiment.federated.setup)
    for client, values in measure.of(result.server, lr, list(range(len(facts), len(names)))).items():
        told = ", ".join(f"{name} {value:.4g}" for name, value in values.items()) or "not measured"
        request.say(f"node {names[client]!r}, which was not in training, has a model{way}: {told}.")


def _way(setup: Setup) -> str:
    """In what the model of a new node is another than `apiece personalize` would make, in a clause; "" if in nothing:
    what pieces make of the node's data is made there, and nothing else takes a step or asks the server again.
    """
    if isinstance(setup.broadcast, Table):
        return " of the mean descriptor, as it learned none of its own"
    if setup.periods.personal and not any(remakes(piece, newcomer=True) for piece in setup.pieces):
        return " with the initial parameters for its own, which nothing trained"
    return ""
