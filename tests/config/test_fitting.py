"""A model, a loss and a metric of one's own: what does not fit is refused, and what does runs by default."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
import torch.utils.checkpoint
from safetensors.torch import save_file
from support.outer import config
from torch import Tensor, nn
from torch.nn.utils import parametrizations, prune

from apiece import Piece, View, algorithm, federate
from apiece.config.assemble import assemble
from apiece.data.federation import Federation
from apiece.errors import UserError
from apiece.experiment.run import execute
from apiece.vector.space import Space

RNG = np.random.default_rng(0)
Y = np.arange(300) % 3
X = (RNG.normal(size=(300, 20)) + 2 * np.eye(3, 20)[Y]).astype(np.float32)
QUICK: dict[str, Any] = {"clients": 10, "split": "iid", "rounds": 1, "steps": 2, "batch": 8}


@pytest.fixture(autouse=True)
def alike(no_report):
    """The same initial modules each time, and no report."""
    torch.manual_seed(0)


class Recurrent(nn.Module):
    """What vmap has no rule for."""

    def __init__(self, cell: type[nn.Module] = nn.GRU, **more: Any):
        super().__init__()
        self.cell, self.out = cell(4, 8, batch_first=True, **more), nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.cell(x.view(len(x), 5, 4))[0][:, -1])


class Branching(nn.Linear):
    """Decides by a tensor's value."""

    def forward(self, input: Tensor) -> Tensor:
        return super().forward(input if input.mean() > -100 else -input)


@pytest.mark.parametrize(
    "module",
    [Recurrent(), Branching(20, 3), nn.Sequential(parametrizations.spectral_norm(nn.Linear(20, 8)), nn.Linear(8, 3))],
    ids=["recurrent", "branching", "spectral norm"],
)
def test_a_module_that_cannot_be_vectorized_runs_by_default(module, caplog):
    auto, alone = (federate(module, (X, Y), lift=lift, **QUICK).model() for lift in ("auto", "sequential"))
    assert all(torch.equal(auto[name], alone[name]) for name in alone)
    assert "not vectorized" in caplog.text
    for named in ("fedavg", "fedsam"):  # the second calls the model from a piece of ours
        with pytest.raises(UserError, match="the model cannot run under lift='vectorized'"):
            federate(module, (X, Y), algorithm=named, lift="vectorized", **QUICK)


@dataclass(frozen=True)
class Asking(Piece):
    """Asks who a client is, which one of many at once cannot say."""

    def start(self, view: View, theta: Tensor) -> Tensor:
        return theta + 0.0 * int(view.who)


def test_a_piece_that_cannot_be_vectorized_is_named(caplog):
    asking = algorithm(Asking(), name="asking")
    settings: dict[str, Any] = {"model": "softmax_regression", "algorithm": asking, "data": (X, Y), **QUICK}
    with pytest.raises(UserError, match=r"the piece Asking\(\) \(line \d+ of .*fitting.py\) cannot .* reads a tensor"):
        federate(lift="vectorized", **settings)
    auto, alone = (federate(lift=lift, **settings).model() for lift in ("auto", "sequential"))
    assert all(torch.equal(auto[name], alone[name]) for name in alone) and "which the piece Asking()" in caplog.text
    reading: dict[str, Any] = {"loss": lambda out, y: F.cross_entropy(out, y) * (1 if y.sum() < 1e9 else 0)}
    with pytest.raises(UserError, match="the model or the loss cannot run under lift='vectorized'"):
        federate("softmax_regression", (X, Y), lift="vectorized", **reading, **QUICK)


class Failing(Piece):
    """Fails under every lift."""

    def learn(self, memory: Any, g: Tensor, report: Any, share: float):
        return g * report["length"], memory


@pytest.mark.parametrize("lift", ["vectorized", "auto"])
def test_an_error_of_every_lift_is_not_one_of_vectorization(lift, caplog):
    settings: dict[str, Any] = {"data": (X, Y), "lift": lift, **QUICK}
    with pytest.raises(TypeError, match="indices must be integers"):
        federate("softmax_regression", algorithm=algorithm(Failing(), name="failing"), **settings)
    assert "not vectorized" not in caplog.text


