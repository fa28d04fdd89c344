"""From a configuration to what runs: data, split, model, algorithm and work, each named piece built and checked."""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from torch import nn

from apiece.algebra.broadcast import Setting
from apiece.algebra.composition import Algorithm
from apiece.algebra.server_optim import Descent
from apiece.config.augmentation import augmentation, under_noise
from apiece.config.checks import check_outputs, check_small_batches, class_count
from apiece.config.names import one
from apiece.config.settings import Config, check
from apiece.data.arrays import Dataset
from apiece.data.federation import Federation
from apiece.data.fingerprint import fingerprint
from apiece.data.parts import refuse_misfits
from apiece.data.sources import load
from apiece.data.split import Split, make_split
from apiece.engine.federated import Federated
from apiece.engine.state import Plan
from apiece.engine.work import Between, Work, bernoulli_cohort, cohort, in_order, silent, work_of
from apiece.errors import UserError, nearest
from apiece.language import algorithms, optimisers, plugins, schedules, text_models
from apiece.language.expression import build, functions, parse
from apiece.randomness import generator
from apiece.system import device
from apiece.system.allocator import enough
from apiece.vector.space import Space
from apiece.vector.task import Task, accuracy, cross_entropy

DTYPES = {name: torch.float32 for name in ("float32", "tf32", "bfloat16")} | {"float64": torch.float64}
REFERENCES = ("centralised", "local")
OWN = "your own"  # said of a model or data that a program gave


@dataclass(frozen=True)
class Experiment:
    """All that a run needs, assembled: `training` is what clients train on, `federation` what is measured."""

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

    def __repr__(self) -> str:
        c, parameters = self.config, self.federated.task.space.size
        return (
            f"Experiment({c.algorithm!r}, data={c.data!r}, model={c.model!r}, parameters={parameters}, "
            f"clients={len(self.federation.names)}, cohort={self.cohort}, rounds={c.rounds})"
        )

    @cached_property
    def fingerprint(self) -> str:
        """A word for the data, by which a folder or another rank knows them again."""
        return fingerprint(self.federation, self.dataset)

    def lr(self, round: int) -> float:
        """The clients' step size in round 0, 1, ..."""
        return self.config.lr * self.schedule(round, self.config.rounds)

    def cohort_of(self, round: int) -> list[int]:
        """The clients asked in round 0, 1, ...; `held` keeps a cohort for the whole interval of the longest period."""
        place, periods = self.training, self.federated.periods
        if round == 0 and any(piece.asks_all for piece in self.federated.pieces):
            return list(in_order(place.names, place.seen))
        held = self.federated.algorithm.cohort == "held"
        draw = int(periods.interval(round, periods.longest)) if held else round
        if self.config.sampling == "bernoulli" and len(place.seen) > 1:
            share = self.cohort / len(place.seen)
            return bernoulli_cohort(self.config.seed, draw, place.names, place.seen, share)
        return cohort(self.config.seed, draw, place.names, place.seen, self.cohort)

    def plan(self, round: int) -> Plan:
        """Who is asked in round 0, 1, ..., who of them will not answer, and the step size."""
        chosen = self.cohort_of(round)
        quiet = silent(self.config.seed, round, self.training.names, chosen, self.config.absent)
        return Plan(chosen, quiet, self.lr(round))


