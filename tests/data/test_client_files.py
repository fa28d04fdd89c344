"""Folders of files of one kind, one for each client: the same data as those of one file or of a program."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from apiece.data.archives import KEYS
from apiece.data.folders import ARRAYS, JSONL, TABLES, kind_of
from apiece.data.given import as_dataset
from apiece.data.sources import load
from apiece.data.texts import from_jsonl
from apiece.errors import UserError

CLIENTS = ("north", "south", "west")


def pair(seed: int, rows: int) -> tuple[np.ndarray, np.ndarray]:
    draw = np.random.default_rng(seed)
    return draw.normal(size=(rows, 4)).astype(np.float32), draw.integers(0, 3, rows)


def arrays(path: Path, tested: bool) -> dict[str, Any]:
    """A folder of .npz files; gives what a program would give instead."""
    path.mkdir()
    given = {}
    for seed, name in enumerate(CLIENTS):
        given[name] = (*pair(seed, 20 + seed), *(pair(9 + seed, 5) if tested else ()))
        np.savez(path / f"{name}.npz", **dict(zip(KEYS, given[name], strict=False)))
    return given


@pytest.mark.parametrize("tested", [True, False])
def test_a_folder_of_arrays_is_what_a_program_gives_by_client(tested, tmp_path: Path):
    given = arrays(tmp_path / "own", tested)
    (tmp_path / "own" / "README.txt").write_text("of three hospitals")
    found, same = load(str(tmp_path / "own")), as_dataset(given)
    for name in ("x_train", "y_train", "x_test", "y_test", "natural_train", "natural_test"):
        assert np.array_equal(getattr(found, name), getattr(same, name)), name
    assert found.name == "own" and (found.held is None) == tested


LINES = [{"text": f"{'good' if i % 2 else 'bad'} film {i}", "label": i % 2} for i in range(30)]


def texts(path: Path, **lines: list[dict]) -> Path:
    path.mkdir()
    for name, own in lines.items():
        (path / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in own))
    return path


def test_a_folder_of_texts_is_one_file_whose_lines_name_their_clients(tmp_path: Path):
    path = texts(tmp_path / "own", north=LINES[:10], south=LINES[10:])
    lines = [{**line, "client": "north" if i < 10 else "south"} for i, line in enumerate(LINES)]
    found, same = load(str(path)), from_jsonl(texts(tmp_path / "one", all=lines) / "all.jsonl")
    for name in ("x_train", "y_train", "x_test", "natural_train", "natural_test", "held"):
        assert np.array_equal(getattr(found, name), getattr(same, name)), name


def test_a_field_of_the_texts_names_the_clients_instead_and_files_train_and_test_are_parts(tmp_path: Path):
    lines = [{**line, "client": "ab"[i % 2], "domain": "cd"[i % 2]} for i, line in enumerate(LINES)]
    path = texts(tmp_path / "own", one=lines[:9], two=lines[9:])
    for client, names in ((None, {"a", "b"}), ("domain", {"c", "d"})):
        found = from_jsonl(path, client=client).natural_train
        assert found is not None and {*found} == names
    found = from_jsonl(texts(tmp_path / "parts", train=LINES[:20], test=LINES[20:]))
    assert (len(found.x_train), len(found.x_test), found.natural_train) == (20, 10, None)


def test_the_kind_of_a_folder_is_that_of_its_files(tmp_path: Path):
    arrays(tmp_path / "npz", False)
    assert kind_of(tmp_path / "npz") is ARRAYS and kind_of(tmp_path / "npz" / "north.npz") is ARRAYS
    assert kind_of(texts(tmp_path / "texts", north=LINES)) is JSONL and kind_of(Path("A.JSONL.GZ")) is JSONL
    assert kind_of(Path("a.CSV")) is TABLES and kind_of(Path("a.png")) is kind_of(Path("long" * 100)) is None
    (tmp_path / "npz" / "cats").mkdir()
    assert kind_of(tmp_path / "npz") is None


def save(path: Path, **given: Any) -> None:
    np.savez(path, **given)


x, y = pair(0, 10)
REFUSED = {
    "two kinds": (lambda at: (at / "a.csv").write_text("x,label\n"), "a.csv and north.npz are of two kinds"),
    "no targets": (lambda at: save(at / "a.npz", x_train=x), r"a\.npz: holds x_train; it needs x_train and y_train"),
    "half a test part": (lambda at: save(at / "a.npz", x_train=x, y_train=y, x_test=x), "needs x_train and y_train"),
    "a test part of one": (
        lambda at: save(at / "a.npz", x_train=x, y_train=y, x_test=x, y_test=y),
        "client 'north' has no test samples, as others have",
    ),
    "owners": (lambda at: save(at / "a.npz", x_train=x, y_train=y, natural_train=y), "holds natural_train, and its"),
    "another shape": (lambda at: save(at / "a.npz", x_train=x[:, 1:], y_train=y), "client 'a' are float32 of shape"),
    "a part": (lambda at: save(at / "train.npz", x_train=x, y_train=y), r"train\.npz: is no client: give one file of"),
    "damage": (lambda at: (at / "a.npz").write_bytes(b"PK\x03\x04"), r"a\.npz: cannot be read as an \.npz file"),
    "folders": (lambda at: (at / "more").mkdir(), r"holds north\.npz and folders: keep the files of clients side by"),
}


@pytest.mark.parametrize("spoil, said", REFUSED.values(), ids=REFUSED)
def test_what_is_no_folder_of_clients_is_refused_in_a_sentence(spoil, said, tmp_path: Path):
    arrays(tmp_path / "own", False)
    spoil(tmp_path / "own")
    with pytest.raises(UserError, match=rf"{said}[^\n]*\.$"):
        load(str(tmp_path / "own"))


def test_tables_in_folders_by_the_value_of_a_column_are_told_where_to_lie(tmp_path: Path):
    (tmp_path / "own" / "hospital=A").mkdir(parents=True)
    (tmp_path / "own" / "hospital=A" / "part.csv").write_text("x,label\n1,2\n")
    with pytest.raises(UserError, match=r"holds hospital=A/part\.csv and folders: keep the files of clients side"):
        load(str(tmp_path / "own"))
