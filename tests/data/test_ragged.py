"""Sequences of unequal length: padded once, beside a mask of what is real."""

import numpy as np
import pytest
import torch
from support.results import same_models
from torch import Tensor, nn

from apiece import federate
from apiece.data.arrays import held_out
from apiece.data.collating import collated
from apiece.data.trees import from_trees
from apiece.errors import UserError


class Mean(nn.Module):
    """Scores of a sequence by the mean of its real steps."""

    def __init__(self, size: int = 3):
        super().__init__()
        self.hidden, self.out = nn.Linear(size, 8), nn.Linear(8, 2)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        z = torch.tanh(self.hidden(x)) * mask[..., None]
        return self.out(z.sum(1) / mask.sum(1, keepdim=True))


class Tokens(Mean):
    def __init__(self):
        super().__init__(4)
        self.embed = nn.Embedding(10, 4)

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        return super().forward(self.embed(input_ids), attention_mask)


def sequences(count: int = 120) -> tuple[list[np.ndarray], np.ndarray]:
    rng = np.random.default_rng(1)
    x = [rng.standard_normal((rng.integers(2, 9), 3)).astype(np.float32) for _ in range(count)]
    return x, np.array([int(one.mean() > 0) for one in x])


def run(kind, data, **settings):
    torch.manual_seed(0)
    given = {"clients": 3, "rounds": 3, "steps": 4, "split": "iid", "lift": "sequential", "lr": 0.5}
    return federate(kind(), data, **given | settings)


@pytest.mark.parametrize("lift", ["sequential", "threaded", "vectorized"])  # masks must be looked up and stacked too
def test_they_are_what_is_padded_by_hand(lift):
    x, y = sequences()
    padded, mask = np.zeros((len(x), 8, 3), dtype=np.float32), np.zeros((len(x), 8), dtype=bool)
    for i, one in enumerate(x):
        padded[i, : len(one)], mask[i, : len(one)] = one, True
    same_models(run(Mean, (x, y), lift=lift), run(Mean, ((padded, mask), y), lift=lift))


def test_it_does_not_matter_how_far_they_are_padded():
    """One long sequence more: the others' masked steps count for nothing."""
    x, y = sequences()
    held = x[:5], y[:5]
    data = from_trees("short", x, y, *held), from_trees("long", [*x, np.zeros((50, 3), np.float32)], [*y, 0], *held)
    torch.manual_seed(0)
    model = Mean()
    short, long = (model(*(torch.as_tensor(part[:5]) for part in one.inputs_train)) for one in data)
    assert data[1].inputs_train[0].shape[1] == 50 and torch.allclose(short, long, atol=1e-6)


def test_tokens_have_an_attention_mask():
    rng = np.random.default_rng(0)
    ids = [rng.integers(1, 10, rng.integers(3, 7)).tolist() for _ in range(90)]
    y = [int(1 in one) for one in ids]
    data = from_trees("tokens", {"input_ids": ids}, y)
    assert list(data.inputs_train) == ["attention_mask", "input_ids"]
    assert (data.inputs_train["attention_mask"] == (data.inputs_train["input_ids"] > 0)).all()
    assert run(Tokens, ({"input_ids": ids}, y)).metrics[-1]["global_loss"] > 0


def test_labels_may_be_texts():
    x, y = sequences(60)
    one, two = run(Mean, (x, np.array(["no", "yes"])[y])), run(Mean, (x, y))
    same_models(one, two)
    assert one.experiment.dataset.known.tolist() == ["no", "yes"]


def test_targets_of_unequal_length_are_ignored_where_there_are_none():
    y = [[1, 2], [3], [1, 1, 1]] * 10
    data = from_trees("tagged", [np.ones((len(one), 2)) for one in y], y)
    assert sorted(map(tuple, data.targets_train.tolist()))[0] == (1, 1, 1)
    assert (data.targets_train == -100).sum() == sum(3 - len(one) for one in y) - (data.targets_test == -100).sum()


def test_a_collate_of_ones_own():
    x, y = sequences(60)

    def collate(samples):
        return {"x": nn.utils.rnn.pad_sequence([torch.as_tensor(a) for a, _ in samples], batch_first=True),
                "mask": nn.utils.rnn.pad_sequence([torch.ones(len(a)) for a, _ in samples], batch_first=True),
                "labels": torch.as_tensor([b for _, b in samples])}  # fmt: skip

    inputs, targets = collated("mine", list(zip(x, y, strict=True)), collate)
    same_models(run(Mean, (inputs, targets)), run(Mean, (x, y)))
    by_setting = run(Mean, list(zip(x, y, strict=True)), collate=collate)
    same_models(by_setting, run(Mean, (x, y)))


@pytest.mark.parametrize(
    ("x", "said"),
    [
        ([np.ones((2, 3)), np.ones((4, 2))] * 20, "steps of sequences have the shapes"),
        ([np.ones((2, 3)), np.ones((0, 3))] * 20, "sequence 1 (counted from 0) is empty"),
        ([np.zeros((h, 4, 3), np.uint8) for h in (3, 5)] * 20, "give resize=32"),
        ([np.ones((2, 3)), np.full((3, 3), np.nan)] * 20, "row 1 (counted from 0)"),
    ],
)
def test_what_does_not_fit_is_refused(x, said):
    with pytest.raises(UserError) as error:
        run(Mean, (x, [0, 1] * 20))
    assert said in str(error.value)


