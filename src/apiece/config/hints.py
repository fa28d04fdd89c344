"""What a run says before its first round: what it read, what it is to learn, and what in its data looks mistaken."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import torch

from apiece.config.settings import BY_DATA
from apiece.data import tasks
from apiece.data.arrays import Dataset
from apiece.data.catalog import OWN, SOURCES
from apiece.data.columns import LEAVE, ODD, like_free_text, no_numbers, spelled_alike
from apiece.data.federation import Federation
from apiece.data.folders import TABLES, kind_of
from apiece.data.preparing import told
from apiece.data.sound import texts
from apiece.data.tasks import AUTO, REAL
from apiece.vector.metrics import BUILT_IN, USUAL
from apiece.vector.task import Task, scores

HIGH = 30.0  # a larger real target was most likely not scaled
LARGE, USUALLY = 1000.0, 10.0  # a feature that is larger once, or in its root mean square, was most likely not scaled
NAMES = 8  # so many names are written out
TESTS = 10  # from so many test samples on, a client's own metrics are not called coarse


def before(experiment: Any, progress: bool) -> list[str]:
    """What is said before the first round: what was read, if the run shows its progress, and what looks mistaken."""
    found = [read(experiment), prepared(experiment)] if progress else []
    return [*filter(None, found), *hints(experiment)]


def hints(experiment: Any) -> list[str]:
    """What looks mistaken, and the task if that was read off the targets."""
    config, task = experiment.config, experiment.federated.setup.task
    said = sentence(task) if config.task == AUTO else ""
    clients = experiment.federation
    found = [said, unscaled(experiment), large_targets(task, clients)]
    own = _own(experiment)
    found += [] if own is None else of_data(experiment, own)
    found += experiment.federated.setup.doubts(experiment.share)
    return [hint for hint in (*found, spare_scores(experiment)) if hint]


def of_data(experiment: Any, data: Dataset) -> list[str]:
    """What looks mistaken in a user's own data, and in how they become clients."""
    rows = almost_numbers(data), free_text(data), copies(data), spelled_twice(data)
    if experiment.config.split.partition("(")[0] not in BY_DATA:
        return [*rows, unused_owners(experiment, data)]
    clients = experiment.federation
    owners = left_out(experiment, data), only_tested(data), single_samples(clients), few_tests(experiment)
    return [*rows, *owners, lonely_classes(data, experiment.split)]


def _own(experiment: Any) -> Dataset | None:
    """The data, if they are a user's own and not a named set, or clients that were ready."""
    data = experiment.dataset
    return None if data is None or data.name in SOURCES else data


def read(experiment: Any) -> str:
    """What was read of a user's own data: `own: 241 training and 60 held-out test samples, 3 classes (cold is 0, flu
    1, none 2)`; "" for a named data set, and for clients that were ready.
    """
    data = _own(experiment)
    if data is None:
        return ""
    test = "held-out test" if data.held is not None else "test"
    shape = "x".join(map(str, data.x_train.shape[1:]))
    name = "your data" if data.name == OWN else data.name
    text = f"{name}: {len(data.x_train)} training and {len(data.x_test)} {test} samples of shape {shape}"
    if data.targets_train is None:
        known = [] if data.known is None else data.known.tolist()
        warned = data.known is not None and not (data.text or texts(data.known))  # as the data became numbers
        numbers = "" if warned or known == list(range(len(known))) else f" ({_numbers(known)})"
        text += f", {data.classes} classes{numbers}"
    split = "a split of your own" if experiment.config.split == OWN else f"the split {experiment.config.split}"
    return f"{text}; {len(experiment.federation.names)} clients by {split}."


def prepared(experiment: Any) -> str:
    """How a user's table became numbers; "" if it was numbers."""
    data = _own(experiment)
    if data is None or data.preparation is None:
        return ""
    return told(experiment.config.data, data.preparation, data.gaps)


def _numbers(known: list[Any]) -> str:
    return _first([f"{name} is {number}" for number, name in enumerate(known)])


def _names(names: list[Any]) -> str:
    return _first(list(map(repr, names)))


def _first(texts: list[str]) -> str:
    return ", ".join(texts[:NAMES]) + (", ..." if len(texts) > NAMES else "")


def unused_owners(experiment: Any, data: Dataset) -> str:
    """A warning about samples whose owners are known, where the split leaves them unused; "" otherwise."""
    split = experiment.config.split
    if data.natural_train is None or split == OWN or split.startswith("saved"):
        return ""
    return f"the data say whose each sample is, and split={split} does not use that: split=natural does."


