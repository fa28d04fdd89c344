"""Files of comma-separated values: what a first look refuses, a run refuses in the same words."""

from __future__ import annotations

import csv
import re
from pathlib import Path

import numpy as np
import pandas
import pytest

from apiece.data.columns import Columns
from apiece.data.folders import TABLES, kind_of
from apiece.data.frames import from_table
from apiece.data.glance import glance
from apiece.errors import UserError

ROWS = "".join(f"{i % 5}.5,{i % 7},{'abc'[i % 3]}\n" for i in range(30))
WIDE = "it has 4 cells, and there are 3 columns: put text that has commas in double quotes"
REFUSED = {
    "the first row is wide": ("x,z,label\n1,2,a,9\n" + ROWS, f"line 2: {WIDE}"),
    "a later row is wide": ("x,z,label\n" + ROWS + "1,2,a,9\n", f"line 32: {WIDE}"),
    "all rows are wide": ("x,z,label\n" + ROWS.replace("\n", ",7\n"), f"line 2: {WIDE}"),
    "all rows end with a comma": ("x,z,label\n" + ROWS.replace("\n", ",\n"), f"line 2: {WIDE}"),
    "no names": (",,label\n" + ROWS, "two columns have no name"),
    "the name of one without": (",Unnamed: 0,label\n" + ROWS, "two columns are named 'Unnamed: 0'"),
    "a long name": ("x" * 140_000 + ",z,label\n" + ROWS, "line 1: a cell is too long"),
    "semicolons": ("x;z;label\n1,5;2;a\n", "its columns are separated by ';'"),
    "an open quote": ('x,z,label\n1,2,a\n1,"2,a\n' + ROWS, "the row that begins in line 3 has a double quote"),
    "nothing": ("", "the file is empty"),
}


@pytest.mark.parametrize("text, said", REFUSED.values(), ids=REFUSED)
def test_the_first_look_and_the_run_refuse_the_same(text, said, tmp_path: Path):
    path = tmp_path / "own.csv"
    path.write_text(text)
    for look in (lambda: from_table(path), lambda: glance(path, Columns())):
        with pytest.raises(UserError, match=rf"own\.csv.*{re.escape(said)}[^\n]*\.$"):
            look()
    assert csv.field_size_limit() == 131_072


@pytest.mark.parametrize("words, found", [
    (["train", "val", "test"], "'val'"), (["train", "test", ""], "''"), (["Train", "Test"], "'Test', 'Train'"),
    (["0", "1"], "'0', '1'"), ([f"{i}.5" for i in range(5)], "'0.5', '1.5', '2.5', ..."),
], ids=lambda value: value[0])  # fmt: skip
def test_other_words_of_the_split_are_refused(words, found, tmp_path: Path):
    rows = [f"{row},{words[i % len(words)]}" for i, row in enumerate(ROWS.splitlines())]
    (tmp_path / "own.csv").write_text("\n".join(["x,z,label,split", *rows]))
    pandas.read_csv(tmp_path / "own.csv").to_parquet(tmp_path / "own.parquet")
    for path in (tmp_path / "own.csv", tmp_path / "own.parquet"):
        for look in (from_table, glance):
            with pytest.raises(UserError, match="column 'split': it says by the words 'train' and 'test' which rows"):
                look(path, Columns())
    with pytest.raises(UserError, match=re.escape(f"and has {found}: write these two")):
        from_table(tmp_path / "own.csv")


@pytest.mark.parametrize("roles", [{"target": "split"}, {"client": "split"}, {"input": ("x", "split")}], ids=str)
def test_a_column_split_with_another_role_marks_no_test_rows(roles, tmp_path: Path):
    rows = [f"{row},{('here', 'test', 'there')[i % 3]}" for i, row in enumerate(ROWS.splitlines())]
    (tmp_path / "own.csv").write_text("\n".join(["x,z,label,split", *rows]))
    columns = Columns(**{"input": ("x",)} | roles)
    assert from_table(tmp_path / "own.csv", columns).held is not None  # a fifth of all rows
    assert glance(tmp_path / "own.csv", columns).rows == 30


