"""The choice of a lift: a static rule decides between the two classes, a measurement within the exact class.

No clock ever chooses a lift of the rounding class, so that one seed stays one run. Within the exact class all runs are
bitwise the same, and the fastest lift may be taken. `worth.py` says when local steps are compiled.
"""

from __future__ import annotations

import logging
import os
import time
from contextlib import suppress
from dataclasses import replace
from itertools import chain, islice
from typing import Any, NamedTuple

from apiece.config.assemble import Experiment
from apiece.data.catalog import OWN
from apiece.engine.state import Plan
from apiece.errors import UserError, said
from apiece.experiment import worth
from apiece.experiment.culprit import culprit
from apiece.experiment.folders import say as tell
from apiece.lifts.compiled import Compiled
from apiece.lifts.graphs import Graphs
from apiece.lifts.lift import Sequential, Threaded, Vectorized, say
from apiece.lifts.workers import Processes
from apiece.system.ranks import join
from apiece.vector.metrics import LOSSES
from apiece.vector.space import Space

SMALL = 50_000  # parameters up to which a step costs more in calls than in arithmetic
LEAST, MOST = 8, 128  # clients per vectorized call
TOGETHER = 1 << 20  # parameters per vectorized call
ON_A_GPU = 1 << 28  # the same on a GPU: a gibibyte, of which gradients and activations need several
CACHED = 32  # clients per compiled call
WORTH = 60.0  # seconds of training above which worker processes can make up for their start
UNMEASURED = "compiling was measured for the built-in models, losses and algorithms alone, in float32 on one CPU"
TRIALS = 3  # measurements of each candidate; the best counts


class Chosen(NamedTuple):
    """A lift, and why it was taken in a few words."""

    lift: Any
    why: str


def lift_of(experiment: Experiment, kept: str = "") -> Chosen:
    """The lift that the configuration names. Under auto it is the lift that fits, or the one that the run has had so
    far (`kept`, empty for a new run): the same if it is compiled or vectorized, of its kind in the exact class.
    """
    if experiment.config.lift != "auto":
        return Chosen(_uncompiled(experiment, kept), "as it was asked for")
    if kept.startswith(Compiled.__name__) and experiment.config.device.startswith("cpu"):
        space, workers = experiment.federated.setup.task.space, experiment.config.workers or cores()
        return Chosen(compiled(space, "cpu", experiment.cohort, workers), "as the run began")
    if kept:
        return Chosen(_uncompiled(experiment, kept), "of the kind that the run began with")
    if not experiment.config.device.startswith("cpu"):
        return Chosen(_uncompiled(experiment), "a GPU is given the work of many clients at once")
    facts = facts_of(experiment) if compilable(experiment) else None
    pays, why = worth.compiling(facts) if facts else worth.Worth(False, UNMEASURED)
    if pays:
        tell(f"auto compiles the local steps before the first round: {why}.")
        lift, left = tried(experiment)
        if not left:
            return Chosen(lift, f"local steps are compiled: {why}")
        lift.close()
        why = f"although it would pay: {left}"
        tell(f"the steps are not compiled, {why}.")
    return Chosen(_uncompiled(experiment), f"local steps are not compiled: {why}")


def _uncompiled(experiment: Experiment, kept: str = "") -> Any:
    """The lift that the configuration names; under auto any but the compiled one."""
    config, space = experiment.config, experiment.federated.setup.task.space
    workers = config.workers or cores()
    if wired(experiment):
        from apiece.wired.server import Wired

        if join().world > 1:
            raise UserError("lift='wired' is for one process: begin the run without torchrun, or take another lift.")
        return Wired.of(experiment, workers)
    match config.lift:
        case "sequential" | "wired":
            return Sequential()
        case "threaded":
            return Threaded(workers)
        case "processes":
            return Processes(workers, config.patience)
    choose = {"vectorized": vectorized, "compiled": compiled}.get(config.lift, by_rule)
    found = choose(space, config.device, experiment.cohort, workers)
    if isinstance(found, Vectorized) and (error := _unfit(experiment, found)):
        who, reason = culprit(experiment, error), said(error)
        if config.lift != "auto":
            other = "threaded" if config.device.startswith("cpu") else "sequential"
            raise UserError(f"{who} cannot run under lift={config.lift!r}: {reason}; take lift={other!r}.") from error
        logging.getLogger(__name__).warning(
            "clients are computed one by one, not vectorized (several in one call), which %s cannot be: %s", who, reason
        )
        found = _parallel(config.device, experiment.cohort, workers)
    if not isinstance(found, Threaded):
        return found
    if kept.startswith(Processes.__name__):
        return Processes(found.workers, config.patience)
    if kept.startswith(Sequential.__name__):
        return Sequential()
    return found if kept else fastest(experiment, found)


