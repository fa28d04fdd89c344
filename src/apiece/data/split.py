"""A split: which samples each client trains on, validates on and is tested on."""

from __future__ import annotations

import io
from dataclasses import dataclass, replace
from numbers import Integral, Real
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from apiece.data.catalog import SOURCES
from apiece.data.dealing import dealt, owned, systematic
from apiece.data.ownership import PARTS, Given, Listed, Natural, Saved, stored
from apiece.data.partitions import (
    Classes,
    Dirichlet,
    DirichletCapped,
    DirichletPrior,
    DirichletRefill,
    Shards,
    Splitter,
)
from apiece.errors import UserError
from apiece.randomness import generator
from apiece.system import files

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from apiece.data.arrays import Dataset

_OTHERWISE = "take another split"
_BY_LABEL = (Classes, Dirichlet, DirichletCapped, DirichletPrior, DirichletRefill)


@dataclass(frozen=True, eq=False)
class Split:
    """Index arrays, one per client: `train` and `validation` into the training set, `test` into the test set.

    >>> from apiece import load, make_split
    >>> digits = load("digits")
    >>> (make_split(digits, "classes(3)", clients=4, seed=0).counts(digits.y_train, 10) > 0).sum(1)
    array([3, 3, 3, 3])
    """

    train: list[np.ndarray]
    validation: list[np.ndarray]
    test: list[np.ndarray]
    names: list[str]
    unseen: tuple[int, ...] = ()  # clients that never train
    recipe: str = ""  # how it was made
    data: str = ""  # the data set whose samples are numbered; "" where it is not known
    samples: tuple[int, ...] = ()  # how many samples it has: (training, test)

    def __repr__(self) -> str:
        train, validation, test = (sum(map(len, each)) for each in (self.train, self.validation, self.test))
        parts = f"train={train}, validation={validation}, test={test}"
        return f"Split({self.recipe!r}, clients={len(self.names)}, {parts})"

    def counts(self, labels: np.ndarray, classes: int) -> np.ndarray:
        """How many training samples of each class each client has. labels: of the training samples -> [N, C]."""
        return _counts(self.train, labels, classes)

    def save(self, path: str | Path) -> None:
        """Write the split as one .npz file of plain arrays."""
        arrays = {}
        for part in PARTS:
            each = getattr(self, part)
            arrays[part] = np.concatenate(each)
            arrays[f"{part}_sizes"] = np.array([len(own) for own in each])
        content = io.BytesIO()
        unseen = np.array(self.unseen, dtype=int)
        samples = np.array(self.samples, dtype=int)
        about = {"recipe": self.recipe, "data": self.data, "samples": samples}
        np.savez_compressed(content, **arrays, names=np.array(self.names), unseen=unseen, **about)
        files.atomic_write(Path(path), content.getvalue())

    @classmethod
    def load(cls, path: str | Path) -> Split:
        """Read what `save` wrote; a UserError if the file is absent, damaged or holds something else."""
        return cls(**stored(path))

    def __str__(self) -> str:
        lines = [f"{len(self.train)} clients, {len(self.unseen)} of them unseen", self.recipe]
        for part in PARTS:
            sizes = np.array([len(own) for own in getattr(self, part)])
            spread = f"{sizes.min()} to {sizes.max()} a client, median {np.median(sizes):g}"
            lines.append(f"{part:<10} {sizes.sum()} samples: {spread}")
        return "\n".join(lines)

    def plot(self, labels: np.ndarray, classes: int) -> Figure:
        """A map of training samples by client and class, as a matplotlib figure; unseen clients beyond the line."""
        from matplotlib.figure import Figure

        figure = Figure(figsize=(8, 3), layout="constrained")
        axes = figure.add_subplot()
        image = axes.imshow(
            self.counts(labels, classes).T, aspect="auto", interpolation="nearest", cmap="Blues", origin="lower"
        )
        axes.set(xlabel="client", ylabel="class", title=self.recipe)
        axes.title.set_fontsize("small")
        figure.colorbar(image, ax=axes, label="training samples")
        if self.unseen:
            axes.axvline(min(self.unseen) - 0.5, color="tab:orange")
        return figure


