"""The compiled lift: what is recorded means what was written, for any algorithm; steps that are alike are one."""

from __future__ import annotations

import logging
from typing import Any

import pytest
import torch
from helpers import clusters, federate, mlp, run
from subjects import normed
from test_contract import brief

from driftless import algorithms as named
from driftless import compiled
from driftless.choice import compiled as fitting
from driftless.compiled import Compiled
from driftless.composition import combine
from driftless.contract import TOLERANCE, _close, _Trial, model
from driftless.lift import Sequential, Vectorised
from driftless.optim import AdamW
from driftless.work import Between, Work

COHORTS = [range(8), range(8), (0, 2, 3, 5, 7)]


def recorded(chunk: int = 3, workers: int = 1) -> Compiled:
    """The lift with a compiler that leaves graphs as they are."""
    return Compiled(chunk, workers, compiler=lambda graph: graph)


def programs(lift: Compiled) -> list[bool]:
    """Whether each operation that was asked for could be recorded."""
    return [program is not None for program in lift._programs.values()]


def distance(one: Any, two: Any) -> float:
    return float((one.servers[-1].params - two.servers[-1].params).abs().max())


@pytest.mark.parametrize(
    "subject, module, settings",
    [
        (named.fedavg(), model, {"watch": frozenset({"drift", "divergence"})}),
        (named.scaffold() + named.fedals(2) + named.relaxed_init(), model, {}),
        (named.fedals(2, cohort="held"), model, {"client": AdamW(), "optimiser_state": "kept"}),
        (named.ditto(), model, {}),
        (named.pefll(), model, {}),
        (named.fedbn() + named.scaffold(), normed, {}),
    ],
    ids=["fedavg", "scaffold + fedals + relaxed_init", "fedals, adamw kept", "ditto", "pefll", "fedbn + scaffold"],
)
def test_a_recording_means_what_was_written(subject, module, settings):
    """Three rounds, each with a step size of its own, ragged clients and absent ones: recorded in the first alone."""
    trial, lift = _Trial(subject, torch.float64, module, settings), recorded()
    gap = _close("law 1 (compiled)", trial, trial.run(Sequential(), rounds=3), trial.run(lift, rounds=3))
    assert gap < TOLERANCE and programs(lift) and all(programs(lift))


def test_what_asks_a_tensor_for_its_value_is_mapped_as_it_is(caplog):
    subject = combine([brief(part) for part in named.fedcog().parts], "fedcog")
    trial, lift = _Trial(subject, torch.float64, model, {}), recorded()
    with caplog.at_level(logging.WARNING, compiled.__name__):
        compiled._said.clear()
        gap = _close("law 1 (compiled)", trial, trial.run(Sequential(), rounds=3), trial.run(lift, rounds=3))
    assert gap < TOLERANCE and not any(programs(lift))
    assert len(caplog.messages) == 1 and "'train' cannot be recorded" in caplog.messages[0]


@pytest.mark.parametrize("workers", [1, 2])
def test_alike_steps_are_one_whatever_their_number(workers):
    """All between the first and the last, in every program: the number of steps, the round and the step size are
    data.
    """
    made = []

    def compiler(graph: Any) -> Any:
        made.append(graph)
        return graph

    lift = Compiled(4, workers, compiler)
    for work in (Work(4, None, 4), Work(9, None, 4)):
        ran = run(federate(named.scaffold(), mlp()), clusters((12,) * 8), work, COHORTS, lift=lift)
        assert distance(ran, run(federate(named.scaffold(), mlp()), clusters((12,) * 8), work, COHORTS)) < 1e-6
    assert len(programs(lift)) == 2 and len(made) == 3


def test_masks_of_ragged_clients_are_inputs_of_a_step():
    made = []
    lift = Compiled(4, 1, lambda graph: made.append(graph) or graph)
    work = Work(Between(2, 9), None, 4)
    data = clusters((12,) * 8)
    ran = run(federate(named.fedavg(), mlp()), data, work, COHORTS, lift=lift)
    assert distance(ran, run(federate(named.fedavg(), mlp()), data, work, COHORTS)) < 1e-6
    assert len(programs(lift)) > 2 and len(made) == 3


def test_calls_are_made_full_by_clients_that_do_not_count():
    """Five clients in calls of four: two calls; fewer than half a call are not worth a program."""
    data, work = clusters((12,) * 8), Work(2, None, 4)
    sizes: list[int] = []

    for cohort, chunk in ((5, 3), (5, 4)):
        lift = recorded(chunk)
        ran = run(federate(named.scaffold(), mlp()), data, work, [range(cohort)] * 2, lift=lift)
        alone = run(federate(named.scaffold(), mlp()), data, work, [range(cohort)] * 2)
        assert distance(ran, alone) < 1e-6 and ran.answers[0].answered == list(range(cohort))
        sizes.append(len(programs(lift)))
    assert sizes == [1, 1]


@pytest.mark.parametrize("cohort, chunk", [(1000, 32), (10, 5), (40, 20), (1, 1), (3, 2)])
def test_the_cohort_fills_its_calls(cohort, chunk):
    space = federate(named.fedavg(), mlp()).task.space
    assert fitting(space, "cpu", cohort, 2).chunk == chunk


def test_where_nothing_can_be_compiled_it_says_so_and_goes_on(caplog):
    def broken(graph: Any) -> Any:
        def run(*inputs: Any) -> Any:
            raise RuntimeError("no working C++ compiler\nand much more")

        return run

    data, work = clusters((12,) * 8), Work(3, None, 4)
    with caplog.at_level(logging.WARNING, compiled.__name__):
        compiled._said.clear()
        ran = run(federate(named.fedavg(), mlp()), data, work, COHORTS, lift=Compiled(4, 1, broken))
    assert distance(ran, run(federate(named.fedavg(), mlp()), data, work, COHORTS, lift=recorded(4))) == 0
    assert len(caplog.messages) == 1 and caplog.messages[0].endswith("no working C++ compiler")


def test_torch_compiles_it():
    """By torch's own compiler, where there is one for C++; in float64, the clients' models too."""
    trial = _Trial(named.scaffold(), torch.float64, model, {"client": AdamW(), "watch": frozenset({"divergence"})})
    for lift in (Compiled(3), Vectorised(3)):
        gap = _close("law 1 (compiled)", trial, trial.run(Sequential(), rounds=2), trial.run(lift, rounds=2))
        assert gap < TOLERANCE
