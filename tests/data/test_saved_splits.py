"""Saved splits that are damaged or edited: refused in one sentence, wherever they are read."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from apiece.config.splitting import make_split
from apiece.data import ownership
from apiece.data.arrays import from_arrays
from apiece.data.ownership import Saved
from apiece.data.split import Split
from apiece.errors import UserError

DATA = from_arrays("mine", np.zeros((60, 4), np.float32), np.arange(60) % 3)  # 48 + 12 samples


def edited(name: str, place: int, value: int) -> Any:
    def edit(arrays: dict[str, Any]) -> None:
        arrays[name][place] = value

    return edit


def replaced(name: str, value: Any) -> Any:
    return lambda arrays: arrays.update({name: np.array(value)})


def without(name: str) -> Any:
    return lambda arrays: arrays.pop(name)


def twice(arrays: dict[str, Any]) -> None:
    arrays["test"][1] = arrays["test"][0]


def leaking(arrays: dict[str, Any]) -> None:
    arrays["train"][0] = arrays["validation"][0]


EDITS = {
    "too high": (edited("train", 3, 48), "'train' has numbers up to 48, and the data 48 samples"),
    "too high for testing": (edited("test", 0, 12), "'test' has numbers up to 12, and the data 12 samples"),
    "too high for validation": (edited("validation", 0, 99), "'validation' has numbers up to 99"),
    "below 0": (edited("train", 3, -1), "'train' has numbers below 0"),
    "below 0 for testing": (edited("test", 3, -1), "'test' has numbers below 0"),
    "sizes below 0": (edited("train_sizes", 0, -2), "'train_sizes' has numbers below 0"),
    "other sizes": (edited("test_sizes", 0, 9), "'test' has 12 samples, and its clients"),
    "a test sample twice": (twice, "a client has a test sample twice"),
    "trained and validated": (leaking, "a sample both trains and validates"),
    "text": (replaced("train", ["a"] * 38), "'train' is of type <U1"),
    "fractions": (replaced("test", [0.5] * 12), "'test' is of type float64"),
    "rows of numbers": (replaced("test", [[0] * 12]), "'test' has the shape [1, 12]"),
    "names that are numbers": (replaced("names", [1, 2, 3]), "'names' is of type int64"),
    "fewer names": (replaced("names", ["a", "b"]), "is of 3 clients, and 2 have names"),
    "one name": (replaced("names", "a"), "'names' has the shape []"),
    "no names": (replaced("names", np.array([], "U1")), "it has no client"),
    "no unseen client": (replaced("unseen", [3]), "'unseen' is [3] of 3"),
    "an unseen client twice": (replaced("unseen", [2, 2]), "'unseen' is [2, 2] of 3"),
    "several recipes": (replaced("recipe", ["a", "b"]), "'recipe' has the shape [2]"),
    "other samples": (replaced("samples", [48]), "'samples' has 1 numbers"),
    "no names at all": (without("names"), "no split, it lacks names"),
}


@pytest.mark.parametrize("edit, said", EDITS.values(), ids=EDITS)
def test_an_edited_split_is_refused(edit, said, tmp_path: Path):
    path = tmp_path / "split.npz"
    make_split(DATA, "dirichlet(5)", 3, 0, unseen=1, validation=0.2).save(path)
    with np.load(path) as file:
        arrays = {name: file[name] for name in file.files}
    edit(arrays)
    np.savez(path, **arrays)
    for read in (lambda: Split.load(path), lambda: make_split(DATA, Saved(str(path)), 3, 0)):
        with pytest.raises(UserError, match=rf"split\.npz[^\n]*: [^\n]*{re.escape(said)}[^\n]*\.$"):
            read()


def test_a_split_whose_clients_have_samples_twice_is_read_as_it_was(tmp_path: Path):
    split = make_split(DATA, "dirichlet_refill(0.1)", 3, 0, validation=0.2)
    assert any(len(np.unique(own)) < len(own) for own in split.train)
    split.save(tmp_path / "split.npz")
    assert all(map(np.array_equal, Split.load(tmp_path / "split.npz").train, split.train))


def test_the_file_of_a_split_is_read_once(tmp_path: Path, monkeypatch):
    path, read = tmp_path / "split.npz", list[str]()
    make_split(DATA, "dirichlet(5)", 3, 0).save(path)
    open_archive = ownership.archive
    monkeypatch.setattr(ownership, "archive", lambda path: read.append(path) or open_archive(path))
    make_split(DATA, Saved(str(path)), 3, 0)
    assert read == [str(path)]
