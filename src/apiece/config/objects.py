"""Objects and functions where a setting has text: what `federate` takes in place of words, and where it goes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from numbers import Real
from typing import Any

import torch

from apiece.algebra.optim import Optimizer
from apiece.algebra.server_optim import Descent
from apiece.config.assemble import Experiment
from apiece.config.checks import refuse_class, refuse_too_many_steps
from apiece.config.settings import Config, shown
from apiece.data.batches import Augmentation
from apiece.data.catalog import OWN
from apiece.engine.cohorts import Sampling, given_cohort
from apiece.engine.federated import Federated
from apiece.engine.work import ByClient, StepSizes
from apiece.errors import UserError, tried

OneEach = Callable[[str], Any] | Mapping[str, Any] | Sequence[Any]  # by client's name, or in the clients' order


@dataclass(frozen=True)
class Given:
    """A pure function of a batch of x, which draws nothing, as an augmentation."""

    function: Callable[[Any], Any]

    def draw(self, rng: Any, count: int) -> tuple[()]:
        return ()

    def __call__(self, x: Any, draws: Any) -> Any:
        return self.function(x)


def parted(settings: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """(the settings that are text or numbers, those of `READ` that are objects); raises UserError for an object of
    another kind.
    """
    given = {name: settings[name] for name in READ if not isinstance(settings.get(name, ""), (str, Real))}
    objects = {name: READ[name](thing) for name, thing in given.items() if thing is not None}
    return {name: value for name, value in settings.items() if name not in objects}, objects


def with_objects(experiment: Experiment, objects: Mapping[str, Any]) -> Experiment:
    """The experiment with these in place of what its settings name, which then say that a program gave them."""
    if not objects:
        return experiment
    setup, work = experiment.federated.setup, experiment.work
    if "server" in objects and (setup.algorithm.server is not None or not setup.broadcast.common):
        raise UserError(
            f"server={objects['server']!r} and {setup.algorithm.name!r} both decide the server's optimizer."
        )
    names, alone = experiment.federation.names, {"steps", "lr", "sampling"} & set(objects)
    if alone and experiment.training is not experiment.federation:
        raise UserError(f"centralized has one client: give {' and '.join(sorted(alone))} as text or a number.")
    if "steps" in objects:
        if experiment.config.epochs is not None:
            raise UserError("steps and epochs are both given: leave one out.")
        work = replace(work, steps=ByClient(one_each("steps", objects["steps"], names)), epochs=None)
        refuse_too_many_steps(experiment.training, work)
    _try_functions(experiment, objects)
    task = replace(setup.task, augment=objects["augment"]) if "augment" in objects else setup.task
    changed = replace(
        setup,
        task=task,
        client=objects.get("optimizer", setup.client),
        server=objects.get("server", setup.server),
        weighting=objects.get("weighting", setup.weighting),
        equal_work=setup.equal_work and not {"steps", "lr"} & set(objects),
        lr_by_client=step_sizes(objects["lr"], experiment) if "lr" in objects else None,
    )
    if "weighting" in objects:
        sizes = {experiment.training.size(client) for client in experiment.training.participants}
        if not any([changed.weight(size) for size in sizes]):  # of all sizes: it raises for what is no weight
            raise UserError("weighting gives 0 for every client: give more than 0 for some number of samples.")
    return replace(
        experiment,
        config=replace(experiment.config, **dict.fromkeys(objects, OWN)),
        federated=Federated(changed),
        work=work,
        schedule=objects.get("schedule", experiment.schedule),
        **(sampled(objects["sampling"], experiment) if "sampling" in objects else {}),
    )


def _try_functions(experiment: Experiment, objects: Mapping[str, Any]) -> None:
    """Call a program's functions once, so that one that fails is said before the first round."""
    setup, place, rounds = experiment.federated.setup, experiment.training, experiment.config.rounds
    client = next(c for c in place.participants if place.size(c))
    if "schedule" in objects:
        with tried(f"schedule fails for round 0 of {rounds}"):
            float(objects["schedule"](0, rounds))
    if isinstance(given := objects.get("augment"), Given):
        samples = place.samples(client)
        x, _ = samples.batch(samples.index[:2] * 0)
        with tried("augment fails, or what it makes of a batch is none for the model"):
            setup.task.space.outputs(setup.initial, given(x, ()), setup.initial_buffers)