def assemble(
    config: Config,
    dataset: Dataset | None = None,
    module: nn.Module | None = None,
    loss: Any = None,
    metric: Any = None,
    custom: Algorithm | None = None,
    clients: Any = None,
) -> Experiment:
    """Build everything a configuration names; objects given take the place of what it names. Raises UserError."""
    check(config)
    config = replace(config, plugin=plugins.pinned(config.plugin))
    chosen = custom or chosen_algorithm(config.algorithm, config.plugin)
    dtype = DTYPES[config.precision]
    split = None
    if clients is None:
        if dataset is None:
            refuse_own(config.data, "data set")
        dataset = dataset or load(config.data, config.data_dir, reading_of(config.model))
        config = _for_text(config, dataset, module)
        split = make_split(dataset, config.split, config.clients, config.seed, config.unseen, config.validation)
        clients = under_noise(config, dataset, split, dtype)
    elif isinstance(clients, Federation):
        refuse_misfits(clients)
    shape = tuple(clients.test_pool[0].shape[1:])
    classes = dataset.classes if dataset is not None else class_count(clients, loss is None, module is None)
    setting = Setting(shape, classes, clients.names, clients.seen, config.seed)
    module, federated = federated_of(config, setting, module, loss, metric, chosen)
    clients = clients.on(federated.initial.device)
    check_outputs(federated.task, federated.initial, federated.initial_buffers, clients, classes, loss is None)
    size = _cohort_size(config, len(clients.seen))
    check_small_batches(federated.task, federated.initial, federated.initial_buffers, clients, work_of(config))
    training, work, size = _reference(chosen, clients, work_of(config), size)
    schedule = one("schedule", config.schedule, schedules)
    return Experiment(config, federated, clients, training, work, size, schedule, module, dataset, split)


def federated_of(
    config: Config,
    setting: Setting,
    module: nn.Module | None = None,
    loss: Any = None,
    metric: Any = None,
    custom: Algorithm | None = None,
) -> tuple[nn.Module, Federated]:
    """The model and the algorithm on its task, in this setting: from the text, or with objects for it."""
    chosen, shape = custom or chosen_algorithm(config.algorithm, config.plugin), setting.shape
    with torch.random.fork_rng(devices=()):
        torch.manual_seed(int(generator(config.seed, "model").integers(2**62)))
        made = module or make_model(config.model, shape, setting.classes)
        for piece in chosen.pieces:
            made = piece.prepare(made)
    autocast = torch.bfloat16 if config.precision == "bfloat16" else None
    space = Space(made, config.buffers, DTYPES[config.precision], device.named(config.device), autocast)
    task = Task(space, loss or cross_entropy, metric or accuracy, augmentation(config.augment, shape))
    theta, buffers = space.ravel(), space.ravel_buffers()
    if config.init is not None:
        theta, buffers = _read_model(config.init, space)
    client = one("optimizer", config.optimizer, optimisers)
    server = one("server", config.server, optimisers)
    if server != Descent() and (chosen.server is not None or not chosen.broadcast.common):
        raise UserError(f"server={config.server!r} and {chosen.name!r} both decide the server's optimiser: keep one.")
    wanted = {"none": set(), "selected": {"drift"}, "all": {"drift", "divergence"}}[config.drift]
    wanted -= set() if chosen.broadcast.common else {"divergence"}  # from a global model, which there is none of
    watch = set() if config.lift == "wired" else wanted  # what only a simulation looks at does not cross a wire
    federated = Federated(
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
        work_of(config).equal,
    )
    with enough(f"algorithm={chosen.name!r}"):
        _ = federated.periods, federated.recipe, federated.broadcast  # patterns that match nothing are told now
    return made, federated


def chosen_algorithm(text: str, plugin: Sequence[str] = ()) -> Algorithm:
    """The algorithm of an expression, the sum of its terms, which plug-in files and entry points may define too."""
    total, *more = build(text, plugins.names(algorithms, plugin))
    for term in more:
        if "centralised" in (total.name, term.name):
            raise UserError(f"algorithm={text!r}: centralised is a reference row of its own; take it alone.")
        total = total + term
    if total.server is not None and not total.broadcast.common:
        raise UserError(
            f"{total.server!r} and {total.broadcast!r} both decide the server's optimiser: keep one of them."
        )
    return replace(total, name=text)


def make_model(text: str, shape: tuple[int, ...], classes: int) -> nn.Module:
    """A named model that fits samples of this shape and so many classes."""
    from apiece.networks import models

    refuse_own(text, "model")
    if text == "auto":
        text = "mlp" if len(shape) < 3 else "cnn_fedcog" if min(shape[1:]) >= 16 else "cnn"
    call, *more = parse(text)
    if call.name in text_models.__all__:
        return one("model", text, text_models).module(shape, classes)
    named = functions(models)
    if more or call.name not in named:
        raise UserError(f"there is no model {text!r}; {nearest(call.name, [*named, *text_models.__all__])}")
    make = _of_samples(named[call.name], shape, classes)
    if call.arguments or call.keywords:  # with its own sizes every model fits
        with enough(f"model {text!r}"), torch.device("meta"), torch.random.fork_rng(devices=()):
            drawn = build(text, {call.name: make})[0]
        _refuse_too_large(text, sum(p.numel() for p in drawn.parameters()))
    return build(text, {call.name: make})[0]


