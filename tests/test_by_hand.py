"""What a program makes of its own beside `federate`: an experiment with another plan, rounds one by one, a look."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support.outer import TINY, cli, config

import apiece
from apiece.config.assemble import Experiment, assemble
from apiece.engine.state import Plan
from apiece.errors import UserError
from apiece.experiment.personalize import serve
from apiece.experiment.result import Result
from apiece.experiment.run import execute

pytestmark = pytest.mark.usefixtures("no_report")


# --- a plan of one's own ---------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Listed(Experiment):
    """An experiment whose rounds stand in a list, and there are no others."""

    plans: tuple[Plan, ...] = ()

    def plan(self, round: int) -> Plan:
        return self.plans[round]

    def lr(self, round: int) -> float:
        raise AssertionError("the step size of a round stands in its plan")


def listed(*plans: Plan, **settings: Any) -> Listed:
    made = assemble(config(rounds=len(plans), **settings))
    return Listed(**{field.name: getattr(made, field.name) for field in fields(made)}, plans=plans)


@pytest.mark.parametrize("lift", ["sequential", "vectorized", "auto"])
def test_nobody_asks_for_the_plan_of_a_round_that_is_none(tmp_path: Path, lift):
    plans = [Plan([0, 2], frozenset(), 0.1), Plan([1, 2, 3], frozenset({3}), 0.05)]
    result = execute(listed(*plans, lift=lift), tmp_path / "run")
    assert [(info["cohort"], info["answered"]) for info in result.metrics] == [(2, 2), (3, 2)]
    (tmp_path / "run" / "model.safetensors").unlink()
    again = execute(listed(*plans, lift=lift), tmp_path / "run", resume=True)
    assert again.accuracy == result.accuracy


# --- rounds one by one -----------------------------------------------------------------------------------------------
NAMES = ["ash", "box", "elm", "fir"]


def place() -> apiece.Federation:
    rng = np.random.default_rng(0)
    x, y = torch.from_numpy(rng.normal(size=(60, 4))).float(), torch.from_numpy(np.arange(60) % 3)
    rows = list(torch.randperm(60, generator=torch.Generator().manual_seed(0)).split([24, 3, 13, 20]))
    return apiece.Federation((x, y), (x, y), rows, rows, NAMES)


@dataclass(frozen=True)
class Remembering(apiece.Piece):
    """g <- g + c / 10, c the mean of what clients' training moved so far; what a client moved, it remembers."""

    def server_memory(self, theta):
        return torch.zeros_like(theta)

    def client_memory(self, theta):
        return torch.zeros_like(theta)

    def tell(self, memory):
        return memory

    def correct(self, view):
        return (), lambda scratch, g, theta, batch: (scratch, g + view.server / 10)

    def remember(self, view):
        return view.start - view.end

    def learn(self, memory, g, report, share):
        return g, memory + g


def test_rounds_one_by_one_from_public_names_are_those_of_a_run():
    """A step of one's own makes what `federate` makes, to the last bit."""
    from apiece import (
        Clients,
        Descent,
        Federated,
        FederationFacts,
        Plan,
        Sequential,
        Setup,
        Sgd,
        Space,
        Task,
        Work,
        algorithm,
        federate,
        global_model,
    )

    module, mine = torch.nn.Linear(4, 3), algorithm(Remembering(), apiece.Period("head", 2), name="mine")
    settings: dict[str, Any] = {"rounds": 3, "steps": 2, "batch": 8, "lr": 0.1, "optimizer": "sgd(momentum=0.9)"}
    result = federate(module, algorithm=mine, clients=place(), cohort=1.0, lift="sequential", **settings)

    space, setting = Space(module), FederationFacts((4,), 3, NAMES, range(4), 0)
    options: dict[str, Any] = {"client": Sgd(momentum=0.9), "server": Descent(), "setting": setting}
    federated = Federated(Setup(mine, Task(space), space.ravel(), space.ravel_buffers(), **options))
    clients, server = Clients(federated, place(), Work(2, batch=8), 0, Sequential()), federated.start()
    for _ in range(3):
        server, answer = federated.round(server, clients, Plan([0, 1, 2, 3], frozenset(), 0.1))
        clients.commit(server.round - 1)
        assert answer.answered == [0, 1, 2, 3]

    assert torch.equal(server.params, result.server.params)
    assert (
        torch.equal(server.memory["Remembering"], result.server.memory["Remembering"])
        and server.memory["Remembering"].any()
    )
    row, of_the_run = clients.row(1)[0]["memory.Remembering"], result.clients.row(1)[0]["memory.Remembering"]
    assert torch.equal(row, of_the_run) and row.any()
    theta, buffers, virtual = global_model(federated, server, clients)
    assert virtual and torch.equal(space.state_dict(theta, buffers)["weight"], result.model()["weight"])


