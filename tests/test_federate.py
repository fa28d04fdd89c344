"""The same from Python: one's own module, loss, metric, data and callback, in under ten lines."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

import apiece
from apiece import federate
from apiece.algebra.piece import Piece
from apiece.data.federation import MadeFederation
from apiece.errors import UserError
from apiece.experiment.personalize import personalize
from apiece.pieces.proximal import Proximal

RNG = np.random.default_rng(0)
Y = np.arange(300) % 3
X = (RNG.normal(size=(300, 4)) + 2 * np.eye(3, 4)[Y]).astype(np.float32)
OWNER = np.arange(300) % 5
QUICK: dict[str, Any] = {"clients": 5, "split": "dirichlet(0.5)", "rounds": 3, "steps": 5, "batch": 16}


pytestmark = pytest.mark.usefixtures("no_report")


class Mine(nn.Module):
    """A module of one's own, whose last layer is no last attribute."""

    def __init__(self):
        super().__init__()
        self.out = nn.Linear(6, 3)
        self.hidden = nn.Linear(4, 6)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(torch.tanh(self.hidden(x)))


def test_in_under_ten_lines():
    from torch import nn

    import apiece

    model = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 3))
    result = apiece.federate(model, (X, Y), "scaffold + relaxed_init(beta=0.1)", clients=5, rounds=10, steps=10)
    model.load_state_dict(result.model())
    assert result.metrics[-1]["global_accuracy"] > 0.8
    test = result.experiment.federation.test_pool
    assert float((model(test[0]).argmax(1) == test[1]).double().mean()) == result.metrics[-1]["global_accuracy"]


def test_no_public_name_is_that_of_a_file():
    """Importing a file would put it in the name's place."""
    files = {path.stem for path in Path(apiece.__file__).parent.iterdir()}
    assert not files & set(apiece.__all__)
    assert all(getattr(apiece, name) is not None for name in apiece.__all__)


def test_the_users_module_is_left_as_it_was():
    module = Mine()
    before = {name: leaf.clone() for name, leaf in module.state_dict().items()}
    result = federate(module, (X, Y), **QUICK)
    assert (
        all(torch.equal(leaf, before[name]) for name, leaf in module.state_dict().items())
        and not module.hidden.weight.grad
    )
    assert not torch.equal(result.model()["hidden.weight"], before["hidden.weight"])


def test_arrays_of_numpy_and_of_torch_are_the_same_data():
    module = Mine()
    results = [federate(module, data, **QUICK) for data in ((X, Y), (torch.from_numpy(X), torch.from_numpy(Y)), [X, Y])]
    assert all(torch.equal(results[0].server.params, other.server.params) for other in results[1:])
    four = federate(module, (X[:200], Y[:200], X[200:], Y[200:]), **QUICK)
    assert len(four.experiment.federation.test_pool[1]) == 100
    words = federate(module, (X, np.array(["cat", "dog", "owl"])[Y]), **QUICK)  # labels may be anything that sorts
    assert torch.equal(words.server.params, results[0].server.params)


def test_files(tmp_path):
    """An .npz, a .csv and a .parquet with a client column: the same federation of the same clients."""
    import pandas

    np.savez(tmp_path / "a.npz", x_train=X, y_train=Y, natural_train=OWNER)
    table = pandas.DataFrame({**{f"x{i}": X[:, i] for i in range(4)}, "label": Y, "client": OWNER})
    table.to_parquet(tmp_path / "a.parquet")
    table.to_csv(tmp_path / "a.csv", index=False, float_format="%.9g")
    module, settings = Mine(), QUICK | {"split": "natural"}
    results = [federate(module, tmp_path / f"a.{kind}", **settings) for kind in ("npz", "parquet", "csv")]
    assert sorted(results[0].experiment.federation.names) == ["0", "1", "2", "3", "4"]
    for other in results[1:]:
        torch.testing.assert_close(other.server.params, results[0].server.params, rtol=0, atol=1e-6)


