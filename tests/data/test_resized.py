"""Images of unequal size, from folders and datasets, and datasets of Hugging Face with any column names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from support.outer import run, sentence
from torch import nn

from apiece.data.arrays import Dataset, from_arrays
from apiece.data.columns import Columns, size_of
from apiece.data.given import as_dataset
from apiece.data.images import from_folder, stacked
from apiece.data.sources import load
from apiece.errors import UserError
from apiece.experiment.launch import federate
from apiece.randomness import generator

RNG = generator(0, "resized images test")
SIZES = [(9, 8), (12, 8), (8, 11)]
PICTURES = [RNG.integers(0, 256, (*SIZES[i % 3], 3), dtype=np.uint8) for i in range(30)]
LABELS = np.arange(30) % 2


def folder(path: Path) -> Path:
    for i, (pixels, y) in enumerate(zip(PICTURES, LABELS)):
        (path / f"class-{y}").mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels if i % 5 else pixels[..., 0]).save(path / f"class-{y}" / f"{i:02}.png")
    return path


class Items:
    def __len__(self) -> int:
        return len(PICTURES)

    def __getitem__(self, i: int) -> Any:
        return Image.fromarray(PICTURES[i]), int(LABELS[i])


def test_a_folder_of_unequal_images(tmp_path):
    path = folder(tmp_path)
    sentence(run(data=path, model="cnn"), "images of 3 shapes, from 8x11 to 12x8", "--resize")
    data = from_folder(path, Columns(resize=(8, 10)))
    assert data.x_train.shape[1:] == (8, 10, 3) and data.x_train.dtype == np.uint8  # gray ones became colored
    ended = run("--resize", "8x10", data=path, model="cnn", out=tmp_path / "run")
    assert ended.code == 0, ended.err
    assert 'resize = "8x10"' in (tmp_path / "run" / "run.toml").read_text()


def test_images_of_the_right_size_stay_bitwise_and_others_are_pillows():
    equal = [pixels[:8, :8] for pixels in PICTURES]
    assert np.array_equal(stacked("s", equal, (8, 8)), np.stack(equal))
    small = stacked("s", PICTURES, (4, 6))
    assert np.array_equal(small[1], np.asarray(Image.fromarray(PICTURES[1]).resize((6, 4), Image.Resampling.BILINEAR)))


def test_items_of_pillow_are_images():
    data = as_dataset(Items(), Columns(resize=(8, 8)))
    assert data.x_train.shape[1:] == (8, 8, 3) and data.mean is not None
    with pytest.raises(UserError, match="resize=32"):
        as_dataset(Items())


PIXELS = np.stack([pixels[:8, :8] for pixels in PICTURES])
SAME = {
    "colored": (PIXELS, lambda x: x),
    "gray": (PIXELS[..., 0], lambda x: x[..., 0]),
    "one channel": (PIXELS[..., :1], lambda x: x[..., :1]),
    "four channels": (np.concatenate([PIXELS, PIXELS[..., :1]], -1), lambda x: np.concatenate([x, x[..., :1]], -1)),
}


@pytest.mark.parametrize("kind", SAME)  # Pillow has a mode of its own for each, and alpha would weigh the colors
def test_arrays_are_resized_as_files_are(tmp_path, kind):
    x, expected = SAME[kind]
    small = stacked("s", list(PIXELS), (5, 6))
    np.savez(tmp_path / "a.npz", x_train=x, y_train=LABELS)
    data = load(str(tmp_path / "a.npz"), columns=Columns(resize=(5, 6)))
    given = as_dataset((x, LABELS), Columns(resize=(5, 6)))
    items = as_dataset(list_of(zip(x, LABELS)), Columns(resize=(5, 6)))
    assert data.held is not None and np.array_equal(data.x_train, expected(small)[~data.held])
    for other in (given, items):
        assert np.array_equal(other.x_train, data.x_train) and np.array_equal(other.x_test, data.x_test)
        assert other.mean == data.mean  # of the pixels as they are now


def list_of(pairs: Any) -> Any:
    kept = [(x, int(y)) for x, y in pairs]
    return type("Own", (), {"__len__": lambda self: len(kept), "__getitem__": lambda self, i: kept[i]})()


def test_floats_are_resized_and_stay_floats():
    x = np.moveaxis(PIXELS / np.float32(255), -1, 1)
    found = as_dataset((x, LABELS), Columns(resize=(4, 4)))
    levels = as_dataset((PIXELS, LABELS), Columns(resize=(4, 4)))
    assert found.x_train.dtype == np.float32 and np.abs(found.x_train * 255 - levels.x_train).max() <= 0.51 * 2
    same = as_dataset((x, LABELS), Columns(resize=(8, 8)))
    assert np.array_equal(same.x_train, as_dataset((x, LABELS)).x_train)


def test_arrays_of_unequal_size_are_made_one():
    found = as_dataset((PICTURES, LABELS), Columns(resize=(8, 8)))
    assert np.array_equal(found.x_train, as_dataset(Items(), Columns(resize=(8, 8))).x_train)
    apart = {"ann": (PICTURES[:15], LABELS[:15]), "bob": (PICTURES[15:], LABELS[15:])}
    assert np.array_equal(rows_of(as_dataset(apart, Columns(resize=(8, 8)))), rows_of(found))


def rows_of(data: Dataset) -> Any:
    """All samples, sorted: which of them are held out depends on whose they are."""
    return np.unique(np.concatenate([data.x_train, data.x_test]).reshape(len(PICTURES), -1), axis=0)


def test_a_named_set_is_resized(tmp_path):
    ended = run("--resize", "12", model="cnn", out=tmp_path / "run")
    assert ended.code == 0, ended.err
    larger = load("digits", columns=Columns(resize=(12, 12)))
    assert larger.x_train.shape[1:] == (12, 12) and np.array_equal(larger.y_train, load("digits").y_train)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ((RNG.standard_normal((30, 4)), LABELS), r"samples have the shape \[4\]"),
        (((PIXELS, PIXELS), LABELS), "samples have several parts"),
        ((PIXELS, PIXELS[..., 0]), "the targets are images too"),
        (from_arrays("mine", PIXELS, LABELS), "resize is for images, and mine"),
    ],
)
def test_what_is_no_image_is_not_resized(data, said):
    with pytest.raises(UserError, match=said):
        as_dataset(data, Columns(resize=(4, 4)))


@pytest.mark.parametrize("text", ["0", "8x", "8x8x8", "big", "-3", "99999"])
def test_what_is_no_size(text):
    assert size_of("32") == (32, 32) and size_of("32x24") == (32, 24)
    with pytest.raises(UserError, match="resize=.*32x24"):
        size_of(text)
    sentence(run("--resize", text), "resize=")


def test_size_and_columns_of_data_that_have_none(tmp_path):
    table = tmp_path / "table.csv"
    table.write_text("a,b,label\n" + "1,2,0\n3,4,1\n" * 20)
    sentence(run("--resize", "8", data=table), "resize is for images", "table.csv")
    sentence(run("--input", "age", "income"), "input is for tables", "digits")
    sentence(run("--input", "age", "--input", "income"), "--input age income")
    sentence(run("--target", "price"), "--target-column")


# --- Hugging Face ----------------------------------------------------------------------------------------------------
def test_any_column_names():
    datasets = pytest.importorskip("datasets")
    x = RNG.standard_normal((60, 3)).astype(np.float32)
    columns = {"length": x[:, 0], "rest": x[:, 1:].tolist(), "note": [f"n{i}" for i in range(60)]}
    part = datasets.Dataset.from_dict(
        {**columns, "species": LABELS.tolist() * 2, "site": [f"s{i % 3}" for i in range(60)]}
    )
    named: dict[str, Any] = {"input": ["length", "rest"], "target_column": "species", "client_column": "site"}
    quick: dict[str, Any] = {"rounds": 1, "steps": 2, "clients": None}
    torch.manual_seed(0)
    model = nn.Linear(3, 2)
    found = federate(model, part, split="natural", **named, **quick)
    assert sorted(found.experiment.federation.names) == ["s0", "s1", "s2"]
    owners = np.array([f"s{i % 3}" for i in range(60)])
    plain = federate(model, from_arrays("mine", x, np.tile(LABELS, 2), natural_train=owners), split="natural", **quick)
    assert torch.equal(found.server.params, plain.server.params)
    with pytest.raises(UserError, match="'note': it has .. different texts"):
        federate(model, part, **{**named, "input": ["length", "note"]}, **quick)
    with pytest.raises(UserError, match="no column 'specie'.*did you mean 'species'"):
        federate(model, part, target_column="specie", **quick)
