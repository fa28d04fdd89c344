"""Files of comma-separated values: what a first look refuses, a run refuses in the same words."""

from __future__ import annotations

import csv
import re
from pathlib import Path

import numpy as np
import pytest

from apiece.data.columns import Columns
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
