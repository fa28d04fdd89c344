"""The losses that leave targets out: torch's where there are targets, and 0 where a batch has none."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from apiece import Federation, federate
from apiece.data.tokens import IGNORED
from apiece.vector.losses import by_pixel
from apiece.vector.task import cross_entropy


def case(kind: str) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    shape = (4, 5, 7) if kind == "tokens" else (4, 7, 3, 2)
    outputs = torch.randn(shape, generator=generator)
    y = torch.randint(7, (4, 5) if kind == "tokens" else (4, 3, 2), generator=generator)
    y[0], y[1, 1] = IGNORED, IGNORED
    return outputs, y


def loss(outputs: Tensor, y: Tensor) -> Tensor:
    return cross_entropy(outputs, y) if y.dim() == 2 else by_pixel(outputs, y)


def plain(outputs: Tensor, y: Tensor) -> Tensor:
    return F.cross_entropy(outputs.movedim(-1, 1) if y.dim() == 2 else outputs, y, ignore_index=IGNORED)


@pytest.mark.parametrize("kind", ["tokens", "pixels"])
def test_a_batch_without_a_target_has_loss_and_derivatives_of_zero(kind):
    outputs, y = case(kind)
    assert loss(outputs, y) == pytest.approx(plain(outputs, y))
    derivative = torch.func.grad(loss)
    assert torch.allclose(derivative(outputs, y), torch.func.grad(plain)(outputs, y))
    second = torch.func.grad(lambda outputs, y: derivative(outputs, y).square().sum() + loss(outputs, y))
    for function in (loss, derivative, second):
        each = torch.func.vmap(function)(outputs[:, None], y[:, None])  # a batch of one for each
        alone = [function(outputs[i : i + 1], y[i : i + 1]) for i in range(4)]
        assert torch.allclose(each, torch.stack(alone))
        assert not each[0].any() and each.isfinite().all() and all(part.any() for part in each[1:])


class Language(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.head = nn.Embedding(7, 4), nn.Linear(4, 7)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.embed(x))


@pytest.mark.parametrize("lift", ["sequential", "vectorized"])
def test_a_text_without_a_target_changes_no_number_of_a_run(lift):
    """One sample a batch: one of them has nothing to learn from."""
    torch.manual_seed(0)
    x, y, model = torch.randint(7, (60, 5)), torch.randint(7, (60, 5)), Language()
    y[3] = IGNORED
    rows = list(torch.arange(60).split([20, 40]))
    clients = Federation((x, y), (x, y), rows, rows, ["a", "b"])
    found = federate(model, None, "fedavg", clients=clients, rounds=2, epochs=1, batch=1, lift=lift).metrics[-1]
    numbers = {name: value for name, value in found.items() if "accuracy" in name or "loss" in name}
    assert len(numbers) >= 6 and torch.tensor(list(numbers.values())).isfinite().all(), numbers
