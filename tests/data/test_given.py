"""Every kind of data that a program gives makes the run that the same arrays make."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas
import pytest
import torch
from scipy.sparse import csr_matrix
from torch import nn
from torch.utils.data import IterableDataset, TensorDataset

from apiece.data.arrays import from_arrays
from apiece.data.columns import Columns
from apiece.data.given import as_dataset
from apiece.errors import UserError
from apiece.experiment.launch import federate
from apiece.experiment.result import Result
from apiece.randomness import generator

RNG = generator(0, "given data test")
X = RNG.standard_normal((90, 4)).astype(np.float32)
Y = (X[:, 0] > 0).astype(np.int64) + (X[:, 1] > 0)
OWNER = np.array(["ann", "bob", "eve"])[np.sort(RNG.integers(0, 3, 90))]
IMAGE = np.zeros((3, 4, 4))
WHO = list(dict.fromkeys(OWNER.tolist()))
QUICK: dict[str, Any] = {"rounds": 2, "steps": 2, "batch": 8, "split": "dirichlet(0.5)", "clients": 3}
TABLE = pandas.DataFrame({**{f"x{i}": X[:, i] for i in range(4)}, "label": Y})


def ran(data: Any, **settings: Any) -> Result:
    torch.manual_seed(0)
    return federate(nn.Linear(4, 3), data, **QUICK | settings)


def same(one: Result, two: Result) -> bool:
    logs = [[{k: v for k, v in info.items() if k != "seconds"} for info in r.metrics] for r in (one, two)]
    return torch.equal(one.server.params, two.server.params) and repr(logs[0]) == repr(logs[1])


class Items:
    """A map-style dataset of PyTorch's kind, of dictionaries."""

    def __len__(self) -> int:
        return len(Y)

    def __getitem__(self, i: int) -> dict[str, Any]:
        return {"features": torch.from_numpy(X[i]), "label": int(Y[i])}


def arrow() -> Any:
    import pyarrow

    return pyarrow.Table.from_pandas(TABLE)


def hub() -> Any:
    import datasets

    return datasets.Dataset.from_dict({"features": X.tolist(), "label": Y.tolist()})


def polars() -> Any:
    return pytest.importorskip("polars").DataFrame(TABLE.to_dict("list"))


SOURCES = {
    "pandas": lambda: TABLE,
    "arrow": arrow,
    "polars": polars,
    "pair of a frame": lambda: (TABLE.drop(columns="label"), TABLE["label"]),
    "torch pairs": lambda: TensorDataset(torch.from_numpy(X), torch.from_numpy(Y)),
    "torch fields": Items,
    "hugging face": hub,
    "parts": lambda: {"train": (X, Y)},
}


@pytest.mark.parametrize("kind", SOURCES)  # each is read by code of its own
def test_every_source_gives_the_run_of_its_arrays(kind):
    assert same(ran(SOURCES[kind]()), ran((X, Y)))


# --- clients given apart ---------------------------------------------------------------------------------------------
def apart(kind: str) -> Any:
    own = {who: (X[OWNER == who], Y[OWNER == who]) for who in WHO}
    if kind == "datasets":
        return {who: TensorDataset(*map(torch.from_numpy, pair)) for who, pair in own.items()}
    if kind == "frames":
        return {who: TABLE[OWNER == who] for who in WHO}
    return own if kind == "dictionary" else list(own.values())


@pytest.mark.parametrize("kind", ["dictionary", "datasets", "frames", "list"])
def test_clients_that_are_given_apart_stay_as_they_are(kind):
    """In their order, all of them, each tested on its own samples: as arrays with owners are."""
    result, data = ran(apart(kind), split="given", clients=None), from_arrays("your own", X, Y, natural_train=OWNER)
    place = result.experiment.federation
    assert list(place.names) == (WHO if kind != "list" else ["client-0", "client-1", "client-2"])
    assert same(result, ran(data, split="given", clients=None)) or kind == "list"
    for i, who in enumerate(WHO):
        rows = {row.tobytes() for row in X[OWNER == who]}
        train, test = place.pool[0][place.train[i]], place.test_pool[0][place.test[i]]
        assert {row.numpy().tobytes() for row in (*train, *test)} == rows and len(test)


def test_the_split_of_clients_given_apart_need_not_be_named():
    named = {k: v for k, v in QUICK.items() if k not in ("split", "clients")}
    result = federate(nn.Linear(4, 3), apart("dictionary"), **named)
    assert result.experiment.config.split == "given" and list(result.experiment.federation.names) == WHO
    result = federate(nn.Linear(4, 3), apart("dictionary"), split="auto", **named)  # what it is by default
    assert list(result.experiment.federation.names) == WHO
    pooled = ran(apart("dictionary"))  # another split, if it is named
    assert list(pooled.experiment.federation.names) == ["client-0", "client-1", "client-2"]