def compilable(experiment: Experiment) -> bool:
    """Whether compiling such a run was measured: on the CPU, one process, float32, our own pieces, model and loss."""
    config, setup = experiment.config, experiment.federated.setup
    ours = config.model != OWN and setup.task.loss in LOSSES and not config.plugin
    here = config.device == "cpu" and config.precision == "float32" and join().world == 1
    return ours and here and not setup.own_pieces


def facts_of(experiment: Experiment) -> worth.Facts | None:
    """What decides whether compiling pays, by a step that is discarded; None if none can be taken, as the run says."""
    work, place, space = experiment.work, experiment.training, experiment.federated.setup.task.space
    workers = experiment.config.workers or cores()
    if not (some := _first(experiment, 1)):
        return None
    sizes = {place.size(client) for client in place.participants}
    alike = len(sizes) == 1 and min(sizes) % work.batch == 0 if work.epochs else work.equal and min(sizes) >= work.batch
    steps = experiment.clients(Sequential()).steps(some[0], experiment.federated.setup.lead)
    try:
        with worth.Counter() as counter:
            seconds(replace(experiment, work=replace(work, steps=1, epochs=None)), Sequential(), some)
    except Exception:
        return None
    return worth.Facts(
        steps=steps * experiment.cohort * experiment.config.rounds,
        alike=alike and not experiment.federated.setup.lead,
        **of_cohort(space, experiment.cohort, workers),
        **counter.step(),
    )


