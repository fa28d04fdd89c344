"""From a configuration to an experiment: data, split, model, algorithm and work, built and checked."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import tree_leaves

from apiece.algebra.broadcast import FederationFacts
from apiece.algebra.composition import Algorithm
from apiece.algebra.server_optim import Descent
from apiece.config.augmentation import augmentation, under_noise
from apiece.config.checks import check_batches, check_outputs, scores_given
from apiece.config.extremes import check_whole_numbers
from apiece.config.goal import CLASSES, Goal, goal_of, outputs_of, refuse_amounts, task_named
from apiece.config.located import counted
from apiece.config.model import fitting_images, fitting_text, make_model, reading_of, refuse_own
from apiece.config.names import built, one
from apiece.config.reading import as_taken
from apiece.config.settings import OBJECTS, Config, check
from apiece.config.splitting import columns_of, on_validation, split_of
from apiece.data.arrays import Dataset, as_task
from apiece.data.catalog import OWN
from apiece.data.federation import Federation, MadeFederation
from apiece.data.fingerprint import fingerprint
from apiece.data.partitions import Splitter
from apiece.data.parts import refuse_misfits
from apiece.data.sources import load
from apiece.data.split import Split
from apiece.engine.clients import Clients
from apiece.engine.cohorts import Sampling, absent, bernoulli_cohort, cohort, given_cohort, in_order
from apiece.engine.federated import Federated
from apiece.engine.setup import Setup
from apiece.engine.state import Plan
from apiece.engine.work import Between, Work
from apiece.errors import UserError
from apiece.language import algorithms, plugins
from apiece.language.grammar import Call, parse
from apiece.randomness import generator
from apiece.report.metrics import refuse_target
from apiece.system import device
from apiece.system.allocator import enough
from apiece.vector.space import Space, read_model
from apiece.vector.task import Task

DTYPES = {name: torch.float32 for name in ("float32", "tf32", "bfloat16")} | {"float64": torch.float64}


@dataclass(frozen=True)
class Experiment:
    """All that a run needs: clients train on `training`, and `federation` is measured."""

    config: Config
    federated: Federated
    federation: Any
    training: Any
    work: Work
    cohort: int
    schedule: Callable[[int, int], float]
    module: nn.Module
    dataset: Dataset | None = None
    split: Split | None = None
    sampling: Sampling | None = None

    def __repr__(self) -> str:
        c, parameters = self.config, self.federated.setup.task.space.size
        return (
            f"Experiment({c.algorithm!r}, data={c.data!r}, model={c.model!r}, parameters={parameters}, "
            f"clients={len(self.federation.names)}, cohort={self.cohort}, rounds={c.rounds})"
        )

    @cached_property
    def fingerprint(self) -> str:
        """A fingerprint of the data, by which a run folder or another rank recognizes them."""
        return fingerprint(self.federation, self.dataset)

    @property
    def share(self) -> float:
        """The share of the clients that a round asks."""
        return self.cohort / len(self.training.participants)

    def lr(self, round: int) -> float:
        """The clients' step size in round 0, 1, ...; where each has its own, the factor of these."""
        own = self.federated.setup.lr_by_client is not None
        return (1.0 if own else self.config.lr) * self.schedule(round, self.config.rounds)

    def cohort_of(self, round: int) -> list[int]:
        """The clients asked in round 0, 1, ...; `held` keeps a cohort for the longest period."""
        place, setup = self.training, self.federated.setup
        if round == 0 and any(piece.asks_all for piece in setup.pieces):
            return list(in_order(place.names, place.participants))
        draw = int(setup.periods.slowest.interval(round)) if setup.algorithm.cohort == "held" else round
        if self.sampling is not None:
            return given_cohort(self.sampling, self.config.seed, draw, place.participants)
        if self.config.sampling == "bernoulli" and len(place.participants) > 1:
            return bernoulli_cohort(self.config.seed, draw, place.names, place.participants, self.share)
        return cohort(self.config.seed, draw, place.names, place.participants, self.cohort)

    def plan(self, round: int) -> Plan:
        """The cohort of round 0, 1, ..., its absent clients, and the step size."""
        chosen = self.cohort_of(round)
        quiet = absent(self.config.seed, round, self.training.names, chosen, self.config.absent)
        return Plan(chosen, quiet, self.lr(round))

    def clients(self, lift: Any, **kept: Any) -> Clients:
        """The clients that train, in this process under this lift; `kept` are further fields of `Clients`."""
        return Clients(self.federated, self.training, self.work, self.config.seed, lift, **kept)


