"""The compiled lift: what is recorded means what was written, for any algorithm; steps that are alike are one."""

from __future__ import annotations

import gc
import itertools
import logging
import os
import subprocess
import sys
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from support import tiers
from support.helpers import clusters, federate, gap, mlp, run
from support.subjects import normed
from torch import nn

from apiece.algebra.composition import algorithm
from apiece.algebra.optim import AdamW, Sgd
from apiece.algebra.piece import Piece
from apiece.contract.comparing import TOLERANCE, close
from apiece.contract.trial import Trial, model
from apiece.engine.work import Between, Work
from apiece.experiment.choice import compiled as fitting
from apiece.language import algorithms as named
from apiece.lifts import lift as lifts
from apiece.lifts import loops
from apiece.lifts.compiled import Compiled
from apiece.lifts.lift import Sequential, Vectorized

COHORTS = [range(8), range(8), (0, 2, 3, 5, 7)]


def recorded(chunk: int = 3, workers: int = 1) -> Compiled:
    """The lift with a compiler that leaves graphs as they are."""
    return Compiled(chunk, workers, compiler=lambda graph: graph)


def programs(lift: Compiled) -> list[Any]:
    """What was recorded."""
    return list(lift.programs.values())


def distance(one: Any, two: Any) -> float:
    return gap(one.last, two.last)


RECORDED = [
    (named.fedavg(), model, {"watch": frozenset({"drift", "divergence"})}),
    (named.scaffold() + named.fedals(2) + named.relaxed_init(), model, {}),
    (named.fedals(2, cohort="held"), model, {"client": AdamW(), "optimizer_state": "kept"}),
    (named.ditto(), model, {}),
    (named.ditto(lr=0.05, steps=3), model, {}),
    (named.per_fedavg(batches="whole"), model, {}),
    (named.pefll(), model, {}),
    (named.pefll(descriptor="all"), model, {}),
    (named.pefll(descriptor="first"), model, {}),
    (named.scaffold_p(init_control="grad", control="difference"), model, {}),
    (named.fedals(2, phase="first_step") + named.period("0.bias", 3) + named.scaffold(), model, {}),
    (named.fedprox(0.3, "server") + named.relaxed_init(), model, {}),
    (named.fedbn() + named.scaffold(), normed, {}),
]


# a subject catches a number of the first round that its recording keeps
@pytest.mark.slow
@pytest.mark.parametrize("chunk, clients, alone", [(3, 5, 0), (2, 3, 0), (4, 7, 0), (5, 16, 0), (5, 3, 3), (3, 2, 2)])
def test_the_rest_of_a_cohort_fills_a_call_of_the_same_program(chunk, clients, alone, monkeypatch):
    """Uncompiled it would take longer than the others together; a few who are no rest are not worth a program."""
    few, lift = list[int](), recorded(chunk)
    monkeypatch.setattr(lift, "few", lambda *call: few.append(len(call[-1])) or Compiled.few(lift, *call))
    everyone = clusters((12,) * clients)
    run(federate(named.fedavg(), mlp()), everyone, Work(2, None, 4), [range(clients)], lift=lift)
    assert sum(few) == alone and len(programs(lift)) == (not alone)


@pytest.mark.parametrize(
    "subject, module, settings", tiers.but(RECORDED[1:2], RECORDED), ids=lambda value: getattr(value, "name", "")
)
def test_a_recording_means_what_was_written(subject, module, settings):
    """Three rounds, each with a step size of its own, ragged clients and absent ones: recorded in the first alone."""
    trial, lift = Trial(subject, torch.float64, module, settings), recorded()
    away = close("law 1 (compiled)", trial, trial.run(Sequential(), rounds=3), trial.run(lift, rounds=3))
    assert away < TOLERANCE and programs(lift) and not lift.refused


# a subject catches tensors that are one in the first round alone
@pytest.mark.slow
@pytest.mark.parametrize("subject", [named.fedavg(), named.fedals(2) + named.scaffold(), named.ditto()])
def test_what_is_looked_at_is_the_same_in_every_round(subject):
    """In the first, that of the recording, tensors that differ later are one: the model is the initial one."""
    watch, told = {"watch": frozenset({"drift", "divergence"})}, []
    for lift in (Sequential(), recorded()):
        torch.manual_seed(0)
        ran = run(federate(subject, mlp(), **watch), clusters((12,) * 8), Work(2, None, 4), COHORTS, lift=lift)
        told.append([{name: mean.x for name, mean in answer.diagnostics.items()} for answer in ran.answers])
    for one, other in zip(*told, strict=True):
        assert max(gap(one[name], other[name]) for name in one | other) < 1e-12 and float(other["grown"])