def split_over_clients(
    dataset: Dataset, splitter: Splitter, clients: int | None, seed: int, unseen: float = 0, validation: float = 0.0
) -> Split:
    """Divide a data set: training samples by `splitter`, official test samples by each client's own proportions of
    classes (or of genres, where training samples were sorted by genre).

    `unseen`: how many clients never train, or their share if below 1; they are the last ones. `validation`: the share
    of each client's samples, class by class, that is held out. The test parts are disjoint; see `divide`. With
    `Natural` or `Given`, and owners of the test samples, all clients keep their own, and with `Listed` those of their
    own that were held out; a named data set's are divided if other people wrote all of them, as in MNIST. A `Saved`
    split is taken as it is, and `unseen` and `validation` may only be 0 or the values that it was made with. Without a
    number of clients, all that a splitter knows of are taken.
    """
    _refuse_others(dataset, splitter)
    if clients is not None and (not isinstance(clients, Integral) or isinstance(clients, bool)):
        raise UserError(f"clients={clients!r} must be a whole number of 1 or more.")
    for name, value in (("unseen", unseen), ("validation", validation)):
        if not isinstance(value, Real) or not np.isfinite(float(value)):
            raise UserError(f"{name}={value!r} must be a number of 0 or more.")
    if isinstance(splitter, Listed):
        splitter = splitter.within(dataset.held)
    if clients is None:
        known = getattr(splitter, "everyone", None)
        if known is None:
            raise UserError(f"{splitter}: the data do not say for how many clients; give a number.")
        clients = int(known(dataset.natural_train))
    if isinstance(splitter, Saved):
        return _restore(splitter, dataset, clients, unseen, validation)
    strangers = round(unseen * clients) if 0 < unseen < 1 else int(unseen)
    if unseen < 0 or (unseen >= 1 and unseen != strangers) or strangers >= clients:
        raise UserError(
            f"unseen={unseen} of {clients} clients: give a whole number from 0 to {clients - 1}, or a share below 1."
        )
    if not 0 <= validation < 1:
        raise UserError(
            f"validation={validation}: give the share of each client's samples to hold out, from 0 to below 1."
        )
    recipe = (
        f"{dataset.name} by {splitter!r}, clients={clients}, unseen={strangers}, validation={validation:g}, seed={seed}"
    )
    expecting = getattr(splitter, "expecting", None)  # DirichletPrior treats unseen clients differently
    made: Splitter = expecting(strangers) if expecting else splitter

    labels, natural = dataset.y_train, dataset.natural_train
    parts = dealt(made, labels, clients, generator(seed, "split"), natural)
    kinds, held_kinds, count = _kinds(dataset, made)
    names, own = _owners(made, dataset, parts)
    test = own or divide(held_kinds, _counts(parts, kinds, count), generator(seed, "test"), _overlap(parts))
    rng = generator(seed, "validation")
    held = [systematic(part, labels, validation, rng) for part in parts]
    if validation:  # where samples repeat, no client trains on another's validation samples
        free = np.ones(len(labels), dtype=bool)
        free[np.concatenate(held)] = False
        parts = [part[free[part]] for part in parts]
        if not all(len(part) for part in parts):
            raise UserError(f"validation={validation}: a client would have nothing left to train on; hold out less.")
    strange = tuple(range(clients - strangers, clients))
    return Split(parts, held, test, names, strange, recipe, dataset.name, _samples(dataset))


def _owners(splitter: Splitter, dataset: Dataset, parts: list[np.ndarray]) -> tuple[list[str], list[np.ndarray]]:
    """(the clients' names, each one's own test samples, or nothing if the data do not say whose they are)."""
    if isinstance(splitter, Listed):
        return list(splitter.names), list(splitter.test)
    natural, held = dataset.natural_train, dataset.natural_test
    if not isinstance(splitter, Natural | Given) or natural is None:
        return [f"client-{i}" for i in range(len(parts))], []
    owners = [natural[part[0]] for part in parts]
    names = [str(owner) for owner in owners]
    if held is None:
        return names, []
    held = owned(splitter, held, _OTHERWISE)
    if isinstance(splitter, Given) and (untrained := sorted({*map(str, held)} - {*map(str, natural)})):
        raise UserError(
            f"client {untrained[0]!r} has no sample to train on once some are held out for testing: give it more, or "
            'give test samples apart, data={"train": ..., "test": ...}.'
        )
    known = np.isin(owners, held).any()
    if not known and dataset.held is not None:
        raise UserError(
            f"{dataset.name}: each client that the data name has one sample alone, and nothing to be tested on: name a "
            "column whose values come several times (--client-column), or give test samples."
        )
    if not known and dataset.name in SOURCES:
        return names, []
    return names, [np.flatnonzero(held == owner) for owner in owners]


