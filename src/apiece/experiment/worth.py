"""Whether compiling local steps pays for a run: a static estimate, so that one seed stays one run.

The figures are of `make bench` and `benchmarks/lengths.py` on two machines (docs/benchmarks.md), rounded so that the
estimate is low and the price high: a run that compiles loses at most a tenth on the slower one. A faster machine trains
and compiles faster alike.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

SPEED = 55e9  # floating-point operations of a core in a second
STEP = {"convolutions": 2e-3, "products": 5e-4, "many clients": 1e-4}  # seconds of a step besides its arithmetic
ONCE = {"convolutions": 10.0, "products": 10.0, "many clients": 60.0}  # seconds of training from which a start pays
LAYER = {"convolutions": 30.0, "products": 5.0, "many clients": 5.0}  # further seconds, for each layer
MEASURED = 1 << 21  # parameters; larger models have not been measured
COLORS = 3  # channels of a convolution that libraries compute slowly for many clients in one call
SLOW = 4e6  # operations of a step in such convolutions, for each kernel, from which compiling gains nothing
MANY = 5e5  # numbers that a step's convolutions put out, from which compiling gains nothing: memory sets the pace
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
        colored = 0.0 if wide() else PASSES * self.colored
        return {"operations": PASSES * self.operations, "colored": colored, "outputs": self.outputs}

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
    """Whether the processor has AVX-512, with which colored images were not measured."""
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
    colored: float = 0.0  # operations of a step for each kernel on three channels, where many clients' are slow
    outputs: float = 0.0  # numbers that the convolutions of a step put out


class Worth(NamedTuple):
    """Whether compiling pays, and why in a few words."""

    pays: bool
    why: str


def compiling(facts: Facts) -> Worth:
    """Whether the run's local steps should be compiled.

        seconds = steps (operations / SPEED + STEP) / workers  >=  ONCE + layers LAYER

    STEP, ONCE and LAYER are of the run's kind: with convolutions, with products of matrices alone, or with many clients
    in one call even where nothing is compiled, which gains least.

    >>> lenet = Facts(214e6, 500, 5, 85_822, True, False, True, workers=2, calls=2)
    >>> compiling(lenet)
    Worth(pays=False, why='training should take about 1 s, and compiling pays from 160 s on')
    >>> compiling(lenet._replace(steps=200_000)).pays
    True
    """
    if not facts.alike:
        return Worth(False, "clients' local steps differ in number or in the shape of their batches")
    if facts.size > MEASURED:
        return Worth(False, f"models of more than {MEASURED:,} parameters have not been measured compiled")
    if facts.outputs > MANY:
        return Worth(False, f"convolutions that put out more than {MANY:,.0f} numbers a step gain nothing compiled")
    if facts.colored > SLOW:
        return Worth(False, "many clients' convolutions of three channels take as long in one call as one by one")
    if facts.calls < facts.workers:
        return Worth(False, f"a compiled round has {facts.calls} calls, and would leave some of {facts.workers} idle")
    kind = "many clients" if facts.vectorized else "convolutions" if facts.convolves else "products"
    each = facts.operations / SPEED + STEP[kind]
    least = ONCE[kind] + facts.layers * LAYER[kind]
    seconds = facts.steps * each / facts.workers
    why = f"training should take about {max(1, seconds):.0f} s, and compiling pays from {least:.0f} s on"
    return Worth(seconds >= least, why)
