"""What is sent, counted: FedALS's table from the ledger of a run that trains nothing, and from its closed form."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import pytest
import torch
from support import tiers
from support.outer import config, metrics, run
from torch import nn

from apiece.algebra.message import Message, Sum
from apiece.algebra.periods import NEVER, Schedule
from apiece.algebra.place import Traffic
from apiece.config.assemble import assemble
from apiece.data.federation import Federation
from apiece.engine.clients import Clients
from apiece.engine.federated import Federated
from apiece.engine.setup import Setup
from apiece.engine.state import Plan, Reply
from apiece.engine.traffic import down, measure, up
from apiece.engine.work import Work
from apiece.experiment.run import execute
from apiece.language import algorithms
from apiece.lifts.lift import Sequential
from apiece.networks.models import resnet20
from apiece.vector.space import Space
from apiece.vector.task import Task

STEPS, LOCAL = 20_000, 5  # T and tau
PAPER = {1: 2.344, 5: 0.473, 10: 0.239, 25: 0.099, 50: 0.052, 100: 0.029}  # billions (FedALS, Table 1 and Figure 2)


class Idle(NamedTuple):
    """A lift that trains nothing: every client answers with a delta of zero and the row it has."""

    delta: torch.Tensor
    buffers: torch.Tensor

    def run(self, operation: Callable, shared: Any, tasks: Iterable[Callable]) -> Iterator[Reply]:
        for task in tasks:
            yield Reply(self.said, task().row, {}, torch.tensor(True))

    @property
    def said(self) -> Message:
        return Message(Sum(self.delta), Sum(self.buffers), (), Sum(torch.ones((), dtype=torch.float64)))


def ledger(module: nn.Module, alpha: int, rounds: int) -> tuple[Federated, Traffic]:
    """The traffic of an actual run of one client that trains nothing."""
    space = Space(module)
    federated = Federated(Setup(algorithms.fedals(alpha=alpha), Task(space), space.ravel(), space.ravel_buffers()))
    pool = (torch.zeros(1, 3, 32, 32), torch.zeros(1, dtype=torch.int64))
    place = Federation(pool, pool, [torch.zeros(1, dtype=torch.int64)], [], ["one"])
    clients = Clients(
        federated, place, Work(LOCAL, None, 1), 0, Idle(torch.zeros(space.size), torch.zeros(space.buffer_size))
    )
    server, total = federated.start(), Traffic()
    for t in range(rounds):
        server, answer = federated.round(server, clients, Plan([0], frozenset(), 0.1))
        clients.commit(t)
        total = total.plus(answer.traffic)
    return federated, total


def by_pattern(federated: Federated, rounds: int) -> Traffic:
    """The same from the messages' forms alone: each form is measured once, however many rounds it is sent in."""
    server, known, total = federated.start(), {}, Traffic()
    said = Idle(torch.zeros_like(server.params), torch.zeros_like(server.buffers)).said
    for t in range(rounds):
        form = federated.setup.periods.pattern(t, t - 1), federated.setup.periods.pattern(t + 1, t)
        if form not in known:
            shared = federated.shared(server._replace(round=t), 0.1)._replace(model=server.params)
            known[form] = Traffic(
                *measure(up(federated.setup, said, t)), *measure(down(federated.setup, shared, (), t - 1))
            )
        total = total.plus(known[form])
    return total