@pytest.mark.slow
def test_a_folder_of_images_and_a_hugging_face_dataset(tmp_path):
    from datasets import ClassLabel, Dataset, Features, Image, Value
    from PIL import Image as Picture

    images = [Picture.fromarray(RNG.integers(0, 80, (8, 8, 3), dtype=np.uint8) + np.uint8(80 * y)) for y in Y[:60]]
    for i, image in enumerate(images):
        (tmp_path / "in" / f"class{Y[i]}").mkdir(parents=True, exist_ok=True)
        image.save(tmp_path / "in" / f"class{Y[i]}" / f"{i:03d}.png")
    features = Features({"image": Image(), "label": ClassLabel(names=["a", "b", "c"]), "client_id": Value("int64")})
    hub = Dataset.from_dict(
        {"image": images, "label": Y[:60].tolist(), "client_id": OWNER[:60].tolist()}, features=features
    )
    for data, split in ((tmp_path / "in", "iid"), (hub, "natural"), ({"train": hub, "test": hub}, "natural")):
        result = federate("cnn", data, **QUICK | {"split": split})
        assert result.experiment.dataset.x_train.shape[1:] == (8, 8, 3) and result.metrics[-1]["global_accuracy"] > 0.3


def test_a_loss_and_a_metric_of_ones_own():
    def smoothed(outputs: Tensor, y: Tensor) -> Tensor:
        return F.cross_entropy(outputs, y, label_smoothing=0.2)

    def top2(outputs: Tensor, y: Tensor) -> Tensor:
        return (outputs.topk(2).indices == y[:, None]).any(1)

    module = Mine()
    plain, other = federate(module, (X, Y), **QUICK), federate(module, (X, Y), loss=smoothed, metric=top2, **QUICK)
    assert not torch.equal(plain.server.params, other.server.params)
    pool = other.experiment.federation.test_pool
    module.load_state_dict(other.model())
    assert other.metrics[-1]["global_top2"] == float(top2(module(pool[0]), pool[1]).double().mean())


def test_the_callback_sees_each_round_and_may_stop():
    seen: list[dict[str, Any]] = []
    result = federate(Mine(), (X, Y), on_round=seen.append, **QUICK)
    assert seen == result.metrics and [info["round"] for info in seen] == [1, 2, 3]

    def stop(info: dict[str, Any]) -> None:
        raise KeyError(info["round"])

    with pytest.raises(KeyError, match="1"):
        federate(Mine(), (X, Y), on_round=stop, **QUICK)


def test_a_watcher_measures_on_its_own(tmp_path):
    """It sees the round before it is written: what it gives back stands in the log, and after it all else."""
    seen: list[tuple[int, bool]] = []

    def largest(round: apiece.Round) -> dict[str, Any]:
        seen.append((round.number, round.last))
        assert "global_accuracy" in round.info and "bytes_up" not in round.info
        return {"largest": max(leaf.abs().max() for leaf in round.model().values()), "first": 0}

    module, quick = Mine(), QUICK | {"out": tmp_path / "run"}
    result = federate(module, (X, Y), watchers=[lambda round: None, largest], on_round=lambda info: info.clear, **quick)
    assert seen == [(1, False), (2, False), (3, True)]
    assert result.metrics[-1]["largest"] == max(float(leaf.abs().max()) for leaf in result.model().values())
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert lines == result.metrics and lines[0]["first"] == 0
    plain = federate(module, (X, Y), **QUICK)
    assert torch.equal(plain.server.params, result.server.params)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"steps": 1}, "a watcher returned 'steps', which the round's record has already"),
        ({"a": "1"}, "a watcher returned 'a'='1': let it be a number"),
        ({"a": torch.ones(2)}, "a watcher returned 'a'=tensor"),
        (5, "a watcher returned 5: let it return numbers by name, or nothing"),
    ],
)
def test_what_a_watcher_may_not_give_back(given, said):
    with pytest.raises(UserError, match=said):
        federate(Mine(), (X, Y), watchers=[lambda round: given], **QUICK)


