"""What nodes answer where they measure: held against its form, its header and its counts before it is pooled."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from apiece import Clients, Federated, Federation, Setup, Work
from apiece.config.assemble import assemble
from apiece.config.settings import Config
from apiece.deploy import own_data
from apiece.deploy.facts import federation
from apiece.deploy.node import Node, Settings
from apiece.engine import messages
from apiece.engine.messages import Header
from apiece.language import algorithms as named
from apiece.lifts.lift import Sequential
from apiece.measure.evaluate import Panel
from apiece.vector.metrics import TOKENS
from apiece.vector.space import Space
from apiece.vector.task import Task
from apiece.wired import measuring
from apiece.wired.client import FAILED, Client
from apiece.wired.remote_clients import RemoteClients, RemoteEvaluation
from apiece.wired.server import Wired

Tensors = dict[str, torch.Tensor]
Change = Callable[[Header, Tensors], tuple[Header, Tensors]]
RUN = "0123456789abcdef"
CONFIG = Config(data="your own", lift="wired", steps="1", on_bad_client="skip", task="classification")


class Nodes:
    """Nodes of this process; the last one's answers to an operation are changed."""

    def __init__(self, nodes: list[Node], folder: Path) -> None:
        self.nodes, self.folder, self.text = nodes, folder, ""
        self.built: dict[int, Client] = {}
        self.change: dict[str, Change] = {}
        self.said: list[str] = []

    def connect(self, run: str, text: str) -> Nodes:
        self.text = text
        return self

    def ask(self, clients: Sequence[int], message: Callable[[int], bytes]) -> Iterator[bytes | None]:
        for client in clients:
            folder = self.folder / str(client) / RUN
            folder.mkdir(parents=True, exist_ok=True)
            self.built[client] = self.built.get(client) or self.nodes[client].client(folder, client, self.text)
            made = message(client)
            answer, operation = self.built[client].answer(made), messages.unpack(made)[0].operation
            if client == len(self.nodes) - 1 and operation in self.change:
                answer = messages.pack(*self.change[operation](*messages.unpack(answer)))
            yield answer

    def declined(self, client: int, why: str) -> None:
        self.said.append(why)

    def close(self) -> None: ...


class Scene:
    """Two nodes with 6 and 9 test samples, and what measures them after no round."""

    def __init__(self, algorithm: str, folder: Path) -> None:
        made = [self._node(folder, name, tests) for name, tests in (("north", 6), ("south", 9))]
        self.nodes = Nodes(made, folder)
        told = [own_data.facts(node.dataset, node.settings.name) for node in made]
        experiment = assemble(self._config(algorithm), clients=federation(told, self.nodes.connect))
        clients = RemoteClients(experiment, folder / "server", RUN, Wired(1))
        self.measure = RemoteEvaluation(experiment.federated, experiment.federation, clients, Panel(9))
        self.server = experiment.federated.start()

    @staticmethod
    def _config(algorithm: str) -> Config:
        return replace(CONFIG, algorithm=algorithm, model="mlp(hidden=[4])", metrics=("accuracy", "f1"))

    @staticmethod
    def _node(folder: Path, name: str, tests: int) -> Node:
        rng = np.random.default_rng(tests)
        x, y = rng.normal(size=(20, 3)).astype(np.float32), np.arange(20) % 3
        np.savez(folder / f"{name}.npz", x_train=x, y_train=y, x_test=x[:tests], y_test=y[:tests])
        return Node(folder / name, Settings(name, str(folder / f"{name}.npz")))

    def told(self, operation: str, change: Change | None) -> tuple[Any, list[str]]:
        """What is measured where the last node lies, and what is said of its lie."""
        self.nodes.change, self.nodes.said = {operation: change} if change else {}, []
        if operation == "adapt":
            found: Any = self.measure.adapted(self.server, 0.1, 9)
        else:
            found = self.measure(self.server, 0.1, True)
        return found, self.nodes.said


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Scene:
    return Scene("fedavg", tmp_path_factory.mktemp("scene"))


def tensors(**changed: Any) -> Change:
    return lambda head, said: (head, said | {n: how(said[n]) for n, how in changed.items()})


def header(**changed: Any) -> Change:
    return lambda head, said: (head._replace(**changed), said)


def without(name: str) -> Change:
    return lambda head, said: (head, {key: leaf for key, leaf in said.items() if key != name})


def filled(value: Any) -> Callable[[torch.Tensor], torch.Tensor]:
    return lambda leaf: torch.full_like(leaf, value)


def failing(head: Header, said: Tensors) -> tuple[Header, Tensors]:
    return Header("", FAILED, -1, -1), {"text": messages.letters("Traceback\nValueError at x.py:3: too bad")}


