"""Convolutions as products of matrices: the same function, gradient and run, and for all clients one product."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from support.helpers import Seen, gap
from support.modules import CONVOLUTIONS
from torch import Tensor, nn

from apiece import federate
from apiece.data.federation import Federation
from apiece.engine.clients import Clients
from apiece.engine.federated import Federated
from apiece.engine.setup import Setup
from apiece.engine.state import Plan
from apiece.engine.work import Work
from apiece.experiment import choice
from apiece.language import algorithms as named
from apiece.lifts.lift import Rewritten, Sequential, Vectorized
from apiece.lifts.products import WRITTEN, conv2d
from apiece.vector.space import Space
from apiece.vector.task import Task


# settings catch a window that is read at other places, biases a gradient too many
@pytest.mark.parametrize("settings", [*CONVOLUTIONS, {"stride": [2], "padding": [1]}], ids=str)
@pytest.mark.parametrize("biased", [True, False])
def test_one_convolution(settings, biased):
    """Its values and the gradients of images, kernels and biases."""
    rng = torch.Generator().manual_seed(0)
    shapes = [(3, 4, 9, 8), (6, 4 // settings.get("groups", 1), 3, 2), (6,)]
    given = [torch.randn(shape, generator=rng, dtype=torch.float64, requires_grad=True) for shape in shapes]
    given = given if biased else given[:2]
    outs = [of(*given, **settings) for of in (conv2d, F.conv2d)]
    assert outs[0].shape == outs[1].shape and gap(*(out.detach() for out in outs)) < 1e-13
    gradients = [torch.autograd.grad(out.sin().sum(), given) for out in outs]
    assert all(gap(one, two) < 1e-12 for one, two in zip(*gradients, strict=True))


def test_arguments_by_name():
    images, kernels = torch.randn(1, 2, 5, 5), torch.randn(3, 2, 3, 3)
    assert torch.allclose(conv2d(input=images, weight=kernels, bias=None), F.conv2d(input=images, weight=kernels))


def test_the_type_that_autocast_gives_a_convolution():
    images, kernels, bias = torch.randn(1, 2, 5, 5), torch.randn(3, 2, 3, 3), torch.randn(3)
    with torch.autocast("cpu", torch.bfloat16):
        outs = [of(images, kernels, bias) for of in (F.conv2d, conv2d)]
    assert outs[0].dtype == outs[1].dtype == torch.bfloat16 and gap(*outs) < 0.1


def test_one_image_without_a_batch():
    image, kernels = torch.randn(2, 5, 5), torch.randn(3, 2, 3, 3)
    assert torch.equal(conv2d(image, kernels), F.conv2d(image, kernels))


class Products(Rewritten):
    """The vectorized lift with this convolution, kernel by kernel."""

    written = WRITTEN


# --- a run -----------------------------------------------------------------------------------------------------------
CLIENTS, EACH, CLASSES = 5, 12, 3


class Net(nn.Sequential):
    """Strides, padding, one of groups, a norm layer."""

    def __init__(self) -> None:
        first = nn.Conv2d(2, 4, 3, stride=2, padding=1), nn.GroupNorm(2, 4), nn.Tanh()
        second = nn.Conv2d(4, 4, 3, groups=2), nn.Tanh(), nn.Conv2d(4, 6, 1), nn.Flatten()
        super().__init__(*first, *second, nn.Linear(24, CLASSES))


def images() -> Federation:
    rng = torch.Generator().manual_seed(0)
    x = torch.randn(CLIENTS * EACH, 2, 8, 8, generator=rng, dtype=torch.float64)
    y = torch.randint(CLASSES, (CLIENTS * EACH,), generator=rng)
    rows = list(torch.arange(CLIENTS * EACH).split(EACH))
    return Federation((x, y), (x, y), rows, rows, [f"client-{i}" for i in range(CLIENTS)])


def trained(subject: Any, lift: Any) -> Tensor:
    torch.manual_seed(0)
    space = Space(Net(), dtype=torch.float64)
    federated = Federated(Setup(subject, Task(space), space.ravel(), space.ravel_buffers()))
    clients, server = Clients(federated, images(), Work(3, None, 4), 0, lift), federated.start()
    for t in range(3):
        server, _ = federated.round(server, clients, Plan([t, 3, 4], frozenset(), 0.1))
        clients.commit(t)
    return server.params


@pytest.mark.parametrize("subject", [named.fedavg(), named.scaffold() + named.fedals(2), named.moon()],
                         ids=lambda subject: subject.name)  # fmt: skip
def test_the_run_of_one_client_after_the_other(subject):
    alone, together = trained(subject, Sequential()), trained(subject, Products(2))
    assert 0 < gap(alone, together) < 1e-10


def groups(seen: Seen) -> set[int]:
    """How many groups convolutions had."""
    return {args[8] for args in seen.of(torch.ops.aten.convolution.default)}


def test_all_clients_of_a_call_are_one_product():
    """Only the layer that has two groups by itself is still a convolution: of two while all clients have one model, in
    the first step, then of two a client.
    """
    with Seen() as products:
        trained(named.fedavg(), Products(3))
    with Seen() as vectorized:
        trained(named.fedavg(), Vectorized(3))
    assert groups(vectorized) == {1, 2, 3, 6} and groups(products) == {2, 6}
    assert torch.ops.aten.bmm.default in products.operations


def test_many_models_are_evaluated_by_products_too(monkeypatch):
    settings: dict[str, Any] = {"algorithm": "local", "rounds": 1, "steps": 1, "precision": "float64"}
    settings["workers"] = 1  # calls of this thread are seen
    torch.manual_seed(0)
    net = Net()
    with Seen() as vectorized:
        theirs = federate(net, clients=images(), lift="vectorized", **settings)
    monkeypatch.setattr(choice, "vectorized", lambda *of: Products(CLIENTS))
    with Seen() as products:
        ours = federate(net, clients=images(), lift="vectorized", **settings)
    assert CLIENTS in groups(vectorized) - groups(products)
    assert ours.metrics[-1]["personal_accuracy_mean"] == theirs.metrics[-1]["personal_accuracy_mean"]


def test_outside_convolutions_stay_what_they_were():
    trained(named.fedavg(), Products(3))
    with Seen() as after:
        F.conv2d(torch.ones(1, 1, 3, 3), torch.ones(1, 1, 2, 2))
    assert groups(after) == {1}
