"""Which models are taken: a call depends on model, buffers and batch alone, and changes the buffers alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrizations

from apiece import federate
from apiece.config.checks import settled
from apiece.data.samples import Samples
from apiece.errors import UserError
from apiece.experiment import choice
from apiece.language import algorithms as named
from apiece.lifts.compiled import Compiled
from apiece.vector.space import Space
from apiece.vector.task import Task

GENERATOR = np.random.default_rng(0)
DATA = GENERATOR.standard_normal((90, 6)).astype(np.float32), np.arange(90) % 3
QUICK: dict[str, Any] = {"data": DATA, "clients": 6, "split": "iid", "rounds": 2, "steps": 2, "batch": 4}


def examined(module: nn.Module, x: Tensor | None = None, **options: Any) -> Task:
    space, x = Space(module, **options), torch.randn(2, 6) if x is None else x
    samples = Samples((x, torch.tensor([0, 1])), torch.arange(2), 2)
    return settled(Task(space), space.ravel(), space.ravel_buffers(), samples)


class Own(nn.Module):
    """A linear layer, a count in whole numbers and one of Python, and a forward pass that is given."""

    def __init__(self, function: Callable[[Any, Tensor], Tensor]):
        super().__init__()
        self.linear, self.function, self.steps, self.kept = nn.Linear(6, 3), function, 0, None
        self.register_buffer("seen", torch.zeros((), dtype=torch.int64))

    def forward(self, x: Tensor) -> Tensor:
        return self.function(self, x)


def counts(m: Own, x: Tensor) -> Tensor:
    m.seen += 1
    return m.linear(x)


def counts_anew(m: Own, x: Tensor) -> Tensor:
    m.seen = m.seen + 1
    return m.linear(x)


def counts_in_python(m: Own, x: Tensor) -> Tensor:
    m.steps += m.training
    return m.linear(x) * 0.99**m.steps


def counts_as_evaluated(m: Own, x: Tensor) -> Tensor:
    m.steps += not m.training
    return m.linear(x) * 0.99**m.steps


def bounds(m: Own, x: Tensor) -> Tensor:
    m.linear.weight.data.clamp_(-9, 9)  # which changes nothing at first
    return m.linear(x)


def bounds_without_gradient(m: Own, x: Tensor) -> Tensor:
    with torch.no_grad():
        m.linear.weight.clamp_(-9, 9)
    return m.linear(x)


def bounds_anew(m: Own, x: Tensor) -> Tensor:
    m.linear.weight.data = torch.renorm(m.linear.weight.data, 2, 0, 9)
    return m.linear(x)


CONSTANT, STATE = "changes 'seen' as it is called.*floating-point buffer", "keeps state between calls.*"
PARAMETERS = "changes its parameters as it is called.*parametrize"


@pytest.mark.parametrize(
    ("function", "says"),
    [(counts, CONSTANT), (counts_anew, CONSTANT), (counts_in_python, STATE + "as it trains"),
     (counts_as_evaluated, STATE + "as it is evaluated"), (bounds, PARAMETERS), (bounds_anew, PARAMETERS),
     (bounds_without_gradient, PARAMETERS)],
    ids=lambda value: getattr(value, "__name__", ""),
)  # fmt: skip
def test_a_model_whose_call_changes_more_than_its_buffers_is_refused(function, says):
    with pytest.raises(UserError, match=says):
        examined(Own(function))
    with pytest.raises(UserError, match=says):
        federate(Own(function), lift="sequential", **QUICK)


def test_a_frozen_parameter_stays_as_it_is():
    module = Own(bounds)
    module.add_module("last", nn.Linear(3, 3))
    module.linear.requires_grad_(False)
    before = module.linear.weight.clone()
    with pytest.raises(UserError, match="changes 'linear.weight' as it is called"):
        examined(module)
    assert torch.equal(before, module.linear.weight)


def keeps_a_mask(m: Own, x: Tensor) -> Tensor:
    if m.kept is None:
        m.kept = torch.zeros(3)
    return m.linear(x) + m.kept


def grows_a_mask(m: Own, x: Tensor) -> Tensor:
    if not m.seen.shape:
        m.seen = torch.ones(6, dtype=torch.int64)
    return m.linear(x * m.seen)


class Attending(nn.Module):
    def __init__(self):
        super().__init__()
        layer = nn.TransformerEncoderLayer(6, 2, 12, batch_first=True)
        self.encoder, self.head = nn.TransformerEncoder(layer, 2), nn.Linear(6, 3)
        self.register_buffer("padded", torch.tensor([False] * 3 + [True] * 2))

    def forward(self, x):
        return self.head(self.encoder(x, src_key_padding_mask=self.padded.expand(len(x), 5))[:, 0])


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell, self.head = nn.LSTM(6, 4, 2, dropout=0.5, batch_first=True), nn.Linear(4, 3)

    def forward(self, x):
        return self.head(self.cell(x)[0][:, -1])


class Adapted(nn.Module):
    def __init__(self):
        super().__init__()
        self.base, self.head = nn.Linear(6, 6).to(torch.bfloat16).requires_grad_(False), nn.Linear(6, 3)
        self.scale = nn.Parameter(torch.ones(6, dtype=torch.int8), requires_grad=False)

    def forward(self, x):
        return self.head(self.base(x.to(torch.bfloat16)).float() * self.scale)


GOOD: dict[str, Callable[[], nn.Module]] = {
    "norms": lambda: nn.Sequential(parametrizations.spectral_norm(nn.Linear(6, 8)), nn.BatchNorm1d(8), nn.Linear(8, 3)),
    "in place within": lambda: nn.Sequential(nn.Linear(6, 8), nn.Dropout(), nn.ReLU(True), nn.Linear(8, 3)),
    "keeps a mask": lambda: Own(keeps_a_mask),
    "grows a mask": lambda: Own(grows_a_mask),
    "adapted": Adapted,
}


def centered(in_place: bool) -> nn.Module:
    """What it computes differs each time it is given what it changed."""

    def forward(m: Own, x: Tensor) -> Tensor:
        if not in_place:
            return m.linear(torch.cat([2 * x[:, :2], x[:, 2:]], 1) - 0.3)
        x[:, :2] *= 2
        x -= 0.3
        return m.linear(x)

    return Own(forward)


FIRST: dict[str, Callable[[bool], nn.Module]] = {
    "ReLU": lambda in_place: nn.Sequential(nn.ReLU(in_place), nn.Linear(6, 3)),
    "Dropout": lambda in_place: nn.Sequential(nn.Dropout(0.4, in_place), nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3)),
    "centered": centered,
}


def ran(module: nn.Module, lift: str, algorithm: str) -> list[dict[str, Any]]:
    records = federate(module, algorithm=algorithm, lift=lift, **QUICK).metrics
    return [{name: value for name, value in record.items() if name != "seconds"} for record in records]


@pytest.mark.parametrize("lift", ["sequential", "vectorized"])
@pytest.mark.parametrize("name", FIRST)
def test_a_model_that_changes_its_inputs_in_place_is_given_copies(name, lift):
    """FedSAM and Per-FedAvg call the model twice with one batch; clients are measured many in a call, too."""
    given = DATA[0].copy()
    for algorithm in ("fedsam + fine_tune", "per_fedavg"):
        torch.manual_seed(0)
        modules = FIRST[name](True), FIRST[name](False)
        modules[1].load_state_dict(modules[0].state_dict())
        one, other = (ran(module, lift, algorithm) for module in modules)
        assert one == other and np.array_equal(given, DATA[0])


@pytest.mark.slow
def test_a_model_that_changes_its_inputs_in_place_is_recorded_with_copies(monkeypatch):
    recorded = Compiled(6, 1, compiler=lambda graph: graph)
    monkeypatch.setattr(choice, "compiled", lambda *given: recorded)
    module = centered(True)
    one, other = (ran(module, lift, "fedsam")[-1] for lift in ("compiled", "sequential"))
    assert recorded.programs and one["global_loss"] == pytest.approx(other["global_loss"], rel=1e-6)


@pytest.mark.parametrize("name", GOOD)
def test_a_model_that_changes_its_buffers_alone_is_taken(name):
    examined(GOOD[name]())
    assert name == "adapted" or examined(GOOD[name]().double(), torch.randn(2, 6).double(), dtype=torch.float64)


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
@pytest.mark.parametrize("module", [Attending, Recurrent])
def test_a_model_of_sequences_is_taken_as_before(module):
    assert examined(module(), torch.randn(2, 5, 6)).draws


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")
def test_a_compiled_part_is_seen_as_it_is_written():
    part = nn.Sequential(nn.Linear(6, 8), nn.ReLU())
    examined(nn.Sequential(torch.compile(part, fullgraph=True, backend="eager"), nn.Linear(8, 3)))
    with pytest.raises(UserError, match=r"changes '0\._orig_mod\.seen'"):
        examined(nn.Sequential(torch.compile(Own(counts), backend="eager"), nn.Linear(3, 3)))


# --- layers ---------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("frozen", [False, True])
@pytest.mark.parametrize("options", [{}, {"momentum": 0.3}, {"affine": False}, {"track_running_stats": False},
                                     {"momentum": None}], ids=str)  # fmt: skip
@pytest.mark.parametrize("kind", [nn.BatchNorm1d, nn.InstanceNorm1d])
def test_statistics_move_as_torch_moves_them(kind, options, frozen):
    module, x = nn.Sequential(nn.Conv1d(5, 4, 2), kind(4, **options)), 3 * torch.randn(8, 5, 6) + 5
    module[1].requires_grad_(not frozen)
    rests = frozen and any(True for _ in module[1].parameters())
    if kind is nn.BatchNorm1d and options.get("momentum", 0) is None and not rests:
        with pytest.raises(UserError, match=r"'1' has momentum=None.*momentum=0\.1.*buffers='drop'"):
            Space(module)
        space = Space(module, buffers="drop")
        assert torch.equal(space.training_outputs(space.ravel(), x, space.ravel_buffers())[0], module(x))
        return
    space = Space(module)
    moved = space.training_outputs(space.ravel(), x, space.ravel_buffers())[1]
    (module[1].eval if rests else module.train)()
    module(x)
    assert torch.equal(moved, space.ravel_buffers(module))


class Looking(nn.Module):
    def __init__(self, kind: Any, **options: Any):
        super().__init__()
        self.table, self.head = kind(30, 6, **options), nn.Linear(6, 3)

    def forward(self, x):
        found = self.table(x)
        return self.head(found.mean(1) if found.dim() == 3 else found)


@pytest.mark.parametrize("kind", [nn.Embedding, nn.EmbeddingBag])
def test_embeddings(kind):
    """Sparse gradients are dense here, and equal; the module that was given stays sparse."""
    with pytest.raises(UserError, match="'table' has max_norm=1.0, by which a call changes its weights"):
        Space(Looking(kind, max_norm=1.0))
    tokens, module = torch.randint(0, 30, (4, 5)), Looking(kind, sparse=True)
    space = Space(module)
    leaf = space.ravel().requires_grad_()
    (ours,) = torch.autograd.grad(space.training_outputs(leaf, tokens, space.ravel_buffers())[0].sum(), leaf)
    module(tokens).sum().backward()
    theirs = module.table.weight.grad.to_dense()
    assert module.table.sparse and torch.allclose(space.unravel(ours)["table.weight"], theirs, atol=1e-6)


def test_complex_numbers_are_trained_as_real_ones_or_not_at_all():
    module = Own(lambda m, x: m.linear((x * m.phase).real))
    module.phase = nn.Parameter(torch.ones(6, dtype=torch.complex64))
    with pytest.raises(UserError, match="'phase' is complex.*view_as_real"):
        Space(module)
    module.phase.requires_grad_(False)
    x = torch.randn(2, 6)
    space = Space(module)
    assert torch.equal(space.outputs(space.ravel(), x, space.ravel_buffers()), module(x))


class Last(nn.Module):
    """Its last layer with weights is called by a name, or not at all."""

    def __init__(self, attends: bool):
        super().__init__()
        self.first = nn.Linear(6, 4)
        self.last = nn.MultiheadAttention(4, 2, batch_first=True) if attends else nn.Linear(4, 3)

    def forward(self, x):
        z = self.first(x)
        if isinstance(self.last, nn.Linear):
            return self.last(input=z)
        return self.last(query=z[:, None], key=z[:, None], value=z[:, None])[0][:, 0, :3]


def test_the_last_layers_inputs():
    space, x = Space(Last(False)), torch.randn(2, 6)
    at = space.ravel(), x, space.ravel_buffers()
    assert torch.equal(space.features(*at), space.module.first(x))
    assert torch.equal(space.outputs(*at), space.module(x))
    federate(Last(True), **QUICK)
    with pytest.raises(UserError, match=r"'last\.out_proj', cannot be taken, as the model does not call it"):
        federate(Last(True), algorithm=named.moon(), lift="sequential", **QUICK)


class Caching(Own):
    """Keeps a constant that, where it draws, is made for each client of a vectorized call."""

    def __init__(self):
        super().__init__(keeps_a_mask)
        self.drop = nn.Dropout()

    def forward(self, x):
        return super().forward(self.drop(x))


def test_what_a_vectorized_call_keeps_does_not_fit_the_next():
    auto, alone = (federate(Caching(), lift=lift, workers=2, seed=1, **QUICK).metrics for lift in ("auto", "threaded"))
    assert len(auto) == len(alone)
    with pytest.raises(UserError, match="the model cannot run under lift='vectorized'.*lift='threaded'"):
        federate(Caching(), lift="vectorized", workers=2, **QUICK)