def test_what_asks_a_tensor_for_its_value_is_mapped_as_it_is(caplog):
    subject, lift = algorithm(Objective(decides_by_a_value), name="it"), recorded(4)
    with caplog.at_level(logging.WARNING, lifts.__name__):
        lifts.say.cache_clear()
        assert distance(trained(subject, 2, lift), trained(subject, 2)) < 1e-6
    assert not programs(lift) and len(lift.refused) == 1
    assert len(caplog.messages) == 1 and "'train' cannot be recorded" in caplog.messages[0]


def trained(subject: Any, steps: int, lift: Any = None) -> Any:
    """Three rounds of so many steps."""
    torch.manual_seed(0)
    given = {} if lift is None else {"lift": lift}
    return run(federate(subject, mlp()), clusters((12,) * 8), Work(steps, None, 4), COHORTS, **given)


@dataclass(frozen=True)
class Objective(Piece):
    """An objective that is made of the view and the loss by a function."""

    made: Any = None

    def objective(self, view, loss):
        return self.made(view, loss)


def decides_by_a_value(view, loss):
    return (lambda theta, batch: 2 * loss(theta, batch)) if float(view.sent.sum()) > 0 else loss


class Counting:
    """A compiler that leaves graphs as they are and counts them."""

    def __init__(self) -> None:
        self.made: list[Any] = []

    def __call__(self, graph: Any) -> Any:
        self.made.append(graph)
        return graph


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2])
def test_alike_steps_are_one_whatever_their_number(workers):
    """All after the first, in every program: the number of steps, the round and the step size are data."""
    counting = Counting()
    lift = Compiled(4, workers, counting)
    for work in (Work(4, None, 4), Work(9, None, 4)):
        ran = run(federate(named.scaffold(), mlp()), clusters((12,) * 8), work, COHORTS, lift=lift)
        assert distance(ran, run(federate(named.scaffold(), mlp()), clusters((12,) * 8), work, COHORTS)) < 1e-6
    assert len(programs(lift)) == 2 and len(counting.made) == 2


@pytest.mark.slow
def test_what_torch_compiles_does_not_grow_with_the_number_of_steps():
    """Its own guards see more than the text of a step: shapes, strides. So many graphs, whatever number of steps."""
    lift, compiled_by_torch = Compiled(4, 1, lambda graph: torch.compile(graph, backend="eager")), []
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    for steps in (4, 5, 9):
        run(federate(named.fedavg(), mlp()), clusters((12,) * 8), Work(steps, None, 4), COHORTS[:1], lift=lift)
        compiled_by_torch.append(torch._dynamo.utils.counters["stats"]["unique_graphs"])
    assert compiled_by_torch == [2, 2, 2]


@pytest.mark.slow
def test_masks_of_ragged_clients_and_their_numbers_of_samples_are_inputs_of_a_step():
    """Sizes of five to eight samples: one length of their list; and a program for each number of steps at the most."""
    counting, work, data = Counting(), Work(Between(4, 9), None, 4), clusters((5, 6, 7, 8) * 2)
    lift, cohorts = Compiled(4, 1, counting), [range(8), range(8), (0, 2, 3, 5)]
    ran = run(federate(named.fedavg(), mlp()), data, work, cohorts, lift=lift)
    assert distance(ran, run(federate(named.fedavg(), mlp()), data, work, cohorts)) < 1e-6
    assert 1 < len(programs(lift)) <= 6 and len(counting.made) == 2
    assert len({key[2] for key in lift.programs}) == len({key[1].most for key in lift.programs})


def number_as_a_tensor(view, loss):
    return lambda theta, batch: (1 + 0.1 * view.step()) * loss(theta, batch)


def number_to_decide_by(view, loss):
    return lambda theta, batch: loss(theta, batch) * (2 if view.step() >= 9 else 1)


def looks_up(view, loss):
    weights = [1.0, 0.5, 0.25]
    return lambda theta, batch: weights[view.step() % 3] * loss(theta, batch)


def counts_by_itself(view, loss):
    seen = []

    def value(theta, batch):
        seen.append(1)
        return (1 + 0.1 * len(seen)) * loss(theta, batch)

    return value


def keeps_what_it_saw(view, loss):
    seen = [view.start]

    def value(theta, batch):
        away = theta - seen[-1]
        seen.append(theta.detach())
        return loss(theta, batch) + away.square().sum()

    return value


def keeps_the_second(view, loss):
    seen = []

    def value(theta, batch):
        seen.append(theta.detach())
        return loss(theta, batch) + (theta - seen[min(len(seen), 2) - 1]).square().sum()

    return value


def takes_rows_in_its_own_order(view, loss):
    rows = itertools.cycle(view.data.all()[0].unbind()[:5])  # of more than five, the sixth step takes the first
    return lambda theta, batch: loss(theta, batch) + 0.01 * next(rows).sum() * theta.square().sum()


