"""Data that are damaged, odd or another's: used where that is unambiguous, else refused in one sentence."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support.outer import run, sentence
from torch import nn

from apiece.config.splitting import make_split
from apiece.data.archives import archive
from apiece.data.arrays import from_arrays, moments
from apiece.data.columns import Columns
from apiece.data.federation import tensors
from apiece.data.frames import from_table
from apiece.data.hub import from_huggingface
from apiece.data.ownership import Natural, Saved
from apiece.data.partitions import Dirichlet, DirichletRefill, Iid, Shards
from apiece.data.split import Split
from apiece.errors import UserError
from apiece.experiment.launch import federate
from apiece.randomness import generator

RNG = generator(0, "damaged data test")
IMAGES = RNG.integers(0, 256, size=(60, 6, 5, 4), dtype=np.uint8)
FEATURES = RNG.standard_normal((60, 4)).astype(np.float32)
LABELS = np.arange(60) % 3
QUICK: dict[str, Any] = {"clients": 3, "rounds": 1, "steps": 1, "split": "iid"}


def refused(*said: str) -> Any:
    """A UserError that says all of this, in one line."""
    return pytest.raises(UserError, match=".*".join(re.escape(text) for text in said) + r"[^\n]*$")


# --- features --------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("level", [0, 77, 200, 255])
def test_a_constant_channel_is_zero_and_no_other_changes(level):
    """Whatever residue sum_l p_l l^2 - mean^2 leaves of it, also below 0: 77 does."""
    images = IMAGES.copy()
    images[..., 3] = level
    data = from_arrays("opaque", images, LABELS)
    assert (
        data.std is not None and data.std[3] == 1 and data.std[:3] == pytest.approx(moments(data.x_train[..., :3])[1])
    )
    x = tensors(data, data.x_train)
    assert x.isfinite().all() and x[:, 3].abs().max() < 1e-6 and x[:, 0].std() == pytest.approx(1, abs=0.01)


@pytest.mark.parametrize("value", [np.nan, -np.inf, 1e300])  # a gap of a table is filled
def test_features_that_are_not_finite_are_refused_with_their_row(value, tmp_path):
    features = FEATURES.astype(np.float64)
    features[7:9, 2] = value
    with refused("odd, training samples: row 7", "drop or fill"):
        from_arrays("odd", features, LABELS)
    with refused("odd, test samples: row 7"):
        from_arrays("odd", FEATURES, LABELS, features, LABELS)
    pandas = pytest.importorskip("pandas")
    columns = {name: features[:, i] for i, name in enumerate("abcd")}
    for kind in ("csv", "parquet"):
        table = pandas.DataFrame({**columns, "label": LABELS, "split": ["train"] * 5 + ["test"] * 55})
        path = tmp_path / f"t.{kind}"
        table.to_csv(path, index=False) if kind == "csv" else table.to_parquet(path)
        for read in (Columns(), Columns(prepare="plain")) if value == value else (Columns(prepare="plain"),):
            with refused(f"t.{kind}, column 'c': row 7"):
                from_table(path, read)


def test_samples_that_are_no_numbers_are_refused():
    for x in (None, [[1.0], [1.0, 2.0], [3.0]] * 20, np.array(["a", "b", "c"] * 20)):
        with refused("odd, training samples", "numbers"):
            from_arrays("odd", x, LABELS)  # pyright: ignore[reportArgumentType]


# --- files -----------------------------------------------------------------------------------------------------------
def test_archives_of_objects_are_refused(tmp_path):
    np.savez(tmp_path / "o.npz", x_train=np.array([[1], None] * 30, dtype=object), y_train=LABELS)
    sentence(run(data=tmp_path / "o.npz"), "o.npz", "'x_train' cannot be read")


@pytest.mark.parametrize("write", [np.savez, np.savez_compressed], ids=lambda write: write.__name__)
def test_whatever_byte_is_flipped(write, tmp_path):
    """Either the arrays are what they were, or the sentence names the file."""
    write(tmp_path / "whole.npz", x_train=FEATURES[:3], y_train=LABELS[:3])
    content, torn = (tmp_path / "whole.npz").read_bytes(), tmp_path / "torn.npz"
    refusals = 0
    for place in range(len(content)):
        for bit in (0x01, 0x40):
            torn.write_bytes(content[:place] + bytes([content[place] ^ bit]) + content[place + 1 :])
            try:
                with archive(torn) as stored:
                    if "x_train" in stored.files:
                        assert np.array_equal(stored["x_train"], FEATURES[:3])
            except UserError as error:
                assert "torn.npz" in str(error)
                refusals += 1
    assert refusals > 100


def test_a_damaged_split_is_refused(tmp_path):
    make_split(from_arrays("mine", np.zeros((6000, 2)), np.arange(6000) % 3), Iid(), 6, 0).save(tmp_path / "broken.npz")
    content = bytearray((tmp_path / "broken.npz").read_bytes())
    content[100:120] = bytes(20)
    (tmp_path / "broken.npz").write_bytes(content)
    sentence(run(split=f'saved("{tmp_path}/broken.npz")'), "broken.npz", "cannot be read")


# --- labels and clients ----------------------------------------------------------------------------------------------
def test_a_column_of_labels_is_a_row_of_labels():
    plain, column = from_arrays("mine", FEATURES, LABELS), from_arrays("mine", FEATURES, LABELS[:, None])
    assert np.array_equal(plain.y_train, column.y_train) and np.array_equal(plain.y_test, column.y_test)
    four = from_arrays("mine", FEATURES, LABELS[:, None], FEATURES, LABELS[:, None])
    assert four.y_test.shape == (60,) and four.classes == 3


def test_labels_that_are_no_classes_are_refused():
    words = np.array(["a", None, "b"] * 20, dtype=object)
    cases = [
        (np.eye(3)[LABELS], "row of [60, 3] has a single 1", "argmax(1)"),
        (np.eye(3, dtype=int)[LABELS], "row of [60, 3] has a single 1", "multilabel"),
        (np.ones((60, 3, 2)), "labels have the shape [60, 3, 2]", "Federation"),
        (None, "labels are None", "one class"),
        (words, "training labels: row 1", "missing"),
        (np.where(LABELS == 2, np.nan, LABELS), "training labels: row 2", "missing"),
        (np.array(["a", 1, "b"] * 20, dtype=object), "training labels", "kinds"),
        (np.where(LABELS == 2, np.nan, LABELS + 0.5), "training targets: row 2", "missing"),
    ]
    for labels, *said in cases:
        with refused("odd", *said):
            from_arrays("odd", FEATURES, labels)
        with refused("your own", *said):
            federate(nn.Linear(4, 3), (FEATURES, labels), **QUICK)


def test_tables_with_missing_labels_or_clients(tmp_path):
    pandas = pytest.importorskip("pandas")
    words, owners = np.array(["no", "so", "yes"])[LABELS].astype(object), np.array(["u", "v", "w"] * 20, dtype=object)
    holes = [words.copy(), owners.copy(), np.where(LABELS == 2, np.nan, LABELS), pandas.array([0, 1, None] * 20)]
    holes[0][5] = holes[1][5] = None
    path = tmp_path / "t.csv"
    for labels, row in ((holes[0], 5), (holes[2], 2)):
        pandas.DataFrame({"a": FEATURES[:, 0], "label": labels}).to_csv(path, index=False)
        sentence(run(data=path), f"t.csv, column 'label': row {row}", "missing")
    for clients, gone in ((holes[1], 1), (holes[2], 16)):
        pandas.DataFrame({"a": FEATURES[:, 0], "label": words, "client": clients}).to_csv(path, index=False)
        sentence(
            run(data=path, split="natural", clients=2),
            f"Natural(minimum=1): the owner of {gone} of 48 samples",
            "missing",
        )
        sentence(run(data=path, split="shards(1,by=natural)", clients=2), "missing")
        assert from_table(path).classes == 3  # other splits do not ask whose a sample is
    pandas.DataFrame({"a": FEATURES[:, 0], "label": holes[3]}).to_parquet(tmp_path / "t.parquet")
    with refused("t.parquet, column 'label': row 2"):
        from_table(tmp_path / "t.parquet")


@pytest.mark.parametrize("splitter", [Natural(), Shards(1, by="natural")], ids=str)
def test_a_test_sample_without_an_owner(splitter):
    owners = np.array(["u", "v", "w"] * 20, dtype=object)
    lacking = owners.copy()
    lacking[4] = None
    with refused(str(splitter), "of 1 of 60 samples", "missing", "another split"):
        make_split(from_arrays("mine", FEATURES, LABELS, FEATURES, LABELS, owners, lacking), splitter, 3, 0)


# --- Hugging Face ----------------------------------------------------------------------------------------------------
def pictures(arrays: list[np.ndarray]) -> Any:
    datasets = pytest.importorskip("datasets")
    features = datasets.Features({"image": datasets.Image(), "label": datasets.ClassLabel(num_classes=3)})
    encoded = [datasets.Image().encode_example(x) for x in arrays]
    return datasets.Dataset.from_dict({"image": encoded, "label": LABELS.tolist()}, features=features)


def test_images_of_several_sizes_are_refused_without_a_size():
    sizes = [x[:5, :, :3] if i % 2 else x[:, :, :3] for i, x in enumerate(IMAGES)]
    with refused("your own", "images of 2 shapes", "one size"):
        federate("cnn", pictures(sizes), **QUICK)


def test_data_that_stream_are_refused():
    datasets = pytest.importorskip("datasets")
    stream = pictures([x[..., :3] for x in IMAGES]).to_iterable_dataset()
    unknown = datasets.IterableDataset.from_generator(lambda: iter([{"x": 1.0, "label": 0}]))
    for data in (stream, unknown, datasets.IterableDatasetDict(train=stream)):
        with refused("streaming"):
            from_huggingface(data, "flow")
    with refused("your own", "streaming"):
        federate("cnn", stream, **QUICK)


def test_tables_of_hugging_face_are_tables():
    datasets = pytest.importorskip("datasets")
    columns = {"a": FEATURES[:, 0].tolist(), "b": FEATURES[:, 1:].tolist(), "label": LABELS.tolist()}
    part = datasets.Dataset.from_dict({**columns, "client": [f"u{i % 3}" for i in range(60)]})
    data, plain = from_huggingface(part, "table"), from_arrays("table", FEATURES, LABELS)
    assert np.array_equal(data.x_train, plain.x_train) and np.array_equal(data.y_test, plain.y_test)
    assert data.natural_train is not None and set(data.natural_train) == {"u0", "u1", "u2"}
    settings: dict[str, Any] = {**QUICK, "split": "natural"}
    federate(nn.Linear(4, 3), datasets.DatasetDict(train=part, test=part), **settings)
    ragged = datasets.Dataset.from_dict({**columns, "label": [[0], [1, 2], [2]] * 20})
    with refused("table, training labels", "one class a sample"):
        from_huggingface(ragged, "table")
    gap = datasets.Dataset.from_dict({**columns, "a": [0.0, 1, 2, None] + [1.0] * 56})
    with refused("table: features must be numbers"):
        from_huggingface(part.add_column("text", ["word"] * 60), "table", columns=Columns(prepare="plain"))
    with refused("table, column 'a': row 3"):
        from_huggingface(gap, "table", columns=Columns(prepare="plain"))


# --- saved splits ----------------------------------------------------------------------------------------------------
def test_a_saved_split_keeps_what_it_says_of_unseen_clients_and_validation(tmp_path):
    data, path = from_arrays("mine", FEATURES, LABELS), tmp_path / "split.npz"
    for splitter in (Iid(), DirichletRefill(1.0)):
        make_split(data, splitter, 6, 0, unseen=2, validation=0.25).save(path)
        for unseen, validation in ((0, 0), (2, 0.25), (1 / 3, 0), (0, 0.25)):
            split = make_split(data, Saved(str(path)), 6, 0, unseen, validation)
            assert split.unseen == (4, 5) and all(map(len, split.validation))
        for unseen, validation in ((1, 0), (2.5, 0), (0.5, 0.25), (2, 0.5), (0, 0.2)):
            with refused("Saved", f"unseen={unseen}", f"validation={validation}", "2 unseen clients", "at 0"):
                make_split(data, Saved(str(path)), 6, 0, unseen, validation)


def test_a_saved_split_of_other_data_is_refused_by_name(tmp_path):
    path = tmp_path / "split.npz"
    data = from_arrays("mine", FEATURES, LABELS)
    make_split(data, Dirichlet(5.0), 3, 0).save(path)
    twice = np.concatenate([FEATURES, FEATURES]), np.concatenate([LABELS, LABELS])
    assert make_split(from_arrays("yours", FEATURES, LABELS), Saved(str(path)), 3, 0).data == "yours"
    for other in (from_arrays("yours", *twice), from_arrays("mine", *twice)):
        sizes = f"{len(other.x_train)} + {len(other.x_test)}"
        with refused("'mine' (48 + 12 samples)", f"{other.name!r} ({sizes} samples)"):
            make_split(other, Saved(str(path)), 3, 0)
    sentence(run(split=f'saved("{path}")', clients=3), "'mine'", "'digits'")
    named = from_arrays("mnist", FEATURES, LABELS)
    make_split(named, Dirichlet(5.0), 3, 0).save(path)
    with refused("'mnist' (48 + 12 samples)", "'fashion-mnist' (48 + 12 samples)"):
        make_split(replace(named, name="fashion-mnist"), Saved(str(path)), 3, 0)


def test_saved_splits_of_before_still_load(tmp_path):
    """Files that do not name their data: they are given those that they are loaded for."""
    data, path = from_arrays("mine", FEATURES, LABELS), tmp_path / "old.npz"
    made = make_split(data, Iid(), 3, 0)
    made.save(path)
    with np.load(path) as stored:
        np.savez(path, **{key: stored[key] for key in stored.files if key not in ("data", "samples")})
    assert (Split.load(path).data, Split.load(path).samples) == ("", ())
    restored = make_split(data, Saved(str(path)), 3, 0)
    assert (restored.data, restored.samples) == (made.data, made.samples) == ("mine", (48, 12))
    few = (FEATURES[:9], LABELS[:9])
    for other, said in (
        (from_arrays("few", *few, *few), "9 samples"),
        (replace(data, y_test=data.y_test[:9]), "9 test"),
    ):
        with refused("made for more than these", said):
            make_split(other, Saved(str(path)), 3, 0)


# --- layouts ---------------------------------------------------------------------------------------------------------
class Channels(nn.Module):
    """A model of so many input channels that takes images of any size."""

    def __init__(self, channels: int):
        super().__init__()
        self.head = nn.Linear(channels, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(x.mean((2, 3)))


@pytest.mark.parametrize("channels", [1, 3, 4])
def test_floats_with_channels_first_are_the_same_images(channels):
    last = RNG.standard_normal((60, 8, 7, channels)).astype(np.float32)
    first = torch.from_numpy(last).movedim(-1, 1)
    results = [federate(Channels(channels), (x, LABELS), **QUICK) for x in (last, first, first.double().numpy())]
    pools = [result.experiment.federation.pool[0] for result in results]
    assert pools[0].shape[1:] == (channels, 8, 7) and all(torch.equal(pools[0], pool) for pool in pools[1:])


@pytest.mark.parametrize("shape", [(3, 8, 3), (3, 3, 200), (8, 8, 5), (5, 8, 8)], ids=str)
def test_floats_that_may_have_channels_last_are_read_so(shape):
    data = from_arrays("mine", np.zeros((60, *shape), dtype=np.float32), LABELS)
    assert tensors(data, data.x_train).shape[1:] == (shape[2], *shape[:2])


def test_samples_of_more_axes_are_refused():
    for x in (np.zeros((60, 3, 4, 5, 6), dtype=np.float32), torch.zeros((60, 2, 2, 2, 2), dtype=torch.uint8)):
        with refused("your own, training samples", str(list(x.shape)), "Federation"):
            federate(nn.Linear(4, 3), (x, LABELS), **QUICK)


def test_a_newcomers_floats_are_read_as_the_runs_are(tmp_path: Path):
    from apiece.experiment.newcomer import newcomer

    first = RNG.standard_normal((60, 3, 8, 7)).astype(np.float32)
    result = federate(Channels(3), (first, LABELS), **QUICK)
    np.savez(tmp_path / "new.npz", x_train=first[:5], y_train=LABELS[:5])
    assert np.array_equal(newcomer(result.experiment, tmp_path / "new.npz").pool[0], first[:5])