def test_a_mask_of_another_shape_is_refused():
    inputs = {"input_ids": np.ones((40, 6), dtype=int), "attention_mask": np.ones((40, 5), dtype=int)}
    with pytest.raises(UserError, match=r"rows of \[6\], and attention_mask rows of \[5\]"):
        run(Tokens, (inputs, [0, 1] * 20))


def pair(samples):
    """Padded sequences and their masks, by hand."""
    pad = nn.utils.rnn.pad_sequence
    x, mask = ([torch.as_tensor(one(a)) for a, _ in samples] for one in (np.asarray, lambda a: np.ones(len(a), bool)))
    return (pad(x, batch_first=True), pad(mask, batch_first=True)), torch.as_tensor([b for _, b in samples])


class Items:
    def __init__(self, x, y):
        self.items = list(zip(x, y, strict=True))

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        return self.items[i]


APART = {
    "pairs": (lambda x, y: (x, y), {}),
    "datasets": (Items, {}),
    "parts": (lambda x, y: pair(Items(x, y)), {}),  # the mask of ann's and bob's is as long as eve's, by hand
    "collated pairs": (lambda x, y: (x, y), {"collate": pair}),
    "collated datasets": (Items, {"collate": pair}),
    "collated lists": (lambda x, y: Items(x, y).items, {"collate": pair}),
}


@pytest.mark.parametrize("tested", [False, True], ids=["one", "train and test"])  # test samples are padded as well
@pytest.mark.parametrize("kind", APART)  # each is read, joined and taken apart by code of its own
def test_clients_given_apart_are_the_pooled_samples(kind, tested):
    """The longest sequence is at the first client, and those of the second are all of one length."""
    x, y = sequences(90)
    x = [one[:2] if 30 <= i < 60 else one for i, one in enumerate(x)]
    x[0], x[60] = np.resize(x[0], (9, 3)), np.resize(x[60], (9, 3))
    if kind == "parts":
        x[30] = np.resize(x[30], (9, 3))
    if tested:
        x[24] = x[54] = x[84] = np.resize(x[1], (9, 3))
    make, more = APART[kind]
    cut = lambda rows: make([x[i] for i in rows], y[list(rows)])
    train = {"ann": range(24 if tested else 30), "bob": range(30, 54 if tested else 60), "eve": range(60, 90)}
    test = {"ann": range(24, 30), "bob": range(54, 60), "eve": range(84, 90)}
    if tested:
        train["eve"] = range(60, 84)
        data = {part: {who: cut(own) for who, own in owns.items()} for part, owns in (("train", train), ("test", test))}
    else:
        data, mask = {who: cut(own) for who, own in train.items()}, held_out(y, 0.2, np.repeat([0, 1, 2], 30))
        train, test = ({who: [i for i in own if mask[i] == part] for who, own in train.items()} for part in (0, 1))
    rows, held = ([i for own in part.values() for i in own] for part in (train, test))
    pooled = ([x[i] for i in rows], y[rows], [x[i] for i in held], y[held])
    lists = {who: range(24 * i, 24 * i + 24) for i, who in enumerate(train)}
    one = run(Mean, data, split="given", clients=None, rounds=2, **more)
    two = run(Mean, pooled, split=lists, clients=None, rounds=2)
    place = one.experiment.federation
    assert list(place.names) == ["ann", "bob", "eve"] and place.pool[0][0].shape[1:] == (9, 3)
    for i, who in enumerate(test):
        assert torch.equal(place.test_pool[1][place.test[i]], torch.as_tensor(y[list(test[who])]))
    # the global model alone: given by client, test samples are each client's own, which lists of rows do not say
    assert torch.equal(one.server.params, two.server.params)


def test_sequences_that_differ_between_clients_alone_are_padded():
    a, b = [np.ones((4, 3))] * 20, [np.ones((6, 3))] * 20
    result = run(Mean, {"ann": (a, [0, 1] * 10), "bob": (b, [0, 1] * 10)}, split="given", clients=None, rounds=1)
    x, mask = result.experiment.federation.pool[0]
    assert x.shape[1:] == (6, 3) and sorted(set(mask.sum(1).tolist())) == [4, 6]


@pytest.mark.parametrize(
    ("data", "collate", "said"),
    [
        ({"ann": [], "bob": [(1.0, 0)] * 9}, pair, "it has no sample"),
        ({"ann": [(1.0, 0)] * 9}, lambda samples: (torch.zeros(3), torch.zeros(3)), "makes 3 rows of 9 samples"),
        ([(1.0, 0)] * 9, 3, "collate is 3, which cannot be called"),
        ("digits", pair, "data='digits' are read from files"),
        ({"ann": 3.0}, pair, "give a list or a dataset of samples"),
    ],
)
def test_what_cannot_be_collated_is_refused(data, collate, said):
    with pytest.raises(UserError, match=said):
        federate(nn.Linear(1, 2), data, collate=collate, rounds=1)


def test_ready_clients_are_not_collated_nor_resized():
    ready = run(Mean, sequences(60), rounds=1).experiment.federation
    with pytest.raises(UserError, match="resize is for images, and what clients= holds"):
        federate(Mean(), clients=ready, resize=8, rounds=1)
    with pytest.raises(UserError, match="clients= are ready: leave collate out"):
        federate(Mean(), clients=ready, collate=pair, rounds=1)


@pytest.mark.parametrize("made", [None, (1, 2, 3), {"x": 1}])
def test_a_collate_that_returns_no_pair_is_refused(made):
    with pytest.raises(UserError, match="let it return a pair"):
        collated("mine", [(1, 2)], lambda samples: made)
