"""The compiled lift: what is recorded means what was written, for any algorithm; steps that are alike are one."""

from __future__ import annotations

import gc
import logging
import os
import subprocess
import sys
from typing import Any

import pytest
import torch
from support import tiers
from support.contract import brief
from support.helpers import clusters, federate, gap, mlp, run
from support.subjects import normed

from apiece.algebra.composition import combine
from apiece.algebra.optim import AdamW
from apiece.contract.comparing import TOLERANCE, close
from apiece.contract.trial import Trial, model
from apiece.engine.work import Between, Work
from apiece.experiment.choice import compiled as fitting
from apiece.language import algorithms as named
from apiece.lifts import lift as lifts
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
    (named.pefll(descriptor="batch"), model, {}),
    (named.scaffold_p(init_control="grad", control="difference"), model, {}),
    (named.fedals(2, phase="first_step") + named.period("0.bias", 3) + named.scaffold(), model, {}),
    (named.fedprox(0.3, "server") + named.relaxed_init(), model, {}),
    (named.fedbn() + named.scaffold(), normed, {}),
]


# a subject catches a number of the first round that its recording keeps
@pytest.mark.slow
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
    subject = combine([brief(part) for part in named.fedcog().parts], "fedcog")
    trial, lift = Trial(subject, torch.float64, model, {}), recorded()
    with caplog.at_level(logging.WARNING, lifts.__name__):
        lifts.say.cache_clear()
        away = close("law 1 (compiled)", trial, trial.run(Sequential(), rounds=3), trial.run(lift, rounds=3))
    assert away < TOLERANCE and not programs(lift) and len(lift.refused) == 1
    assert len(caplog.messages) == 1 and "'train' cannot be recorded" in caplog.messages[0]


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
    """All between the first and the last, in every program: the number of steps, the round and the step size are
    data.
    """
    counting = Counting()
    lift = Compiled(4, workers, counting)
    for work in (Work(4, None, 4), Work(9, None, 4)):
        ran = run(federate(named.scaffold(), mlp()), clusters((12,) * 8), work, COHORTS, lift=lift)
        assert distance(ran, run(federate(named.scaffold(), mlp()), clusters((12,) * 8), work, COHORTS)) < 1e-6
    assert len(programs(lift)) == 2 and len(counting.made) == 3


@pytest.mark.slow
def test_what_torch_compiles_does_not_grow_with_the_number_of_steps():
    """Its own guards see more than the text of a step: shapes, strides. So many graphs, whatever number of steps."""
    lift, compiled_by_torch = Compiled(4, 1, lambda graph: torch.compile(graph, backend="eager")), []
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    for steps in (4, 5, 9):
        run(federate(named.fedavg(), mlp()), clusters((12,) * 8), Work(steps, None, 4), COHORTS[:1], lift=lift)
        compiled_by_torch.append(torch._dynamo.utils.counters["stats"]["unique_graphs"])
    assert compiled_by_torch == [3, 3, 3]


@pytest.mark.slow
def test_masks_of_ragged_clients_and_their_numbers_of_samples_are_inputs_of_a_step():
    """Sizes of five to eight samples: one length of their list; and a program for each number of steps at the most."""
    counting, work, data = Counting(), Work(Between(4, 9), None, 4), clusters((5, 6, 7, 8) * 2)
    lift = Compiled(4, 1, counting)
    ran = run(federate(named.fedavg(), mlp()), data, work, COHORTS, lift=lift)
    assert distance(ran, run(federate(named.fedavg(), mlp()), data, work, COHORTS)) < 1e-6
    assert 1 < len(programs(lift)) <= 6 and len(counting.made) == 3
    assert len({key[2] for key in lift.programs}) == len({key[1].most for key in lift.programs})


@pytest.mark.slow
def test_steps_that_are_told_apart_by_their_number_run_as_they_are():
    """FedRep's order is a number for each step: up to eight kinds are compiled, beyond none, whatever was before."""
    for steps, kinds in ((6, 6), (12, 0)):
        counting = Counting()
        data, work = clusters((12,) * 8), Work(steps, None, 4)
        ran = run(federate(named.fedrep(), mlp()), data, work, COHORTS, lift=Compiled(4, 1, counting))
        assert distance(ran, run(federate(named.fedrep(), mlp()), data, work, COHORTS)) < 1e-6
        assert len(counting.made) == kinds


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
