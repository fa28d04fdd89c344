"""The loop of a run: its rounds and their watchers, and how a run that was stopped continues.

    execute(experiment, folder)      from the beginning, or from the newest whole checkpoint of the same run

After the engine's round, the clients' new rows count. Then the watchers are called in order: they measure the round,
write it to metrics.jsonl, and save a checkpoint when one is due. Killed anywhere, a run resumes from its last
checkpoint and ends bitwise as if it had not been killed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, nullcontext
from itertools import chain, pairwise
from pathlib import Path
from typing import NamedTuple

import torch

from apiece.config.assemble import Experiment
from apiece.engine.clients import Clients, NotFinite
from apiece.engine.state import Plan, finite
from apiece.errors import UserError
from apiece.experiment import folders, identity, lifecycle
from apiece.experiment.choice import Chosen, lift_of, wired
from apiece.experiment.clients import as_measured, clients_of
from apiece.experiment.result import Info, Result, Round, State
from apiece.experiment.saved import Saves, first, go_on, unpacked
from apiece.experiment.stopping import Ending
from apiece.experiment.watchers import Evaluate, Watcher, joined, sent, stops, told
from apiece.lifts.lift import Parallel, Sequential
from apiece.measure.drift import diverged, of_round, work_of
from apiece.randomness import unshared
from apiece.storage.log import NAME, VALUES, Log
from apiece.system.allocator import keep_freed, unsearched
from apiece.system.device import fitting, multiplying
from apiece.system.ranks import join
from apiece.vector.task import cross_entropy

NOBODY = Plan([], frozenset(), 0.0)  # the plan after the last round


class Opened(NamedTuple):
    """A run that is ready for its next round."""

    state: State
    metrics: list[Info]  # of the rounds that were done
    clients: Clients
    saves: Saves


def execute(
    experiment: Experiment,
    folder: Path | None = None,
    on_round: Sequence[Callable[[Info], object]] = (),
    resume: bool = False,
    watchers: Sequence[Watcher] = (),
    on_lift: Callable[[Chosen], object] = lambda chosen: None,
) -> Result:
    """Run to the end. With `resume`, continue from the folder's newest whole checkpoint; without, the folder must be
    new.

    Each of `watchers` is called with the `Round` once it is measured, and before it is written; numbers that it returns
    by name join the round's record. Each of `on_round` is called with that record, once the round is saved. If one of
    them returns "stop", that round is the last. `on_lift` is called with the lift before the first round. Raises
    UserError for a folder that exists or belongs to another run, and NotFinite (everything until then is saved).

    >>> from apiece import Config
    >>> from apiece.config.assemble import assemble
    >>> len(execute(assemble(Config(clients=5, rounds=2, steps="5"))).metrics)
    2
    """
    ranks, rounds = join(), experiment.config.rounds
    with ExitStack() as stack:
        state, metrics, clients, saves = _opened(experiment, folder, resume, stack, on_lift)
        measured = as_measured(experiment, clients)
        evaluate = Evaluate(experiment, measured)
        ending = Ending.of(experiment, folder, [*watchers, *on_round])
        watchers = [*watchers, *ending.keeping]
        before, after = (watchers, map(told, on_round)) if ranks.leads else ((), ())
        watching = [evaluate, *before, sent, saves.line, evaluate.kept_by(saves.values), saves.checkpoint, *after]
        plans = chain(map(experiment.plan, range(state.server.round, ending.round or rounds)), [NOBODY])
        stop, guard = ending.due(metrics), unshared(folders.say_once)
        for plan, following in pairwise(plans):
            if ranks.everyone(stop)[0]:
                break
            clients.expect([client for client in following.cohort if client not in following.absent])
            with saves.kept(state), guard:
                state, info = _round(experiment, clients, state, plan)
            guard = nullcontext()
            for watch in watching:
                seen = Round(
                    experiment, measured, state, plan, info, metrics, evaluate.values or {}, folder, ending.since
                )
                answer = watch(seen)
                info, stop = info | joined(info, answer), stop or stops(answer)
            metrics.append(info)
            stop = stop or ending.due(metrics)
        if state.server.round < rounds:
            fuller = evaluate.ended(state.server)  # on every rank, of which the first has all records
            metrics[-1:] = [info | fuller for info in metrics[-1:]]
            saves.stopped(state, metrics)
        result = Result(metrics, experiment, state.server, measured, folder, evaluate.at_the_end(state.server))
        if folder is not None:
            ranks.first(lambda: lifecycle.finish(folder, result))
        if ranks.leads and (said := diverged(metrics, experiment.federated.setup.task.loss is cross_entropy)):
            folders.say(said)
        return result


def _opened(
    experiment: Experiment,
    folder: Path | None,
    resume: bool,
    stack: ExitStack,
    on_lift: Callable[[Chosen], object],
) -> Opened:
    """The run at its beginning in a new folder, or with `resume` at its newest whole checkpoint. `stack` closes it."""
    torch.set_num_threads(1)
    keep_freed()
    config, ranks = experiment.config, join()
    chosen = lift_of(experiment, folders.noted(folder).get("lift", "") if folder is not None and resume else "")
    on_lift(chosen)
    lift, why = chosen
    digest = identity.digest(config, folder)
    if folder is not None and not resume:
        ranks.first(lambda: lifecycle.begin(folder, experiment, lift, why))
        if not wired(experiment):  # nodes hold a part of the run, and find it again by this folder
            stack.enter_context(lifecycle.unless_begun(folder))
    elif folder is not None:
        identity.refuse_other_data(folder, experiment)
        identity.refuse_other_metrics(folder, experiment)
        if folders.noted(folder).get("digest", digest) != digest:  # its files would name two fingerprints
            identity.refuse_another(folder, config)
    if config.device != "cpu":
        stack.enter_context(multiplying(config.precision))
        stack.enter_context(fitting())
    if isinstance(lift, Parallel):
        stack.callback(lift.close)
    if folder is not None and ranks.leads:
        stack.enter_context(folders.alone(folder))
        folders.keep_split(folder, experiment.split, experiment.dataset)
    stack.enter_context(unsearched())
    clients = clients_of(experiment, folder, digest, lift)
    stack.callback(clients.close)
    if folder is not None and resume:
        state, metrics, log, values = go_on(experiment, clients, folder, digest)
    else:
        new = folder if ranks.leads else None
        log, values = (Log(new, name=name) if new is not None else None for name in (NAME, VALUES))
        state, metrics = first(experiment), []
    again = folders.resuming(folder, config) if folder is not None else ""
    return Opened(state, metrics, clients, Saves(folder, digest, clients, log, values, again))


def trained(experiment: Experiment, folder: Path) -> Result:
    """The state of a run's newest whole checkpoint, without its log or further rounds; UserError if there is none, or
    if the run began with other settings or data.
    """
    identity.refuse_edited(folder)
    identity.refuse_other_data(folder, experiment)
    digest = identity.digest(experiment.config, folder)
    with folders.alone(folder):
        lift = lift_of(experiment).lift if wired(experiment) else Sequential()
        clients = clients_of(experiment, folder, digest, lift)
        agree = lambda found: clients.restore(found.number, found.about["rows"])
        found = lifecycle.newest(folder, digest, folders.say, agree=agree)
        if found is None or not found.number:  # a first round that lost its process leaves a checkpoint of round 0
            clients.close()
            again = folders.resuming(folder, experiment.config)
            raise UserError(f"{str(folder)!r} has no checkpoint yet: run `{again}` first.")
    state = unpacked(found.tensors, first(experiment), found.number)
    return Result([], experiment, state.server, as_measured(experiment, clients), folder, {})


def _round(experiment: Experiment, clients: Clients, state: State, plan: Plan) -> tuple[State, Info]:
    """One round of the engine, after which its rows count, and the part of its record that needs no test data."""
    setup, t, began = experiment.federated.setup, state.server.round, time.perf_counter()
    server, answer = experiment.federated.round(state.server, clients, plan)
    if not bool(finite(server)):
        raise NotFinite(
            f"the server became non-finite in round {t + 1}, though every answer it counted was finite: most likely "
            f"the step size of {setup.server_optimizer!r} or a value of {setup.algorithm.name!r} is too "
            f"large{setup.suspects('server_memory', 'learn', 'settle')}; lower it in a new run."
        )
    clients.commit(t)
    info: Info = {
        "round": t + 1,
        "cohort": len(plan.cohort),
        "answered": len(answer.answered),
        "skipped": len(answer.skipped),
        "seconds": time.perf_counter() - began,
    }
    running, drifted = state.running.after(setup, server.params, answer, clients.registered)
    info |= work_of(answer.diagnostics) | of_round(setup, state.server.params, server.params, answer) | drifted
    info |= answer.logged
    return State(server, state.traffic.plus(answer.traffic), running), info