def test_an_algorithm_of_ones_own():
    algorithm = apiece.algorithm(Proximal(0.5), apiece.Period("hidden", 2), name="mine")
    named = federate(Mine(), (X, Y), "fedprox(mu=0.5)", **QUICK)
    result = federate(Mine(), (X, Y), algorithm, **QUICK)
    assert result.experiment.config.algorithm == "mine" and named.experiment.config.algorithm == "fedprox(mu=0.5)"
    assert result.metrics[-1]["parameters_up"] < named.metrics[-1]["parameters_up"]


# kinds catch a leaf that is taken for a tree, lifts a mark that a stack makes
@pytest.mark.parametrize(
    ("said", "kind"), [(None, "None"), ({"norm": 1.0}, "{.*float.*}"), ((torch.ones(2),), ".*shape .2.*")]
)
@pytest.mark.parametrize("lift", ["sequential", "vectorized"])
def test_a_report_without_a_mark_is_refused_by_name(said, kind, lift):
    class Telling(Piece):
        def report(self, view):
            return said

    with pytest.raises(UserError, match=rf"Telling.report returned {kind}: it must return .* wrapped in Uniform"):
        federate(nn.Linear(4, 3), (X, Y), apiece.algorithm(Telling(), name="mine"), **QUICK, lift=lift)


def test_a_run_folder_and_going_on_from_python(tmp_path):
    module, out = Mine(), str(tmp_path / "run")
    whole = federate(module, (X, Y), "scaffold", **QUICK)

    def stop(info: dict[str, Any]) -> None:
        if info["round"] == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        federate(module, (X, Y), "scaffold", out=out, on_round=stop, **QUICK)
    with pytest.raises(UserError, match="exists"):
        federate(module, (X, Y), "scaffold", out=out, **QUICK)
    again = federate(module, (X, Y), "scaffold", out=Path(out), resume=True, **QUICK)
    assert torch.equal(whole.server.params, again.server.params) and len(again.metrics) == 3
    module.load_state_dict(load_file(Path(out) / "model.safetensors"))
    from support.outer import cli

    np.savez(tmp_path / "new.npz", x_train=X[:7], y_train=Y[:7], x_test=X[:3], y_test=Y[:3])
    served = personalize(again, tmp_path / "new.npz", tmp_path / "new.safetensors")
    assert served.accuracy is not None and served.way == "the global model"
    mine = load_file(tmp_path / "new.safetensors")
    assert all(torch.equal(leaf, mine[name]) for name, leaf in again.model().items())
    for command, way in {"resume": "resume=True", "compare": "add --no-references."}.items():
        ended = cli(command, out)  # which knows neither the module nor the data
        assert ended.code == 2 and "came from a program" in ended.err and way in ended.err


def test_models_load(tmp_path):
    module = Mine()
    result = federate(module, (X, Y), "fedavg_p(personal=out)", unseen=1, **QUICK)
    states = [result.model(client) for client in range(5)]
    for state in [result.model(), *states]:
        module.load_state_dict(state)
    assert not torch.equal(states[0]["out.weight"], states[1]["out.weight"])
    assert torch.equal(states[0]["hidden.weight"], states[1]["hidden.weight"])
    result.model()["out.weight"].zero_()
    assert result.model()["out.weight"].any()  # copies


