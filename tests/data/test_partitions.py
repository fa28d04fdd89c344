"""Laws of the splitters: who gets what, how much of it, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest

from apiece.data.ownership import Natural, Saved
from apiece.data.partitions import (
    Classes,
    Dirichlet,
    DirichletCapped,
    DirichletPrior,
    DirichletRefill,
    Iid,
    Quantity,
    Shards,
)
from apiece.errors import UserError
from apiece.language import splits
from apiece.language.expression import build
from apiece.randomness import generator

LABELS = generator(0, "labels").permutation(np.repeat(np.arange(10), 200))  # 2000 samples, 200 a class
OWNERS = generator(0, "owners").integers(100, 130, size=len(LABELS))  # 30 owners

COMPLETE = [Iid(), Dirichlet(0.1), DirichletCapped(0.3), Classes(2), Classes(2, "clusters"), Shards(2), Quantity(0.5)]
DISJOINT = [*COMPLETE, Classes(3), DirichletPrior(0.1), DirichletPrior(0.1, 1.0, 5), Natural()]
ALL = [*DISJOINT, DirichletRefill(0.1)]


def split(splitter, clients=20, seed=0, labels=LABELS):
    return splitter(labels, clients, generator(seed, "split"), OWNERS[: len(labels)])


def counts(parts, labels=LABELS):
    return np.stack([np.bincount(labels[part], minlength=10) for part in parts])


@pytest.mark.parametrize("splitter", ALL, ids=str)
def test_every_client_gets_sorted_indices_and_the_same_seed_gives_the_same(splitter):
    parts, again, other = split(splitter), split(splitter), split(splitter, seed=1)
    assert len(parts) == 20 and all(len(part) and part.dtype == np.int64 for part in parts)
    assert all((np.diff(part) >= 0).all() and part[0] >= 0 and part[-1] < len(LABELS) for part in parts)
    assert all(np.array_equal(a, b) for a, b in zip(parts, again))
    assert any(len(a) != len(b) or (a != b).any() for a, b in zip(parts, other))


@pytest.mark.parametrize("splitter", DISJOINT, ids=str)
def test_no_sample_is_given_twice(splitter):
    together = np.concatenate(split(splitter))
    assert len(np.unique(together)) == len(together)


@pytest.mark.parametrize("splitter", COMPLETE, ids=str)
def test_every_sample_is_given(splitter):
    assert sum(map(len, split(splitter))) == len(LABELS)


@pytest.mark.parametrize(
    "splitter",
    [Iid(), Dirichlet(), DirichletCapped(), DirichletRefill(), DirichletPrior(), Classes(10), Shards()],
    ids=str,
)
def test_one_client_has_it_all(splitter):
    assert len(split(splitter, clients=1)[0]) == len(LABELS)


def test_iid_parts_are_equal_to_one():
    sizes = [len(part) for part in split(Iid(), clients=7)]
    assert max(sizes) - min(sizes) <= 1


def test_dirichlet_class_shares_have_the_moments_of_a_dirichlet():
    # p ~ Dir(alpha 1_N): mean 1/N, variance (1/N)(1 - 1/N)/(N alpha + 1). Counts are 200 p, up to rounding.
    clients, alpha = 5, 0.5
    drawn = np.concatenate([counts(split(Dirichlet(alpha), clients, seed)) for seed in range(200)], axis=1) / 200
    assert drawn.sum(axis=0) == pytest.approx(1)
    assert drawn.mean(axis=1) == pytest.approx(1 / clients, abs=0.025)
    assert drawn.var(axis=1) == pytest.approx((1 / clients) * (1 - 1 / clients) / (clients * alpha + 1), rel=0.15)


def test_dirichlet_with_a_large_alpha_is_nearly_iid_and_with_a_small_one_concentrated():
    even, skewed = counts(split(Dirichlet(1e5))), counts(split(Dirichlet(0.05)))
    assert (np.abs(even - 10) <= 1).all()
    assert (skewed.max(axis=1) / skewed.sum(axis=1)).mean() > 0.5


def test_a_capped_client_gets_nothing_after_it_has_its_fair_share():
    for seed in range(10):
        held = counts(split(DirichletCapped(0.3), 20, seed))
        before = held.cumsum(axis=1) - held  # what each client had when a class was dealt
        assert (held[before >= len(LABELS) / 20] == 0).all()
        assert held.sum(axis=1).min() >= 10


def test_refill_gives_everyone_the_same_number_with_repeats_and_refills_only_used_up_classes():
    parts = split(DirichletRefill(0.1), clients=30)
    assert {len(part) for part in parts} == {len(LABELS) // 30}
    used = np.bincount(np.concatenate(parts), minlength=len(LABELS))
    assert used.max() > 1 and used.min() == 0
    for c in range(10):  # a pool is used through before any sample of it comes again
        assert used[LABELS == c].max() - used[LABELS == c].min() <= 1


def test_prior_columns_are_normalized():
    # q_ic = pi_ic / sum_j pi_jc sums to 1 over clients, and each floor(n_c q_ic) loses less than one sample.
    held = counts(split(DirichletPrior(0.3)))
    lost = 200 - held.sum(axis=0)
    assert (lost >= 0).all() and (lost < 20).all()


def test_prior_of_unseen_clients_has_its_own_alpha():
    held = counts(split(DirichletPrior(0.05, 1e4, unseen=10)))
    shares = held.max(axis=1) / held.sum(axis=1)
    assert shares[:10].mean() > shares[10:].mean() + 0.2


# orders catch a class dealt twice to one client, clients a remainder that one class bears
@pytest.mark.parametrize("order", ["random", "clusters"])
@pytest.mark.parametrize("clients", [5, 20, 23])
def test_classes_are_exactly_two_and_shared_equally(order, clients):
    held = counts(split(Classes(2, order), clients))
    assert ((held > 0).sum(axis=1) == 2).all()
    assert held.sum() == len(LABELS)
    for column in held.T:
        assert column.max() - column[column > 0].min() <= 1
    holders = (held > 0).sum(axis=0)
    assert holders.max() - holders.min() <= (1 if order == "random" else -(-clients // 5) - clients // 5)


def test_clusters_are_consecutive_classes_as_in_fedcog():
    held = counts(split(Classes(2, "clusters"), 12))
    for i, own in enumerate(held):
        assert np.flatnonzero(own).tolist() == [2 * (i % 5), 2 * (i % 5) + 1]


def test_one_shard_each_is_the_stable_sort_cut_in_order_as_in_fedals():
    parts = split(Shards(1), clients=7)
    ordered, size = np.argsort(LABELS, kind="stable"), len(LABELS) // 7
    for i, part in enumerate(parts):
        assert np.array_equal(part, np.sort(ordered[i * size : (i + 1) * size]))
    assert ((counts(split(Shards(1), clients=5)) > 0).sum(axis=1) == 2).all()


def test_two_shards_each_are_equal_and_of_at_most_four_classes():
    parts = split(Shards(2), clients=30)
    assert {len(part) for part in parts} == {2 * (len(LABELS) // 60)}
    assert ((counts(parts) > 0).sum(axis=1) <= 4).all()


def test_quantity_changes_sizes_only():
    parts = split(Quantity(0.5), clients=5)
    sizes = np.array([len(part) for part in parts])
    assert sizes.max() > 2 * sizes.min()
    big = counts(parts)[sizes.argmax()]
    assert big / big.sum() == pytest.approx(0.1, abs=0.05)


def test_natural_clients_are_owners():
    parts = split(Natural(), clients=30)
    owners = [set(OWNERS[part]) for part in parts]
    assert all(len(own) == 1 for own in owners) and set.union(*owners) == set(range(100, 130))
    assert sum(map(len, parts)) == len(LABELS)


@pytest.mark.parametrize(
    ("splitter", "clients", "words"),
    [
        (Iid(), 2001, ["2000", "2001"]),
        (Iid(), 0, ["0 clients"]),
        (Dirichlet(0.0), 10, ["alpha is 0.0", "positive"]),
        (Dirichlet(0.5, minimum=300), 10, ["2000", "300", "1 to 6"]),
        (Dirichlet(0.01, minimum=150), 10, ["1000 draws", "150"]),
        (DirichletCapped(1.0, minimum=190), 10, ["1000 draws", "190"]),
        (DirichletPrior(0.01, minimum=150), 10, ["1000 draws", "150"]),
        (Quantity(0.01, minimum=150), 10, ["1000 draws", "150"]),
        (DirichletRefill(-1.0), 10, ["alpha is -1.0"]),
        (Iid(), -1, ["-1 clients"]),
        (Classes(11), 10, ["10 classes", "1 to 10"]),
        (Classes(2), 4, ["8 places", "10 classes", "5 clients"]),
        (Classes(3, "clusters"), 10, ["10 classes", "3"]),
        (Classes(2, "clustrs"), 10, ["did you mean 'clusters'"]),
        (Classes(10), 1000, ["200 samples", "1000 clients"]),
        (Shards(3), 1000, ["2000", "1000", "1 to 666"]),
        (Natural(), 31, ["30 clients", "31"]),
        (Natural(minimum=10**6), 1, ["0 clients"]),
        (Saved("nowhere.npz"), 10, ["nowhere.npz", "no such file"]),
    ],
    ids=str,
)
def test_what_cannot_be_is_refused_with_the_numbers(splitter, clients, words):
    with pytest.raises(UserError) as error:
        split(splitter, clients)
    assert all(word in str(error.value) for word in words), str(error.value)


def test_natural_needs_owners():
    with pytest.raises(UserError, match="whose"):
        Natural()(LABELS, 5, generator(0, "split"), None)


def test_the_names_are_the_splitters():
    named = "iid + dirichlet(0.1) + natural + dirichlet_capped(0.2) + dirichlet_refill(0.2) + dirichlet_prior(0.1, 1.0)"
    named += " + quantity(2.0) + classes(3, clusters) + shards(1) + saved('x.npz') + dirichlet_prior(minimum=2)"
    assert build(named, splits.NAMED) == [
        *(Iid(), Dirichlet(0.1), Natural(), DirichletCapped(0.2), DirichletRefill(0.2), DirichletPrior(0.1, 1.0)),
        *(Quantity(2.0), Classes(3, "clusters"), Shards(1), Saved("x.npz"), DirichletPrior(minimum=2)),
    ]
    with pytest.raises(UserError, match="no argument 'unseen'"):  # a run's own, which no text says
        build("dirichlet_prior(unseen=1)", splits.NAMED)