def test_a_generator_of_models_from_public_names():
    from apiece import FederationFacts, Frozen, OnServer, Pipeline, Plan, Sequential, Sgd

    space = apiece.Space(torch.nn.Linear(4, 3))
    embed = lambda phi, batch: (batch[0] @ phi[:, None]).mean(0)  # noqa: E731
    generate = lambda eta, v: eta * v  # noqa: E731
    first = torch.linspace(-1, 1, 4 + space.size)
    pipeline = Pipeline(embed, generate, first, 4, Frozen(), OnServer(Sgd(momentum=0.5), 0.1))
    mine, setting = apiece.algorithm(pipeline, name="generated"), FederationFacts((4,), 3, NAMES, range(4), 0)
    federated = apiece.Federated(
        apiece.Setup(mine, apiece.Task(space), space.ravel(), space.ravel_buffers(), setting=setting)
    )
    clients = apiece.Clients(federated, place(), apiece.Work(2, batch=8), 0, Sequential())
    server, answer = federated.round(federated.start(), clients, Plan([0, 2, 3], frozenset({3}), 0.1))
    assert answer.answered == [0, 2] and server.broadcast.deviation > 0
    assert (server.params != first).all() and torch.isfinite(server.params).all()


# --- a look ----------------------------------------------------------------------------------------------------------
@pytest.fixture(scope="module")
def ended(tmp_path_factory) -> Result:
    folder = tmp_path_factory.mktemp("ended") / "run"
    return apiece.federate(**TINY, algorithm="scaffold", unseen=1, out=folder, drift="all")


@pytest.mark.slow
def test_what_a_program_looks_at_is_one_short_line(ended: Result):
    experiment = ended.experiment
    made = apiece.MadeFederation(lambda client: (torch.zeros(2, 4), torch.zeros(2)), 9, 2, (torch.zeros(2, 4), None))
    shown = [ended, experiment, experiment.federated, ended.clients, experiment.federation, made, experiment.dataset]
    shown += [experiment.split, experiment.federated.setup.task.space, ended.server, experiment.federation.samples(0)]
    for thing in shown:
        text = repr(thing)
        assert text.startswith(f"{type(thing).__name__}(") and len(text) < 160 and "\n" not in text, text
    last = ended.metrics[-1]["global_accuracy"]
    assert repr(ended) == f"Result('scaffold', rounds=3, global_accuracy={last:.4f}, folder={str(ended.folder)!r})"
    assert repr(experiment.federation) == "Federation(clients=6, unseen=1, train=1437, test=360)"
    assert repr(ended.server) == "Server(round=3, parameters=650, remembers memory.Scaffold.variate)"


def test_a_clients_model_is_had_after_the_run_whose_rows_are_on_the_disk(tmp_path: Path):
    settings = TINY | {"algorithm": "scaffold + fedper", "model": "mlp(hidden=[4])"}
    again, kept = apiece.federate(**settings), apiece.federate(**settings, out=tmp_path / "run")
    for client in range(6):
        for name, leaf in again.model(client).items():
            assert torch.equal(kept.model(client)[name], leaf)


def test_the_version():
    shown = cli("--version")
    assert shown.code == 0 and shown.out == f"apiece {apiece.__version__}\n"


# --- one of a name ---------------------------------------------------------------------------------------------------
def test_two_classes_of_one_name_are_refused_together():
    """What a piece draws and remembers goes by its name: two of a name would share it."""
    one, two = (type("Twin", (Remembering,), {}) for _ in range(2))
    with pytest.raises(UserError, match=r"Twin\(\) of .* have one name in 'both'.*rename one of the two classes"):
        apiece.algorithm(one(), two(), name="both")


def test_steps_that_are_asked_for_come_behind_an_algorithms_own_fine_tuning():
    result = apiece.federate(**TINY, algorithm="scaffold + fine_tune(epochs=1, batch=8)")
    pool = result.experiment.federation.pool[0][:20], result.experiment.federation.pool[1][:20]
    newcomer = apiece.Federation(pool, pool, [torch.arange(20)], [torch.arange(20)], ["new"])
    without, some, more = (serve(result, newcomer, steps).state["head.weight"] for steps in (0, 1, 2))
    assert not torch.equal(without, some) and not torch.equal(some, more)
