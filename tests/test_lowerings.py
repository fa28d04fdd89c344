"""What is compiled in place of operations on images: the same numbers, in another layout or by another formula."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from helpers import clusters, federate, gap, run
from torch import Tensor, nn
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils._python_dispatch import TorchDispatchMode

from driftless import algorithms as named
from driftless.compiled import Compiled
from driftless.lowerings import lowered
from driftless.work import Work

aten = torch.ops.aten

TILED: list[tuple[Any, dict[str, Any]]] = [
    (2, {}),
    (3, {}),
    ((2, 3), {}),
    (1, {}),
    (2, {"stride": 2, "ceil_mode": True}),
]
OTHER: list[tuple[Any, dict[str, Any]]] = [
    (2, {"stride": 1}),
    (3, {"padding": 1}),  # as many windows as if they tiled
    (2, {"dilation": 2}),
    (2, {"dilation": 2, "stride": 2}),
    (5, {}),  # two rows and columns are left over
    (5, {"ceil_mode": True}),
    (4, {}),  # too many places for a formula
]


def gradient(kernel: Any, settings: dict[str, Any], x: Tensor) -> tuple[Any, tuple]:
    """The recorded gradient of a pool, and inputs of it."""

    def pooled(x: Tensor, grad: Tensor) -> Tensor:
        x = x.detach().requires_grad_()
        return torch.autograd.grad(F.max_pool2d(x, kernel, **settings), x, grad)[0]

    rng = torch.Generator().manual_seed(1)
    shape = F.max_pool2d(x, kernel, **settings).shape
    inputs = x, torch.randn(shape, generator=rng, dtype=x.dtype)
    return make_fx(pooled)(*inputs), inputs


@pytest.mark.parametrize("kernel, settings", TILED + OTHER, ids=str)
@pytest.mark.parametrize("last", [True, False], ids=["channels last", "channels first"])
def test_the_gradient_of_a_pool(kernel, settings, last):
    """Bit by bit, also where windows have several largest; by indices where they do not tile or have many places."""
    x = torch.randint(3, (3, 5, 12, 12), generator=torch.Generator().manual_seed(0)).double()
    graph, inputs = gradient(kernel, settings, x.contiguous(memory_format=torch.channels_last) if last else x)
    other = lowered(graph, inputs)
    assert torch.equal(other(*inputs), graph(*inputs))
    scattered = [node for node in other.graph.nodes if node.target is aten.max_pool2d_with_indices_backward.default]
    assert bool(scattered) == ((kernel, settings) in OTHER)


class Convolutions(TorchDispatchMode):
    """Notes how what a convolution reads lies, its own gradients too."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[bool] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in (aten.convolution.default, aten.convolution_backward.default):
            backward = func is aten.convolution_backward.default
            of_images, of_kernels, _ = args[-1] if backward else (True, True, False)
            read = (args[0], args[1] if of_kernels else None, args[2] if of_images else None) if backward else args[:2]
            self.seen += [_last(t) for t in read if t is not None]
        return func(*args, **(kwargs or {}))


def _last(t: Tensor) -> bool:
    return t.stride(1) == 1 and t.is_contiguous(memory_format=torch.channels_last)


def test_many_clients_convolutions_lie_channels_last():
    """Those of vmap lie channels first; one channel alone, whose two layouts are one, is said to lie last too."""
    rng = torch.Generator().manual_seed(0)
    draw = lambda *shape: torch.randn(*shape, generator=rng, dtype=torch.float64)

    def loss(kernels: tuple, x: Tensor) -> Tensor:
        return F.conv2d(F.conv2d(x, kernels[0]), kernels[1], padding=1).sin().sum()

    call = lambda one, two, x: torch.func.vmap(torch.func.grad(loss))((one, two), x)
    inputs = draw(3, 4, 1, 3, 3), draw(3, 2, 4, 3, 3), draw(3, 5, 1, 8, 8)
    graph = make_fx(call)(*inputs)
    other = lowered(graph, inputs)
    with Convolutions() as before:
        as_recorded = graph(*inputs)
    with Convolutions() as after:
        relaid = other(*inputs)
    assert len(before.seen) == len(after.seen) > 4 and not all(before.seen) and all(after.seen)
    assert max(gap(one, two) for one, two in zip(as_recorded, relaid, strict=True)) < 1e-12


def test_what_is_not_of_images_is_left():
    x, kernels = torch.randn(2, 3, 9), torch.randn(4, 3, 2)
    graph = make_fx(lambda x, k: F.max_pool1d(F.conv1d(x, k), 2))(x, kernels)
    assert torch.equal(lowered(graph, (x, kernels))(x, kernels), graph(x, kernels))


@pytest.mark.parametrize("by", [lambda graph: graph, None], ids=["as lowered", "by torch"])
def test_a_run_of_convolutions_and_pools(by):
    """Clients with convolutions, overlapping pools and tiling ones, as one after the other computes them."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        module = nn.Sequential(
            nn.Conv2d(1, 4, 3, padding=1), nn.MaxPool2d(2), nn.ReLU(), nn.Conv2d(4, 3, 3), nn.MaxPool2d(2, 1),
            nn.Flatten(), nn.Linear(3, 3),
        )  # fmt: skip
    data, work = clusters((9,) * 8, shape=(1, 8, 8)), Work(3, None, 4)
    federated, cohorts = federate(named.scaffold(), module), [range(8)] * 2
    alone, lift = run(federated, data, work, cohorts), Compiled(4, 1, by)
    assert gap(alone.last, run(federated, data, work, cohorts, lift=lift).last) < 1e-12