def test_it_is_tried_on_clients_that_train(caplog):
    """The first two have no samples."""
    whole, nothing = (torch.from_numpy(X), torch.from_numpy(Y)), torch.arange(0)
    train, test = [nothing, nothing, *torch.arange(300).chunk(8)], [torch.arange(5)] * 10
    place = Federation(whole, whole, train, test, [f"client-{i}" for i in range(10)])
    module, settings = Branching(20, 3), {"clients": place, "data": "digits", "rounds": 1, "batch": 8, "epochs": 1}
    auto, alone = (federate(module, lift=lift, **settings).model() for lift in ("auto", "sequential"))
    assert all(torch.equal(auto[name], alone[name]) for name in alone) and "not vectorized" in caplog.text


def test_a_model_of_ours_that_bfloat16_keeps_from_being_vectorized():
    """Under vmap a norm layer's statistics in float32 do not meet activations in bfloat16 on the CPU."""
    settings: dict[str, Any] = {"data": "digits", "model": "resnet20", "clients": 2, "rounds": 1, "steps": 1,
        "batch": 4}  # fmt: skip
    with pytest.raises(UserError, match="the model cannot run under lift='vectorized'.*lift='threaded'"):
        federate(lift="vectorized", precision="bfloat16", **settings)
    assert federate(lift="threaded", precision="bfloat16", **settings).metrics[-1]["train_loss"] > 0


class Noisy(nn.Linear):
    """Draws as it is evaluated too."""

    def forward(self, input: Tensor) -> Tensor:
        return super().forward(input + torch.randn_like(input) * self.training)


class Holding(nn.Linear):
    """Draws from a generator of its own."""

    def forward(self, input: Tensor) -> Tensor:
        return super().forward(input + torch.rand(20, generator=torch.Generator()) if self.training else input)


class Again(nn.Sequential):
    """Its forward pass is run once more for gradients, when nothing is drawn from where it was."""

    def forward(self, input: Tensor) -> Tensor:
        return torch.utils.checkpoint.checkpoint(super().forward, input, use_reentrant=False)


@pytest.mark.parametrize(
    ("module", "said"),
    [
        (Noisy(20, 3), "draws random numbers as it is evaluated"),
        (nn.Sequential(nn.Linear(20, 8), nn.RReLU(), nn.Linear(8, 3)), "draws random numbers as it trains"),
        (Holding(20, 3), "a generator of its own"),
        (Again(nn.Linear(20, 99), nn.Dropout(), nn.Linear(99, 3)), "activation checkpointing"),
    ],
    ids=["evaluated", "randomized relu", "own generator", "checkpointing"],
)
def test_what_would_be_drawn_from_a_hidden_generator_is_refused(module, said):
    with pytest.raises(UserError, match=said):
        federate(module, (X, Y), **QUICK)


def test_torchs_own_generator_is_left_as_it_was():
    for module in (nn.Linear(20, 3), nn.Sequential(nn.Linear(20, 8), nn.Dropout(), nn.Linear(8, 3))):
        state = torch.get_rng_state()
        federate(module, (X, Y), **QUICK)
        assert torch.equal(state, torch.get_rng_state())


def test_losses_metrics_and_outputs_of_another_kind():
    class Two(nn.Linear):
        def forward(self, input: Tensor) -> Any:
            scores = super().forward(input)
            return scores, scores.exp(), scores.square()

    with pytest.raises(UserError, match="gives a tuple, and the usual loss"):
        federate(Two(20, 3), (X, Y), **QUICK)
    own = {"loss": lambda out, y: F.cross_entropy(out[0], y), "metric": lambda out, y: (out[0].argmax(1) == y).float()}
    assert federate(Two(20, 3), (X, Y), **own, **QUICK).metrics[-1]["global_metric"] > 0.3
    one = {"loss": lambda out, y: (out[:, 0] - y).square().mean()}
    with pytest.raises(UserError, match="which has no accuracy"):
        federate(nn.Linear(20, 1), (X, Y), **one, **QUICK)
    near = {"metric": lambda out, y: -(out[:, 0] - y).abs()}
    assert federate(nn.Linear(20, 1), (X, Y), **one, **near, **QUICK).metrics[-1]["global_metric"] < 0
    with pytest.raises(UserError, match="loss gives a float"):
        federate(nn.Linear(20, 3), (X, Y), loss=lambda out, y: float(F.cross_entropy(out, y)), **QUICK)
    with pytest.raises(UserError, match="one value per sample, as a tensor"):
        federate(nn.Linear(20, 3), (X, Y), metric=lambda out, y: (out.argmax(1) == y).numpy(), **QUICK)
    with pytest.raises(UserError, match="one value per sample, as a tensor"):
        federate(nn.Linear(20, 3), (X, Y), metric=lambda out, y: {"right": out.argmax(1) == y}, **QUICK)
    with pytest.raises(UserError, match="the metric 'metric' fails: KeyError: 'nothing'"):
        federate(nn.Linear(20, 3), (X, Y), metric=lambda out, y: {}["nothing"], **QUICK)
    with pytest.raises(UserError, match="gives a tuple, which has no accuracy"):
        federate(Two(20, 3), (X, Y), loss=own["loss"], **QUICK)


