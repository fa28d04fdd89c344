"""The loop of a run: rounds, measurements, the log, checkpoints, and going on where one stopped.

    execute(experiment, folder)      from the beginning, or from the newest whole checkpoint of the same run

Order of a round: the engine's round; its rows count; measurements; a line in metrics.jsonl; then, where one is due,
rows to the disk and a checkpoint. Killed anywhere, a run resumes from its last checkpoint and ends bitwise as if it
had not been killed. One is always due before the last round, which is measured as no other: there a run that gets more
rounds goes on.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from itertools import chain, pairwise
from pathlib import Path
from typing import Any

import torch

from apiece.config.assemble import Experiment
from apiece.engine import row
from apiece.engine.clients import BadClient, Clients, NotFinite
from apiece.engine.state import Plan, finite
from apiece.errors import UserError
from apiece.experiment import folders, identity, lifecycle
from apiece.experiment.choice import cores, lift_of, wired
from apiece.experiment.result import Info, Result
from apiece.experiment.saved import State, first, go_on, save, unpacked
from apiece.lifts.lift import Parallel, Sequential
from apiece.measure.drift import diverged, of_round
from apiece.measure.evaluate import Evaluation, Panel
from apiece.storage.disk import DiskRows
from apiece.storage.log import Log
from apiece.storage.rows import Layout, MemoryRows, Rows
from apiece.storage.shared import SharedRows
from apiece.system.allocator import keep_freed
from apiece.system.device import multiplying
from apiece.system.processes import Lost
from apiece.system.ranks import Ranks, join
from apiece.vector.task import cross_entropy

PANEL = 100  # clients that personal metrics are taken from, unless told otherwise
LEDGER = "numbers_up numbers_down parameters_up parameters_down control_up control_down bytes_up bytes_down".split()
NOBODY = Plan([], frozenset(), 0.0)  # who is asked after the last round


def execute(
    experiment: Experiment,
    folder: Path | None = None,
    on_round: Callable[[Info], None] | None = None,
    resume: bool = False,
) -> Result:
    """Run to the end. With `resume`, go on from the folder's newest whole checkpoint; without, the folder must be new.

    Raises UserError for a folder that exists or belongs to another run, and NotFinite (everything until then is saved).
    """
    torch.set_num_threads(1)
    keep_freed()
    config, federated = experiment.config, experiment.federated
    lift = lift_of(experiment, folders.noted(folder).get("lift", "") if folder is not None and resume else "")
    digest, ranks = identity.digest(config, folder), join()
    if folder is not None and not resume:
        ranks.first(lambda: lifecycle.begin(folder, experiment, lift))
    elif folder is not None:
        identity.refuse_other_data(folder, experiment)
    with ExitStack() as stack:
        if config.device != "cpu":
            stack.enter_context(multiplying(config.precision))
        if isinstance(lift, Parallel):
            stack.callback(lift.close)
        if folder is not None and ranks.leads:
            stack.enter_context(folders.alone(folder))
            folders.keep_split(folder, experiment.split)
        clients = _clients(experiment, folder, digest, lift)
        stack.callback(clients.close)
        state, metrics, log = first(experiment), list[Info](), None
        if folder is not None and resume:
            state, metrics, log = go_on(experiment, clients, folder, digest)
        elif folder is not None and ranks.leads:
            log = Log(folder)
        measured_clients, workers = _measured(experiment, clients), config.workers or cores()
        panel = Panel(config.panel or PANEL, config.eval_every if config.panel_of == "turns" else 0)
        evaluation = Evaluation(federated, experiment.federation, measured_clients, panel, workers)
        one_by_one = len(experiment.federation.names) <= lifecycle.LISTED
        trained_in_all = max(panel.size, config.rounds * experiment.cohort)  # who adapts at the end costs no more
        accuracy: dict[int, float] | None = None
        plans = chain(map(experiment.plan, range(state.server.round, config.rounds)), [NOBODY])
        for t, (plan, following) in enumerate(pairwise(plans), state.server.round):
            last = t + 1 == config.rounds
            clients.expect([client for client in following.cohort if client not in following.silent])
            try:
                state, info = _round(experiment, clients, state, plan)
            except (NotFinite, Lost) as error:
                if folder is None or (isinstance(error, Lost) and ranks.world > 1):  # of it the others do not know
                    raise
                save(folder, digest, state, clients, log)
                if not isinstance(error, BadClient):
                    raise
                skip = f"`apiece resume {folder} --on-bad-client skip`"
                raise BadClient(f"{error} What was before is saved: {skip} goes on without such clients.") from None
            if (t + 1) % config.eval_every == 0 or last:
                measured, accuracy = evaluation(state.server, plan.lr, everyone=last and one_by_one)
                info |= measured
            if last:
                info |= evaluation.adapted(state.server, plan.lr, trained_in_all)
            info |= {name: getattr(state.traffic, name) for name in LEDGER}
            metrics.append(info)
            if log is not None:
                log.append(info)
            if folder is not None and ((t + 1) % config.checkpoint_every == 0 or t + 2 >= config.rounds):
                save(folder, digest, state, clients, log)
            if on_round is not None and ranks.leads:
                on_round(info)
        if accuracy is None:  # the run had ended before: measure again what its folder lacks
            accuracy = evaluation(state.server, experiment.plan(config.rounds - 1).lr, everyone=one_by_one)[1]
        result = Result(metrics, experiment, state.server, measured_clients, folder, accuracy)
        if folder is not None:
            ranks.first(lambda: lifecycle.finish(folder, result))
        if ranks.leads and (said := diverged(metrics, federated.setup.task.loss is cross_entropy)):
            folders.say(said)
        return result


def trained(experiment: Experiment, folder: Path) -> Result:
    """What a run's newest whole checkpoint holds, without its log and without going on; UserError where there is none
    yet.
    """
    digest = identity.digest(experiment.config, folder)
    with folders.alone(folder):
        lift = lift_of(experiment) if wired(experiment) else Sequential()
        clients = _clients(experiment, folder, digest, lift)
        agree = lambda found: clients.restore(found.number, found.about["rows"])
        found = lifecycle.newest(folder, digest, folders.say, agree=agree)
        if found is None or not found.number:  # a first round that failed leaves a checkpoint of none
            clients.close()
            raise UserError(f"{str(folder)!r} has no checkpoint yet: run `apiece resume {folder}` first.")
    state = unpacked(found.tensors, first(experiment), found.number)
    return Result([], experiment, state.server, _measured(experiment, clients), folder, {})


def _round(experiment: Experiment, clients: Clients, state: State, plan: Plan) -> tuple[State, Info]:
    """One round and what can be said of it without a look at test data."""
    federated, t = experiment.federated, state.server.round
    began = time.perf_counter()
    server, answer = federated.round(state.server, clients, plan)
    if not bool(finite(server)):
        blamed = federated.setup.server_optimiser, federated.setup.algorithm.name
        raise NotFinite(
            f"the server became non-finite in round {t + 1}, though every answer it counted was finite: most likely "
            "the step size of {!r} or a value of {!r} is too large; lower it in a new run.".format(*blamed)
        )
    clients.commit(t)
    seconds = time.perf_counter() - began
    answered, watched = len(answer.answered), answer.watched
    info: Info = {
        "round": t + 1,
        "cohort": len(plan.cohort),
        "answered": answered,
        "skipped": len(answer.skipped),
        "seconds": seconds,
    }
    running = state.running
    if answered and watched:
        steps = float(watched["steps"].x)
        info |= {
            "train_loss": float(watched["loss"].x) / max(steps, 1.0),
            "steps": int(steps),
            "steps_counted": float(watched["reached"].x),
        }
        if "offset" in watched:
            move = state.server.params - server.params if federated.setup.broadcast.common else None
            info |= of_round(
                watched,
                answered,
                move,
                federated.setup.periods.shared,
                federated.setup.task.space.layer_index(),
                federated.setup.task.space.layers,
            )
        if "moved" in watched:
            running = running.plus(watched)
            info["divergence_all"] = running.divergence(
                torch.where(federated.setup.periods.shared, server.params, federated.setup.initial),
                federated.setup.initial,
                clients.registered,
            )
    info |= {name: float(value) for name, value in answer.logged.items()}
    return State(server, state.traffic.plus(answer.traffic), running), info


def _clients(experiment: Experiment, folder: Path | None, digest: str, lift: Any) -> Clients:
    config, fresh = experiment.config, row.write(row.fresh(experiment.federated.setup))
    if wired(experiment):
        from apiece.wired.server import WiredClients

        return WiredClients.open(experiment, folder, digest, lift)
    ranks = join()
    return Clients(
        experiment.federated,
        experiment.training,
        experiment.work,
        config.seed,
        lift,
        _rows(folder, Layout.of(fresh), digest, ranks) if fresh else MemoryRows(Layout.of(fresh)),
        config.on_bad_client,
        ranks,
    )


def _rows(folder: Path | None, layout: Layout, digest: str, ranks: Ranks) -> Rows:
    if ranks.world > 1 and folder is None:
        raise UserError("several ranks keep clients' rows in one folder: give the run an --out that all of them share.")
    if folder is None:
        return MemoryRows(layout)
    return SharedRows(folder, layout, digest, ranks) if ranks.world > 1 else DiskRows(folder, layout, digest)


def _measured(experiment: Experiment, clients: Clients) -> Clients:
    """The clients as they are measured: those of `centralised` are pooled for training, and measured one by one."""
    if experiment.training is experiment.federation:
        return clients
    rows = MemoryRows(Layout.of(clients.fresh))
    federated, place, seed = experiment.federated, experiment.federation, experiment.config.seed
    return Clients(federated, place, experiment.work, seed, clients.lift, rows, ranks=clients.ranks)
