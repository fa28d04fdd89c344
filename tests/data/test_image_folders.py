"""Folders of images: one folder a class, or one a client with one a class in it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from apiece import federate
from apiece.data.sources import load
from apiece.errors import UserError

image = pytest.importorskip("PIL.Image")


def draw(folder: Path, *values: int) -> None:
    """One image of 4 x 4 pixels for each value."""
    folder.mkdir(parents=True)
    for value in values:
        image.fromarray(np.full((4, 4), value, np.uint8)).save(folder / f"{value:03}.png")


def by_client(folder: Path) -> Path:
    for client, (ants, bees) in {"ann": (range(10), range(10, 15)), "bob": (range(20, 25), range(30, 40))}.items():
        draw(folder / client / "ant", *ants)
        draw(folder / client / "bee", *bees)
    return folder


def test_images_by_client_are_those_of_the_same_arrays(tmp_path):
    data = load(str(by_client(tmp_path / "insects")))
    both = {"ann": [*range(15)], "bob": [*range(20, 25), *range(30, 40)]}
    x, y, owner = (np.concatenate(parts) for parts in ((data.x_train, data.x_test), (data.y_train, data.y_test),
                                                       (data.natural_train, data.natural_test)))  # fmt: skip
    names = sorted(set(owner.tolist()))
    found = {name: sorted(x[owner == name].reshape(-1, 16)[:, 0].tolist()) for name in names}
    assert found == dict(zip(names, both.values(), strict=True))
    assert [int(label) for label in y] == [int(v in (*range(10, 15), *range(30, 40))) for v in x.reshape(-1, 16)[:, 0]]


def test_a_run_whose_clients_are_folders(tmp_path):
    result = federate("mlp", str(by_client(tmp_path / "insects")), split="natural", rounds=1, steps=1, batch=4)
    assert sorted(result.experiment.federation.names) == ["ann", "bob"]


def test_train_and_test_by_client(tmp_path):
    by_client(tmp_path / "train"), by_client(tmp_path / "test")
    data = load(str(tmp_path))
    assert len(data.x_train) == len(data.x_test) == 30 and len(data.natural_test) == 30


def test_one_folder_a_class_has_no_clients(tmp_path):
    draw(tmp_path / "ant", *range(10))
    draw(tmp_path / "bee", *range(10, 20))
    data = load(str(tmp_path))
    assert data.natural_train is None and len(data.x_train) + len(data.x_test) == 20


def mixed(folder: Path) -> None:
    draw(by_client(folder) / "cow", 1)


def unlike(folder: Path) -> None:
    by_client(folder / "train")
    draw(folder / "test" / "ant", 1)


@pytest.mark.parametrize(
    "make, said",
    [
        (lambda folder: (folder / "ant").mkdir(parents=True), r"no images found; .* CLIENT/CLASS/IMAGE\.$"),
        (mixed, r"cow.001\.png is an image of a class, and .*ann.ant.000\.png of a client's class"),
        (unlike, "train and test are not alike"),
    ],
)
def test_other_folders_are_refused(make, said, tmp_path):
    make(tmp_path / "insects")
    with pytest.raises(UserError, match=said):
        load(str(tmp_path / "insects"))


@pytest.mark.parametrize("data", [{"train": "a.npz", "test": "b.npz"}, {"ann": Path("a"), "bob": Path("b")}])
def test_a_path_as_a_part_is_refused_with_what_to_do(data):
    with pytest.raises(UserError, match="is a part of data, and paths and names are read as a whole: give one"):
        federate("mlp", data, rounds=1, steps=1)