def assemble(
    config: Config,
    dataset: Dataset | None = None,
    module: nn.Module | None = None,
    loss: Any = None,
    metric: Any = None,
    custom: Algorithm | None = None,
    clients: Any = None,
    splitter: Splitter | None = None,
) -> Experiment:
    """Build everything that a configuration names; objects that are given replace what it names, `metric` being one or
    several. Raises UserError.
    """
    for name in OBJECTS:
        refuse_own(getattr(config, name), name)
    check(config)
    config = counted(replace(config, plugin=plugins.pinned(config.plugin)))
    chosen = custom or chosen_algorithm(config.algorithm, config.plugin)
    dtype = DTYPES[config.precision]
    split = None
    if clients is None:
        if dataset is None:
            refuse_own(config.data, "data set")
        read = dataset or load(config.data, config.data_dir, reading_of(config.model), columns_of(config))
        dataset = as_taken(as_task(read, config.task), module, loss)
        config = fitting_text(config, dataset, module)
        dataset = fitting_images(config, dataset, module)
        refuse_amounts(config.task, dataset, loss, metric)
        split = split_of(config, dataset, splitter)
        measured = on_validation(dataset, split) if config.measure_on == "validation" else (dataset, split)
        clients = under_noise(config, *measured, dtype)
    elif isinstance(clients, Federation | MadeFederation):
        refuse_misfits(clients)
    shape = tuple(tree_leaves(clients.test_pool[0])[0].shape[1:])
    goal = goal_of(config, task_named(config, clients, dataset, loss, metric), loss, metric)
    if dataset is not None and goal.task in ("classification", "language-modeling"):
        outputs = dataset.classes
    else:
        outputs = outputs_of(goal.task, clients, loss is None, module is None)
    setting = FederationFacts(shape, outputs, clients.names, clients.participants, config.seed, goal.task)
    clients = clients.on(device.named(config.device))
    fitting = partial(check_outputs, clients=clients, classes=outputs, usual=loss is None)
    module, federated = federated_of(config, setting, goal, module, chosen, fitting)
    setup = federated.setup
    if isinstance(clients, MadeFederation) and loss is None and goal.task == "classification":
        clients = replace(clients, classes=scores_given(setup, clients))
    refuse_target(config.target, setup.task.metrics[0].unit)
    check_whole_numbers(setup.task, setup.initial, setup.initial_buffers, clients)
    _tell_of_rest(setup.task.space)
    size = cohort_size(config, len(clients.participants))
    check_batches(setup, clients, work_of(config))
    training, work, size = _reference(chosen, clients, work_of(config), size)
    schedule = one("schedule", config.schedule)
    return Experiment(config, federated, clients, training, work, size, schedule, module, dataset, split)


@device.fitting()
def federated_of(
    config: Config,
    setting: FederationFacts,
    goal: Goal = CLASSES,
    module: nn.Module | None = None,
    custom: Algorithm | None = None,
    fitting: Callable[[Task, torch.Tensor, torch.Tensor], Task] = lambda task, *_: task,
) -> tuple[nn.Module, Federated]:
    """The model and the algorithm on its task, for this federation and goal; objects replace what the text names.
    `fitting` makes of the task, the parameters and the buffers the task that fits the clients' samples.
    """
    chosen, shape = custom or chosen_algorithm(config.algorithm, config.plugin), setting.shape
    with torch.random.fork_rng(devices=()):
        torch.manual_seed(int(generator(config.seed, "model").integers(2**62)))
        made = make_model(config.model, shape, setting.classes) if module is None else module
        if config.adapter is not None:
            made = one("adapter", config.adapter).into(made)
        for piece in chosen.pieces:
            made = piece.prepare(made)
    autocast = torch.bfloat16 if config.precision == "bfloat16" else None
    space = Space(made, config.buffers, DTYPES[config.precision], device.named(config.device), autocast)
    task = Task(space, goal.loss, goal.metrics, augmentation(config.augment, shape, goal.task), name=goal.task)
    theta, buffers = space.ravel(), space.ravel_buffers()
    if config.init is not None:
        theta, buffers = read_model(config.init, space)
    task = fitting(task, theta, buffers)
    client = one("optimizer", config.optimizer)
    server = one("server", config.server)
    if server != Descent() and (chosen.server is not None or not chosen.broadcast.common):
        raise UserError(f"server={config.server!r} and {chosen.name!r} both decide the server's optimizer: keep one.")
    wanted = {"none": set(), "selected": {"drift"}, "all": {"drift", "divergence"}}[config.drift]
    wanted -= set() if chosen.broadcast.common else {"divergence"}  # there is no global model to diverge from
    watch = set() if config.lift == "wired" else wanted  # mere diagnostics do not cross a wire
    setup = Setup(
        chosen,
        task,
        theta,
        buffers,
        client,
        server,
        config.weighting,
        config.clip,
        config.optimizer_state,
        frozenset(watch),
        setting,
        work_of(config).equal and str(config.lr) != OWN,
    )
    with enough(f"algorithm={chosen.name!r}"):
        _ = setup.periods, setup.recipe, setup.in_turn, setup.broadcast  # a pattern that matches nothing is refused now
    return made, Federated(setup)