@pytest.mark.slow
@pytest.mark.parametrize("buffers", ["average", "local", "drop"])
def test_models_with_buffers_and_tied_weights_load(buffers, tmp_path):
    def written(folder: Path, state: dict[str, Tensor]) -> str:
        save_file({name: leaf.clone() for name, leaf in state.items()}, folder / "model.safetensors")
        return str(folder / "model.safetensors")

    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.norm, self.b, self.head = nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Linear(4, 4), nn.Linear(4, 3)
            self.b.weight = self.a.weight
            self.register_buffer("scale", torch.tensor([2.0]))

        def forward(self, x: Tensor) -> Tensor:
            return self.head(self.b(self.norm(self.a(x))) * self.scale)

    module = Tied()
    result = federate(module, (X, Y), buffers=buffers, **QUICK)
    for state in (result.model(), result.model(2)):
        module.load_state_dict(state)
        assert buffers != "drop" or not state["norm.running_mean"].any()  # what was dropped was not learned
        again = federate(module, (X, Y), buffers=buffers, init=written(tmp_path, state), **(QUICK | {"lr": 0.0}))
        assert all(torch.equal(again.model()[name], state[name]) for name in ("a.weight", "norm.weight"))
        assert torch.equal(state["a.weight"], state["b.weight"]) and state["scale"] == 2.0


def test_frozen_parameters_are_not_sent():
    module = Mine()
    module.hidden.requires_grad_(False)
    result = federate(module, (X, Y), **QUICK)
    assert result.metrics[-1]["parameters_up"] == 3 * 5 * 21
    assert torch.equal(result.model()["hidden.weight"], module.hidden.weight)


def test_clients_whose_data_are_made_when_asked():
    def make(client: int) -> tuple[Tensor, Tensor]:
        rng = np.random.default_rng(client)
        y = rng.integers(0, 3, 20)
        return torch.from_numpy((rng.normal(size=(20, 4)) + 2 * np.eye(3, 4)[y]).astype(np.float32)), torch.from_numpy(
            y
        )

    place = MadeFederation(make, 10_000, 20, (torch.from_numpy(X), torch.from_numpy(Y)))
    result = federate(Mine(), clients=place, algorithm="scaffold", cohort=20, rounds=5, steps=3)
    assert result.metrics[-1]["global_accuracy"] > 0.5 and len(result.clients.touched()) <= 100


def test_clients_whose_data_are_made_end_in_a_folder(tmp_path):
    """All names are listed, data are made for those who train alone, and a client held out does not train."""
    made, half = set(), torch.from_numpy(X[:20])

    def make(client):
        made.add(client)
        return half, torch.from_numpy(Y[:20])

    place = MadeFederation(make, 30, 20, (torch.from_numpy(X), torch.from_numpy(Y)), unseen=(7,))
    result = federate(Mine(), clients=place, algorithm="scaffold", cohort=4, rounds=2, steps=1, out=tmp_path / "run")
    records = json.loads((tmp_path / "run" / "clients.json").read_text())
    assert [r["name"] for r in records] == [f"client-{i:07d}" for i in range(30)] == list(place.names)
    assert [i for i, r in enumerate(records) if not r["seen"]] == [7] and len(made) < 30
    everyone = federate(Mine(), clients=place, cohort=1.0, rounds=1, steps=1, algorithm="scaffold").clients.touched()
    assert everyone == [c for c in range(30) if c != 7] and len(result.clients.touched()) <= 8


def test_ragged_clients():
    """Fewer samples than a batch, one, none at all."""
    sizes = [0, 1, 3, 40, 256]
    pool = (torch.from_numpy(X), torch.from_numpy(Y))
    rows = list(torch.arange(300).split(sizes))
    place = apiece.Federation(pool, pool, rows, rows, [f"c{size}" for size in sizes])
    for algorithm in ("fedavg", "scaffold + fedals(alpha=2)", "fedavg_p"):
        for settings in ({"steps": 3}, {"epochs": 1}, {"steps": 3, "lift": "vectorized"}):
            result = federate(Mine(), clients=place, algorithm=algorithm, rounds=3, batch=16, **settings)
            last = result.metrics[-1]
            assert (
                (last["cohort"], last["answered"]) == (5, 4)
                and 0 not in result.clients.touched()
                and "c0" not in result.accuracy
            )