def test_train_and_test_by_client():
    first = np.arange(90) % 3 > 0
    parts = {
        part: {who: (X[(OWNER == who) & mask], Y[(OWNER == who) & mask]) for who in WHO}
        for part, mask in (("train", first), ("test", ~first))
    }
    result = ran(parts, split="given", clients=None)
    place = result.experiment.federation
    for i, who in enumerate(WHO):
        assert np.array_equal(place.pool[0][place.train[i]].numpy(), X[(OWNER == who) & first])
        assert np.array_equal(place.test_pool[0][place.test[i]].numpy(), X[(OWNER == who) & ~first])
    four = {who: (*parts["train"][who], *parts["test"][who]) for who in WHO}
    assert same(ran(four, split="given", clients=None), result)
    with pytest.raises(UserError, match="'zoe' has test samples and none to train on"):
        ran({**parts, "test": {**parts["test"], "zoe": (X[:3], Y[:3])}}, split="given")


# --- a split as lists of indices -------------------------------------------------------------------------------------
def test_a_split_as_lists_of_indices():
    lists = {who: np.flatnonzero(OWNER == who) for who in WHO}
    parts = {"train": apart("dictionary"), "test": (X[:9], Y[:9])}
    tested = ran((X, Y, X[:9], Y[:9]), split=lists, clients=None)
    assert same(tested, ran(parts, split="given", clients=None))
    result = ran((X, Y), split=lists, clients=None)
    masks = {who: torch.from_numpy(OWNER == who) for who in WHO}
    assert same(result, ran((X, Y), split=masks, clients=None))
    official = ran((X[:60], Y[:60], X[60:], Y[60:]), split=[[0, 5, 7], list(range(20, 60))], clients=None)
    assert [rows.tolist() for rows in official.experiment.federation.train] == [[0, 5, 7], list(range(20, 60))]


def test_a_run_with_lists_resumes(tmp_path):
    settings: dict[str, Any] = {"split": [range(40), range(40, 90)], "clients": None, "out": str(tmp_path / "run")}
    ran((X, Y), **settings)
    longer = ran((X, Y), **settings | {"rounds": 4}, resume=True)
    assert same(longer, ran((X, Y), **settings | {"rounds": 4, "out": None}))
    with pytest.raises(UserError, match="other data"):
        ran((X, Y), **settings | {"split": [range(30), range(30, 90)]}, resume=True)


LISTS = [
    ([], "0 lists"),
    ([[], [1, 2]], "client 'client-0': it has no sample"),
    ([[0, 90], [1]], "go from 0 to 90.*samples 0 to 89"),
    ([[-1], [1]], "go from -1"),
    ([[0, 0], [1]], "stands there twice"),
    ([[0.5], [1]], "whole numbers"),
    ([[[0]], [1]], "whole numbers"),
    ({1: [0], "1": [1]}, "2 lists of 1 clients"),
    ({"a": [0], "b\udcff": [1]}, "client .b.udcff. has a character that no file can hold"),
]


@pytest.mark.parametrize(("lists", "said"), LISTS)
def test_lists_that_are_no_split(lists, said):
    with pytest.raises(UserError, match=said):
        ran((X, Y), split=lists, clients=None)
    with pytest.raises(UserError, match="lists for 2 clients, not 5"):
        ran((X, Y), split=[[1, 2, 3, 4, 5, 6, 7, 8], range(10, 90)], clients=5)


# --- natural clients -------------------------------------------------------------------------------------------------
def test_natural_takes_all_clients_if_their_number_is_not_said():
    owned = from_arrays("mine", X, Y, natural_train=OWNER)
    assert same(ran(owned, split="natural", clients=None), ran(owned, split="natural", clients=3))
    assert ran(owned, split="dirichlet(10)", clients=None).experiment.config.clients == 20


# --- sequences of unequal length -------------------------------------------------------------------------------------
def test_items_of_unequal_length_and_tokens_are_trees():
    """As the lists and dictionaries are that they stand for; clients are found in both."""
    rows = [X[i, : 1 + i % 4] for i in range(90)]
    items, lists = as_dataset(Own(*zip(rows, Y.tolist()))), as_dataset((rows, Y))
    assert all(np.array_equal(a, b) for a, b in zip(items.inputs_train, lists.inputs_train, strict=True))
    ids = np.arange(90)[:, None] + np.arange(5)
    fields = [{"ids": row, "mask": row > 3, "y": int(y), "client": who} for row, y, who in zip(ids, Y, OWNER)]
    tokens = as_dataset(Own(*fields))
    assert tokens.inputs_train["ids"].dtype == np.int64 and tokens.inputs_train["mask"].shape[1:] == (5,)
    assert tokens.natural_train is not None and set(tokens.natural_train) == set(WHO)