def chosen_algorithm(text: str, plugin: Sequence[str] = ()) -> Algorithm:
    """The algorithm of an expression: the sum of its terms, which plug-in files and entry points may define too."""
    total, *more = built("algorithm", text, plugins.names(algorithms.NAMED, plugin))
    for term in more:
        if "centralized" in (total.name, term.name):
            raise UserError(f"algorithm={text!r}: centralized is a reference row: take it alone.")
        total = total + term
    if total.server is not None and not total.broadcast.common:
        raise UserError(
            f"{total.server!r} and {total.broadcast!r} both decide the server's optimizer: keep one of them."
        )
    return replace(total, name=text)


def _tell_of_rest(space: Space) -> None:
    """Say which BatchNorm layers keep their statistics."""
    if space.at_rest:
        logging.getLogger(__name__).warning(
            "BatchNorm with frozen weights normalizes as in evaluation, and keeps its statistics: %s; unfreeze the "
            "weights to train it",
            ", ".join(space.at_rest),
        )


def cohort_size(config: Config, registered: int) -> int:
    """How many of these clients a round takes; raises UserError for more than there are."""
    counted = isinstance(config.cohort, int) or config.cohort > 1
    size = int(config.cohort) if counted else round(config.cohort * registered)
    if size > registered:
        raise UserError(
            f"cohort={config.cohort:g} asks for {size} clients a round, but {registered} are registered: ask for fewer."
        )
    return max(size, 1)


def _reference(chosen: Algorithm, clients: Any, work: Work, cohort: int) -> tuple[Any, Work, int]:
    """For `centralized`, one client with all data and the whole cohort's work; for others, the arguments unchanged."""
    if chosen.name != "centralized":
        return clients, work, cohort
    if not isinstance(clients, Federation):
        raise UserError("centralized needs the clients' data in one place: these make their data on request.")
    rows = torch.cat([clients.train[i] for i in clients.participants])
    pooled = Federation(
        clients.pool,
        clients.test_pool,
        [rows],
        [torch.arange(len(tree_leaves(clients.test_pool[1])[0]), device=rows.device)],
        ["everyone"],
    )
    if work.epochs is not None:  # the sum of the cohort's own passes, whose last batches may be small
        each = sum(work.count(0, 0, "", clients.size(i)) for i in clients.participants) / len(clients.participants)
    else:
        steps = work.steps
        each = (steps.low + steps.high) / 2 if isinstance(steps, Between) else steps if isinstance(steps, int) else 0
    return pooled, replace(work, steps=round(cohort * each), epochs=None), 1


def work_of(config: Config) -> Work:
    """The local work that a configuration names."""
    if config.epochs is not None:
        return Work(None, config.epochs, config.batch)
    text = config.steps.strip()
    if text.isdecimal() and int(text):
        return Work(int(text), None, config.batch)
    call, *more = parse(text) if text[:1].isalpha() else (Call("none"),)
    if (
        call.name != "uniform"
        or more
        or len(call.arguments) != 2
        or not all(isinstance(a, int) for a in call.arguments)
    ):
        raise UserError(f"steps={text!r} is no number of local steps: give a whole number, or uniform(10,50).")
    if not call.arguments[1]:
        raise UserError(f"steps={text!r} lets nobody take a step: give a larger number.")
    return Work(Between(*call.arguments), None, config.batch)