def a_constant(view, loss):
    many = torch.tensor(1.0 / len(view.batches))  # of another number of steps, another
    return lambda theta, batch: loss(theta, batch) + many * theta.square().sum()


@pytest.mark.slow
@pytest.mark.parametrize(
    "made, kinds",
    [(number_as_a_tensor, 2), (number_to_decide_by, 4), (looks_up, 5), (counts_by_itself, 0), (keeps_what_it_saw, 4),
     (keeps_the_second, 4), (takes_rows_in_its_own_order, 4), (a_constant, 2)],
)  # fmt: skip
def test_no_step_is_taken_for_another(made, kinds):
    """Whatever tells them apart, a number or a closure. Beyond eight kinds, none is compiled."""
    subject, counting = algorithm(Objective(made), name=made.__name__), Counting()
    lift = Compiled(4, 1, counting)
    assert distance(trained(subject, 12, lift), trained(subject, 12)) < 1e-6
    assert programs(lift) and not lift.refused and len(counting.made) == kinds


@pytest.mark.slow
def test_a_constant_is_a_part_of_what_a_step_computes():
    """Two recordings in one lift: their steps are the same but for a number that is none of their inputs."""
    subject, lift = algorithm(Objective(a_constant), name="it"), recorded(4)
    for steps in (5, 9, 12):
        assert distance(trained(subject, steps, lift), trained(subject, steps)) < 1e-6


@pytest.mark.slow
@pytest.mark.parametrize("subject", [named.fedrep(), named.vhl(), named.per_fedavg(batches="whole")])
def test_a_number_of_a_step_that_is_computed_with_is_an_input(subject):
    counting = Counting()
    assert distance(trained(subject, 12, Compiled(4, 1, counting)), trained(subject, 12)) < 1e-6
    assert len(counting.made) == 2


@pytest.mark.slow
@pytest.mark.parametrize(
    "subject, between",
    [(named.fedals(2) + named.scaffold(), nn.BatchNorm1d(8)), (named.ditto(), nn.Dropout(0.3))],
)
def test_folded_loops_move_buffers_and_draw_as_single_steps_do(subject, between):
    """Ragged clients of four to nine steps, absent ones, momentum, decay and a clip."""
    ends, settings = [], {"client": Sgd(momentum=0.9, weight_decay=1e-3), "clip": 1.0}
    for lift in (recorded(4), Sequential()):
        torch.manual_seed(0)
        module = nn.Sequential(nn.Linear(6, 8), between, nn.ReLU(), nn.Linear(8, 3)).double()
        federated = federate(subject, module, **settings)
        ends.append(run(federated, clusters((12,) * 8), Work(Between(4, 9), None, 4), COHORTS, lift=lift))
    assert distance(*ends) < 1e-12


@pytest.mark.slow
@pytest.mark.parametrize("times", [0, 2, 9])
def test_a_piece_repeats_before_the_steps_and_within_one(times):
    """theta <- theta / 2, so many times where training starts; and in the objective, where no loop is folded."""

    def halved(view, loss):
        near = view.repeat(lambda theta: theta / 2, view.start, times)
        shrink = lambda theta: view.repeat(lambda at: 0.9 * at, theta, times)
        return lambda theta, batch: loss(theta, batch) + (shrink(theta) - near).square().sum()

    subject, lift = algorithm(Objective(halved), name="it"), recorded(4)
    assert distance(trained(subject, 6, lift), trained(subject, 6)) < 1e-6
    assert programs(lift) and not lift.refused


@pytest.mark.slow
def test_fedcog_is_recorded_before_and_after_it_waits():
    """Two programs, and in the second its generation is a loop of its own."""
    subject, counting = named.fedcog(wait=1, steps=7, samples=8, batch=4), Counting()
    lift = Compiled(4, 1, counting)
    assert distance(trained(subject, 6, lift), trained(subject, 6)) < 1e-6
    assert len(programs(lift)) == 2 and len(counting.made) == 6 and not lift.refused


def test_long_recordings_of_single_steps_are_not_made(monkeypatch):
    told, subject = list[str](), algorithm(Objective(number_to_decide_by), name="it")
    monkeypatch.setattr(loops, "MOST", 500)
    lift = recorded(4)
    lift.told = told.append
    assert distance(trained(subject, 12, lift), trained(subject, 12)) < 1e-6
    assert not programs(lift) and len(told) == 1 and "12 steps that ask for their number" in told[0]