OWNERS = {  # as they are written -> the clients' names
    "zeros": (["01", "1", "2"], ["01", "1", "2"]),
    "codes": (["007", "012"], ["007", "012"]),
    "versions": (["1.10", "2", "1.1"], ["1.1", "1.10", "2"]),
    "numbers": (["10", "9", "-1"], ["-1", "9", "10"]),
    "spaces": ([" 1", "1", "2 "], ["1", "2"]),
    "fractions": (["2.0", "10.0"], ["2.0", "10.0"]),
    "truth": (["True", "False"], ["False", "True"]),
    "TRUTH": (["TRUE", "false"], ["TRUE", "false"]),
    "long": (["18446744073709551616", "18446744073709551617"], ["18446744073709551616", "18446744073709551617"]),
    "days": (["2024-01-02", "2024-01-01"], ["2024-01-01", "2024-01-02"]),
}


@pytest.mark.parametrize("words, names", OWNERS.values(), ids=OWNERS)
def test_owners_are_what_is_written(words, names, tmp_path: Path):
    rows = [f"{row},{words[i % len(words)]}" for i, row in enumerate(ROWS.splitlines())]
    (tmp_path / "own.csv").write_text("\n".join(["x,z,label,who", *rows]))
    found = from_table(tmp_path / "own.csv", Columns(client="who")).natural_train
    assert found is not None and [str(name) for name in np.unique(found)] == names


LABELS = {  # as they are written -> the names of 0, 1, ...
    "codes": (["1", "01", "10"], ["01", "1", "10"], "classification"),
    "padded": (["10", "02", "01"], ["01", "02", "10"], "classification"),
    "numbers": (["10", "9", "0"], [0, 9, 10], "classification"),
    "with gaps elsewhere": (["2.0", "10.0", "2"], [2, 10], "classification"),
    "spaces": ([" 2", "10", "2"], [2, 10], "classification"),
    "truth": (["True", "False"], [False, True], "classification"),
    "below zero": (["-1", "1", "0"], [-1, 0, 1], "classification"),
}


@pytest.mark.parametrize("words, known, task", LABELS.values(), ids=LABELS)
def test_labels_that_are_codes_are_what_is_written_and_numbers_keep_their_order(words, known, task, tmp_path: Path):
    rows = [f"{i % 7},{i % 5}.5,{words[i % len(words)]}" for i in range(30)]
    (tmp_path / "own.csv").write_text("\n".join(["x,z,label", *rows]))
    found = from_table(tmp_path / "own.csv")
    assert found.known is not None and found.known.tolist() == known
    assert glance(tmp_path / "own.csv", Columns()).task == task


def test_targets_with_zeros_in_front_are_amounts_where_this_is_said(tmp_path: Path):
    rows = [f"{i % 7},{i % 5}.5,{i:03}" for i in range(30)]
    (tmp_path / "own.csv").write_text("\n".join(["x,z,label", *rows]))
    found = from_table(tmp_path / "own.csv", Columns(task="regression"))
    assert found.targets_train is not None and found.targets_train.dtype == np.float64
    (tmp_path / "own.csv").write_text("\n".join(["x,z,label", *rows, "1,2,007.5"]))  # a fraction is no code
    assert from_table(tmp_path / "own.csv").task == "regression"


@pytest.mark.parametrize("text, first", [
    ("\n \nx,z,label\n\n" + ROWS.replace("0.5,5,c\n", "0.5,5,c\n  \n"), "x"),
    (",z,label\n" + ROWS, "Unnamed: 0"),
    ("x,z,label,note\n" + ROWS.replace("\n", f",{'y' * 140_000}\n", 1), "x"),
], ids=["empty lines", "one column without a name", "a long cell that is not read"])  # fmt: skip
def test_what_is_unusual_is_read_as_it_is(text, first, tmp_path: Path):
    (tmp_path / "plain.csv").write_text("x,z,label\n" + ROWS)
    (tmp_path / "own.csv").write_text(text)
    read = Columns(input=(first, "z"))
    plain, found = from_table(tmp_path / "plain.csv"), from_table(tmp_path / "own.csv", read)
    assert np.array_equal(plain.x_train, found.x_train) and np.array_equal(plain.y_test, found.y_test)
    assert glance(tmp_path / "own.csv", read).rows == 30


def folder_of(path: Path, **texts: str) -> Path:
    """A folder of tables, one a text."""
    path.mkdir()
    for name, text in texts.items():
        (path / f"{name}.csv").write_text(text)
    return path