def one_each(setting: str, given: OneEach, names: Sequence[str]) -> Callable[[str], Any]:
    """A number for each of these clients, by name: from a function of it, a dictionary, or a list in their order."""
    if callable(given):
        return given
    if not isinstance(given, Mapping) and len(given) != len(names):
        raise UserError(f"{setting} has {len(given)} numbers, for {len(names)} clients: give one for each.")
    table = dict(given if isinstance(given, Mapping) else zip(names, given, strict=True))
    if missing := [name for name in names if name not in table]:
        raise UserError(f"{setting} has no number for client {missing[0]!r}: give one to all {len(names)} clients.")
    return table.__getitem__


def step_sizes(given: OneEach, experiment: Experiment) -> StepSizes:
    """Every client's own step size; raises UserError for one that is none."""
    setup, names = experiment.federated.setup, experiment.federation.names
    if getattr(setup.broadcast, "decay", None) is not None:
        raise UserError(f"{setup.algorithm.name!r} has the clients' step size on the server, too: give lr as a number.")
    found = StepSizes(one_each("lr", given, names))
    for name in names:
        found(name)
    return found


def sampled(sampling: Sampling, experiment: Experiment) -> dict[str, Any]:
    """What a function that chooses cohorts changes of an experiment; raises UserError if it chooses none."""
    if experiment.config.cohort != Config.cohort:
        raise UserError("sampling is a function, which also says how many clients take part: leave cohort out.")
    participants = experiment.training.participants
    one, two = (given_cohort(sampling, experiment.config.seed, 0, participants) for _ in range(2))
    if one != two:
        raise UserError(
            "sampling gives other clients when it is called again for a round: let it depend on its three arguments "
            "alone, and draw from the generator that it is given."
        )
    return {"sampling": sampling, "cohort": len(one)}


# --- what an object has to be ---------------------------------------------------------------------------------------
def _optimizer(side: str, like: str) -> Callable[[Any], Optimizer]:
    def read(thing: Any) -> Optimizer:
        if name := _of_torch(thing):
            raise UserError(
                f"{side} is torch's {name}, which holds the parameters of one model, and each client trains "
                f"its own: give {like}, or text (`apiece run --help` has the names)."
            )
        refuse_class(side, thing)
        if not (callable(getattr(thing, "init", None)) and callable(getattr(thing, "step", None))):
            raise UserError(
                f"{side} is {shown(thing)}, which is no optimizer on vectors: give an object with init(theta) and "
                f"step(gradient, theta, state, lr), such as {like}, or text."
            )
        return thing

    return read


def _of_torch(thing: Any) -> str:
    """The name of one of torch's optimizers, or of a class of them; "" for all else."""
    kind = thing if isinstance(thing, type) else type(thing)
    return kind.__name__ if issubclass(kind, torch.optim.Optimizer) else ""


def _function(name: str, of: str) -> Callable[[Any], Any]:
    def read(thing: Any) -> Any:
        refuse_class(name, thing)
        if not callable(thing):
            raise UserError(f"{name} is {shown(thing)}: give text, or a function of {of}.")
        return thing

    return read


def _one_each(name: str, usual: str) -> Callable[[Any], Any]:
    def read(thing: Any) -> Any:
        refuse_class(name, thing)
        if callable(thing) or isinstance(thing, Mapping | Sequence):
            return thing
        if hasattr(thing, "to_dict"):  # a series of pandas, by its index
            return thing.to_dict()
        if getattr(thing, "ndim", 0) == 1:  # an array of numbers
            return list(thing.tolist())
        raise UserError(f"{name} is {shown(thing)}: give {usual}, a function of a client's name, or one by client.")

    return read


def _augmentation(thing: Any) -> Any:
    made = _function("augment", "a batch of samples")(thing)
    return made if isinstance(made, Augmentation) or hasattr(made, "draw") else Given(made)


READ: dict[str, Callable[[Any], Any]] = {  # of each of `settings.OBJECTS`
    "optimizer": _optimizer("optimizer", "apiece.Sgd(momentum=0.9)"),
    "server": _optimizer("server", repr(Descent()).replace("Descent", "apiece.Descent")),
    "schedule": _function("schedule", "the round and the number of rounds, which gives a factor of the step size"),
    "augment": _augmentation,
    "weighting": _function("weighting", "a client's number of samples, which gives its weight"),
    "steps": _one_each("steps", "a number, text"),
    "lr": _one_each("lr", "a number"),
    "sampling": _function("sampling", "the round, a generator and the number of clients, which gives a cohort"),
}