@pytest.mark.slow
def test_what_is_recorded_does_not_grow_with_the_number_of_steps(monkeypatch):
    sizes, plain = list[int](), loops.folded

    def counted(recording, found):
        sizes.append(len(recording.graph.nodes))
        return plain(recording, found)

    monkeypatch.setattr("apiece.lifts.compiled.folded", counted)
    for steps in (10, 30):
        trained(named.scaffold(), steps, recorded(4))
    assert sizes[1] - sizes[0] < 60  # the rows of more batches


def test_calls_are_made_full_by_clients_that_do_not_count():
    """Thirteen clients in calls of eight: the second has five; three more would not be worth a program."""
    data, work = clusters((12,) * 13), Work(2, None, 4)
    for cohort, count in ((13, 1), (3, 0)):
        lift = recorded(8)
        ran = run(federate(named.scaffold(), mlp()), data, work, [range(cohort)] * 2, lift=lift)
        alone = run(federate(named.scaffold(), mlp()), data, work, [range(cohort)] * 2)
        assert distance(ran, alone) < 1e-6 and ran.answers[0].answered == list(range(cohort))
        assert len(programs(lift)) == count


@pytest.mark.slow
def test_recordings_keep_no_results():
    """What they hold are graphs and shapes: however many there are, no more vectors of the clients are alive."""
    lift, federated, alive = recorded(8), federate(named.scaffold(), mlp()), []
    for steps in (2, 3, 4, 5):
        ran = run(federated, clusters((12,) * 8), Work(steps, None, 4), [range(8)], lift=lift)
        gc.collect()
        alive.append(sum(type(t) is torch.Tensor and t.shape == (8, ran.last.numel()) for t in gc.get_objects()))
    assert len(programs(lift)) == 4 and len(set(alive)) == 1


@pytest.mark.parametrize("cohort, chunk", [(1000, 32), (10, 5), (40, 20), (1, 1), (3, 2)])
def test_calls_of_a_cohort(cohort, chunk):
    space = federate(named.fedavg(), mlp()).setup.task.space
    assert fitting(space, "cpu", cohort, 2).chunk == chunk


# errors catch one without words, lateness one that comes when the graph runs
@pytest.mark.slow
@pytest.mark.parametrize("error", [RuntimeError("no working C++ compiler\nand much more"), AssertionError()])
@pytest.mark.parametrize("late", [True, False])
def test_where_nothing_can_be_compiled_it_says_so_and_goes_on(caplog, error, late):
    def broken(graph: Any) -> Any:
        def run(*inputs: Any) -> Any:
            raise error

        return run if late else run()

    data, work = clusters((12,) * 8), Work(3, None, 4)
    with caplog.at_level(logging.WARNING, lifts.__name__):
        lifts.say.cache_clear()
        ran = run(federate(named.fedavg(), mlp()), data, work, COHORTS, lift=Compiled(4, 1, broken))
    assert distance(ran, run(federate(named.fedavg(), mlp()), data, work, COHORTS, lift=recorded(4))) == 0
    said = str(error).partition("\n")[0] or "AssertionError"
    assert len(caplog.messages) == 1 and caplog.messages[0].endswith(said)


def test_torch_compiles_it():
    """By torch's own compiler, where there is one for C++; in float64, the clients' models too."""
    trial = Trial(named.scaffold(), torch.float64, model, {"client": AdamW(), "watch": frozenset({"divergence"})})
    for lift in (Compiled(3), Vectorized(3)):
        away = close("law 1 (compiled)", trial, trial.run(Sequential(), rounds=2), trial.run(lift, rounds=2))
        assert away < TOLERANCE


ON_ONE_MODEL = """
import numpy as np
import torch
from apiece import federate

torch.manual_seed(0)
noise = np.random.default_rng(0)
data = noise.normal(size=(640, 60)).astype("float32"), noise.integers(0, 10, 640)
settings = dict(rounds=2, clients=8, batch=10, cohort="100%", lift="compiled")
print(federate(torch.nn.Linear(60, 10), data, "fedavg", **settings).metrics[-1]["train_loss"])
"""


@pytest.mark.slow
@pytest.mark.skipif(torch.backends.cpu.get_cpu_capability() != "AVX512", reason="needs a processor with AVX512")
def test_what_a_narrow_processor_left_on_the_disk_runs_on_no_wide_one(tmp_path):
    """torch's key of generated code does not name the processor: on a wider one, the code wrote out of bounds."""
    losses = []
    for capability in ("avx2", "avx512"):
        there = {"ATEN_CPU_CAPABILITY": capability, "TORCHINDUCTOR_CACHE_DIR": str(tmp_path)}
        command = [sys.executable, "-c", ON_ONE_MODEL]
        ran = subprocess.run(command, env=os.environ | there, capture_output=True, text=True, check=False)
        assert ran.returncode == 0, ran.stderr
        losses.append(float(ran.stdout))
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)