# periods catch an interval counted one off
@pytest.mark.slow
@pytest.mark.parametrize("alpha", tiers.but((100,), PAPER))
def test_fedals_table_is_the_ledgers(alpha):
    """The ledger of a run, that of the schedule, and the closed form; 200 rounds are whole intervals of every alpha."""
    module, rounds, some = resnet20((3, 32, 32), 10), STEPS // LOCAL, 200
    assert sum(p.numel() for p in module.parameters()) == 292_954
    federated, total = ledger(module, alpha, some)
    assert by_pattern(federated, some) == total
    whole = by_pattern(federated, rounds)
    assert whole == Traffic(*(rounds // some * number for number in total))
    head = int(federated.setup.task.space.select("head").sum())
    closed = 2 * rounds * head + 2 * (rounds // alpha) * (292_954 - head)
    assert head == 650 and whole.parameters_up + whole.parameters_down == closed
    assert round(closed / 1e9, 3) == PAPER[alpha]


BODY, HEAD = 65 * 8, 9 * 10  # mlp(hidden=[8]) on digits
ROUNDS, CLIENTS = 6, 4
EXPECTED = {  # parameters and control numbers a client and round, up and down
    "fedavg": (BODY + HEAD, 0, BODY + HEAD, 0),
    "fedprox(mu=0.1)": (BODY + HEAD, 0, BODY + HEAD, 0),
    "relaxed_init(beta=0.1)": (BODY + HEAD, 0, BODY + HEAD, 0),
    "relaxed_init(beta=0.1, aggregate=delta)": (BODY + HEAD, 0, BODY + HEAD, 0),
    "scaffold": (BODY + HEAD, BODY + HEAD, BODY + HEAD, BODY + HEAD),
    "fedavg_p": (BODY, 0, BODY, 0),
    "scaffold_p": (BODY, BODY, BODY, BODY),
    "fedals(alpha=3)": (BODY / 3 + HEAD, 0, BODY / 3 + HEAD, 0),
    "local": (0, 0, 0, 0),
}


@pytest.mark.parametrize("algorithm", EXPECTED)
def test_numbers_of_a_run(algorithm):
    settings = config(algorithm=algorithm, clients=CLIENTS, rounds=ROUNDS, model="mlp(hidden=[8])", drift="none")
    last = execute(assemble(settings)).metrics[-1]
    found = [last[key] / ROUNDS / CLIENTS for key in ("parameters_up", "control_up", "parameters_down", "control_down")]
    assert found == pytest.approx(EXPECTED[algorithm])
    assert last["numbers_up"] == last["parameters_up"] + last["control_up"]
    for way in ("up", "down"):  # four bytes a number, and headers of some hundred bytes a message
        beside = (last[f"bytes_{way}"] - 4 * last[f"numbers_{way}"]) / ROUNDS / CLIENTS
        assert 0 < beside < 600


def test_who_does_not_answer_was_sent_the_model_and_sends_nothing(tmp_path, no_report):
    assert run(absent=0.5, out=tmp_path / "run").code == 0
    up = down = 0
    for info in metrics(tmp_path / "run"):
        assert info["numbers_up"] - up == 650 * info["answered"] < 650 * info["cohort"]
        assert info["numbers_down"] - down == 650 * info["cohort"]
        up, down = info["numbers_up"], info["numbers_down"]


@pytest.mark.parametrize(("algorithm", "down"), [("fedavg", BODY + HEAD), ("pfedhn", BODY + HEAD), ("pefll", None)])
def test_a_round_that_nobody_answers_was_sent(algorithm, down):
    """To each client its model; of a pipeline, which never gets as far as a model, what makes a descriptor."""
    experiment = assemble(config(algorithm=algorithm, clients=CLIENTS, model="mlp(hidden=[8])", drift="none"))
    federated, everyone = experiment.federated, list(range(CLIENTS))
    clients = Clients(federated, experiment.training, experiment.work, 0, Sequential())
    server, answer = federated.round(federated.start(), clients, Plan(everyone, frozenset(everyone), 0.1))
    crossed, split = answer.traffic, getattr(federated.setup.broadcast, "split", None)
    assert server.round == 1 and not answer.answered
    assert crossed.numbers_down == CLIENTS * (down or split) and crossed.numbers_up == crossed.bytes_up == 0


def test_what_is_sent_and_returned_is_what_opens_and_closes():
    """The ledger's places, found on the host, against the masks that clients work with."""
    periods = Schedule(torch.tensor([1.0, 2.0, 3.0, NEVER, 2.0, 1.0]))
    whole = torch.arange(6.0)
    for seen in range(-1, 7):
        for t in range(seen + 1, 8):
            opens = periods.opens(t, seen) & periods.shared
            assert periods.sent(t, seen).of(whole).tolist() == whole[opens].tolist()
            assert periods.returned(t).of(whole).tolist() == whole[periods.closes(t)].tolist()
            back = periods.sent(t, seen).into(-whole, whole[opens])
            assert back.tolist() == torch.where(opens, whole, -whole).tolist()
