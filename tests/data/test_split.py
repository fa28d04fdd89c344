"""Laws of a whole split: disjoint parts, nothing lost, clients tested on their own classes, saved and restored."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from apiece.config.splitting import make_split
from apiece.data.arrays import from_arrays
from apiece.data.ownership import Natural, Saved
from apiece.data.partitions import Classes, Dirichlet, DirichletPrior, DirichletRefill, Iid
from apiece.data.split import Split, divide
from apiece.errors import UserError
from apiece.randomness import generator


def toy():
    rng = generator(0, "toy")
    y, y_test = rng.permutation(np.repeat(np.arange(10), 200)), rng.permutation(np.repeat(np.arange(10), 100))
    owners, test_owners = rng.integers(0, 15, size=2000), rng.integers(0, 15, size=1000)
    return from_arrays("toy", np.zeros((2000, 2)), y, np.zeros((1000, 2)), y_test, owners, test_owners)


DATA = toy()
SPLITTERS = [Iid(), Dirichlet(0.1), DirichletRefill(0.1), DirichletPrior(0.1, 1.0), Classes(2), Natural()]


def flat(parts):
    return np.concatenate(parts)


def mixes(split):
    """How many test samples of each class each client has, [N, C]."""
    return np.stack([np.bincount(DATA.y_test[own], minlength=10) for own in split.test])


def same(a, b):
    parts = [zip(getattr(a, part), getattr(b, part), strict=True) for part in ("train", "validation", "test")]
    alike = all(np.array_equal(x, y) for pairs in parts for x, y in pairs)
    return alike and (a.names, a.unseen, a.recipe) == (b.names, b.unseen, b.recipe)


@pytest.mark.parametrize("splitter", SPLITTERS, ids=str)
def test_parts_are_disjoint(splitter):
    split = make_split(DATA, splitter, 15, 0, unseen=3, validation=0.2)
    assert not np.intersect1d(flat(split.train), flat(split.validation)).size
    assert len(np.unique(flat(split.test))) == len(flat(split.test))
    assert split.unseen == (12, 13, 14) and len(split.names) == len(set(split.names)) == 15
    assert all(len(own) for own in split.train)


@pytest.mark.parametrize("splitter", [Iid(), Dirichlet(0.1), Classes(2), Natural()], ids=str)
def test_nothing_is_lost(splitter):
    split = make_split(DATA, splitter, 15, 0, validation=0.2)
    assert np.array_equal(np.sort(np.concatenate([*split.train, *split.validation])), np.arange(2000))
    assert np.array_equal(np.sort(flat(split.test)), np.arange(1000))


@pytest.mark.parametrize("splitter", [Iid(), Dirichlet(0.1), Classes(2)], ids=str)
def test_each_client_is_tested_on_its_own_mix_of_classes(splitter):
    # train and test sets have classes in the same proportions here, so client i is due half its training counts.
    split = make_split(DATA, splitter, 15, 0)
    due, given = split.counts(DATA.y_train, 10) / 2, mixes(split)
    assert (np.abs(given - due) < 1).all()
    assert (np.abs(given.sum(axis=1) - due.sum(axis=1)) < 3).all()  # what one class takes the next gives back


def test_overlapping_clients_are_tested_in_their_own_proportions_on_disjoint_samples():
    split = make_split(DATA, DirichletRefill(0.1), 15, 0)
    train, test = split.counts(DATA.y_train, 10), mixes(split)
    scale = test.sum() / train.sum()
    assert (np.abs(test - scale * train) < 1.5).all()


def test_validation_takes_its_share_of_every_class():
    split = make_split(DATA, Dirichlet(0.5), 10, 0, validation=0.2)
    for own, held in zip(split.train, split.validation):
        size = len(own) + len(held)
        assert len(held) == int(0.2 * size + 1e-9)
        total = np.bincount(DATA.y_train[np.concatenate([own, held])], minlength=10)
        assert (np.abs(np.bincount(DATA.y_train[held], minlength=10) - 0.2 * total) <= 1).all()


def test_natural_clients_keep_their_names_and_test_samples():
    split = make_split(DATA, Natural(), 10, 0)
    assert DATA.natural_train is not None and DATA.natural_test is not None
    for name, train, test in zip(split.names, split.train, split.test):
        assert {str(x) for x in DATA.natural_train[train]} == {str(x) for x in DATA.natural_test[test]} == {name}


def test_natural_clients_share_the_test_set_of_a_named_data_set_that_other_people_wrote():
    assert DATA.natural_test is not None
    strangers = replace(DATA, name="mnist", natural_test=DATA.natural_test + 100)
    assert np.array_equal(np.sort(flat(make_split(strangers, Natural(), 15, 0).test)), np.arange(1000))


def test_test_samples_of_owners_who_do_not_train_are_no_other_clients_own():
    assert DATA.natural_test is not None
    strangers = make_split(replace(DATA, natural_test=DATA.natural_test + 100), Natural(), 15, 0)
    assert not flat(strangers.test).size and not any(map(len, strangers.test))
    some = make_split(replace(DATA, natural_test=DATA.natural_test + 8), Natural(), 15, 0)
    for name, test in zip(some.names, some.test):
        assert {str(x) for x in DATA.natural_test[test] + 8} <= {name}


def test_the_seed_decides():
    first, again, other = (make_split(DATA, Dirichlet(0.3), 10, seed, validation=0.1) for seed in (0, 0, 1))
    assert same(first, again) and not same(first, other)


def test_an_unseen_share_and_an_unseen_number_agree():
    share, number = (make_split(DATA, DirichletPrior(0.1, 1.0), 20, 0, unseen) for unseen in (0.1, 2))
    assert same(share, number) and share.unseen == (18, 19)


def test_save_and_load_round_trip(tmp_path):
    split = make_split(DATA, Dirichlet(0.3), 10, 0, unseen=2, validation=0.1)
    split.save(tmp_path / "split.npz")
    assert same(split, Split.load(tmp_path / "split.npz"))
    assert same(split, make_split(DATA, Saved(str(tmp_path / "split.npz")), 10, seed=5))


def test_saved_splits_that_do_not_fit_are_refused(tmp_path):
    path = tmp_path / "split.npz"
    make_split(DATA, Iid(), 10, 0).save(path)
    small = from_arrays("small", DATA.x_train[:50], DATA.y_train[:50], DATA.x_test, DATA.y_test)
    few = from_arrays("few", DATA.x_train, DATA.y_train, DATA.x_test[:50], DATA.y_test[:50])
    unfit = [
        (DATA, 9, "holds 10 clients, not 9"),
        (small, 10, r"'toy'.*'small' \(50 \+ 1000"),
        (few, 10, r"2000 \+ 50"),
    ]
    for data, clients, words in unfit:
        with pytest.raises(UserError, match=words):
            make_split(data, Saved(str(path)), clients, 0)
    np.savez(tmp_path / "other.npz", x=np.zeros(3))
    with pytest.raises(UserError, match="lacks"):
        Split.load(tmp_path / "other.npz")
    with pytest.raises(UserError, match="no such file"):
        Split.load(tmp_path / "absent.npz")


@pytest.mark.parametrize(("unseen", "validation"), [
    (10, 0), (-1, 0), (2.5, 0), (0, 1.0), (0, -0.1), (np.nan, 0), (np.inf, 0), ("2", 0), (0, np.nan), (0, "0.1"),
], ids=str)  # fmt: skip
def test_bad_shares_are_refused(unseen, validation):
    with pytest.raises(UserError, match=r"(unseen|validation)=[^\n]*\.$"):
        make_split(DATA, Iid(), 10, 0, unseen=unseen, validation=validation)


@pytest.mark.parametrize("clients", ["4", 4.0, True, [4]], ids=str)
def test_a_number_of_clients_that_is_none_is_refused(clients):
    with pytest.raises(UserError, match=r"clients=.* must be a whole number of 1 or more\.$"):
        make_split(DATA, Iid(), clients, 0)


def test_divide_by_hand():
    # 3 samples of class 0 for counts 2:1 are 2 and 1; 2 of class 1 for counts 1:1 are 1 each; class 2 has no taker.
    labels = np.array([0, 0, 0, 1, 1, 2])
    parts = divide(labels, np.array([[2, 1, 0], [1, 1, 0]]), generator(0, "test"))
    assert [np.bincount(labels[part], minlength=3).tolist() for part in parts] == [[2, 1, 0], [1, 1, 0]]


def test_many_small_clients_are_tested_evenly():
    parts = divide(DATA.y_test, np.full((400, 10), 1), generator(0, "test"))
    assert {len(part) for part in parts} == {2, 3}  # 1000 samples, 400 clients


def test_summary_and_plot():
    pytest.importorskip("matplotlib")
    split = make_split(DATA, Dirichlet(0.3), 10, 0, unseen=2)
    assert "10 clients, 2 of them unseen" in str(split) and "Dirichlet(alpha=0.3" in str(split)
    assert split.counts(DATA.y_train, 10).shape == (10, 10) and split.counts(DATA.y_train, 10).sum() == 2000
    assert len(split.plot(DATA.y_train, 10).axes) == 2


OWN_SPLITS = {
    "one number": lambda y, clients, rng, natural: 1,
    "three arguments": lambda y, clients, rng: [],
    "an error": lambda y, clients, rng, natural: 1 / 0,
    "too few": lambda y, clients, rng, natural: [np.arange(10)],
    "floats": lambda y, clients, rng, natural: [np.arange(3.0)] * clients,
    "masks": lambda y, clients, rng, natural: [np.arange(len(y)) == i for i in range(clients)],
    "beyond": lambda y, clients, rng, natural: [np.arange(i, len(y) + 9, clients) for i in range(clients)],
    "negative": lambda y, clients, rng, natural: [np.arange(3) - 1] * clients,
    "columns": lambda y, clients, rng, natural: [np.zeros((3, 1), int)] * clients,
}


@pytest.mark.parametrize("own", OWN_SPLITS)
def test_a_programs_own_split_is_held_against_the_data(own):
    with pytest.raises(UserError, match=r"^the split's function .*\.$"):
        make_split(DATA, OWN_SPLITS[own], 6, 0)


def test_a_programs_own_split_may_give_lists():
    own = lambda y, clients, rng, natural: [list(range(i, 60, clients)) for i in range(clients)]
    split = make_split(DATA, own, 6, 0)
    assert [rows.tolist() for rows in split.train][1] == list(range(1, 60, 6)) and split.train[0].dtype == np.int64


def test_a_split_by_its_text_is_the_same():
    assert same(make_split(DATA, "dirichlet(0.3)", 6, 0), make_split(DATA, Dirichlet(0.3), 6, 0))
    cases = ("dirichlt", "did you mean 'dirichlet'"), ("iid + iid", "names 2 things"), (5, "no data"), (Iid, "no data")
    for splitter, said in cases:
        with pytest.raises(UserError, match=said):
            make_split(DATA, splitter, 6, 0)
    with pytest.raises(UserError, match="of type tuple is no Dataset"):
        make_split((DATA.x_train, DATA.y_train), "iid", 6, 0)