def _refuse_others(dataset: Dataset, splitter: Splitter) -> None:
    """Refuse a data set that is no Dataset, and a splitter that cannot be called."""
    if not hasattr(dataset, "natural_train"):
        raise UserError(
            f"a value of type {type(dataset).__name__} is no Dataset: make one with apiece.load, or with "
            "apiece.data.arrays.from_arrays."
        )
    if not callable(splitter) or isinstance(splitter, type):
        raise UserError(f"{splitter!r} divides no data: give the name of a split, such as 'dirichlet(0.1)', or Iid().")
    by_label = isinstance(splitter, _BY_LABEL) or (isinstance(splitter, Shards) and splitter.by == "label")
    if by_label and dataset.targets_train is not None and dataset.classes == 1 and not dataset.text:
        raise UserError(
            f"{splitter} divides samples by label, and {dataset.name} has none, as each target is of shape "
            f"{list(dataset.targets_train.shape[1:])}: take --split iid, 'quantity(0.5)', or natural where samples "
            "have owners."
        )


def divide(labels: np.ndarray, counts: np.ndarray, rng: np.random.Generator, scaled: bool = False) -> list[np.ndarray]:
    """Divide samples so that client i has class c in proportion to counts[i, c]; disjoint. counts: [N, C].

    Client i is due n_c counts_ic / sum_j counts_jc of the n_c samples of class c, rounded down; samples left go to the
    largest remainders, to which is added what a client missed in the classes before. So every sample is used, and each
    number is right within one. `scaled`: the same fraction of every class instead, min_c n_c / sum_j counts_jc, for
    counts that do not partition a set of like composition; some samples then go unused, and proportions are kept.
    """
    held, totals = np.bincount(labels, minlength=counts.shape[1]), counts.sum(axis=0)
    use = np.where(totals > 0, held, 0)
    if scaled:
        fraction = np.min(use[use > 0] / totals[use > 0], initial=np.inf)
        use = np.minimum(use, np.floor(totals * fraction + 1e-9)).astype(int)
    owed = np.zeros(len(counts))
    mine: list[list[np.ndarray]] = [[] for _ in counts]
    for c in np.flatnonzero(use):
        size, rest = np.divmod(counts[:, c] * use[c], totals[c])
        first = np.lexsort((rng.random(len(counts)), -(rest / totals[c] + owed), rest == 0))
        size[first[: use[c] - size.sum()]] += 1
        owed += counts[:, c] * (use[c] / totals[c]) - size
        pool = rng.permutation(np.flatnonzero(labels == c))
        for own, samples in zip(mine, np.split(pool, np.cumsum(size))):
            own.append(samples)
    return [np.sort(np.concatenate([np.empty(0, dtype=np.int64), *own])) for own in mine]


def _counts(parts: list[np.ndarray], labels: np.ndarray, classes: int) -> np.ndarray:
    return np.stack([np.bincount(labels[part], minlength=classes) for part in parts])


def _kinds(dataset: Dataset, splitter: Splitter) -> tuple[np.ndarray, np.ndarray, int]:
    """The classes or owners that divide test samples: (each training sample's, each test sample's, their number)."""
    own, held = dataset.natural_train, dataset.natural_test
    if getattr(splitter, "by", "label") != "natural" or own is None or held is None:
        return dataset.y_train, dataset.y_test, dataset.classes
    both = [owned(splitter, natural, _OTHERWISE) for natural in (own, held)]
    known, codes = np.unique(np.concatenate(both), return_inverse=True)
    return codes[: len(own)], codes[len(own) :], len(known)


def _overlap(parts: list[np.ndarray]) -> bool:
    together = np.concatenate(parts)
    return len(np.unique(together)) < len(together)


def _samples(dataset: Dataset) -> tuple[int, int]:
    return len(dataset.y_train), len(dataset.y_test)


def _restore(splitter: Saved, dataset: Dataset, clients: int, unseen: float, validation: float) -> Split:
    split = Split.load(splitter.path)
    samples = _samples(dataset)
    named = {split.data, dataset.name} & SOURCES.keys()  # a user's own arrays may have any name
    if split.data and (len(named) > 1 or split.samples != samples):
        made, given = (
            f"{name!r} ({n} + {m} samples)" for name, (n, m) in ((split.data, split.samples), (dataset.name, samples))
        )
        raise UserError(f"{splitter}: the file was made for {made}, not for {given}; load the same data set.")
    splitter.refuse_unfit(split.train, split.validation, clients, samples[0])
    if max(int(part.max(initial=-1)) for part in split.test) >= len(dataset.y_test):
        raise UserError(
            f"{splitter}: the file was made for more than these {len(dataset.y_test)} test samples; load the same data."
        )
    strangers = round(unseen * clients) if 0 < unseen < 1 else unseen
    held = not validation or f"validation={validation:g}" in split.recipe.split(", ")
    if strangers not in (0, len(split.unseen)) or not held:
        raise UserError(
            f"{splitter}: unseen={unseen} and validation={validation} are not what the file was made with, "
            f"{len(split.unseen)} unseen clients and {split.recipe or 'no recipe'!r}; leave them at 0 to take it."
        )
    return replace(split, data=dataset.name, samples=samples)