def test_a_model_that_takes_no_mask_is_named():
    rows = [X[i, : 1 + i % 4, None] for i in range(90)]
    with pytest.raises(UserError, match="does not take samples"):
        ran((rows, Y), split=[range(45), range(45, 90)], clients=None)
    with pytest.raises(UserError, match="does not take samples"):
        federate(nn.GRU(1, 3), (rows, Y), **QUICK)


# --- mistakes --------------------------------------------------------------------------------------------------------
class Stream(IterableDataset):
    def __iter__(self) -> Any:
        return iter([(X[0], 1)])


class Own:
    def __init__(self, *items: Any):
        self.items = items

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, i: int) -> Any:
        return self.items[i]


class Failing(Own):
    def __getitem__(self, i: int) -> Any:
        if i:
            raise ValueError("torn.")
        return self.items[i]


WORDS = TABLE.drop(columns="label").assign(word=["u", "v", "w"] * 30)
MISTAKES = {
    "a stream": (Stream(), "stream without a length"),
    "a generator": ((pair for pair in [(X, Y)]), "read only once"),
    "a set": ({1, 2}, "not understood"),
    "three parts": (Own((1, 2, 3)), r"item 0 \(counted from 0\) is 3 parts"),
    "nothing": (Own(None), r"item 0 \(counted from 0\) is a NoneType: give pairs"),
    "unequal items": (Own((IMAGE, 1), (IMAGE[:, :3], 0)), r"items have 2 shapes, such as \[3, 3, 4\] and \[3, 4, 4\]"),
    "no client's data": ({"x": X, "y": Y}, "a dictionary by client, and 'x' holds a ndarray"),
    "three parts at a client": ({"a": (X, Y), "b": (X, Y, X)}, "'b' holds 3 parts"),
    "single samples": (list(zip(X, Y)), "a list of single samples"),
    "several parts at one client": (
        {"a": ((X, X), Y), "b": (X, Y)},
        "client 'a' have 2 parts .* of client 'b' one part",
    ),
    "other parts by client": ({"a": ({"u": X}, Y), "b": ({"v": X}, Y)}, "'a' have the parts u, .*'b' the parts v"),
    "parts of another length": ({"a": ({"u": X}, Y[:3])}, "client 'a': parts have 3 and 90 rows"),
    "other parts for testing": ({"train": {"a": ({"u": X}, Y)}, "test": {"a": (X, Y)}}, "the test samples one part"),
    "nothing at one client": ({"a": (X, Y), "b": ([], [])}, "client 'b': it has no sample"),
    "no items": (Own(), "no sample"),
    "other fields": (Own({"x": 1.0, "y": 0}, {"x": 1.0}), "different fields"),
    "no target": (Own({"x": 1.0, "z": 0}), "target_column"),
    "an empty client": ({"a": (X, Y), "b": (X[:0], Y[:0])}, "client 'b': it has no sample"),
    "labels of another length": ({"a": (X, Y[:3])}, "client 'a': it has 90 samples and 3 labels"),
    "other shapes by client": ([(X, Y), (X[:, :2], Y)], r"float32 of shape \[4\].*of shape \[2\]"),
    "an odd part": ({"train": (X, Y), "held": (X, Y)}, "not 'held'"),
    "no label column": (TABLE.drop(columns="label"), "columns are x0, x1, x2, x3; it needs 'label'"),
    "two columns of one name": (pandas.concat([TABLE, TABLE["x0"]], axis=1), "two columns are named 'x0'"),
    "no target at all": (TABLE.assign(label=None), "no value at all"),
    "dates": (TABLE.assign(when=pandas.Timestamp("2026-01-01")), "'when': it has dates"),
    "several kinds": (TABLE.assign(odd=[1, "a"] * 45), "values of type int, str"),
    "labels of other axes by client": (
        {"a": (X, Y), "b": (X, Y[:, None])},
        r"targets of client 'a' are int64 of shape \[\], those of 'b' int64 of shape \[1\]: make them alike",
    ),
    "targets of other width for testing": ((X, X[:, :2], X, X[:, :3]), r"targets are \[2\], test targets \[3\]; make"),
    "lists of unequal lengths in lists": (([[[1.0, 2.0], [3.0]], [[1.0]]] * 45, Y), "lists in lists have unequal"),
    "the same at a client": ({"a": ([[[1.0, 2.0], [3.0]]] * 90, Y)}, "lists in lists have unequal lengths"),
    "the same in items": (Own(*[([[1.0, 2.0], [3.0]], 1)] * 9), "lists in lists have unequal lengths"),
    "the same in parts": (({"u": [[[1.0], [1.0, 2.0]]] * 90}, Y), "lists in lists have unequal lengths"),
    "the same as labels": ({"a": (X, [[[1], [1, 2]]] * 90)}, "lists in lists have unequal lengths"),
    "a frame without labels": ((WORDS, None), "the labels of the frame are of type NoneType: give a list or an array"),
    "a frame with one label": ((WORDS, 3), "the labels of the frame are of type int"),
    "a frame with rows of labels": ((WORDS, np.stack([Y, Y], 1)), "the labels of the frame have 2 axes"),
    "bfloat16": ((torch.from_numpy(X).bfloat16(), Y), "a tensor of torch.bfloat16, .* does not become an array: give"),
    "bfloat16 labels": ((X, torch.from_numpy(X[:, 0]).bfloat16()), "a tensor of torch.bfloat16"),
    "bfloat16 at a client": ({"a": (torch.from_numpy(X).bfloat16(), Y)}, "a tensor of torch.bfloat16"),
    "bfloat16 in items": (Own((torch.ones(2, dtype=torch.bfloat16), 1)), "a tensor of torch.bfloat16"),
    "sparse": ((torch.from_numpy(X).to_sparse(), Y), "torch.sparse_coo, does not become an array: give x.to_de"),
    "sparse rows of scipy": ((csr_matrix(X), Y), "a csr_matrix is sparse: give x.toarray"),
    "the same at a client of two": ({"a": (csr_matrix(X), Y), "b": (X, Y)}, "a csr_matrix is sparse: give x.toarray"),
    "one item of many": (Own((X[0], 1), (X[1], 0), None), r"item 2 \(counted from 0\) is a NoneType"),
    "an item that fails": (Failing((X[0], 1), (X[1], 0)), r"item 1 \(counted from 0\) of the Failing .*Error: torn"),
    "sparse at a client": ({"a": (torch.from_numpy(X).to_sparse(), Y)}, "torch.sparse_coo, does not become"),
    "clients by number and text": (TABLE.assign(client=[1, "1", 2] * 30), "'1' names a client as a number and as a t"),
    "the same in items by client": (
        Own({"x": 1.0, "y": 0, "client": 1}, {"x": 2.0, "y": 1, "client": "1"}),
        "'1' names a client as a number and as a text: write it in one way",
    ),
    "test samples alone": ((X, Y, X, None), "there are test samples without test targets: give both or neither"),
    "test targets alone": ((X, Y, None, Y), "there are test targets without test samples: give both or neither"),
    "test samples alone as a part": ({"train": (X, Y), "test": (X, None)}, "test samples without test targets"),
    "test parts alone": (({"u": X}, Y, {"u": X}, None), "test samples without test targets"),
    "half a character in a client's name": ({"a": (X, Y), "b\udcff": (X, Y)}, "client 'b.udcff' has a character that"),
    "half a character in a label": ((X, np.array(["a", "b", "c\udcff"])[Y]), "label 'c.udcff' has a character that no"),
    "unlike tests": ({"train": TABLE, "test": TABLE.drop(columns="x0")}, "other columns"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_get_one_sentence(mistake):
    data, said = MISTAKES[mistake]
    with pytest.raises(UserError, match=said) as error:
        as_dataset(data)
    assert "\n" not in str(error.value)


def test_columns_that_are_named_wrongly():
    for columns, said in (
        (Columns(target="lable"), "no column 'lable', which target_column names; did you mean 'label'"),
        (Columns(input=("x0", "label")), "'label' is named twice"),
        (Columns(client="x9"), "client_column"),
    ):
        with pytest.raises(UserError, match=said):
            as_dataset(TABLE, columns)
    with pytest.raises(UserError, match="input is for tables"):
        as_dataset((X, Y), Columns(input=("x0",)))
    with pytest.raises(UserError, match="target_column"):
        ran(TABLE, target="label")


def test_clients_that_are_named_by_numbers_and_by_texts_keep_apart():
    data = as_dataset(TABLE.assign(client=np.array([1, "b", None] * 30, dtype=object)), Columns(target="label"))
    assert data.natural_train is not None and {*data.natural_train} == {"1", "b", None}
    with pytest.raises(UserError, match="'1' names a client as a number and as a text"):
        from_arrays("own", X, Y, X, Y, np.array([1, 2, 3] * 30), np.array(["1", "2", "3"] * 30))
    with pytest.raises(UserError, match=r"the clients of samples have the shape \[90, 2\]"):
        from_arrays("own", X, Y, natural_train=np.stack([Y, Y], 1))
    numbers = np.array([1, 2, 3] * 30)
    data = from_arrays("own", X, Y, natural_train=numbers)
    assert data.natural_train is not None and data.natural_train.dtype == numbers.dtype
