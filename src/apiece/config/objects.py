"""Objects and functions where a setting has text: what `federate` takes in place of words, and where it goes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from apiece.algebra.optim import Optimizer
from apiece.algebra.server_optim import Descent
from apiece.config.assemble import Experiment
from apiece.config.settings import shown
from apiece.data.batches import Augmentation
from apiece.data.catalog import OWN
from apiece.engine.federated import Federated
from apiece.engine.work import ByClient
from apiece.errors import UserError

StepsByClient = Callable[[str], int] | Mapping[str, int] | Sequence[int]


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
    given = {name: settings[name] for name in READ if not isinstance(settings.get(name, ""), (str, int, float))}
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
    if "steps" in objects:
        if experiment.training is not experiment.federation:
            raise UserError("centralized has one client, whose steps are a cohort's: give steps as a number.")
        work = replace(work, steps=steps_of(objects["steps"], experiment.federation.names), epochs=None)
    task = replace(setup.task, augment=objects["augment"]) if "augment" in objects else setup.task
    changed = replace(
        setup,
        task=task,
        client=objects.get("optimizer", setup.client),
        server=objects.get("server", setup.server),
        weighting=objects.get("weighting", setup.weighting),
        equal_work=setup.equal_work and "steps" not in objects,
    )
    return replace(
        experiment,
        config=replace(experiment.config, **dict.fromkeys(objects, OWN)),
        federated=Federated(changed),
        work=work,
        schedule=objects.get("schedule", experiment.schedule),
    )


def steps_of(given: StepsByClient, names: Sequence[str]) -> ByClient:
    """The local steps of each of these clients: a function of its name, a number by name, or one for each in order."""
    if callable(given):
        return ByClient(given)
    if not isinstance(given, Mapping) and len(given) != len(names):
        raise UserError(f"steps has {len(given)} numbers, for {len(names)} clients: give one for each.")
    table = dict(given if isinstance(given, Mapping) else zip(names, given, strict=True))
    if missing := [name for name in names if name not in table]:
        raise UserError(f"steps has no number for client {missing[0]!r}: give one for each of {len(names)} clients.")
    return ByClient(table.__getitem__)


# --- what an object has to be ---------------------------------------------------------------------------------------
def _optimizer(side: str, like: str) -> Callable[[Any], Optimizer]:
    def read(thing: Any) -> Optimizer:
        _refuse_class(side, thing)
        if not (callable(getattr(thing, "init", None)) and callable(getattr(thing, "step", None))):
            raise UserError(
                f"{side} is {shown(thing)}, which is no optimizer on vectors: give an object with init(theta) and "
                f"step(gradient, theta, state, lr), such as {like}, or text."
            )
        return thing

    return read


def _function(name: str, of: str) -> Callable[[Any], Any]:
    def read(thing: Any) -> Any:
        _refuse_class(name, thing)
        if not callable(thing):
            raise UserError(f"{name} is {shown(thing)}: give text, or a function of {of}.")
        return thing

    return read


def _steps(thing: Any) -> Any:
    if callable(thing) or isinstance(thing, Mapping | Sequence):
        return thing
    raise UserError(f"steps is {shown(thing)}: give a number, text, a function of a client's name, or one by client.")


def _augmentation(thing: Any) -> Any:
    made = _function("augment", "a batch of samples")(thing)
    return made if isinstance(made, Augmentation) or hasattr(made, "draw") else Given(made)


def _refuse_class(name: str, thing: Any) -> None:
    if isinstance(thing, type):
        raise UserError(f"{name} is the class {thing.__name__}: give an instance of it, {thing.__name__}(...).")


READ: dict[str, Callable[[Any], Any]] = {  # of each of `settings.OBJECTS`
    "optimizer": _optimizer("optimizer", "apiece.Sgd(momentum=0.9)"),
    "server": _optimizer("server", repr(Descent()).replace("Descent", "apiece.Descent")),
    "schedule": _function("schedule", "the round and the number of rounds, which gives a factor of the step size"),
    "augment": _augmentation,
    "weighting": _function("weighting", "a client's number of samples, which gives its weight"),
    "steps": _steps,
}
