"""Whether compiling local steps pays for a run: a static estimate, so that one seed stays one run.

The figures are of `benchmarks/lengths.py` on two machines (docs/benchmarks.md), one of them with AVX-512. Convolutions
gain more from compiling there, because many clients' convolutions are computed well in one call.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

SPEED = 55e9  # floating-point operations of a core in a second
SHARE = 0.05  # of the seconds of the arithmetic, saved by compiling
SAVED = {"convolutions": 5e-4, "products": 7e-4, "many clients": 1e-5}  # seconds a step besides
SAVED_WIDE = SAVED | {"convolutions": 1.5e-3}  # with AVX-512
START, LAYER = 5.0, 4.0  # seconds that compiling takes, and for each layer
MEASURED = 1 << 21  # parameters; larger models have not been measured
DEEP = 5  # layers of a network with convolutions; a ResNet-20 gains nothing in batches of any size
COLORS = 3  # channels of a convolution that libraries compute slowly for many clients in one call without AVX-512
SLOW = 4e6  # operations of a step in such convolutions, for each kernel, from which compiling gains nothing
MANY, MANY_WIDE = 2.5e6, 7e6  # numbers that a call's convolutions put out, from which memory sets the pace
PASSES = 3  # forward, and backward once for the inputs and once for the weights

CONVOLUTIONS = torch.conv1d, torch.conv2d, torch.conv3d
LENGTH: dict[Callable, Callable[[Tensor, Tensor], int]] = {  # of the sums of which a product's entries consist
    **dict.fromkeys(CONVOLUTIONS, lambda x, w: w[0].numel()),
    **dict.fromkeys((F.linear, torch.matmul, Tensor.matmul, Tensor.__matmul__), lambda x, w: x.shape[-1]),
}


class Counter(TorchFunctionMode):
    """Counts the floating-point operations of convolutions and products of matrices, forward, while it is entered.

    torch's own counter sees the backward pass as well, but takes a second to import.

    >>> with Counter() as counter:
    ...     _ = torch.nn.Linear(3, 5)(torch.zeros(2, 3))
    >>> counter.operations
    60
    """

    operations = 0
    colored = 0.0  # operations for each kernel of convolutions of three channels, as the first of colored images is
    outputs = 0  # numbers that convolutions put out

    def step(self) -> dict[str, Any]:
        """What `Facts` has of one local step, where one forward pass was counted."""
        return {"operations": PASSES * self.operations, "colored": PASSES * self.colored, "outputs": self.outputs}

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        if func in LENGTH:
            made = 2 * out.numel() * LENGTH[func](*args[:2])
            self.operations += made
            if func in CONVOLUTIONS:
                self.colored += made / len(args[1]) if args[1].shape[1] == COLORS else 0.0
                self.outputs += out.numel()
        return out


def wide() -> bool:
    """Whether torch computes with AVX-512 here."""
    return torch.backends.cpu.get_cpu_capability().startswith("AVX512")


class Facts(NamedTuple):
    """What the estimate depends on."""

    operations: float  # floating-point operations of one local step of one client, counted once
    steps: float  # local steps of all clients in all rounds
    layers: int  # tensors of weights
    size: int  # parameters
    convolves: bool
    vectorized: bool  # whether one call takes many clients without compiling
    alike: bool  # whether all clients take as many steps with batches of one shape
    workers: int
    calls: int  # compiled calls of a round
    together: int  # clients of a call
    wide: bool  # whether the processor has AVX-512
    colored: float = 0.0  # operations of a step for each kernel on three channels
    outputs: float = 0.0  # numbers that the convolutions of a step put out


class Worth(NamedTuple):
    """Whether compiling pays, and why in a few words."""

    pays: bool
    why: str


def compiling(facts: Facts) -> Worth:
    """Whether the run's local steps should be compiled.

        steps (SAVED + SHARE operations / SPEED) / workers  >=  START + layers LAYER

    SAVED is of the run's kind: with convolutions, with products of matrices alone, or with many clients in one call
    even where nothing is compiled, which gains least.

    >>> lenet = Facts(214e6, 500, 5, 85_822, True, False, True, workers=2, calls=2, together=5, wide=False)
    >>> compiling(lenet)
    Worth(pays=False, why='compiling should save about 0 s and take 25 s')
    >>> compiling(lenet._replace(steps=200_000)).pays
    True
    """
    many = MANY_WIDE if facts.wide else MANY
    if not facts.alike:
        return Worth(False, "clients' local steps differ in number or in the shape of their batches")
    if facts.size > MEASURED:
        return Worth(False, f"models of more than {MEASURED:,} parameters have not been measured compiled")
    if facts.convolves and facts.layers > DEEP:
        return Worth(False, f"convolutional networks of more than {DEEP} layers gained nothing compiled where measured")
    if facts.outputs * facts.together > many:
        return Worth(False, f"convolutions that put out more than {many:,.0f} numbers a call gain nothing compiled")
    if facts.colored > SLOW and not facts.wide:
        return Worth(False, "many clients' convolutions of three channels take as long in one call as one by one")
    if facts.calls < facts.workers:
        return Worth(False, f"a compiled round has {facts.calls} calls, and would leave some of {facts.workers} idle")
    kind = "many clients" if facts.vectorized else "convolutions" if facts.convolves else "products"
    each = (SAVED_WIDE if facts.wide else SAVED)[kind] + SHARE * facts.operations / SPEED
    saved, start = facts.steps * each / facts.workers, START + facts.layers * LAYER
    return Worth(saved >= start, f"compiling should save about {saved:.0f} s and take {start:.0f} s")
