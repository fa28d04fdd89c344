"""Inputs, targets and outputs of several parts: the same run as with the parts in one tensor."""

from collections import OrderedDict

import numpy as np
import pytest
import torch
from support.results import same_models
from torch import Tensor, nn

from apiece import Federation, federate
from apiece.errors import UserError

LIFTS = ("sequential", "threaded", "vectorized")


class Named(nn.Module):
    """Two inputs by name."""

    def __init__(self):
        super().__init__()
        self.hidden, self.out = nn.Linear(6, 8), nn.Linear(8, 3)

    def forward(self, left: Tensor, right: Tensor, weight: Tensor | None = None) -> Tensor:
        return self.out(torch.tanh(self.hidden(torch.cat([left, right], 1))))


class Whole(Named):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x[:, :2], x[:, 2:])


class OneDict(Named):
    def forward(self, batch: dict[str, Tensor]) -> Tensor:
        return super().forward(batch["left"], batch["right"])


class Logits(Whole):
    def forward(self, x: Tensor) -> dict[str, Tensor]:
        return OrderedDict(logits=super().forward(x), hidden=x)


def data() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((240, 6)).astype(np.float32)
    return x, (x[:, 0] + x[:, 3] > 0).astype(int) + (x[:, 1] > 1)


def model(kind: type[nn.Module]) -> nn.Module:
    torch.manual_seed(0)
    return kind()


def run(kind: type[nn.Module], x: object, y: object, **settings: object):
    given = {"clients": 4, "rounds": 3, "steps": 4, "split": "iid", "lift": "sequential"}
    return federate(model(kind), (x, y), **given | settings)


@pytest.mark.parametrize("lift", LIFTS)  # a lift could stack or look up a tree's parts wrongly
@pytest.mark.parametrize("algorithm", ["scaffold", "fedavg_p + relaxed_init(0.1)"])
def test_parts_by_name_or_in_order_are_the_run_of_one_tensor(lift, algorithm):
    x, y = data()
    whole = run(Whole, x, y, lift=lift, algorithm=algorithm)
    for kind, tree in (
        (Named, {"left": x[:, :2], "right": x[:, 2:]}),
        (Named, (x[:, :2], x[:, 2:])),
        (OneDict, {"left": x[:, :2], "right": x[:, 2:]}),
    ):
        parts = run(kind, tree, y, lift=lift, algorithm=algorithm)
        same_models(whole, parts)
        assert parts.metrics[-1]["global_accuracy"] == whole.metrics[-1]["global_accuracy"]


@pytest.mark.parametrize("lift", LIFTS)
def test_outputs_named_logits_are_scores(lift):
    x, y = data()
    whole, named = (run(kind, x, y, lift=lift) for kind in (Whole, Logits))
    same_models(whole, named)
    assert whole.metrics[-1]["global_accuracy"] == named.metrics[-1]["global_accuracy"]


def test_ready_clients_may_have_trees(tmp_path):
    x, y = (torch.as_tensor(part) for part in data())
    pools = [(x, y), ({"left": x[:, :2], "right": x[:, 2:]}, y)]
    rows = list(torch.arange(240).split(60))
    names = [f"c{i}" for i in range(4)]
    runs = [
        federate(model(kind), clients=Federation(pool, pool, rows, rows, names), rounds=2, steps=3, lift="sequential")
        for kind, pool in zip((Whole, Named), pools, strict=True)
    ]
    same_models(*runs)


def test_a_run_of_trees_resumes_bitwise(tmp_path):
    x, y = data()
    tree = {"left": x[:, :2], "right": x[:, 2:]}
    whole = run(Named, tree, y, algorithm="scaffold", rounds=4)

    def stop(info):
        if info["round"] == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(Named, tree, y, algorithm="scaffold", rounds=4, out=tmp_path / "run", on_round=stop)
    same_models(whole, run(Named, tree, y, algorithm="scaffold", rounds=4, out=tmp_path / "run", resume=True))


def test_several_heads_have_a_loss_of_their_own():
    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.body, self.kind, self.size = nn.Linear(6, 8), nn.Linear(8, 3), nn.Linear(8, 1)

        def forward(self, x):
            z = torch.tanh(self.body(x))
            return {"kind": self.kind(z), "size": self.size(z)[:, 0]}

    x, y = data()
    targets = {"kind": y, "size": x[:, 2]}
    loss = lambda out, y: (
        nn.functional.cross_entropy(out["kind"], y["kind"]) + (out["size"] - y["size"]).square().mean()
    )
    metric = lambda out, y: (out["size"] - y["size"]).abs()
    results = [run(Two, x, targets, loss=loss, metric=metric, lift=lift, split="dirichlet(0.5)") for lift in LIFTS]
    same_models(*results[:2])
    last = [result.metrics[-1]["global_loss"] for result in results]
    assert last[0] == pytest.approx(last[2], rel=1e-4) and last[0] < results[0].metrics[0]["global_loss"]
    with pytest.raises(UserError, match="the usual loss and metric take"):
        run(Whole, x, targets)


@pytest.mark.parametrize("algorithm", ["fedcog", "pefll", "knn_per", "vhl", "fedgen", "fedreg", "class_mask", "pfedhn"])
def test_pieces_that_need_one_input_or_one_label_say_so(algorithm):
    """Either the run is right, or one sentence says why not."""
    x, y = data()
    try:
        assert run(Named, {"left": x[:, :2], "right": x[:, 2:]}, y, algorithm=algorithm, rounds=1).metrics
    except UserError as error:
        assert str(error).endswith(".") and "\n" not in str(error)


class Embedded(nn.Module):
    """Scores of each token's next one, of ten tokens."""

    def __init__(self):
        super().__init__()
        self.embed, self.out = nn.Embedding(10, 4), nn.Linear(4, 10)

    def forward(self, ids):
        return self.out(self.embed(ids))


def test_tokens_beyond_those_that_a_model_knows_are_named():
    ids = np.random.default_rng(0).integers(0, 10, (60, 6))
    good = {"ids": ids[:, :-1]}, ids[:, 1:]
    losses = [info["global_loss"] for info in run(Embedded, *good, lift="threaded", lr=1.0).metrics]
    assert losses[-1] < losses[0]
    for place, number in (("ids", 10), ("ids", -1), ("y", 10)):
        x, y = {"ids": good[0]["ids"].copy()}, good[1].copy()
        (x["ids"] if place == "ids" else y)[37, 2] = number
        with pytest.raises(UserError, match=r"sample \d+ \(counted from 0\)"):
            run(Embedded, x, y)
    with pytest.raises(UserError, match="learn to copy"):
        run(Embedded, {"ids": ids}, ids)


@pytest.mark.parametrize(
    ("tree", "said"),
    [
        ({"left": 2, "right": 3}, "give arrays"),
        ({"left": np.zeros((240, 2)), "right": np.zeros((239, 4))}, "239 and 240 rows"),
        ({"left": np.zeros((240, 2)), "wrong": np.zeros((240, 4))}, "left [2], wrong [4]"),
        ({"left": np.zeros((240, 2)), "right": np.full((240, 4), np.nan)}, "row 0 (counted from 0)"),
        ({"left": np.array(["a"] * 240), "right": np.zeros((240, 4))}, "text as tokens"),
    ],
)
def test_parts_that_do_not_fit_are_refused(tree, said):
    with pytest.raises(UserError) as error:
        run(Named, tree, data()[1])
    assert said in str(error.value)