def of_cohort(space: Space, cohort: int, workers: int) -> dict[str, Any]:
    """The fields of `worth.Facts` that follow from a model, the size of a cohort and the workers, on the CPU."""
    return {
        "layers": sum(len(entry.shape) > 1 for entry in space.parameters),
        "size": space.size,
        "convolves": _convolves(space),
        "vectorized": isinstance(by_rule(space, "cpu", cohort, workers), Vectorized),
        "workers": min(workers, cohort),
        "together": (together := compiled(space, "cpu", cohort, workers).chunk),
        "calls": -(-cohort // together),
        "wide": worth.wide(),
    }


def tried(experiment: Experiment) -> tuple[Compiled, str]:
    """The compiled lift with the programs of the run's first call, also as it is from the rounds on that it asks about,
    and why something in them is not compiled ("" if all is). It follows from the recordings and from whether there is a
    C++ compiler, not from a clock.
    """
    space, left, workers = experiment.federated.setup.task.space, list[str](), experiment.config.workers or cores()
    lift = compiled(space, "cpu", experiment.cohort, workers)
    lift.told = left.append
    try:
        some = _first(experiment, lift.chunk)
        seconds(experiment, lift, some)
        for round in sorted(set().union(*lift.asked.values())):
            if 0 < round < experiment.config.rounds:
                seconds(experiment, lift, some, round)
    except Exception as error:  # vmap may raise anything for an operation that it does not know
        left.append(said(error))
    lift.told = say
    return lift, left[0] if left else ""


def cores() -> int:
    """How many cores this process may fill: its own, shared with the other ranks on the machine."""
    able = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, able // int(os.environ.get("LOCAL_WORLD_SIZE", "1")))


def _unfit(experiment: Experiment, lift: Vectorized) -> Exception | None:
    """Why the run cannot be vectorized, or None: tried on its first clients if anything in it is not our own."""
    # in bfloat16, norm layers of our own models and vmap do not get along on every device
    config, setup = experiment.config, experiment.federated.setup
    if not setup.own_pieces and setup.task.loss in LOSSES and config.model != OWN and config.precision != "bfloat16":
        return None
    failed: Exception | None = None
    try:
        for count in (2, 3):  # what the model keeps of one call does not fit the other
            seconds(experiment, lift, _first(experiment, count))
    except Exception as error:  # vmap may raise anything for an operation that it does not know
        failed = None if isinstance(error, UserError) else error  # the run itself reports what is the user's
    if failed:
        seconds(experiment, Sequential(), _first(experiment, 3))  # what fails one by one, too, is raised as it is
    return failed


def wired(experiment: Experiment) -> bool:
    """Whether every client is a process of its own; not under `centralized`, whose pooled data are no client's."""
    return experiment.config.lift == "wired" and experiment.training is experiment.federation


def by_rule(space: Any, device: str, cohort: int, workers: int) -> Sequential | Threaded | Vectorized:
    """The lift for this model, device and cohort, from what `make bench` measures.

    On a GPU it is the vectorized lift: one call fills the device. On a CPU small models without convolutions
    have it, too. Otherwise each client has a thread: vmap makes grouped convolutions of the clients' own kernels, which
    take up to 1.6 times as long as a loop over clients. With one client or one worker, clients run one after the other.
    """
    if not device.startswith("cpu") or (cohort >= 8 and space.size <= SMALL and not _convolves(space)):
        return vectorized(space, device, cohort, workers)
    return _parallel(device, cohort, workers)


def _convolves(space: Any) -> bool:
    return any(len(entry.shape) > 2 for entry in space.parameters)


def _parallel(device: str, cohort: int, workers: int) -> Sequential | Threaded:
    parallel = min(workers, cohort) if device.startswith("cpu") else 1
    return Threaded(parallel) if parallel > 1 else Sequential()


def vectorized(space: Any, device: str, cohort: int, workers: int) -> Vectorized:
    """The vectorized lift on this device. On a GPU calls are as large as its memory is likely to hold, all of one size,
    and recorded. On the CPU a call takes enough clients to hide its own cost, but leaves at least four calls to share,
    and takes no more parameters than fit the cache. Calls run in parallel threads.
    """
    if not device.startswith("cpu"):
        calls = -(-cohort * space.size // ON_A_GPU)
        return Graphs(-(-cohort // max(1, calls)))
    most = min(MOST, max(LEAST, TOGETHER // space.size), max(LEAST, -(-cohort // 4)))
    return Vectorized(most, workers)


def compiled(space: Any, device: str, cohort: int, workers: int) -> Compiled:
    """The compiled lift, on the CPU alone. A compiled call costs little by itself, so calls are as large as the cache
    allows (one client, if the model is large), all of one size, and even in number, for two workers.
    """
    most = min(CACHED, max(1, TOGETHER // space.size))
    calls = 2 * -(-cohort // (2 * most))
    return Compiled(-(-cohort // calls), workers)


def fastest(experiment: Experiment, threads: Threaded) -> Sequential | Threaded | Processes:
    """Threads, as many worker processes, or one client after the other: whichever trains the first clients fastest,
    measured on copies. Where the whole run is too short for it to matter, threads are taken.
    """
    some = _first(experiment, 2 * threads.workers)
    spent = min(seconds(experiment, threads, some) for _ in range(2))
    if not some or spent * experiment.config.rounds * experiment.cohort / len(some) < WORTH:
        return threads
    processes, lifts = Processes(threads.workers, experiment.config.patience), list[Any]([threads, Sequential()])
    chosen: Any = None
    try:
        with suppress(UserError):  # threads may compute what cannot be sent to processes
            seconds(experiment, processes, some)  # the processes' start is not counted
            lifts.insert(1, processes)
        turns = [[seconds(experiment, lift, some) for lift in lifts] for _ in range(TRIALS)]
        chosen = lifts[min((min(of), place) for place, of in enumerate(zip(*turns, strict=True)))[1]]
    finally:
        for other in {threads, processes} - {chosen}:
            other.close()
    return chosen


def _first(experiment: Experiment, most: int) -> list[int]:
    """The first clients of the run that have steps to take, at most `most` of them."""
    clients = experiment.clients(Sequential())
    everyone = chain(experiment.plan(0).cohort, experiment.training.participants)
    return list(dict.fromkeys(islice((client for client in everyone if clients.steps(client, 0)), most)))


def seconds(experiment: Experiment, lift: Any, some: list[int], round: int = 0) -> float:
    """The seconds that these clients take for a round that begins with the initial model; its result is discarded."""
    clients, plan = experiment.clients(lift, on_bad_client="skip"), Plan(some, frozenset(), experiment.plan(0).lr)
    server, began = experiment.federated.start()._replace(round=round), time.perf_counter()
    experiment.federated.round(server, clients, plan)
    return time.perf_counter() - began
