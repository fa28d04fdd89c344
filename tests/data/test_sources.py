"""Every source gives the same plain arrays; what is missing is said with what to do."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_digits

from apiece.config.splitting import make_split
from apiece.data.arrays import from_arrays, held_out, moments
from apiece.data.catalog import SOURCES
from apiece.data.hub import from_huggingface
from apiece.data.ownership import Natural
from apiece.data.sources import from_npz, load
from apiece.errors import UserError
from apiece.randomness import generator

RNG = generator(0, "sources test")
IMAGES = RNG.integers(0, 256, size=(60, 5, 4, 3), dtype=np.uint8)
LABELS = np.repeat(np.arange(3), 20)


def test_digits_are_complete_and_their_split_is_fixed():
    data, again = load("digits"), load("Digits")
    assert (len(data.x_train), len(data.x_test), data.classes) == (1437, 360, 10)
    assert data.x_train.dtype == np.uint8 and data.x_train.shape[1:] == (8, 8) and data.x_train.max() == 255
    assert np.array_equal(data.x_test, again.x_test) and np.array_equal(data.y_test, again.y_test)
    total = np.bincount(data.y_train) + np.bincount(data.y_test)
    assert (np.abs(np.bincount(data.y_test) - total * 360 / 1797) <= 1).all()
    assert data.mean is not None and data.mean[0] == pytest.approx(data.x_train.mean() / 255)
    assert "1437 + 360 samples of 8x8, 10 classes" in str(data)
    theirs = load_digits()  # the same samples, in an order of our own
    ours = np.concatenate([data.x_train, data.x_test]), np.concatenate([data.y_train, data.y_test])
    levels = np.column_stack([np.rint(theirs.images * 255 / 16).reshape(-1, 64), theirs.target])
    again = np.column_stack([ours[0].reshape(-1, 64), ours[1]])
    assert np.array_equal(np.unique(levels, axis=0), np.unique(again, axis=0))


def test_held_out_is_the_share_of_every_class():
    mask = held_out(LABELS, 0.25)
    assert mask.sum() == 15 and np.bincount(LABELS[mask]).tolist() == [5, 5, 5]


def test_held_out_is_the_share_of_every_owner_and_of_every_class():
    rng = np.random.default_rng(0)
    owners, labels = rng.integers(0, 40, 2000), rng.integers(0, 10, 2000)
    mask = held_out(labels, 0.2, owners)
    assert mask.sum() == 400
    assert (np.abs(np.bincount(owners[mask]) - np.bincount(owners) / 5) < 1).all()
    assert (np.abs(np.bincount(labels[mask]) - np.bincount(labels) / 5) < 12).all()


def test_small_owners_give_samples_of_every_class():
    owners, labels = np.repeat(np.arange(100), 10), np.tile(np.arange(10), 100)
    mask = held_out(labels, 0.2, owners)
    assert (np.bincount(owners[mask]) == 2).all() and (np.bincount(labels[mask], minlength=10) > 5).all()


def test_an_owner_keeps_its_only_sample():
    owners = np.array(["a"] * 4 + [None] + list("bcdefghijklmnop"), dtype=object)
    assert set(owners[held_out(np.zeros(20), 0.2, owners)]) == {"a"}
    assert held_out(np.zeros(5), 0.2, np.arange(5)).sum() == 1


def test_moments_are_exact():
    (mean, std), scaled = moments(IMAGES), IMAGES / 255
    assert mean == pytest.approx(scaled.mean(axis=(0, 1, 2))) and std == pytest.approx(scaled.std(axis=(0, 1, 2)))
    assert moments(IMAGES[..., 0])[0] == pytest.approx(mean[:1])


def test_labels_of_any_kind_become_numbers():
    data = from_arrays("words", IMAGES, np.array(["a", "b", "c"])[LABELS])
    assert data.classes == 3 and data.y_train.dtype == np.int64 and set(data.y_train) == {0, 1, 2}
    assert len(data.y_train) == 48 and data.x_train.dtype == np.uint8
    assert from_arrays("shifted", IMAGES, LABELS - 1).y_train.min() == 0


FAR = [[1, 2, 3], [-1, 0, 1], [0, 1, 3], [1.0, 2.0, 9.0], [0, 5, 10**7], [0, 2 * 10**9, 2**63 - 1]]
FAR += [[7, 2**64 - 2, 2**64 - 1]]


@pytest.mark.parametrize("names", FAR, ids=str)
def test_classes_are_the_labels_that_are_there(names, caplog):
    """No class more than there is, however far the numbers; said, since they become others."""
    own = np.array(names, dtype=np.uint64 if names[-1] > 2**63 else None)[LABELS]
    data = from_arrays("mine", IMAGES, own, IMAGES[:1], own[-1:])
    assert data.classes == 3 and data.y_train.tolist() == LABELS.tolist() and data.y_test.tolist() == [2]
    assert data.known is not None and data.known.tolist() == names
    assert f"mine: the labels {', '.join(map(str, names))} are numbered 0 to 2" in caplog.text


def test_numbers_of_classes_that_are_counted_stay(tmp_path, monkeypatch, caplog):
    """A part of a named data set lacks classes, and a class keeps its number; so it does where `classes` says so."""
    np.savez(tmp_path / "mnist.npz", x_train=IMAGES, y_train=LABELS * 3 + 1)
    data = load("mnist", tmp_path)
    assert data.classes == 10 and set(data.y_train.tolist()) == {1, 4, 7}
    data = from_arrays("mine", IMAGES, LABELS * 2, classes=6)
    assert data.classes == 6 and set(data.y_train.tolist()) == {0, 2, 4} and not caplog.text
    for labels, seen in ((LABELS + 8, "from 8 to 10"), (LABELS - 1, "from -1 to 1")):
        np.savez(tmp_path / "mnist.npz", x_train=IMAGES, y_train=labels)
        with pytest.raises(UserError, match=f"mnist: the labels go {seen}.*10 classes.*from 0 to 9"):
            load("mnist", tmp_path)


def test_a_dataset_of_labels_that_are_no_classes_is_refused():
    data = from_arrays("mine", IMAGES, LABELS)
    for labels, seen in ((LABELS + 1, "1 to 3"), (LABELS - 1, "-1 to 1")):
        with pytest.raises(UserError, match=f"mine: the training labels go from {seen}.*3 classes.*0 to 2"):
            replace(data, y_train=labels[: len(data.y_train)])


def test_labels_of_two_kinds_are_refused():
    with pytest.raises(UserError, match="mine: some parts have numbers"):
        from_arrays("mine", IMAGES, LABELS, IMAGES, LABELS.astype(str))
    endless = np.where(LABELS == 2, np.inf, 0.0)
    for labels, said in ((LABELS * 1j, "complex128"), (endless, "inf"), (LABELS * 1e300, "too large")):
        with pytest.raises(UserError, match=said):
            from_arrays("mine", IMAGES, labels)


def test_features_become_float32_without_moments():
    data = from_arrays("features", RNG.standard_normal((60, 7)), LABELS)
    assert data.x_train.dtype == np.float32 and data.mean is None


def test_npz_keeps_official_parts_and_owners(tmp_path):
    owners = np.repeat([7, 8, 9, 10], 15)
    test = {"x_test": IMAGES[:5], "y_test": LABELS[:5]}
    np.savez(tmp_path / "mine.npz", x_train=IMAGES, y_train=LABELS, writer_train=owners, **test)
    data = load(str(tmp_path / "mine.npz"))
    assert data.name == "mine" and np.array_equal(data.x_train, IMAGES)
    assert len(data.x_test) == 5 and data.natural_test is None
    assert sorted(make_split(data, Natural(), 4, 0).names) == ["10", "7", "8", "9"]


def test_names_are_looked_for_in_both_folders(tmp_path, monkeypatch, caplog):
    for file in ("fashion_mnist", "cifar100_20k"):
        np.savez(tmp_path / f"{file}.npz", x_train=IMAGES, y_train=LABELS)
    assert load("fashion-mnist", tmp_path).name == "fashion-mnist"
    monkeypatch.setenv("APIECE_DATA", str(tmp_path))
    assert load("fashion_mnist").mean == SOURCES["fashion-mnist"].mean
    assert load("cifar100").name == "cifar100-20k" and "a part of the whole" in caplog.text


def test_csv_and_parquet_tables_have_owners(tmp_path):
    pandas = pytest.importorskip("pandas")
    rows = {"label": np.where(LABELS > 0, "yes", "no"), "client": np.arange(60) % 4, "a": np.arange(60.0), "b": 1}
    pandas.DataFrame(rows).to_csv(tmp_path / "t.csv", index=False)
    data = load(str(tmp_path / "t.csv"))
    assert data.x_train.shape == (48, 2) and data.classes == 2
    assert data.natural_train is not None and (data.x_train[:, 0] % 4 == data.natural_train).all()
    (tmp_path / "t.csv").rename(tmp_path / "T.CSV")
    assert np.array_equal(load(str(tmp_path / "T.CSV")).x_train, data.x_train)

    pytest.importorskip("pyarrow")
    table = {"label": LABELS, "x": list(RNG.random((60, 3))), "split": ["train"] * 50 + ["test"] * 10}
    pandas.DataFrame(table).to_parquet(tmp_path / "t.parquet")
    data = load(str(tmp_path / "t.parquet"))
    assert data.x_train.shape == (50, 3) and data.x_test.shape == (10, 3) and data.natural_train is None
    pandas.DataFrame({"x": [1]}).to_csv(tmp_path / "bad.csv", index=False)
    with pytest.raises(UserError, match="needs 'label'"):
        load(str(tmp_path / "bad.csv"))
    (tmp_path / "bad.csv").write_text("label,x,x\n1,2,3\n")
    with pytest.raises(UserError, match="two columns are named 'x'"):
        load(str(tmp_path / "bad.csv"))


@pytest.mark.parametrize("parts", [("",), ("train", "test")], ids=["one", "two"])
def test_image_folders(tmp_path, parts):
    image = pytest.importorskip("PIL.Image")
    for part in parts:
        for i, (x, y) in enumerate(zip(IMAGES, LABELS)):
            folder = tmp_path / part / f"class-{y}"
            folder.mkdir(parents=True, exist_ok=True)
            image.fromarray(x).save(folder / f"{i:02}.png")
    data = load(str(tmp_path))
    assert data.x_train.shape == ((48 if parts == ("",) else 60), 5, 4, 3) and data.classes == 3
    seen = {x.tobytes(): y for x, y in zip(IMAGES, LABELS)}
    assert all(seen[x.tobytes()] == y for x, y in zip(data.x_train, data.y_train))


def test_an_empty_folder_and_mixed_sizes_are_refused(tmp_path):
    image = pytest.importorskip("PIL.Image")
    with pytest.raises(UserError, match="no images"):
        load(str(tmp_path))
    (tmp_path / "a").mkdir()
    image.fromarray(IMAGES[0]).save(tmp_path / "a" / "0.png")
    image.fromarray(IMAGES[0, :3]).save(tmp_path / "a" / "1.png")
    with pytest.raises(UserError, match="2 shapes"):
        load(str(tmp_path))


def test_huggingface_data_sets():
    datasets = pytest.importorskip("datasets")
    kinds = (datasets.Image(), datasets.ClassLabel(num_classes=3), datasets.Value("string"))
    owners = [f"w{i % 5}" for i in range(60)]
    columns = ([datasets.Image().encode_example(x) for x in IMAGES], LABELS.tolist(), owners)
    names = ("image", "character", "writer_id")
    part = datasets.Dataset.from_dict(dict(zip(names, columns)), features=datasets.Features(dict(zip(names, kinds))))
    data = from_huggingface(datasets.DatasetDict(train=part, test=part), "toy")
    assert np.array_equal(data.x_train, IMAGES) and np.array_equal(data.y_test, LABELS)
    assert data.natural_train is not None and data.natural_train.tolist() == owners
    assert len(from_huggingface(part).x_train) == 48
    with pytest.raises(UserError, match="writer_id"):
        from_huggingface(part.remove_columns("image"))
    with pytest.raises(UserError, match="named train"):
        from_huggingface({"validation": part})


def test_what_is_missing_is_said(tmp_path, monkeypatch):
    unknown = {"cifar11": "did you mean 'cifar10'", "absent.npz": "no such file", "some/where": "no such file"}
    for name, words in unknown.items():
        with pytest.raises(UserError, match=words):
            load(name)
    np.savez(tmp_path / "odd.npz", images=IMAGES)
    with pytest.raises(UserError, match="holds images; it needs x_train"):
        from_npz(tmp_path / "odd.npz")
    with pytest.raises(UserError, match="60 training samples, 59 labels"):
        from_arrays("short", IMAGES, LABELS[:59], IMAGES, LABELS)
    with pytest.raises(UserError, match="make them alike"):
        from_arrays("unlike", IMAGES, LABELS, IMAGES[:, :3], LABELS)

    datasets = pytest.importorskip("datasets")
    monkeypatch.delenv("APIECE_DATA", raising=False)

    def offline(*words):
        raise ConnectionError("offline")

    monkeypatch.setattr(datasets, "load_dataset", offline)
    with pytest.raises(UserError, match=r"svhn: no svhn\.npz .*ConnectionError.*--data-dir"):
        load("svhn", tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["mnist", "fashion-mnist", "cifar10", "cifar100"])
def test_real_data_are_what_the_table_says(name):
    folder = os.environ.get("APIECE_DATA")
    source = SOURCES[name]
    if not folder or not any((Path(folder) / file).is_file() for file in source.files):
        pytest.skip(f"no {name} in APIECE_DATA")
    data = load(name)
    assert data.x_train.dtype == np.uint8 and data.x_train.shape[1:] == source.shape and data.classes == source.classes
    assert len(data.x_test) == source.samples[1]
    assert len(data.x_train) == (20000 if data.name == "cifar100-20k" else source.samples[0])
    assert data.mean == source.mean and data.std == source.std
    if data.name != "cifar100-20k":
        mean, std = moments(data.x_train)
        assert mean == pytest.approx(source.mean, abs=2e-3) and std == pytest.approx(source.std, abs=2e-3)
    if name == "mnist":
        split = make_split(data, Natural(), 539, 0)
        assert sum(map(len, split.train)) == 60000 and sum(map(len, split.test)) == 10000