def left_out(experiment: Any, data: Dataset) -> str:
    """That some of the clients that the data name take no part, as fewer were asked for; "" if all do."""
    there, taken = len(np.unique(np.asarray(data.natural_train, dtype=str))), len(experiment.split.names)
    if experiment.config.clients is None or taken >= there:
        return ""
    return f"the data have {there} clients, and {taken} take part: leave clients out for all."


def only_tested(data: Dataset) -> str:
    """That some owners have test samples and none to train on, which are no client's then; "" if there are none."""
    if data.natural_train is None or data.natural_test is None:
        return ""
    held = data.natural_test.astype(str)
    others = ~np.isin(held, data.natural_train.astype(str))
    if not others.any():
        return ""
    return (
        f"owners who have test samples ({others.sum()}) and none to train on, which count in the global metrics alone: "
        f"{_names(np.unique(held[others]).tolist())}."
    )


def almost_numbers(data: Dataset) -> str:
    """A warning about a column of numbers that was read as text, since a few of its cells are none; "" otherwise."""
    for part in data.preparation.parts if data.preparation is not None else ():
        odd = no_numbers(part.categories or ())
        if part.categories and not odd:  # the word among them is one of the test samples'
            return (
                f"column {part.name!r} was read as text, but all its training values are numbers: if numbers are "
                "meant, mend the cells that are none, or convert the column."
            )
        if odd and len(odd) <= ODD * len(part.categories):
            few = f"{_names(odd)} among its numbers {'is' if len(odd) == 1 else 'are'} none"
            return f"column {part.name!r} was read as text, since {few}: mend these cells, or leave them empty."
    return ""


def spelled_twice(data: Dataset) -> str:
    """A warning about classes or clients that differ in case or in spaces around them alone; "" if there are none."""
    for what, names in (("classes", data.known), ("clients", data.natural_train)):
        found = [] if names is None else spelled_alike({*map(str, names.tolist())})
        if twice := " and ".join(map(repr, found)):
            return f"{twice} are {len(found)} {what}: if they are one, spell them alike."
    return ""


def free_text(data: Dataset) -> str:
    """A warning about a column of text that became very many columns; "" otherwise."""
    made = data.preparation
    for part in made.parts if made is not None and made.encode == "onehot" else ():
        if like_free_text(len(part.categories or ()), len(data.x_train)):
            return (
                f"column {part.name!r} became {len(part.categories or ()):,} columns, one for each text: if it is a "
                f"name, a date or free text, {LEAVE}."
            )
    return ""


def copies(data: Dataset) -> str:
    """A warning about samples [n, d] where most of the test samples are training samples, too; "" otherwise."""
    if data.text or data.x_train.ndim != 2:
        return ""
    there, here = (
        [hash(row.tobytes() + label.tobytes()) for row, label in zip(x, y, strict=True)]
        for x, y in ((data.x_train, data.y_train), (data.x_test, data.y_test))
    )
    found = sum(map({*there}.__contains__, here))
    if found <= len(here) / 2:
        return ""
    return (
        f"{found} of the {len(here)} test samples are among the training samples, too: if rows were copied, drop the "
        "copies, for what is measured on them says nothing of new samples."
    )


def single_samples(clients: Any) -> str:
    """A warning about clients with one training sample; "" if there are none."""
    names = [str(clients.names[client]) for client in clients.participants if clients.size(client) == 1]
    if not names:
        return ""
    return f"clients with a single training sample: {_names(names)} (of {len(clients.participants)} clients)."


def few_tests(experiment: Any) -> str:
    """A warning about clients with so few samples to measure on that one moves their metrics far; "" without any."""
    clients, task = experiment.federation, experiment.federated.setup.task
    sizes = [clients.test_size(client) for client in range(len(clients.names))]
    few = [f"{str(name)!r} ({size})" for name, size in zip(clients.names, sizes) if 0 < size < TESTS]
    none = [str(name) for name, size in zip(clients.names, sizes) if not size]
    kind, what = experiment.config.measure_on, "accuracies" if task.metrics[0].name == "accuracy" else "metrics"
    told = [f"fewer than {TESTS} {kind} samples, whose own {what} are coarse: {_first(few)}"] if few else []
    told += [f"no {kind} sample, which are in no mean over clients: {_names(none)}"] if none else []
    return f"clients with {'; with '.join(told)} (of {len(sizes)} clients)." if told else ""