LIES: dict[str, tuple[Change, str]] = {
    "count 0": (tensors(count=filled(0)), "its count is 0 where 9 is expected"),
    "count -9": (tensors(count=filled(-9)), "its count is -9 where 9 is expected"),
    "another count": (tensors(count=filled(8)), "its count is 8 where 9 is expected"),
    "a count that is no whole number": (tensors(count=lambda n: n.double()), "its tensor 'count' is float64 []"),
    "no loss": (without("loss"), "it holds the tensors ['count', 'defined', 'sum.accuracy', 'sum.f1', 'values']"),
    "loss nan": (tensors(loss=filled(float("nan"))), "its tensor 'loss' holds a number that is not finite"),
    "two losses": (tensors(loss=lambda x: x.expand(2)), "its tensor 'loss' is float64 [2] where float64 [] is"),
    "no sum": (without("sum.f1"), "it holds the tensors ['count', 'defined', 'loss', 'sum.accuracy', 'values']"),
    "sum of another shape": (tensors(**{"sum.f1": lambda x: x[:, :2]}), "its tensor 'sum.f1' is float64 [3, 2]"),
    "one more key": (lambda h, t: (h, t | {"more": torch.zeros(1)}), "it holds the tensors ['count', 'defined', 'lo"),
    "defined as numbers": (tensors(defined=lambda x: x.double()), "its tensor 'defined' is float64 [1, 2] where bool"),
    "another round": (header(round=5), "its round is 5 where 0 is expected"),
    "another run": (header(run="0" * 16), "its run is '0000000000000000' where '0123456789abcdef' is expected"),
    "another's": (header(client=0), "its client is 0 where 1 is expected"),
    "another operation": (header(operation="adapt"), "its operation is 'adapt' where 'evaluate' is expected"),
}


@pytest.mark.parametrize("lie", LIES)
def test_an_unfit_measurement_does_not_count_and_it_is_said_why(scene, lie):
    change, why = LIES[lie]
    whole, said = scene.told("evaluate", None)
    assert not said and list(whole[1]) == [0, 1] and {"global_accuracy", "global_f1", "global_loss"} <= whole[0].keys()
    (found, own), said = scene.told("evaluate", change)
    assert len(said) == 1 and said[0].startswith("client 'south' sent what is no answer to 'evaluate' in round 1, as ")
    assert why in said[0] and said[0].endswith(".") and "\n" not in said[0]
    assert list(own) == [0] and found["global_accuracy"] == pytest.approx(own[0]["accuracy"])
    assert all(np.isfinite(value) for value in found.values())


def test_a_node_that_fails_or_refuses_to_measure_is_told_of(scene):
    (_, own), said = scene.told("evaluate", failing)
    assert list(own) == [0]
    assert said == ["client 'south' failed in round 1 with ValueError at x.py:3: too bad: mend it."]


AFTER_WORK = [header(round=5), without("values"), tensors(values=filled(float("nan")))]


@pytest.mark.parametrize("lie", AFTER_WORK)
def test_an_unfit_value_after_local_work_does_not_count(scene, lie):
    honest, said = scene.told("adapt", None)
    assert honest.keys() == {"adapted_accuracy", "adapted_f1"} and not said
    found, said = scene.told("adapt", lie)
    assert found.keys() == honest.keys() and all(0 <= value <= 1 for value in found.values())
    assert len(said) == 1 and "no answer to 'adapt'" in said[0]


def test_an_unfit_descriptor_does_not_count(tmp_path):
    scene = Scene("pefll(embedding=mlp, size=S, lambda_h=0.1)", tmp_path)
    assert list(scene.told("describe", None)[0][1]) == [0, 1]
    (_, own), said = scene.told("describe", tensors(v=lambda v: v.double()))
    assert list(own) == [0] and len(said) == 1 and "its tensor 'v' is float64" in said[0]


def test_a_node_all_of_whose_targets_are_left_out_adds_nothing():
    space = Space(nn.Sequential(nn.Embedding(7, 4), nn.Linear(4, 7)))
    pool = torch.randint(7, (2, 5)), torch.tensor([[1, 2, 3, 4, 5], [-100] * 5])
    setup = Setup(named.fedavg(), Task(space, metrics=TOKENS), space.ravel(), space.ravel_buffers())
    federated, rows = Federated(setup), [torch.tensor([0]), torch.tensor([1])]
    federation = Federation(pool, pool, rows, rows, ["north", "south"])
    each = Clients(federated, federation, Work(steps=1), 0, Sequential()).each(1, 0)
    said = measuring.evaluate(setup, federated.shared(federated.start(), 0.1), each, tuple(part[1:] for part in pool))
    assert measuring.impossible(said, 1, 5) == ""
    assert not any(bool(total.any()) for total in said.values())
