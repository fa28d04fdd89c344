"""Ready clients whose parts do not fit each other are refused in one sentence that names the part."""

import numpy as np
import pytest
import torch

from apiece import Federation, MadeFederation, federate
from apiece.errors import UserError

X, Y = torch.randn(60, 5, generator=torch.Generator().manual_seed(0)), torch.arange(60) % 3
HALVES = [torch.arange(0, 30), torch.arange(30, 60)]
TESTED = [torch.arange(0, 10), torch.arange(10, 20)]
FITTING = {"pool": (X, Y), "test_pool": (X, Y), "train": HALVES, "test": TESTED, "names": ["a", "b"]}
ONE_NAN = X.clone()
ONE_NAN[35, 2] = float("nan")

MISFITS = {
    "rows beyond the pool": ({"train": [HALVES[0], HALVES[1] + 10]}, "client 'b'", "go from 40 to 69", "rows 0 to 59"),
    "rows below it": ({"train": [HALVES[0], HALVES[0] - 5]}, "client 'b'", "go from -5 to 24", "rows 0 to 59"),
    "test rows beyond": ({"test": [HALVES[0], HALVES[1] + 10]}, "client 'b'", "test rows", "rows 0 to 59"),
    "a name twice": ({"names": ["a", "a"]}, "2 clients are named 'a'"),
    "too few names": ({"names": ["a"]}, "train is 2 tensors, for 1 names"),
    "too many names": ({"names": ["a", "b", "c"]}, "train is 2 tensors, for 3 names"),
    "too few tests": ({"test": TESTED[:1]}, "test is 1 tensors, for 2 names"),
    "numbers for names": ({"names": [1, 2]}, "names must be texts", "1 is none"),
    "a missing number": ({"pool": (ONE_NAN, Y)}, "pool: row 35", "NaN"),
    "one among the tests": ({"test_pool": (ONE_NAN, Y)}, "test_pool: row 35", "NaN"),
    "an infinite number": ({"pool": (X / 0, Y)}, "pool: row 0", "infinite"),
    "fewer targets": ({"pool": (X, Y[:50])}, "pool has tensors of 50 and 60 rows"),
    "samples alone": ({"pool": X}, "pool is a Tensor", "pair"),
    "no pool": ({"pool": None}, "pool is a NoneType", "pair"),
    "a dict": ({"pool": {"x": X, "y": Y}}, "pool is a dict", "pair"),
    "arrays": ({"pool": (X.numpy(), Y.numpy())}, "pool holds a ndarray", "torch.as_tensor"),
    "no rows": ({"train": None}, "train is a NoneType"),
    "rows as lists": ({"train": [list(range(30)), list(range(30, 60))]}, "client 'a'", "a list", "int64"),
    "rows as arrays": ({"train": [half.numpy() for half in HALVES]}, "client 'a'", "a ndarray", "int64"),
    "a mask": (
        {"train": [torch.arange(60) < 30, torch.arange(60) >= 30]},
        "client 'a'",
        "torch.bool",
        "mask.nonzero()",
    ),
    "rows as floats": ({"train": [half.float() for half in HALVES]}, "client 'a'", "torch.float32", "int64"),
    "rows in a column": ({"train": [half[:, None] for half in HALVES]}, "client 'a'", "[30, 1]", "int64"),
    "unseen beyond": ({"unseen": (5,)}, "unseen=5 is no client", "0 to 1"),
    "unseen below": ({"unseen": (-1,)}, "unseen=-1 is no client", "0 to 1"),
    "unseen by name": ({"unseen": ("a",)}, "unseen='a' is no client", "0 to 1"),
    "labels of bytes": ({"pool": (X, Y.to(torch.uint8))}, "torch.uint8", "torch.int64"),
    "tests of another type": ({"test_pool": (X.double(), Y)}, "torch.float32 of 2 axes", "torch.float64 of 2 axes"),
    "tests of more axes": ({"test_pool": (X[..., None], Y)}, "torch.float32 of 2 axes", "torch.float32 of 3 axes"),
    "tests of other parts": ({"test_pool": ({"x": X, "y": X}, Y)}, "pool is torch.float32", "make them alike"),
    "half a character": ({"names": ["a", "b\udcff"]}, "client 'b\\udcff' has a character that no file can hold"),
    "one class": ({"pool": (X, Y * 0), "test_pool": (X, Y * 0)}, "all labels are of one class"),
    "single numbers": ({"pool": (X[:, 0], Y), "test_pool": (X[:, 0], Y)}, "samples of shape []"),
}