def lonely_classes(dataset: Dataset, split: Any) -> str:
    """A warning about classes of which one client alone has training samples; "" if there are none."""
    if dataset.targets_train is not None or len(split.names) < 2:
        return ""
    counts = split.counts(dataset.y_train, dataset.classes) > 0  # bool [clients, classes]
    lonely = np.flatnonzero(counts.sum(0) == 1).tolist()
    if not lonely:
        return ""
    known = lonely if dataset.known is None else dataset.known[lonely].tolist()
    owners = Counter(split.names[int(counts[:, number].argmax())] for number in lonely)
    who = f"client {next(iter(owners))!r}" if len(owners) == 1 else "one client"
    return f"classes of which {who} alone has samples: {_names(known)} (of {dataset.classes} classes)."


def spare_scores(experiment: Any) -> str:
    """A warning about a program's model that has more scores than there are classes; "" if it has as many, and for a
    named model, which is made to fit.
    """
    setup, data = experiment.federated.setup, experiment.dataset
    if experiment.config.model != OWN or setup.task.name != "classification" or data is None:
        return ""
    client = next(c for c in experiment.training.participants if experiment.training.size(c))
    rows = torch.arange(2, device=setup.initial.device) % experiment.training.size(client)  # two: a norm may need them
    x, _ = experiment.training.samples(client).batch(rows)
    found = scores(setup.task.space.outputs(setup.initial, x, setup.initial_buffers))
    if not isinstance(found, torch.Tensor) or found.dim() != 2 or found.shape[1] <= data.classes:
        return ""
    return (
        f"the model gives {found.shape[1]} scores, and the labels are of {data.classes} classes: the rest is never "
        "right, so a last layer as large as the classes would do."
    )


def sentence(task: Task) -> str:
    """What a run learns, and how to say another thing; "" for classes and texts by their usual metrics."""
    if task.name in tasks.TOLD and BUILT_IN.issuperset(task.metrics):
        return ""
    usual = USUAL[task.name]
    loss = usual.said if task.loss is usual.loss else "the given loss"
    ways = ", ".join(f"{m.name} ({'higher' if m.higher else 'lower'} is better)" for m in task.metrics)
    return f"the task is {task.name}, by {loss}, measured by {ways}; --task, or task=, says another."


def large_targets(task: Task, clients: Any) -> str:
    """A warning about real targets on which the squared error makes usual step sizes diverge; "" if there are none."""
    y = clients.pool[1] if isinstance(clients, Federation) and isinstance(clients.pool, tuple) else None
    if task.name not in REAL or not isinstance(y, torch.Tensor) or not y.numel():
        return ""
    largest = float(y.abs().max())
    if largest <= HIGH:
        return ""
    numbers = f", as in (y - {float(y.mean()):.4g}) / {float(y.std()):.4g}" if y.dim() == 1 else ""
    return (
        f"the targets have numbers as large as {largest:.3g}, on which training may diverge: subtract their mean and "
        f"divide by their standard deviation in the data{numbers}. Errors are in units of the latter then."
    )


def unscaled(experiment: Any) -> str:
    """A warning about inputs [n, ...] so large that training may diverge, or learn nothing; "" if there are none."""
    clients, data = experiment.federation, experiment.dataset
    x = clients.pool[0] if isinstance(clients, Federation) and isinstance(clients.pool, tuple) else None
    if not isinstance(x, torch.Tensor) or x.dim() < 2 or not x.is_floating_point() or not x.numel():
        return ""
    if data is not None and data.mean is not None:  # pixels that were scaled here
        return ""
    columns = x if x.dim() == 2 else x.reshape(-1, 1)  # of images and sequences, all numbers are of one kind
    least, most = columns.aminmax(dim=0)
    largest, usual = torch.maximum(-least, most), torch.linalg.vector_norm(columns, dim=0) / len(columns) ** 0.5
    if not (largest.max() > LARGE or usual.max() > USUALLY):
        return ""
    column = int(usual.argmax())
    large = f"have numbers as large as {float(largest[column]):.3g}"
    harm = "on which training may diverge, or learn nothing"
    if x.dim() > 2:
        scaled = f"(x - {float(x.mean()):.4g}) / {float(x.std()):.4g}"
        return f"the inputs {large}, {harm}: scale them in the data, as in {scaled}."
    table = data is not None and data.preparation is None and kind_of(Path(str(experiment.config.data))) is TABLES
    own = "standardize every column, (x - its mean) / its standard deviation, as prepare='onehot' does for a table"
    mend = "--prepare onehot standardizes them" if table else own
    return f"the features {large} (column {column + 1} of {x.shape[1]}), {harm}: {mend}."
