"""`apiece new`: the folder that it makes, whose commands run as they stand, and what it refuses."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pytest
from PIL import Image
from support import ROOT
from support.outer import cli, sentence

FILES = ["README.md", "at_home.py", "study.ipynb", "study.toml"]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_folder_has_its_files_under_its_name(here: Path):
    ended = cli("new", "some/my-study")
    assert ended.code == 0 and ended.out.startswith("some/my-study: README.md,")
    study = here / "some" / "my-study"
    assert sorted(path.name for path in study.iterdir()) == FILES
    assert study.joinpath("README.md").read_text().startswith("# my-study\n")
    assert "changes to `study.toml` count in new runs alone" in study.joinpath("README.md").read_text()
    assert "$name" not in "".join(study.joinpath(name).read_text() for name in FILES)


def test_an_empty_folder_is_taken_and_another_is_refused(here: Path):
    (here / "empty").mkdir()
    assert cli("new", "empty").code == 0
    (here / "empty" / "study.toml").write_text("mine")
    ended = cli("new", "empty")
    assert ended.code == 2 and "exists and is not empty" in ended.err
    assert (here / "empty" / "study.toml").read_text() == "mine"


def test_a_study_of_own_data_has_their_columns_and_clients(here: Path, monkeypatch: pytest.MonkeyPatch):
    rows = [f"{'ab'[i % 2]},{i % 7},{i % 3}" for i in range(60)]
    (here / "own data.csv").write_text("\n".join(["site,age,ill", *rows]))
    asked = ["--data", "own data.csv", "--target-column", "ill", "--client-column", "site"]
    assert cli("new", "study", *asked).code == 0
    given = tomllib.loads((here / "study" / "study.toml").read_text())
    assert given["data"] == str(here / "own data.csv") and given["client_column"] == "site" and "split" not in given
    monkeypatch.chdir(here / "study")
    known = ["--config", "study.toml", "--rounds", "1", "--steps", "1", "--seeds", "0", "--quiet"]
    words = ["--plugin", "at_home.py", "--algorithm", "at_home(2)"]
    assert cli("run", *known, *words, "--out", "runs/one").code == 0
    assert "client_column='site'" in json.loads(Path("study.ipynb").read_text())["cells"][-1]["source"][-2]


def test_clients_that_the_data_name_by_themselves_are_those_of_the_study(here: Path):
    """A column `client`, and the files of a folder of tables, need not be named; the study names them."""
    rows = [f"{i % 7},{i % 3}" for i in range(20)]
    (here / "own").mkdir()
    for name in ("north", "south", "west"):
        (here / "own" / f"{name}.csv").write_text("\n".join(["age,ill", *rows]))
    (here / "own.csv").write_text("\n".join(["age,ill,client", *(f"{row},{i // 5}" for i, row in enumerate(rows))]))
    for data, count in (("own", 3), ("own.csv", 4)):
        study = f"of-{count}"
        assert cli("new", study, "--data", data, "--target-column", "ill").code == 0
        given = tomllib.loads((here / study / "study.toml").read_text())
        assert given["client_column"] == "client" and "split" not in given
        known = ["--config", f"{study}/study.toml", "--rounds", "1", "--steps", "1", "--seeds", "0"]
        ended = cli("run", *known, "--out", f"runs/{study}")
        assert ended.code == 0 and f"{count} clients by the split natural" in ended.err


@pytest.mark.parametrize("kind", ["arrays", "images", "classes"])
def test_a_study_of_a_folder_with_something_for_each_client_keeps_the_clients(kind: str, here: Path):
    images = np.arange(5 * 48, dtype=np.uint8).reshape(5, 4, 4, 3)
    for name in ("north", "south"):
        if kind == "arrays":
            (here / "own").mkdir(exist_ok=True)
            np.savez(here / "own" / f"{name}.npz", x_train=images, y_train=[0, 1, 0, 1, 0])
            continue
        for number, image in enumerate(images):
            place = here / "own" / (name if kind == "classes" else f"{name}/{'ab'[number % 2]}")
            place.mkdir(parents=True, exist_ok=True)
            Image.fromarray(image).save(place / f"{number}.png")
    ended = cli("new", "study", "--data", "own")
    given = tomllib.loads((here / "study" / "study.toml").read_text())
    if kind == "classes":
        assert given["split"] == "dirichlet(0.1)" and given["clients"] == 20
    else:
        assert given["split"] == "natural" and given["cohort"] == 1 and "clients" not in given
        assert f"each {'file' if kind == 'arrays' else 'folder'} is a client." in ended.out


def test_a_data_set_with_a_name_is_meant_where_a_folder_has_the_same(here: Path):
    (here / "digits").mkdir()
    assert cli("new", "study", "--data", "digits").code == 0
    assert tomllib.loads((here / "study" / "study.toml").read_text())["data"] == "digits"


def table(rows: int = 60) -> str:
    """A table with a number for each row, a word among numbers, a free text, a date, a gap, one class spelled twice."""
    lines = ["number,age,said,day,smoker,ill,site,empty"]
    for i in range(rows):
        age, smoker = "old" if i == 7 else 20 + i % 41, "" if i == 5 else ("yes", "no")[i % 2]
        text, day = f"patient {i} came", f"2024-{i % 12 + 1:02d}-{i % 28 + 1:02d}"
        lines.append(f"{i},{age},{text},{day},{smoker},{('ill', 'well', 'Ill')[i % 3]},{'abc'[i % 3]},")
    return "\n".join(lines)


def test_a_table_is_told_and_what_looks_like_free_text_is_no_input(here: Path, monkeypatch: pytest.MonkeyPatch):
    (here / "own.csv").write_text(table())
    ended = cli("new", "study", "--data", "own.csv", "--target-column", "ill", "--client-column", "site")
    kept = "number, age (42 different texts), smoker (2 different texts)"
    assert ended.code == 0 and ended.out.splitlines()[1:] == [
        "own.csv: 60 rows.",
        "ill is predicted, as classes: Ill, ill, well. The inputs are " + kept + ".",
        "Each value of site is a client: a, b, c.",
        "Left out of `input`, for rows do not differ there: empty.",
        "Left out of `input`, for names and free text look like this: said (60 different texts).",
        "Left out of `input`, for each date would be a column of its own: day (dates). Numbers may be made of them, "
        "such as the month, or the days since the first.",
        "Gaps in the inputs, which a run fills by the median or the most frequent text: 1.",
        "number has another whole number in each row: if it numbers the rows, take it out of `input`.",
        "age is text, since not all of it are numbers: mend 'old', or leave it empty.",
        "'Ill' and 'ill' are two classes of ill: if they are one, spell them alike.",
    ]
    study = tomllib.loads((here / "study" / "study.toml").read_text())
    assert study["input"] == ["number", "age", "smoker"] and study["task"] == "classification"
    monkeypatch.chdir(here / "study")
    ran = cli("run", "--config", "study.toml", "--rounds", "1", "--steps", "1", "--seeds", "0")
    assert ran.code == 0 and "2 columns of text (age, smoker) became" in ran.err and "'old' among its numb" in ran.err


AMOUNTS = {  # a target -> what is learned of it, and whether a run that is not told so asks
    "whole amounts": ([str(20_000 + 97 * i) for i in range(60)], "regression", True),
    "fractions": ([f"{i}.5" for i in range(60)], "regression", False),
    "numbered classes": ([str(i % 30) for i in range(60)], "classification", False),
    "few numbers": ([str(3 * (i % 20)) for i in range(60)], "classification", False),
    "truth values": ([str(i % 2 == 0) for i in range(60)], "classification", False),
    "words": (["yes", "no", "0"] * 20, "classification", False),
}


@pytest.mark.parametrize("targets, task, asked", AMOUNTS.values(), ids=AMOUNTS)
def test_numbers_that_hardly_repeat_are_amounts(here: Path, targets, task, asked):
    lines = ["a,fixed,goal,who", *(f"{i % 7},5,{goal},{'xy'[i % 2]}" for i, goal in enumerate(targets))]
    (here / "own.csv").write_text("\n".join(lines))
    named = "--data", "own.csv", "--target-column", "goal", "--client-column", "who"
    made = cli("new", "study", *named).out
    how = "amounts" if task == "regression" else "classes"
    assert f"goal is predicted, as {how}: " in made and "for rows do not differ there: fixed." in made
    study = tomllib.loads((here / "study" / "study.toml").read_text())
    assert study["task"] == task and study["input"] == ["a"]
    short = "--rounds", "1", "--steps", "1", "--lr", "1e-9"
    alone = cli("run", *named, *short)
    if asked:
        sentence(alone, "own has 60 different whole numbers as labels of 60 samples: say task='regression' (--task")
    else:
        assert alone.code == 0, alone.err
    assert cli("run", "--config", "study/study.toml", "--seeds", "0", *short).code == 0


def test_texts_are_told_with_their_owners(here: Path):
    lines = [{"text": f"line {i}", "label": "ab"[i % 2], "user": "xyz"[i % 3]} for i in range(30)]
    (here / "own.jsonl").write_text("\n".join(map(json.dumps, lines)))
    ended = cli("new", "study", "--data", "own.jsonl")
    assert ended.out.splitlines()[1:] == ["own.jsonl: 30 texts. label is predicted.", "Each value of user is a client."]
    study = tomllib.loads((here / "study" / "study.toml").read_text())
    assert study["client_column"] == "user" and "split" not in study
    (here / "own.jsonl").write_text("\n".join(json.dumps({"text": line["text"]}) for line in lines))
    ended = cli("new", "other", "--data", "own.jsonl")
    assert "The next word is predicted." in ended.out and "If a field says whose a text is" in ended.out
    assert tomllib.loads((here / "other" / "study.toml").read_text())["split"] == "dirichlet(0.1)"
    sentence(cli("new", "third", "--data", "own.jsonl", "--client-column", "who"), "there is no field 'who', but text")


def told(lines: list[str], *given: str) -> list[str]:
    """What `apiece new` says of a table, without its first sentences."""
    Path("own.csv").write_text("\n".join(lines))
    ended = cli("new", "study", "--data", "own.csv", *given)
    assert ended.code == 0, ended.err
    return ended.out.splitlines()[3:]


def test_a_column_that_tells_the_target_is_told(here: Path):
    """A code of the target does; a number of the row, and a code with one exception, do not; nor do few rows."""
    rows = [f"{'HIJ'[i % 3]},{'xyz'[i % 3 if i != 9 else 1]},{i},{i % 3}" for i in range(40)]
    said = "Each value of code goes with one label: if it is made of it, take it out of `input`."
    assert told(["code,nearly,number,label", *rows])[-1] == said
    shutil.rmtree("study")
    assert not any("goes with" in line for line in told(["code,nearly,number,label", *rows[:12]]))


def test_nines_far_from_all_other_numbers_are_told(here: Path):
    rows = [f"{-999 if i in (3, 8) else 20 + i},{99 if i == 4 else 2 * i},{i % 5 and 9999},{i % 2}" for i in range(30)]
    assert told(["heat,age,days,label", *rows])[-1] == (
        "heat is -999 in 2 rows, far from its other numbers: leave a gap empty."
    )


def test_one_client_alone_is_told(here: Path):
    rows = [f"{i},{i % 2},north" for i in range(30)]
    said = told(["age,label,site", *rows], "--client-column", "site")
    assert "With one client alone nothing is federated: give another --client-column, or none." in said


@pytest.mark.parametrize(
    "text, given, said",
    [
        ("", [], "the file is empty: give a line of names"),
        ("a,label\n", [], "the table has no row"),
        ("a;label\n1;2\n", [], "its columns are separated by ';': save it with commas"),
        ("a,b\n1,2\n", [], "columns are a, b; it needs 'label' or another target"),
        ("a,b\n1,2\n", ["--target-column", "b", "--client-column", "b"], "column 'b' is named twice"),
        ("a,label\n1,2\n3,\n4,NaN\n", [], "label, which is predicted, is missing in 2 of 3 rows, first in line 3 of"),
        ("a,label,who\n1,2,x\n3,1\n", ["--client-column", "who"], "who, which names the client, is missing in 1 of 2"),
        ("a,label\n1,2\n3,2\n", [], "label is '2' in all rows: predict another column"),
        ("a,label\n1,2\n3,1,9\n", [], "line 3: it has 3 cells, and there are 2 columns: put text"),
        ("a,label,who\n1,2,x\n3,1,y\n", ["--client-column", "who"], "who differs in all rows, and a client needs"),
        ("said,label\n" + "".join(f"text {i},{i % 2}\n" for i in range(30)), [], "no column can be an input"),
    ],
    ids="empty no-row semicolons no-target twice gap no-client one-class wide one-row-clients texts".split(),
)
def test_a_table_that_no_run_could_read_is_refused_at_once(here: Path, text, given, said):
    (here / "own.csv").write_text(text)
    sentence(cli("new", "study", "--data", "own.csv", *given), "own.csv", said)
    assert not (here / "study").exists()


def test_a_table_in_other_letters_or_with_tabs_is_refused(here: Path):
    (here / "own.csv").write_bytes("a,label\nétude,1\n".encode("latin-1"))
    (here / "own.tsv").write_text("a\tlabel\n1\t2\n")
    sentence(cli("new", "study", "--data", "own.csv"), "not encoded as UTF-8: save it as UTF-8")
    sentence(cli("run", "--data", "own.csv"), "not encoded as UTF-8: save it as UTF-8")
    sentence(cli("new", "study", "--data", "own.tsv"), "own.tsv: is not read: save it as a .csv, with commas")
    assert not (here / "study").exists()


def test_data_that_are_not_there_are_refused(here: Path):
    sentence(cli("new", "study", "--data", "nope.csv"), "nothing lies there, and no data set has that name; allowed: ")
    (here / "coffee.csv").write_text("")
    sentence(cli("new", "study", "--data", "cofee.csv"), "nothing lies there", "name; 'coffee.csv' may be meant.")
    sentence(cli("run", "--data", "cofee.csv"), "no such file or folder; 'coffee.csv' may be meant, or give an .npz,")
    sentence(cli("run", "--data", "no/cofee.csv"), "no such file or folder; give an .npz,")
    (here / "coffee.csv").unlink()
    sentence(cli("new", "study", "--client-column", "site"), "'site' is named, and no table that has it: give")
    assert not list(here.iterdir())


def test_a_column_that_the_table_does_not_have_is_refused(here: Path):
    import pandas

    (here / "own.csv").write_text("\ufeff\nbakery,day,waste\nann,1,2\n", encoding="utf-8")
    pandas.DataFrame({"bakery": ["ann"], "waste": [2]}).to_parquet(here / "own.parquet")
    given = ["new", "study", "--client-column", "bakery", "--target-column"]
    told = "own.csv: there is no column 'wast', which target_column names; did you mean 'waste'? Allowed: bakery, day,"
    sentence(cli(*given, "wast", "--data", "own.csv"), told)
    sentence(cli(*given, "wast", "--data", "own.parquet"), "own.parquet: there is no column 'wast'", "'waste'")
    told = "own.csv: there is no column 'shop', which client_column names"
    sentence(cli("new", "study", "--data", "own.csv", "--client-column", "shop"), told)
    told = "'bakery,day' is no column: name columns apart, as in --input bakery day."
    sentence(cli("run", "--data", "own.csv", "--target-column", "waste", "--input", "bakery,day"), told)
    assert not (here / "study").exists()


def test_decimal_commas_and_clients_that_are_spelled_twice_are_told(here: Path):
    rows = "".join(f'"{k},5",2.{k},{k % 2},{("Huila", "huila ", "Cauca")[k % 3]}\n' for k in range(30))
    (here / "own.csv").write_text("size,weight,label,who\n" + rows)
    told = cli("new", "study", "--data", "own.csv", "--client-column", "who").out.splitlines()
    assert told[-2:] == [
        "'Huila' and 'huila ' are two clients of who: if they are one, spell them alike.",
        "size has decimal commas: write points.",
    ]


def test_a_parquet_table_is_looked_at_as_one_of_comma_separated_values_is(here: Path):
    """Numbers, lists of numbers, text, dates, truth values, gaps; a column that pandas reads as the index is none."""
    import pandas

    table = pandas.DataFrame({"age": range(40), "old": [k > 20 for k in range(40)], "site": ["a", "b"] * 20})
    table["day"] = pandas.date_range("2024-01-01", periods=40)
    table["vector"], table["note"] = [[0.5, k] for k in range(40)], [f"{k} is a number" for k in range(40)]
    table["ill"] = ["ill" if k % 3 else "well" for k in range(40)]
    table.loc[3, "age"] = None
    table.set_index("note").to_parquet(here / "indexed.parquet")
    table.to_parquet(here / "own.parquet")
    given = "--target-column", "ill", "--client-column", "site"
    told = cli("new", "study", "--data", "own.parquet", *given).out
    for sentence_ in (
        "own.parquet: 40 rows.", "The inputs are age, old, vector.", "Each value of site is a client: a, b.",
        "for names and free text look like this: note (40 different texts)", "day (dates)", "most frequent text: 1.",
    ):  # fmt: skip
        assert sentence_ in told
    assert 'input = ["age", "old", "vector"]' in (here / "study" / "study.toml").read_text()
    assert cli("run", "--config", "study/study.toml", "--rounds", "1", "--steps", "1", "--seeds", "0").code == 0
    assert "note" not in cli("new", "other", "--data", "indexed.parquet", *given).out

    table.loc[4, "ill"] = None
    table.to_parquet(here / "gap.parquet")
    table[:0].to_parquet(here / "empty.parquet")
    (here / "broken.parquet").write_text("none")
    given = "new", "study-2", *given, "--data"
    sentence(cli(*given, "gap.parquet"), "ill, which is predicted, is missing in 1 of 40 rows, first in row 5 of")
    sentence(cli(*given, "empty.parquet"), "empty.parquet: the table has no row")
    sentence(cli(*given, "broken.parquet"), "broken.parquet: is no .parquet table: Parquet")
    assert not (here / "study-2").exists()


@pytest.mark.parametrize("name", ["a study", "..", ".", "x/y!", "étude", ""])
def test_a_bad_name_is_refused_in_one_sentence(here: Path, name):
    ended = cli("new", name)
    assert ended.code == 2 and "as in `apiece new my-study`" in ended.err and ended.err.count("\n") == 1
    assert not list(here.iterdir())


def test_a_file_in_the_way_is_named(here: Path):
    (here / "there").write_text("")
    ended = cli("new", "there/study")
    assert ended.code == 2 and "there is a file" in ended.err


@pytest.mark.slow
def test_every_command_of_the_readme_and_the_notebook_run_as_they_stand(here: Path, monkeypatch: pytest.MonkeyPatch):
    assert cli("new", "study").code == 0
    monkeypatch.chdir(here / "study")
    blocks = re.findall(r"```bash\n(.*?)```", Path("README.md").read_text(), re.S)
    commands = [shlex.split(line) for block in blocks for line in block.splitlines()]
    names = ("run", "compare", "check", "run", "compare")
    assert [words[:2] for words in commands] == [["apiece", name] for name in names]
    measured_less = shlex.split("apiece run --config study.toml --rounds 4 --eval-every 2 --out runs/shorter")
    for words in (*commands, measured_less):
        subprocess.run([sys.executable, "-m", *words], check=True, capture_output=True)
    assert Path("runs/report.html").is_file()
    monkeypatch.syspath_prepend(".")
    monkeypatch.setattr(plt, "show", lambda: plt.close("all"))
    space: dict = {"__name__": "__main__"}
    try:
        for cell in json.loads(Path("study.ipynb").read_text())["cells"]:
            if cell["cell_type"] == "code":
                exec("".join(cell["source"]), space)
    finally:
        sys.modules.pop("at_home", None)
    curves, rounds = space["curves"], space["rounds"]
    assert set(curves) == {"at_home", "fedavg", "shorter"}, "the reference rows are in the report"
    assert curves["at_home"][:, -1].mean() > 0.9 > curves["fedavg"][:, -1].mean()
    assert rounds["shorter"] == [2, 4] and curves["shorter"].shape == (3, 2) and rounds["fedavg"] == [5, 10, 15, 20]
    assert space["result"].metrics[-1]["global_accuracy"] > 0.8


def test_the_page_shows_the_readmes_commands(here: Path):
    page = (ROOT / "docs" / "howto" / "new-study.md").read_text()
    first, _, *shown = re.findall(r"^\$ (.*)$", page, re.M)
    printed = cli(*shlex.split(first)[1:]).out
    assert printed in page and all(command in Path("my-study/README.md").read_text() for command in shown)
