"""Tables with text and gaps: prepared as scikit-learn's parts do it, and read alike by every later command."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest
import torch
from sklearn.compose import ColumnTransformer
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, OrdinalEncoder, StandardScaler
from support.outer import cli, sentence

from apiece.data.arrays import from_arrays, held_out
from apiece.data.columns import Columns
from apiece.data.frames import codes, from_frame
from apiece.data.preparing import Preparation
from apiece.errors import UserError
from apiece.experiment.launch import federate, resume
from apiece.randomness import generator

RNG = generator(0, "prepared tables test")
N = 200
AGE, CITY = RNG.normal(40, 10, N), np.array(["Bern", "Rome", "Oslo"], dtype=object)[RNG.integers(0, 3, N)]
TABLE = pandas.DataFrame(
    {
        "age": np.where(RNG.random(N) < 0.1, np.nan, AGE),
        "city": np.where(RNG.random(N) < 0.1, None, CITY),
        "paid": RNG.integers(0, 9, N),
        "bought": np.where(AGE + 5 * (CITY == "Rome") > 41, "yes", "no"),
        "shop": np.array(["north", "south", "west"])[np.arange(N) % 3],
    }
)
COLUMNS = Columns(target="bought", client="shop")
SETTINGS: dict[str, Any] = {"target_column": "bought", "client_column": "shop", "split": "natural"}
QUICK: dict[str, Any] = {"model": "mlp(hidden=[4])", "rounds": 2, "steps": 2, "batch": 8}
NUMBERS = make_pipeline(SimpleImputer(strategy="median"), StandardScaler())


@pytest.mark.parametrize("encode", ["onehot", "ordinal"])
def test_the_numbers_are_those_of_scikit_learns_parts(encode):
    data = from_frame(TABLE, "shops", COLUMNS._replace(prepare=encode))
    held = held_out(TABLE["bought"].to_numpy(), 0.2, TABLE["shop"].to_numpy())
    text = {
        "onehot": make_pipeline(SimpleImputer(strategy="most_frequent"), OneHotEncoder(sparse_output=False)),
        "ordinal": make_pipeline(SimpleImputer(strategy="most_frequent"), OrdinalEncoder(), StandardScaler()),
    }[encode]
    parts = [("age", NUMBERS, ["age"]), ("city", text, ["city"]), ("paid", NUMBERS, ["paid"])]
    oracle = ColumnTransformer(parts).fit(TABLE[~held])
    assert np.array_equal(data.x_train, oracle.transform(TABLE[~held]).astype(np.float32))
    assert np.array_equal(data.x_test, oracle.transform(TABLE[held]).astype(np.float32))


def test_the_run_is_that_of_the_numbers_and_says_what_was_done(capsys):
    result = federate(data=TABLE, **QUICK, **SETTINGS, progress=True)
    data = result.experiment.dataset
    assert data is not None and data.x_train.shape[1] == 5
    plain = from_arrays(
        "your own", data.x_train, data.y_train, data.x_test, data.y_test, data.natural_train, data.natural_test
    )
    again = federate(data=plain, **QUICK, split="natural")
    assert torch.equal(again.server.params, result.server.params)
    line = capsys.readouterr().err
    for said in ("1 column of text (city) became 3 (onehot)", "gaps filled", "2 columns standardized", "clients share"):
        assert said in line


def test_each_client_may_fit_on_its_own(capsys):
    """Then each client's own columns have mean 0 and deviation 1, and a test sample is read as its client's."""
    result = federate(data=TABLE.drop(columns="city").dropna(), **QUICK, **SETTINGS, fit="client", progress=True)
    place = result.experiment.federation
    assert "each client's own" in capsys.readouterr().err
    own = TABLE.drop(columns="city").dropna()
    for i, name in enumerate(place.names):
        x = place.pool[0][place.train[i]].double()
        assert torch.allclose(x.mean(0), torch.zeros(2).double(), atol=1e-6)
        assert torch.allclose(x.std(0, unbiased=False), torch.ones(2).double(), atol=1e-6)
        mine = own[own["shop"] == name]["paid"].to_numpy()
        both = torch.cat([place.pool[0][place.train[i]], place.test_pool[0][place.test[i]]])[:, 1]
        values = np.unique(mine)  # one scale for both parts: as many different numbers as in the column
        assert len(torch.unique(both)) == len(values)


def test_several_labels_beside_text_are_several_labels():
    """Before the columns are numbers, nothing stands for samples whose shape could be taken for that of the labels."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 2, (60, 2))
    frame = pandas.DataFrame({"a": rng.random(60), "word": rng.choice(["x", "y"], 60), "label": labels.tolist()})
    made = from_frame(frame, "several")
    assert made.task == "multilabel" and made.x_train.shape == (48, 3)
    assert (np.concatenate([made.targets_train, made.targets_test]).sum(0) == labels.sum(0)).all()


