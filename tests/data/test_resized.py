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

from apiece.data.columns import Columns, size_of
from apiece.data.given import as_dataset
from apiece.data.images import from_folder, stacked
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


@pytest.mark.parametrize("text", ["0", "8x", "8x8x8", "big", "-3", "99999"])
def test_what_is_no_size(text):
    assert size_of("32") == (32, 32) and size_of("32x24") == (32, 24)
    with pytest.raises(UserError, match="resize=.*32x24"):
        size_of(text)
    sentence(run("--resize", text), "resize=")


def test_size_and_columns_of_data_that_have_none():
    sentence(run("--resize", "8"), "resize is for folders of images")
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
    from apiece.data.arrays import from_arrays

    plain = federate(model, from_arrays("mine", x, np.tile(LABELS, 2), natural_train=owners), split="natural", **quick)
    assert torch.equal(found.server.params, plain.server.params)
    with pytest.raises(UserError, match="'note': it has .. different texts"):
        federate(model, part, **{**named, "input": ["length", "note"]}, **quick)
    with pytest.raises(UserError, match="no column 'specie'.*did you mean 'species'"):
        federate(model, part, target_column="specie", **quick)
