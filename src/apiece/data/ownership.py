"""Splitters that take each sample's owner from the data, from lists of indices, or from a split that was saved."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from apiece.data import sound
from apiece.data.archives import archive
from apiece.data.dealing import Parts, owned
from apiece.errors import UserError, meant

PARTS = ("train", "validation", "test")  # of a split: which samples a client has
OLDER = ("data", "samples")  # what the files of earlier versions do not say
OTHERWISE = "use another split, such as dirichlet"


@dataclass(frozen=True)
class Natural:
    """The data set's own clients (writers, users, roles) of `minimum` samples or more, in random order (LEAF)."""

    minimum: int = 1

    def __call__(self, labels, clients, rng, natural=None) -> Parts:
        natural = owned(self, natural, OTHERWISE)
        owners, inverse, sizes = np.unique(natural, return_inverse=True, return_counts=True)
        able = np.flatnonzero(sizes >= self.minimum)
        if not 1 <= clients <= len(able):
            enough = f" with {self.minimum} samples or more, of {len(owners)}" if self.minimum > 1 else ""
            raise UserError(
                f"clients={clients}: the data have {len(able)} clients{enough}; ask for 1 to {len(able)}, or leave "
                "clients out for all of them."
            )
        chosen = rng.choice(able, size=clients, replace=False)
        parts = np.split(np.argsort(inverse, kind="stable"), np.cumsum(sizes)[:-1])
        return [parts[owner] for owner in chosen]

    def everyone(self, natural: np.ndarray | None) -> int:
        """How many clients there are."""
        sizes = np.unique(owned(self, natural, OTHERWISE), return_counts=True)[1]
        return max(1, int((sizes >= self.minimum).sum()))


@dataclass(frozen=True)
class Given:
    """Each client's samples as the data give them: all clients, or the first ones, in the order of the data."""

    def __call__(self, labels, clients, rng, natural=None) -> Parts:
        natural = owned(self, natural, OTHERWISE)
        owners, first, inverse = np.unique(natural, return_index=True, return_inverse=True)
        if not 1 <= clients <= len(owners):
            raise UserError(
                f"clients={clients}: the data have {len(owners)} clients; ask for 1 to {len(owners)}, or leave clients "
                "out for all of them."
            )
        parts = np.split(np.argsort(inverse, kind="stable"), np.cumsum(np.bincount(inverse))[:-1])
        return [parts[owner] for owner in np.argsort(first)[:clients]]

    def everyone(self, natural: np.ndarray | None) -> int:
        """How many clients there are."""
        return len(np.unique(owned(self, natural, OTHERWISE)))


@dataclass(frozen=True)
class Listed:
    """Each client's samples by their indices among those that were given, with the clients' names."""

    names: tuple[str, ...]
    parts: tuple[Any, ...] = field(repr=False)
    test: tuple[Any, ...] = field(default=(), repr=False)  # each client's test samples, if they were among those given

    @classmethod
    def of(cls, lists: Sequence[Any] | Mapping[Any, Any]) -> Listed:
        """The splitter of lists of indices, or masks, one for each client; raises UserError for anything else."""
        pairs = lists.items() if isinstance(lists, Mapping) else ((f"client-{i}", own) for i, own in enumerate(lists))
        named = {str(name): _indices(str(name), own) for name, own in pairs}
        sound.refuse_unwritable("split", "the client", named)
        if not named or len(named) < len(lists):
            raise UserError(f"split has {len(lists)} lists of {len(named)} clients: give each client one.")
        return cls(tuple(named), tuple(named.values()))

    def __call__(self, labels, clients, rng, natural=None) -> Parts:
        if clients != len(self.parts):
            raise UserError(f"split has lists for {len(self.parts)} clients, not {clients}: leave clients out.")
        for name, own in zip(self.names, self.parts, strict=True):
            if len(own) and not 0 <= own.min() <= own.max() < len(labels):
                raise UserError(
                    f"split, client {name!r}: its indices go from {own.min()} to {own.max()}, and there are samples 0 "
                    f"to {len(labels) - 1}."
                )
        return list(self.parts)

    def everyone(self, natural: np.ndarray | None) -> int:
        """How many clients there are."""
        return len(self.parts)

    def within(self, held: np.ndarray | None) -> Listed:
        """The same for data of which the samples of the mask `held` became test samples: every client's own."""
        if held is None:
            return self
        self(held, len(self.parts), None)  # indices in range
        place = np.where(held, np.cumsum(held), np.cumsum(~held)) - 1
        train = tuple(place[own[~held[own]]] for own in self.parts)
        if empty := next((name for name, own in zip(self.names, train) if not len(own)), None):
            raise UserError(
                f"split, client {empty!r}: all its samples are among the fifth that is held out for testing: give it "
                "more, or give test samples apart."
            )
        return replace(self, parts=train, test=tuple(place[own[held[own]]] for own in self.parts))


