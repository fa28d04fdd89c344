"""What is frozen is shared, keeps its type, and stays as it is."""

import numpy as np
import pytest
import torch
from torch import nn

from apiece import federate
from apiece.vector.space import Space


class Adapted(nn.Module):
    """x -> W x + B A x, W frozen and of its own type."""

    def __init__(self, kind: torch.dtype):
        super().__init__()
        self.base = nn.Linear(6, 6).to(kind).requires_grad_(False)
        self.register_buffer("scale", torch.full((6,), 0.5, dtype=kind))
        self.down, self.up = nn.Linear(6, 2, bias=False), nn.Linear(2, 3, bias=False)

    def forward(self, x):
        return self.up(self.down(x + (self.base(x.to(self.base.weight.dtype)) * self.scale).float()))


def data():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((120, 6)).astype(np.float32)
    return x, (x[:, 0] > 0).astype(int) + (x[:, 1] > 0)


@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float16, torch.float32])
def test_the_base_lies_in_memory_once_and_keeps_its_type(kind):
    module = Adapted(kind)
    before = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    space = Space(module)
    _ = space.training_outputs(space.ravel(), torch.ones(2, 6), space.ravel_buffers())
    copies = [space.module, space._calls.module, *(space._calls._copies()[mode] for mode in ("train", "evaluate"))]
    for copy in copies:
        assert copy.base.weight.data_ptr() == module.base.weight.data_ptr() and copy.base.weight.dtype == kind
    assert space.size == 18 and space.buffer_size == (6 if kind == torch.float32 else 0)
    result = federate(module, data(), clients=3, rounds=2, steps=3, split="iid", algorithm="scaffold")
    assert result.metrics[-1]["parameters_up"] == 2 * 3 * 18
    assert all(torch.equal(before[name], tensor) for name, tensor in module.state_dict().items())
    model = result.model()
    assert model["base.weight"].dtype == kind and torch.equal(model["base.weight"], module.base.weight)
    assert not torch.equal(model["down.weight"], module.down.weight)


def test_whole_numbers_stay_what_they_are():
    class Quantized(Adapted):
        def __init__(self):
            super().__init__(torch.float32)
            self.base.weight = nn.Parameter((8 * torch.randn(6, 6)).to(torch.int8), requires_grad=False)

        def forward(self, x):
            return self.up(self.down(x @ self.base.weight.to(x.dtype) * 0.1))

    module = Quantized()
    result = federate(module, data(), clients=3, rounds=1, steps=3, split="iid", lift="vectorized")
    assert torch.equal(result.model()["base.weight"], module.base.weight)


class Normed(nn.Module):
    def __init__(self, frozen: bool):
        super().__init__()
        self.norm, self.out = nn.BatchNorm1d(6), nn.Linear(6, 3)
        nn.init.normal_(self.norm.weight, 1.0, 0.1)
        self.norm.running_mean.fill_(0.3)
        self.norm.requires_grad_(not frozen)

    def forward(self, x):
        return self.out(self.norm(x))


class Scaled(nn.Module):
    """The same with the normalization as the fixed affine function that it is in evaluation mode."""

    def __init__(self, normed: Normed):
        super().__init__()
        norm = normed.norm
        self.scale = (norm.weight / (norm.running_var + norm.eps).sqrt()).detach()
        self.shift = (norm.bias - norm.running_mean * self.scale).detach()
        self.out = normed.out

    def forward(self, x):
        return self.out(x * self.scale + self.shift)


@pytest.mark.parametrize("lift", ["sequential", "vectorized"])
@pytest.mark.parametrize("buffers", ["average", "local", "drop"])  # a policy could touch what is frozen
def test_a_frozen_batch_norm_normalizes_as_in_evaluation(lift, buffers, caplog):
    torch.manual_seed(0)
    module = Normed(frozen=True)
    given = {"clients": 3, "rounds": 3, "steps": 4, "split": "iid", "lift": lift}
    normed, scaled = federate(module, data(), buffers=buffers, **given), federate(Scaled(module), data(), **given)
    assert torch.allclose(normed.model()["out.weight"], scaled.model()["out.weight"], atol=1e-5)
    assert torch.equal(normed.model()["norm.running_mean"], module.norm.running_mean)
    assert normed.experiment.federated.setup.task.space.buffer_size == 0
    assert "norm" in caplog.text and "as in evaluation" in caplog.text


def test_one_that_trains_still_moves():
    torch.manual_seed(0)
    module = Normed(frozen=False)
    result = federate(module, data(), clients=3, rounds=1, steps=2, split="iid")
    assert not torch.equal(result.model()["norm.running_mean"], module.norm.running_mean)