def test_a_folder_of_tables_is_one_table_whose_files_are_its_clients(tmp_path: Path):
    other = "label,z,x\n" + "".join(f"{'abc'[i % 3]},{i % 4},{i}.5\n" for i in range(10))
    path = folder_of(tmp_path / "own", north="x,z,label\n" + ROWS, south=other)
    (path / "README.txt").write_text("of two hospitals")
    (path / "_SUCCESS").write_text("")
    pandas.read_csv(path / "south.csv").to_parquet(path / "west.parquet")
    found = from_table(path)
    assert found.natural_train is not None and found.natural_test is not None
    owners = [*found.natural_train, *found.natural_test]
    assert {name: owners.count(name) for name in owners} == {"north": 30, "south": 10, "west": 10}
    south = found.x_train[found.natural_train == "south"]
    assert (south[:, 0] % 1 == 0.5).all() and south[:, 1].max() == 3  # by name, whatever their order in the file
    look = glance(path, Columns())
    assert look.rows == 50 and look.client is not None and look.client.values == {"north", "south", "west"}
    assert "Each value of client is a client: north, south, west." in look.told()


def test_in_a_folder_of_tables_a_column_may_name_the_clients(tmp_path: Path):
    rows = "".join(f"{row},{('one', 'two')[i % 2]}\n" for i, row in enumerate(ROWS.splitlines()))
    path = folder_of(tmp_path / "own", part_0="x,z,label,site\n" + rows, part_1="x,z,label,site\n" + rows)
    found, look = from_table(path, Columns(client="site")), glance(path, Columns(client="site"))
    assert found.natural_train is not None and {*found.natural_train} == {"one", "two"}
    assert found.columns == ("x", "z")
    assert look.client is not None and look.client.values == {"one", "two"}
    parts = from_table(path, Columns(client="client", input=("x",))).natural_train
    assert parts is not None and {*parts} == {"part_0", "part_1"}


def test_files_train_and_test_of_a_folder_are_its_parts(tmp_path: Path):
    text = "x,z,label\n" + ROWS
    path = folder_of(tmp_path / "own", train=text, test="\n".join(text.split("\n")[:7]))
    found = from_table(path)
    assert (len(found.x_train), len(found.x_test), found.natural_train) == (30, 6, None)
    assert glance(path, Columns()).client is None


def test_codes_in_one_file_of_a_folder_are_text_in_all(tmp_path: Path):
    texts = {"north": "x,label\n" + "1,01\n2,2\n" * 5, "south": "x,label\n" + "1,1\n2,2\n" * 5}
    found = from_table(folder_of(tmp_path / "own", **texts))
    assert found.known is not None and found.known.tolist() == ["01", "1", "2"]


PLAIN = "x,z,label\n" + ROWS
UNLIKE = {
    "other columns": ({"north": PLAIN, "south": PLAIN.replace("z", "y", 1)}, "of which only one has 'y': make them"),
    "a part more": ({"train": PLAIN, "test": PLAIN, "val": PLAIN}, "test.csv, train.csv, val.csv seem to be parts"),
    "parts by other words": ({"Train": PLAIN, "Test": PLAIN}, "Test.csv, Train.csv seem to be parts of the data"),
    "an empty file": ({"north": PLAIN, "south": ""}, "south.csv: the file is empty"),
    "a gap": ({"north": PLAIN, "south": PLAIN.replace(",a", ",", 1)}, "missing"),
}


@pytest.mark.parametrize("texts, said", UNLIKE.values(), ids=UNLIKE)
def test_what_cannot_be_one_table_is_refused_at_the_first_look_and_by_the_run(texts, said, tmp_path: Path):
    path = folder_of(tmp_path / "own", **texts)
    for look in (from_table, glance):
        with pytest.raises(UserError, match=re.escape(said)):
            look(path, Columns())


def test_a_part_of_a_table_may_be_empty_and_a_client_may_not(tmp_path: Path):
    path = folder_of(tmp_path / "own", north=PLAIN.replace("z", "site", 1), south="x,site,label\n")
    with pytest.raises(UserError, match=r"south\.csv: the table has no row: give one for each sample, or leave"):
        from_table(path)
    found = from_table(path, Columns(client="site"))
    assert len(found.x_train) + len(found.x_test) == 30 and found.x_train.dtype == np.float32


def test_of_two_files_with_one_name_in_a_folder_one_is_to_go(tmp_path: Path):
    path = folder_of(tmp_path / "own", north=PLAIN)
    pandas.read_csv(path / "north.csv").to_parquet(path / "north.parquet")
    for look in (from_table, glance):
        with pytest.raises(UserError, match="two files are named 'north': leave one of them out"):
            look(path, Columns())


def test_a_table_beside_folders_is_no_data(tmp_path: Path):
    path = folder_of(tmp_path / "own", labels=PLAIN)
    (path / "cats").mkdir()
    assert kind_of(path) is None and kind_of(path / "labels.csv") is TABLES
