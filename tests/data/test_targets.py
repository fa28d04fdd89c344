"""What is learned, read off the targets, and data sets of real targets, several labels and masks."""

from __future__ import annotations

from decimal import Decimal
from typing import get_args

import numpy as np
import pytest

from apiece.config.settings import TaskName
from apiece.config.splitting import make_split
from apiece.data import sound, tasks
from apiece.data.arrays import Dataset, as_task, from_arrays, task_of
from apiece.data.federation import federation
from apiece.data.tokens import IGNORED
from apiece.errors import UserError

RNG = np.random.default_rng(0)
X, IMAGES = RNG.normal(size=(60, 4)).astype(np.float32), RNG.normal(size=(60, 8, 8)).astype(np.float32)
REAL, LABELS = RNG.normal(size=60), RNG.integers(0, 3, 60)
BITS, MASKS = RNG.integers(0, 2, (60, 5)), RNG.integers(0, 3, (60, 8, 8))


def test_the_setting_has_the_names_of_the_tasks():
    assert get_args(TaskName) == (tasks.AUTO, *tasks.TASKS)


# a form catches one that is taken for its neighbor's
@pytest.mark.parametrize(
    ("y", "shape", "task"),
    [
        (LABELS, (4,), "classification"),
        (LABELS.astype(float), (4,), "classification"),  # as many tables write classes
        (np.array(["a", "b"] * 30), (4,), "classification"),
        (np.array([7.0, 9.0] * 30), (4,), "classification"),
        (REAL, (4,), "regression"),
        (np.array([Decimal(i) / 8 for i in range(60)]), (4,), "regression"),  # as databases write amounts
        (np.array([i / 8 for i in range(60)], dtype=object), (4,), "regression"),
        (np.array([Decimal(i % 3) for i in range(60)]), (4,), "classification"),
        (LABELS.astype(object), (4,), "classification"),
        (np.round(100 * np.arange(60) ** 1.1), (4,), "regression"),  # whole, but hardly ever the same
        (np.stack([REAL, REAL], 1), (4,), "regression"),
        (BITS, (4,), "multilabel"),
        (BITS.astype(bool), (4,), "multilabel"),
        (BITS.astype(float), (4,), "multilabel"),
        (BITS, (5,), "language-modeling"),  # a token for each of five
        (MASKS, (8, 8), "segmentation"),
        (MASKS, (8, 8, 3), "segmentation"),
        (MASKS, (3, 8, 8), "segmentation"),
        (MASKS, (4,), tasks.OWN),
        (REAL.reshape(5, 3, 4), (4,), tasks.OWN),
        ({"boxes": REAL}, (4,), tasks.OWN),
    ],
)
def test_a_task_is_read_off_the_targets(y, shape, task):
    y = sound.plain(y) if isinstance(y, np.ndarray) and y.dtype == object else y
    assert tasks.inferred(y, shape) == task
    if task != tasks.OWN:
        assert tasks.fits(task, y, shape)


def test_the_bins_of_real_targets_divide_them_equally():
    y = RNG.exponential(size=1000)
    assert np.bincount(tasks.bins(y, y)).tolist() == [100] * tasks.BINS
    assert tasks.bins(np.array([-1.0, 1e9]), y).tolist() == [0, tasks.BINS - 1]


def test_real_targets_are_kept_and_their_tenths_divide_the_samples():
    made = from_arrays("mine", X, REAL)
    assert task_of(made) == made.task == "regression" and made.known is None
    assert sorted([*made.targets_train, *made.targets_test]) == sorted(REAL)
    assert len(made.targets_train) == len(made.x_train) == 48
    split = make_split(made, "classes(2)", 5, 0)
    assert all(len(np.unique(made.y_train[part])) == 2 for part in split.train)
    place = federation(made, split)
    x, y = place.pool
    assert y.dtype == x.dtype and y.shape == (48,)
    row = int(np.flatnonzero((X == made.x_train[7]).all(1))[0])
    assert y[7].item() == np.float32(REAL[row])


def test_a_given_test_set_is_binned_as_the_training_set():
    made = from_arrays("mine", X, REAL, X[:10], REAL[:10] + 100)
    assert made.targets_test.tolist() == (REAL[:10] + 100).tolist() and set(made.y_test) == {tasks.BINS - 1}


def test_several_labels_and_masks_have_no_label_of_their_own():
    several, masks = from_arrays("mine", X, BITS), from_arrays("mine", IMAGES, MASKS[:, None])
    assert several.targets_train.dtype == np.float32 and several.targets_train.shape == (48, 5)
    assert masks.targets_train.dtype == np.int64 and masks.targets_train.shape == (48, 8, 8)
    for made in (several, masks):
        assert made.classes == 1
        for split in ("iid", "quantity(1)"):
            assert sum(map(len, make_split(made, split, 4, 0).train)) == 48
        for split in ("dirichlet(0.1)", "dirichlet_capped(0.5)", "classes(2)", "shards(2)", "dirichlet_prior(1)"):
            with pytest.raises(UserError, match=r"by label, and mine has none.*iid.*quantity.*natural"):
                make_split(made, split, 4, 0)
    owned = from_arrays("mine", X, BITS, natural_train=np.arange(60) % 4)
    assert len(make_split(owned, "natural", 4, 0).train) == 4
    assert sum(map(len, make_split(owned, "shards(2, by=natural)", 4, 0).train)) == 48


def test_a_task_that_is_said_reads_the_targets_so():
    amounts = from_arrays("mine", X, np.arange(60) * 3)
    assert task_of(amounts) == "classification"
    real = as_task(amounts, "regression")
    assert set(real.targets_train) < set(range(0, 180, 3)) and real.task == "regression"
    assert from_arrays("mine", X, np.arange(60) * 3, task="regression").targets_train.dtype == np.float64
    series = as_task(from_arrays("mine", X, np.stack([REAL, REAL], 1)), "forecasting")
    assert series.task == "forecasting" and series.targets_train.shape == (48, 2)
    known = from_arrays("mine", IMAGES, np.where(MASKS == 2, IGNORED, MASKS))
    assert known.targets_train.min() == IGNORED


# an entry catches a mistake that would train something else
@pytest.mark.parametrize(
    ("y", "task", "said"),
    [
        (np.eye(3)[LABELS], "auto", r"single 1.*argmax\(1\).*task='multilabel'"),
        (REAL, "classification", "no classes but numbers with fractions"),
        (REAL, "multilabel", "task='multilabel' needs 0 or 1"),
        (REAL, "segmentation", "task='segmentation' needs a class for each pixel"),
        (BITS, "segmentation", r"\[n, 5\]"),
        (np.array(["a", "b"] * 30), "regression", "type is <U1; give numbers"),
        (np.where(REAL > 1, np.nan, REAL), "auto", "missing or infinite value"),
        (MASKS, "auto", "have the shape"),
        (LABELS, "language-modeling", ".jsonl"),
    ],
)
def test_targets_that_do_not_fit_are_refused(y, task, said):
    with pytest.raises(UserError, match=said):
        from_arrays("mine", X, y, task=task)


def test_a_data_set_made_by_hand_says_its_task():
    plain = Dataset("mine", X, LABELS, X, LABELS, 3)
    assert task_of(plain) == "classification"
    real = Dataset("mine", X, LABELS, X, LABELS, 3, targets_train=REAL, targets_test=REAL)
    assert task_of(real) == "regression" and "regression" not in repr(plain)
    with pytest.raises(UserError, match="needs real numbers"):
        as_task(plain, "regression")