def _of_samples(make: Callable[..., nn.Module], shape: tuple[int, ...], classes: int) -> Callable[..., nn.Module]:
    """A model's function of samples of this shape and so many classes, with its other arguments alone."""

    @functools.wraps(make)
    def made(*arguments: Any, **keywords: Any) -> nn.Module:
        return make(shape, classes, *arguments, **keywords)

    signature = inspect.signature(make)
    made.__signature__ = signature.replace(parameters=[*signature.parameters.values()][2:])  # pyright: ignore
    return made


def _refuse_too_large(text: str, parameters: int) -> None:
    """Refuse a model of which this machine's memory does not hold four: it, the clients' start, a gradient, a step."""
    held = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if 4 * 4 * parameters > held:
        raise UserError(
            f"model {text!r} has {parameters:,} parameters, {4 * parameters / 1e9:,.0f} GB, too many for a memory of "
            f"{held / 1e9:,.0f} GB: take a smaller one."
        )


def reading_of(model: str) -> Any:
    """How a named model reads text; None where it reads none, or is not named."""
    if model == OWN or parse(model)[0].name not in text_models.__all__:
        return None
    return one("model", model, text_models).reading


def _for_text(config: Config, dataset: Dataset, module: nn.Module | None) -> Config:
    """The configuration with the model that `auto` means for text; raises UserError where one wants text and the other
    is none.
    """
    reads = module is None and reading_of(config.model) is not None
    if reads and not dataset.text:
        raise UserError(f"model={config.model!r} reads text, and {dataset.name} is none: give a .jsonl file of texts.")
    if module is not None or not dataset.text or reads:
        return config
    if config.model != "auto":
        raise UserError(f"{dataset.name} is text, which model={config.model!r} does not read: take opt or opt_lm.")
    return replace(config, model="opt" if dataset.targets_train is None else "opt_lm")


def refuse_own(text: str, what: str) -> None:
    if text == OWN:
        raise UserError(
            f"this run's {what} came from a program and is not known by name: go on there with "
            "federate(..., resume=True), whose result `apiece.experiment.personalize.personalize` takes; `compare` "
            "wants --no-references."
        )


def _cohort_size(config: Config, registered: int) -> int:
    counted = isinstance(config.cohort, int) or config.cohort > 1
    size = int(config.cohort) if counted else round(config.cohort * registered)
    if size > registered:
        raise UserError(
            f"cohort={config.cohort:g} asks for {size} clients a round, but {registered} are registered: ask for fewer."
        )
    return max(size, 1)


def _reference(chosen: Algorithm, clients: Any, work: Work, cohort: int) -> tuple[Any, Work, int]:
    """For `centralised`, one client with everybody's data and the whole cohort's work; else things as they are."""
    if chosen.name != "centralised":
        return clients, work, cohort
    if not isinstance(clients, Federation):
        raise UserError("centralised needs the clients' data in one place: these are made when asked.")
    rows = torch.cat([clients.train[i] for i in clients.seen])
    pooled = Federation(
        clients.pool,
        clients.test_pool,
        [rows],
        [torch.arange(len(clients.test_pool[1]), device=rows.device)],
        ["everyone"],
    )
    if work.epochs is not None:  # what the cohort's own passes come to, whose last batches may be small
        each = sum(work.count(0, 0, "", clients.size(i)) for i in clients.seen) / len(clients.seen)
    else:
        each = work.steps if not isinstance(work.steps, Between) else (work.steps.low + work.steps.high) / 2
    return pooled, replace(work, steps=round(cohort * (each or 0)), epochs=None), 1


def _read_model(path: str, space: Space) -> tuple[torch.Tensor, torch.Tensor]:
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        return space.from_state_dict(load_file(path))
    except (OSError, SafetensorError) as error:
        raise UserError(f"init={path!r} cannot be read as a model.safetensors: {error}.") from None