def _indices(name: str, own: Any) -> np.ndarray:
    try:
        found = np.asarray(own)
    except ValueError:
        found = np.zeros((0, 0))
    found = np.flatnonzero(found) if found.dtype == bool and found.ndim == 1 else found
    if found.ndim != 1 or (found.dtype.kind not in "iu" and len(found)):
        raise UserError(f"split, client {name!r}: give its samples as a list of whole numbers.")
    if not len(found):
        raise UserError(f"split, client {name!r}: it has no sample: give it one or more, or leave it out.")
    if len(np.unique(found)) < len(found):
        raise UserError(f"split, client {name!r}: one of its indices stands there twice: give each once.")
    return np.sort(found).astype(np.int64)


def refuse_absent(path: str | Path, called: str) -> None:
    """Raise UserError where no saved split is; `called` is what its sentence begins with."""
    if not os.path.isfile(path):
        what = f"{meant(path)}give the path of a split.npz that a run or Split.save wrote"
        raise UserError(f"{called}: there is no such file; {what}.")


def stored(path: str | Path, called: str = "") -> dict[str, Any]:
    """The fields of the split that `Split.save` wrote into this file, by their names. Raises UserError for a file that
    is absent, damaged or edited, or holds something else; `called` is what its sentence begins with.
    """
    called = called or str(path)
    refuse_absent(path, called)
    needed = {f"{part}{end}" for part in PARTS for end in ("", "_sizes")} | {"names", "unseen", "recipe"}
    with archive(path) as file:
        if missing := sorted(needed.difference(file.files)):
            raise UserError(
                f"{called}: no split, it lacks {', '.join(missing)}; give a split.npz that a run or Split.save wrote."
            )
        found = {name: file[name] for name in needed.union(OLDER).intersection(file.files)}

    def refuse(wrong: Any, what: str) -> None:
        if wrong:
            raise UserError(f"{called}: the split is damaged, for {what}: give one as a run or Split.save wrote it.")

    for name, array in found.items():
        text = name in ("names", "recipe", "data")
        refuse(array.ndim != (name not in ("recipe", "data")), f"{name!r} has the shape {list(array.shape)}")
        refuse(array.size and array.dtype.kind not in ("U" if text else "iu"), f"{name!r} is of type {array.dtype}")
        refuse(not text and (array < 0).any(), f"{name!r} has numbers below 0")
    parts, clients = dict[str, Any](), len(found["names"])
    samples = tuple(found.get("samples", np.zeros(0, int)).tolist())
    refuse(len(samples) not in (0, 2), f"'samples' has {len(samples)} numbers")
    refuse(not clients, "it has no client")
    for part in PARTS:
        rows, sizes = found[part], found[f"{part}_sizes"]
        refuse(len(sizes) != clients, f"{part!r} is of {len(sizes)} clients, and {clients} have names")
        refuse(sizes.sum() != len(rows), f"{part!r} has {len(rows)} samples, and its clients {sizes.sum()}")
        known = rows.max(initial=0) + 1 if not samples else samples[part == "test"]
        refuse((rows >= known).any(), f"{part!r} has numbers up to {rows.max(initial=0)}, and the data {known} samples")
        parts[part] = np.split(rows, np.cumsum(sizes)[:-1])
    twice = [own for own in parts["test"] if len(np.unique(own)) < len(own)]  # training ones repeat in dirichlet_refill
    refuse(twice, "a client has a test sample twice")
    refuse(np.isin(found["train"], found["validation"]).any(), "a sample both trains and validates")
    unseen = found["unseen"].tolist()
    refuse(len({*unseen}) < len(unseen) or max(unseen, default=0) >= clients, f"'unseen' is {unseen} of {clients}")
    about = {"recipe": str(found["recipe"]), "data": str(found.get("data", "")), "samples": samples}
    return parts | {"names": found["names"].tolist(), "unseen": tuple(unseen)} | about


@dataclass(frozen=True)
class Saved:
    """A split that was saved before, taken sample by sample.

    `Split.save` wrote it; `make_split` also takes its test parts and its unseen clients.
    """

    path: str

    def __call__(self, labels, clients, rng, natural=None) -> Parts:
        split = stored(self.path, str(self))
        self.refuse_unfit(split["train"], split["validation"], clients, len(labels))
        return split["train"]

    def refuse_unfit(self, train: Parts, validation: Parts, clients: int, samples: int) -> None:
        """Raise UserError if these parts of the file are not of so many clients, or name more samples than these."""
        if len(train) != clients:
            raise UserError(f"{self}: the file holds {len(train)} clients, not {clients}; ask for {len(train)}.")
        if max(int(part.max(initial=-1)) for part in (*train, *validation)) >= samples:
            raise UserError(f"{self}: the file was made for more than these {samples} samples; load the same data set.")