def in_place(outputs: Tensor, y: Tensor) -> Tensor:
    y[y < 0] = 0
    return F.cross_entropy(outputs, y)


def test_a_loss_or_a_metric_that_changes_what_it_is_given_is_refused():
    """The next metric would be made from what it left, and the test set have other labels."""
    right = lambda outputs, y: (outputs.neg_().argmax(1) == y).float()
    with pytest.raises(UserError, match=r"the metric 'right' changes its outputs or targets in place"):
        federate(nn.Linear(20, 3), (X, Y), metrics={"right": right, "accuracy": "accuracy"}, **QUICK)
    with pytest.raises(UserError, match=r"the loss changes its outputs or targets in place"):
        federate(nn.Linear(20, 3), (X, Y), loss=in_place, **QUICK)


def test_a_file_that_would_change_what_is_frozen_is_refused(tmp_path):
    def frozen() -> nn.Sequential:
        module = nn.Sequential(nn.Linear(20, 8), nn.ReLU(), nn.Linear(8, 3))
        module[0].requires_grad_(False)
        return module

    module, other = frozen(), frozen()
    save_file(other.state_dict(), tmp_path / "other.safetensors")
    save_file(module.state_dict(), tmp_path / "same.safetensors")
    with pytest.raises(UserError, match="frozen '0.weight' is not this module's"):
        federate(module, (X, Y), init=str(tmp_path / "other.safetensors"), **QUICK)
    federate(module, (X, Y), init=str(tmp_path / "same.safetensors"), **QUICK)


@pytest.mark.parametrize("algorithm", ["fedavgm", "pefll", "pefll + fedadam", "fedavgm + pfedhn"])
def test_two_optimizers_of_the_server_are_refused(algorithm):
    with pytest.raises(UserError, match="both decide the server's optimizer"):
        assemble(config(algorithm=algorithm, server="average" if "+" in algorithm else "adam(lr=0.1)"))


@pytest.mark.parametrize(
    "work", [{"steps": "4"}, {"steps": "uniform(1,2)"}, {"epochs": 2}], ids=lambda w: "=".join(map(str, *w.items()))
)
def test_centralized_does_as_much_work_as_a_cohort(work):
    """As many local steps a round, but for what is drawn and for rounding."""
    settings = {"model": "softmax_regression", "clients": 20, "cohort": 5, "rounds": 6, "split": "iid", "batch": 16}
    fed, central = (
        execute(assemble(config(algorithm=name, **work, **settings))).metrics for name in ("fedavg", "centralized")
    )
    steps = [sum(info["steps"] for info in of) for of in (fed, central)]
    assert steps[1] == pytest.approx(steps[0], rel=0.15 if "uniform" in str(work) else 0.0)


# --- modules of other kinds -------------------------------------------------------------------------------------------
def hooked(register: str) -> nn.Module:
    module = nn.Linear(20, 3)
    getattr(module.weight, register)(lambda given: None)
    return module


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: nn.Sequential(nn.LazyLinear(3)), "lazy layers"),
        (lambda: torch.jit.script(nn.Linear(20, 3)), "give its nn.Module"),
        (lambda: nn.Sequential(nn.utils.weight_norm(nn.Linear(20, 3))), "torch.nn.utils.parametrizations"),
        (lambda: nn.Linear(20, 3, device="meta"), "on the device meta, where it has no numbers"),
        (lambda: hooked("register_hook"), "'weight' has a hook on its gradient"),
        (lambda: hooked("register_post_accumulate_grad_hook"), "'weight' has a hook on its gradient"),
        (lambda: prune.l1_unstructured(nn.Linear(20, 3), "weight", 0.5), "end pruning by torch.nn.utils.prune.remove"),
    ],
)
def test_a_module_that_cannot_be_called_at_other_parameters_is_refused(make, said):
    with pytest.raises(UserError, match=said):
        federate(make(), (X, Y), **QUICK)