# a case catches a part that is taken unread
@pytest.mark.parametrize("case", MISFITS)
def test_parts_that_do_not_fit_are_refused(case):
    parts, *words = MISFITS[case]
    with pytest.raises(UserError) as refusal:
        federate(clients=Federation(**FITTING | parts), rounds=1, steps=1)
    assert all(word in str(refusal.value) for word in words), str(refusal.value)


def made(client: int) -> tuple[torch.Tensor, torch.Tensor]:
    return X[:20] + client, Y[:20]


MADE = {"make": made, "count": 4, "samples_each": 20, "test_pool": (X, Y)}
UNMADE = {
    "a name twice": ({"names": ["a", "b", "a", "c"]}, "2 clients are named 'a'"),
    "numbers for names": ({"names": [1, 2, 3, 4]}, "names must be texts"),
    "too few names": ({"names": ["a", "b"]}, "count=4, and 2 clients have names"),
    "unseen beyond": ({"unseen": (4,)}, "unseen=4 is no client", "0 to 3"),
    "no count": ({"count": "4"}, "count='4' of a MadeFederation must be a whole number"),
    "no samples": ({"samples_each": 0}, "samples_each=0 of a MadeFederation must be a whole number"),
    "no test pool": ({"test_pool": X}, "test_pool is a Tensor", "pair"),
    "too few samples": ({"make": lambda client: (X[:19], Y[:19])}, "gives [19, 5]", "samples_each=20 rows"),
    "samples alone": ({"make": lambda client: X[:20]}, "gives a Tensor", "a pair (x, y)"),
    "arrays": ({"make": lambda client: (X[:20].numpy(), Y[:20])}, "gives a ndarray"),
    "another width": ({"make": lambda client: (X[:20, : 5 - client % 2], Y[:20])}, "of shape [4]", "of shape [5]"),
    "no number": ({"make": lambda client: (X[:20] / (client != 2), Y[:20])}, "make(2): row 0 (counted from 0) has a"),
    "an error": ({"make": lambda client: made(client // (client != 2))}, "make(2) fails: ZeroDivisionError: "),
    "a label beyond": ({"make": lambda client: (X[:20], Y[:20] + 5 * int(client == 2))}, "gives labels from 5 to"),
    "a label below": ({"make": lambda client: (X[:20], Y[:20] - int(client == 2))}, "make(2) gives labels from -1"),
    "another type": ({"make": lambda client: (X[:20].double(), Y[:20])}, "float64 of shape [5]", "make them alike"),
}


@pytest.mark.parametrize("case", UNMADE)
def test_clients_that_are_made_and_do_not_fit_are_refused(case):
    parts, *words = UNMADE[case]
    with pytest.raises(UserError) as refusal:
        federate(clients=MadeFederation(**MADE | parts), cohort=1.0, rounds=1, steps=1)
    assert all(word in str(refusal.value) for word in words), str(refusal.value)


def test_clients_that_are_made_may_be_counted_by_numpy_and_have_spare_rows():
    spare = lambda client: (X[: 20 + client], Y[: 20 + client])
    fitting = MADE | {"count": np.int64(4), "unseen": (np.int64(1),), "make": spare}
    assert federate(clients=MadeFederation(**fitting), cohort=1.0, rounds=1, steps=1).metrics


def test_clients_that_are_made_may_have_a_label_that_no_test_sample_has_if_the_model_scores_it():
    rare = lambda client: (X[:20], torch.arange(20) % 7)
    common = MadeFederation(rare, 4, 20, (X[:6], torch.arange(6)))
    with pytest.raises(UserError, match="labels from 0 to 6, and the model scores the classes 0 to 5: "):
        federate(clients=common, cohort=1.0, rounds=1, steps=1)
    assert federate(clients=common, model=torch.nn.Linear(5, 7), cohort=1.0, rounds=1, steps=1).metrics


def test_a_client_may_lack_samples_or_tests_and_draw_a_row_twice():
    few = [torch.zeros(4, dtype=torch.int64), torch.arange(0)]
    assert federate(clients=Federation(**FITTING | {"train": few, "test": few[::-1]}), rounds=1, steps=1).metrics