def test_words_that_were_never_seen():
    made = from_frame(TABLE, "shops", COLUMNS).preparation
    strange = TABLE.head(2).assign(city=["Paris", "Rome"])
    x = made(codes("new", strange, made))
    assert x[0, 1:4].tolist() == [0, 0, 0] and x[1, 1:4].sum() == 1


def test_numbers_without_gaps_are_taken_as_they_are():
    plain = pandas.DataFrame({"a": AGE, "b": [1, 2] * (N // 2), "label": TABLE["bought"]})
    data = from_frame(plain, "plain")
    assert data.preparation is None and set(data.x_train[:, 1]) == {1.0, 2.0}
    assert abs(from_frame(plain, "plain", Columns(prepare="onehot")).x_train.mean()) < 1e-6


MANY = np.array([f"u{i}" for i in range(N)])
MISTAKES = [
    (TABLE.assign(user=MANY), {}, "'user': it has 1.. different texts in 160 training rows"),
    (TABLE.assign(user=None), {}, "'user': it has no value at all"),
    (TABLE.assign(age=np.inf), {}, "'age': row 0"),
    (TABLE.drop(columns="age"), {"prepare": "plain"}, "features must be numbers"),
    (TABLE, {"prepare": "plain"}, "'age': row "),
    (TABLE.assign(shop=None), {}, "'shop': it has no value at all"),
    (TABLE.assign(shop=[["north", "west"]] * N), {}, "'shop': it holds lists: name a column of words or of numbers"),
    (TABLE.assign(bought=np.where(MANY == "u3", None, TABLE["bought"])), {}, "'bought': row 3"),
]


@pytest.mark.parametrize(("table", "named", "said"), MISTAKES)
def test_mistakes_get_one_sentence(table, named, said):
    with pytest.raises(UserError, match=said) as error:
        from_frame(table, "shops", COLUMNS._replace(**named))
    assert "\n" not in str(error.value)


def test_a_column_of_very_many_words_is_refused_or_numbered():
    n = 5000
    table = pandas.DataFrame({"id": [f"i{i % 2000}" for i in range(n)], "a": np.arange(n), "label": np.arange(n) % 2})
    with pytest.raises(UserError, match="'id': it has .,... different texts, which would become as many columns"):
        from_frame(table, "many", Columns(prepare="onehot"))
    assert from_frame(table, "many", Columns(prepare="ordinal")).x_train.shape == (4000, 2)


def test_what_is_kept_is_read_back_bitwise(tmp_path):
    made = from_frame(TABLE, "shops", COLUMNS).preparation
    made.save(tmp_path / "p.json")
    assert Preparation.load(tmp_path / "p.json") == made
    (tmp_path / "p.json").write_text("{")
    with pytest.raises(UserError, match="p.json is damaged"):
        Preparation.load(tmp_path / "p.json")


@pytest.mark.parametrize("place, value", [
    ("encode", "other"), ("fit", "other"), ("fill", ["a", 1, 2]), ("fill", [1.0]), ("mean", None), ("scale", [0, 1, 1]),
    ("parts", []), ("parts", {}), ("parts.name", 3), ("parts.width", "a"), ("parts.width", 0), ("parts.width", 10**15),
    ("parts.categories", [1, 2]), ("parts.categories", []), ("parts.categories", ["u", "u"]),
], ids=str)  # fmt: skip
def test_what_is_kept_and_edited_is_refused(place, value, tmp_path):
    path = tmp_path / "p.json"
    from_frame(TABLE, "shops", COLUMNS).preparation.save(path)
    made = json.loads(path.read_text())
    *inner, field = place.split(".")
    (made["parts"][0] if inner else made)[field] = value
    path.write_text(json.dumps(made))
    with pytest.raises(UserError, match=r"p\.json is damaged: put it back from a copy, or remove it"):
        from_frame(TABLE, "shops", COLUMNS._replace(kept=path))
    path.write_text("[" * 100_000)
    with pytest.raises(UserError, match=r"p\.json is damaged"):
        Preparation.load(path)


@pytest.mark.slow
@pytest.mark.parametrize("fit", ["pooled", "client"])  # what is kept holds all of it, or the categories alone
def test_a_killed_run_goes_on_and_a_new_client_is_read_alike(fit, tmp_path: Path):
    TABLE.to_csv(tmp_path / "shops.csv", index=False)
    words: list[Any] = ["--data", tmp_path / "shops.csv", "--target-column", "bought", "--client-column", "shop"]
    words += ["--split", "natural", "--fit", fit, "--model", "mlp(hidden=[4])", "--steps", 2, "--batch", 8]
    assert cli("run", *words, "--rounds", 4, "--out", tmp_path / "whole").code == 0
    assert cli("run", *words, "--rounds", 2, "--out", tmp_path / "run").code == 0
    kept = (tmp_path / "run" / "preparation.json").read_bytes()
    resume(tmp_path / "run", rounds=4)
    for name in ("model.safetensors", "preparation.json"):
        assert (tmp_path / "run" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
    assert (tmp_path / "run" / "preparation.json").read_bytes() == kept
    new = TABLE.head(40).assign(split=["train"] * 30 + ["test"] * 10, city="Paris")
    new.to_csv(tmp_path / "new.csv", index=False)
    moved = shutil.move(tmp_path / "run", tmp_path / "moved")
    ended = cli("personalize", moved, "--data", tmp_path / "new.csv", "--out", tmp_path / "new.safetensors")
    assert ended.code == 0 and "10 test samples" in ended.out
    new.drop(columns="age").to_csv(tmp_path / "new.csv", index=False)
    ended = cli("personalize", moved, "--data", tmp_path / "new.csv", "--out", tmp_path / "new.safetensors")
    sentence(ended, "lacks the columns age")


def test_a_new_clients_table_need_not_name_it_and_an_archive_is_told_what_else_is_read(tmp_path):
    """A client's own table has no column of hospitals; an array of other columns than the prepared ones is refused."""
    rows = [f"{'ab'[i % 2]},{i},{['red', 'blue'][i % 3 % 2]},{['flu', 'none'][i % 5 % 2]}" for i in range(40)]
    (tmp_path / "own.csv").write_text("\n".join(["hospital,age,ward,ill", *rows]))
    (tmp_path / "new.csv").write_text("\n".join(["age,ward,ill", *(row[2:] for row in rows[:9])]))
    np.savez(tmp_path / "new.npz", x_train=np.ones((4, 2)), y_train=np.array(["flu", "none"] * 2))
    asked = ["--target-column", "ill", "--client-column", "hospital", "--rounds", "1", "--steps", "1", "--quiet"]
    assert cli("run", "--data", tmp_path / "own.csv", *asked, "--out", tmp_path / "run").code == 0
    where = ["personalize", tmp_path / "run", "--out", tmp_path / "new.safetensors", "--data"]
    assert cli(*where, tmp_path / "new.csv").code == 0
    sentence(cli(*where, tmp_path / "new.npz"), "samples of shape [2]", "a .csv or .parquet with the run's columns")