@pytest.mark.filterwarnings("ignore:There is a performance drop")
@pytest.mark.parametrize("lift", ["sequential", "vectorized"])
def test_a_normed_weight_is_one_layer(lift):
    layers = [parametrizations.weight_norm(nn.Linear(20, 8)), nn.ReLU(), parametrizations.weight_norm(nn.Linear(8, 3))]
    module = nn.Sequential(*layers)
    space = Space(module)
    assert space.layers == ["0", "2"] and int(space.select("head").sum()) == 3 * 8 + 3 + 3
    assert torch.equal(space.select(1), ~space.select("head"))
    result = federate(module, (X, Y), algorithm="moon", **QUICK | {"lift": lift})
    assert not torch.equal(Space(module).ravel(), result.server.params)
    module.load_state_dict(result.model())
    assert torch.equal(Space(module).ravel(), result.server.params)


def test_whole_numbers_that_a_model_reads_as_tokens():
    tokens = RNG.integers(0, 9, (300, 5))
    model = nn.Sequential(nn.Embedding(9, 4), nn.Flatten(), nn.Linear(20, 3))
    with pytest.raises(UserError, match="give tokens by name"):
        federate(model, (tokens, Y), **QUICK)
    with pytest.raises(UserError, match=r"samples of shape \[19\]: [^(]*\([^(]*\) \(a sample has 19 numbers: .*\)\.$"):
        federate(nn.Linear(20, 3), (np.ones((300, 19)), Y), **QUICK)


def test_numbers_of_numpy_are_numbers():
    plain = federate(nn.Linear(20, 3), (X, Y), **QUICK | {"lr": 0.25, "seed": 1})
    kinds = {"clients": np.int32(10), "rounds": np.int64(1), "lr": np.float32(0.25), "seed": np.int64(1)}
    assert federate(nn.Linear(20, 3), (X, Y), **QUICK | kinds).experiment.config == plain.experiment.config


def place_of(labels: Tensor) -> Federation:
    pool, rows = (torch.from_numpy(X), labels), list(torch.arange(300).chunk(2))
    return Federation(pool, pool, rows, rows, ["a", "b"])


@pytest.mark.parametrize(
    ("labels", "said"),
    [
        (torch.from_numpy(Y) - 1, "the labels go from -1 to 1"),
        (torch.from_numpy(Y) - 100, "the labels go from -100 to -98"),  # which torch would leave out
        (torch.from_numpy(Y) * 10**9, "the labels go up to 2000000000, among 600 samples"),
        (torch.from_numpy(Y.astype(np.uint64)), "the labels are torch.uint64"),
    ],
    ids=["negative", "ignored", "enormous", "unsigned"],
)
def test_labels_of_ready_clients_that_are_no_classes_are_refused(labels, said):
    with pytest.raises(UserError, match=said):
        federate("auto", clients=place_of(labels), rounds=1, steps=1)


def test_labels_of_ready_clients_may_be_any_number_under_a_loss_of_ones_own():
    own = {"loss": lambda out, y: (out[:, 0] - y).square().mean(), "metric": lambda out, y: (out[:, 0] - y).abs()}
    result = federate(nn.Linear(20, 1), clients=place_of(torch.from_numpy(Y) - 5), rounds=1, steps=1, lr=0.01, **own)
    assert result.experiment.federation.label_counts(0) == []


def test_a_model_of_ones_own_has_an_output_for_each_label_that_is_there():
    """Labels 1 to 3 are three classes; in a ready federation they may be 0 to 3."""
    federate(nn.Linear(20, 3), (X, Y + 1), **QUICK)
    with pytest.raises(UserError, match=r"output has shape \[3\] per sample, but there are 4 classes: .* 4 scores"):
        federate(nn.Linear(20, 3), clients=place_of(torch.from_numpy(Y) + 1), rounds=1, steps=1)


def test_labels_of_training_alone_are_classes_too():
    pool, test = (torch.randn(40, 8), torch.arange(40) % 6), (torch.randn(10, 8), torch.arange(10) % 3)
    place = Federation(pool, test, list(torch.arange(40).split(20)), list(torch.arange(10).split(5)), ["a", "b"])
    with pytest.raises(UserError, match="there are 6 classes: its last layer must give 6 scores"):
        federate(nn.Linear(8, 3), clients=place, rounds=1, steps="1")
    assert federate(nn.Linear(8, 6), clients=place, rounds=1, steps="1").metrics[0]["answered"] == 2
