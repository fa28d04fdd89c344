"""Many clients' images side by side: the same values and gradients as one by one, lying where libraries are fast."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from support.helpers import Seen, clusters, federate, gap, run
from support.modules import CONVOLUTIONS
from torch import Tensor, nn

from apiece.engine.work import Work
from apiece.language import algorithms as named
from apiece.lifts.compiled import Compiled
from apiece.lifts.side_by_side import SideBySide, conv2d, max_pool2d, relu

aten = torch.ops.aten
CLIENTS = 3

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


def drawn(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)), dtype=torch.float64)


def lying(seen: Seen) -> list[bool]:
    """Of all that convolutions and their gradients read, whether it lay channels-last."""
    read = [t for args in seen.of(aten.convolution.default) for t in args[:2]]
    for args in seen.of(aten.convolution_backward.default):
        of_images, of_kernels, _ = args[-1]
        read += [args[0], *([args[1]] if of_kernels else []), *([args[2]] if of_images else [])]
    return [_last(t) for t in read]


def _last(t: Tensor) -> bool:
    """One channel alone, whose two layouts are one, is to say that it lies so too."""
    return t.stride(1) == 1 and t.is_contiguous(memory_format=torch.channels_last)


# settings catch a window that is read at other places, owners an axis of clients that is not joined or joined twice
@pytest.mark.parametrize("place, settings", list(enumerate(CONVOLUTIONS)), ids=str)
@pytest.mark.parametrize("own", ["images", "kernels", "both", "neither"])
def test_a_convolution(place, settings, own):
    """Values and all gradients, where clients have images or kernels of their own, or share them; biased by turns."""
    biased = (place + len(own)) % 2 == 0
    shapes = [(3, 4, 9, 8), (6, 4 // settings.get("groups", 1), 3, 2), (6,)][: 3 if biased else 2]
    mine = {"images": [0], "kernels": [1, 2], "both": [0, 1, 2], "neither": []}[own]
    given = [drawn(CLIENTS, *shape) if place in mine else drawn(*shape) for place, shape in enumerate(shapes)]
    dims = tuple(0 if place in mine else None for place in range(len(shapes)))

    def gradients(of: Any) -> tuple[Tensor, ...]:
        value = lambda *given: of(*given, **settings).sin().square().sum()
        each = torch.func.grad_and_value(value, tuple(range(len(given))))
        found, loss = (torch.func.vmap(each, dims) if mine else each)(*given)
        return *found, loss

    for one, two in zip(gradients(conv2d), gradients(F.conv2d), strict=True):
        assert one.shape == two.shape and gap(one, two) < 1e-11


def test_a_gradient_that_is_asked_for_alone():
    x, kernels = drawn(CLIENTS, 2, 2, 5, 5), drawn(CLIENTS, 3, 2, 2, 2)
    for place in (0, 1):
        each = [torch.func.grad(lambda *given, of=of: of(*given).sin().sum(), place) for of in (conv2d, F.conv2d)]
        one, two = (torch.func.vmap(of)(x, kernels) for of in each)
        assert gap(one, two) < 1e-12


# places catch a gradient of a gradient left out, settings one at the places of a plain convolution
@pytest.mark.parametrize("places", [(0,), (1,), (2,), (0, 1, 2)], ids=["images", "kernels", "biases", "all"])
@pytest.mark.parametrize("settings", [{}, {"stride": 2, "padding": 1, "groups": 2}], ids=str)
def test_a_convolution_differentiated_twice(places, settings):
    """By a gradient that itself is differentiated: along a direction, for each client."""
    given = drawn(CLIENTS, 2, 4, 6, 6), drawn(CLIENTS, 6, 4 // settings.get("groups", 1), 3, 3), drawn(CLIENTS, 6)

    def twice(of: Any) -> Any:
        gradient = torch.func.grad(lambda *given: of(*given, **settings).sin().sum(), places)
        along = lambda *given: sum(part.cos().sum() for part in gradient(*given))
        return torch.func.vmap(torch.func.grad(along, (0, 1, 2)))(*given)

    assert all(gap(one, two) < 1e-11 for one, two in zip(twice(conv2d), twice(F.conv2d), strict=True))


@pytest.mark.parametrize("ours, theirs", [(relu, F.relu), (lambda x: max_pool2d(x, 2), lambda x: F.max_pool2d(x, 2))],
                         ids=["relu", "pool"])  # fmt: skip
def test_what_has_no_parameters_differentiated_twice(ours, theirs):
    def twice(of: Any) -> Tensor:
        gradient = torch.func.grad(lambda x: of(x).sin().sum())
        return torch.func.vmap(torch.func.grad(lambda x: gradient(x).cos().sum()))(drawn(CLIENTS, 2, 3, 4, 4))

    assert gap(twice(ours), twice(theirs)) < 1e-12


def test_what_stays_as_it_is():
    """One image without a batch, and the type that autocast gives."""
    assert torch.equal(conv2d(drawn(2, 5, 5), drawn(3, 2, 3, 3)), F.conv2d(drawn(2, 5, 5), drawn(3, 2, 3, 3)))
    with torch.autocast("cpu", torch.bfloat16):
        assert conv2d(drawn(1, 2, 5, 5).float(), drawn(3, 2, 3, 3).float()).dtype == torch.bfloat16
    ours, theirs = (of(drawn(2, 3, 4, 4), 2, return_indices=True) for of in (max_pool2d, F.max_pool2d))
    assert all(torch.equal(one, two) for one, two in zip(ours, theirs, strict=True))


# windows catch one that is read at other places, layouts a copy that is taken for the images, clients an axis too many
@pytest.mark.parametrize("place, window", list(enumerate(TILED + OTHER)), ids=str)
@pytest.mark.parametrize("last", [True, False], ids=["channels last", "channels first"])
def test_a_pool(place, window, last):
    """Bit by bit with its gradient, also where windows have several largest; by indices where they do not tile or have
    many places.
    """
    (kernel, settings), many = window, last == place % 2  # many clients and one by turns, in either layout
    x = torch.randint(3, (CLIENTS, 3, 5, 12, 12), generator=torch.Generator().manual_seed(0)).double()
    x = x.movedim(2, -1).contiguous().movedim(-1, 2) if last else x
    grad = drawn(CLIENTS, *F.max_pool2d(x[0], kernel, **settings).shape)
    lift = torch.func.vmap if many else lambda of: lambda *given: torch.stack([of(*one) for one in zip(*given)])

    def gradient(of: Any) -> Tensor:
        return lift(lambda x, grad: torch.func.grad(lambda x: (of(x, kernel, **settings) * grad).sum())(x))(x, grad)

    with Seen() as seen:
        ours = gradient(max_pool2d)
    assert torch.equal(ours, gradient(F.max_pool2d))
    assert (aten.max_pool2d_with_indices.default in seen.operations) == ((kernel, settings) in OTHER)


@pytest.mark.parametrize("shape", [(2, 3, 4, 4), (2, 7)], ids=["of images", "of numbers"])
def test_relu(shape):
    x = drawn(CLIENTS, *shape)
    for inplace in (False, True):
        value = lambda x, of, inplace=inplace: of(x * 1, inplace).sin().sum()
        ours, theirs = (torch.func.vmap(torch.func.grad(partial(value, of=of)))(x) for of in (relu, F.relu))
        assert torch.equal(ours, theirs)


@pytest.mark.parametrize("channels, copied", [(1, (5, CLIENTS, 10, 10)), (2, (5, 10, 10, CLIENTS, 2))])
def test_images_lie_channels_last(channels, copied):
    """What convolutions and their gradients read; vmap alone lays it channels first. Forward, one copy is made."""
    first = nn.Conv2d(channels, 4, 3), nn.MaxPool2d(2), nn.ReLU()
    net = nn.Sequential(*first, nn.Conv2d(4, 6, 2), nn.ReLU(), nn.Flatten(), nn.Linear(54, 3)).double()
    parameters = {name: torch.stack([p.detach()] * CLIENTS) for name, p in net.named_parameters()}
    scores = lambda parameters, x: torch.func.functional_call(net, parameters, (x,))
    gradient = torch.func.grad(lambda parameters, x: scores(parameters, x).sin().sum())
    given, vmap, lift = (parameters, drawn(CLIENTS, 5, channels, 10, 10)), torch.func.vmap, SideBySide(CLIENTS)
    with Seen() as before:
        alone = vmap(gradient)(*given)
    with Seen() as after:
        beside = lift.call(vmap(gradient), *given)
    with Seen() as forward, torch.no_grad():
        lift.call(vmap(scores), *given)
    assert len(lying(before)) == len(lying(after)) > 4 and not all(lying(before)) and all(lying(after))
    copies = [tuple(t.shape) for t, *_ in forward.of(aten.clone.default)]
    assert [shape for shape in copies if len(shape) >= 4 and shape[0] == 5] == [copied]
    assert all(gap(alone[name], beside[name]) < 1e-12 for name in alone)


def test_a_call_of_the_lift():
    """Within it alone, and in the thread that calls."""
    x = drawn(CLIENTS, 2, 2, 6, 6)
    with Seen() as seen:
        inside = SideBySide(CLIENTS).call(torch.func.vmap(lambda x: F.max_pool2d(x, 2)), x)
        assert aten.max_pool2d_with_indices.default not in seen.operations
        outside = torch.func.vmap(lambda x: F.max_pool2d(x, 2))(x)
    assert torch.equal(inside, outside) and aten.max_pool2d_with_indices.default in seen.operations


def test_what_is_not_of_images_is_left():
    x, kernels = drawn(2, 3, 9), drawn(4, 3, 2)
    inside = SideBySide(1).call(lambda: F.max_pool1d(F.conv1d(x, kernels), 2))
    assert torch.equal(inside, F.max_pool1d(F.conv1d(x, kernels), 2))


@pytest.mark.slow
@pytest.mark.parametrize("by", [lambda graph: graph, None], ids=["as recorded", "by torch"])
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
