"""Images: in folders by class, or by client and class, and of all modes; damaged ones."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from apiece import federate
from apiece.data.given import as_dataset
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


def test_what_systems_and_tools_hide_is_no_image_and_no_class(tmp_path):
    draw(tmp_path / "ant", *range(10))
    draw(tmp_path / "bee", *range(10, 20))
    draw(tmp_path / ".ipynb_checkpoints", 7)
    (tmp_path / "ant" / "._000.png").write_bytes(b"of a Mac")
    data = load(str(tmp_path))
    assert data.classes == 2 and len(data.x_train) + len(data.x_test) == 20


def test_folders_beside_train_and_test_are_told(tmp_path, caplog):
    for part in ("train", "test", "val", ".hidden"):
        draw(tmp_path / part / "ant", *range(10))
        draw(tmp_path / part / "bee", *range(10, 20))
    assert len(load(str(tmp_path)).x_test) == 20
    assert caplog.messages == [f"{tmp_path}: only the folders train and test are read there, and not val"]


def parts_of_other_names(folder: Path) -> None:
    by_client(folder / "Training")
    draw(folder / "testing" / "ant", 1)


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
        (parts_of_other_names, r"the folders Training, testing seem to be parts .*: name them train and test"),
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


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have no such names")
@pytest.mark.parametrize("path, what", [(b"be\xff", "label"), (b"b\xff/bee", "client")], ids=["class", "client"])
def test_folders_whose_names_are_no_text_are_refused(path, what, tmp_path):
    draw(tmp_path / "own" / os.fsdecode(path), 1, 2, 3)
    with pytest.raises(UserError, match=rf"own[^\n]*: the {what} 'be?\\udcff' has a character that no file can hold"):
        load(str(tmp_path / "own"))


# --- modes and damage ------------------------------------------------------------------------------------------------
PIXELS = np.random.default_rng(0).integers(0, 256, (20, 6, 5, 3), dtype=np.uint8)
COLORED = [image.fromarray(pixels) for pixels in PIXELS]
DEEP = {
    "I;16": lambda pixels: image.fromarray(pixels[..., 0].astype(np.uint16) * 200),
    "I": lambda pixels: image.fromarray(pixels[..., 0].astype(np.int32) * 2000),
    "F": lambda pixels: image.fromarray(pixels[..., 0].astype(np.float32) / 255),
}


class Pairs:
    """A dataset of these inputs, whose targets are 0 and 1 unless others are given."""

    def __init__(self, inputs: Sequence[Any], targets: Sequence[Any] = ()):
        self.pairs = list(zip(inputs, targets or [i % 2 for i in range(len(inputs))], strict=True))

    def __len__(self) -> int:
        return len(self.pairs)

    def __getitem__(self, i: int) -> Any:
        return self.pairs[i]


def of_hugging_face(images: Sequence[Any]) -> Any:
    datasets = pytest.importorskip("datasets")
    features = datasets.Features({"image": datasets.Image(), "label": datasets.ClassLabel(num_classes=2)})
    cells = [datasets.Image().encode_example(one) if hasattr(one, "mode") else one for one in images]
    return datasets.Dataset.from_dict({"image": cells, "label": [i % 2 for i in range(len(cells))]}, features=features)


def of_folder(folder: Path, images: Sequence[Any], ending: str) -> str:
    for i, one in enumerate(images):
        (folder / f"c{i % 2}").mkdir(parents=True, exist_ok=True)
        one.save(folder / f"c{i % 2}" / f"{i // 2:02}{ending}")
    return str(folder)


@pytest.mark.parametrize("mode, ending", [("P", ".png"), ("LA", ".png"), ("CMYK", ".tiff")])
def test_images_of_other_modes_are_those_of_their_colors(mode, ending, tmp_path):
    own = [one.convert(mode) for one in COLORED]
    colors = np.stack([np.asarray(one.convert("RGB")) for one in own])
    for given in (Pairs(own), of_hugging_face(own) if mode != "CMYK" else Pairs(own)):
        data, plain = as_dataset(given), as_dataset((colors, np.arange(20) % 2))
        assert np.array_equal(data.x_train, plain.x_train) and data.mean == plain.mean
    by_class = load(of_folder(tmp_path / "own", own, ending))
    assert by_class.held is not None
    assert np.array_equal(by_class.x_train, np.concatenate([colors[::2], colors[1::2]])[~by_class.held])


@pytest.mark.parametrize("mode", ["L", "RGB", "RGBA", "1"])
def test_datasets_of_one_usual_mode_are_taken_as_they_are(mode):
    own = [one.convert(mode) for one in COLORED]
    plain = as_dataset((np.stack([np.asarray(one) for one in own]), np.arange(20) % 2))
    for given in (Pairs(own), of_hugging_face(own)):
        assert np.array_equal(as_dataset(given).x_train, plain.x_train)


def test_modes_that_are_mixed_become_colored_and_masks_of_classes_stay():
    mixed = [one.convert(("RGB", "RGBA", "LA", "L")[i % 4]) for i, one in enumerate(COLORED)]
    assert as_dataset(Pairs(mixed)).x_train.shape == (16, 6, 5, 3)
    masks = [one.convert("P") for one in COLORED]
    data = as_dataset(Pairs(COLORED, masks))
    assert data.task == "segmentation" and data.targets_train is not None and data.held is not None
    assert np.array_equal(data.targets_train, np.stack([np.asarray(one) for one in masks])[~data.held])


@pytest.mark.parametrize("mode", DEEP)
def test_levels_of_more_than_8_bits_are_refused(mode, tmp_path):
    own = [*COLORED[:3], DEEP[mode](PIXELS[3])]
    path = of_folder(tmp_path / "own", own, ".tiff")
    for read, where in (
        (lambda: load(path), r"c1.01\.tiff"),
        (lambda: as_dataset(Pairs(own)), r"your own, image 3 \(counted from 0\)"),
        (lambda: as_dataset(of_hugging_face(own)), r"your own, image 3 \(counted from 0\)"),
    ):
        with pytest.raises(UserError, match=rf"{where}: its levels are of mode '{mode}', not of 8 bits: save it with"):
            read()


def test_damaged_images_are_named(tmp_path):
    content = io.BytesIO()
    image.fromarray(np.random.default_rng(0).integers(0, 256, (60, 50, 3), dtype=np.uint8)).save(content, "PNG")
    whole, broken = content.getvalue(), bytearray(content.getvalue())
    broken[36] ^= 0x41  # here Pillow raises a SyntaxError
    for damaged in (whole[:200], broken, b"nothing"):
        (tmp_path / "own" / "ant").mkdir(parents=True, exist_ok=True)
        (tmp_path / "own" / "ant" / "1.png").write_bytes(damaged)
        with pytest.raises(UserError, match=r"ant.1\.png cannot be read as an image \([^\n]*\): remove or mend it\.$"):
            load(str(tmp_path / "own"))
        cells = [{"bytes": one, "path": None} for one in (whole, bytes(damaged))]
        with pytest.raises(UserError, match=r"own, image 1 \(counted from 0\) cannot be read as an image"):
            as_dataset(of_hugging_face(cells))
    late = [image.open(io.BytesIO(one)) for one in (whole, whole[:200])]  # read when their pixels are
    for given in (Pairs(late), Pairs([whole[:1], whole[:1]], late)):
        with pytest.raises(UserError, match=r"own, image 1 \(counted from 0\) cannot be read as an image"):
            as_dataset(given)
    for given in (Pairs([COLORED[0], None]), of_hugging_face([COLORED[0], None])):
        with pytest.raises(UserError, match=r"image 1 \(counted from 0\): None is no image: give one"):
            as_dataset(given)
