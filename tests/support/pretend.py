"""A device to test placement on where there is no GPU: it computes as the CPU does, and its tensors do not meet the
CPU's.

They hold their values inside and say that they are on "meta", the one device beside the CPU that autograd knows in
every build of torch (a backward pass over torch's own fake tensors on "cuda" ends the process in a build without
CUDA). An operation on tensors of both devices raises (but for numbers in arithmetic, as on a GPU). While a client's
operation runs, it also raises where a tensor is made on the CPU, crosses, or makes the host wait for a value (`float`,
`bool`, boolean masks).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._mode_utils import no_dispatch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

from apiece.experiment import choice, run
from apiece.experiment.choice import Chosen
from apiece.lifts.lift import Vectorized
from apiece.lifts.side_by_side import SideBySide
from apiece.measure import evaluate
from apiece.system import device

NAME = torch.device("meta")
COPIES = ("aten::_to_copy", "aten::copy_")
WAITS = ("aten::_local_scalar_dense", "aten::nonzero", "aten::_unique2", "aten::masked_select", "aten::equal")


class Misplaced(AssertionError):
    """Tensors of both devices in one operation, or a client's operation that waits for the host."""


class Remote(Tensor):
    """A tensor on the device: its values are those of `held`."""

    held: Tensor

    @staticmethod
    def __new__(cls, real: Tensor) -> Remote:
        about = {"strides": real.stride(), "storage_offset": real.storage_offset(), "dtype": real.dtype}
        made = torch.Tensor._make_wrapper_subclass(cls, real.size(), device=NAME, **about)  # type: ignore[attr-defined]
        made.held = real
        return made

    def tolist(self) -> Any:
        return self.cpu().tolist()

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise Misplaced(f"{func} on the device in a thread that does not know it")


class Pretend(TorchDispatchMode):
    """Within it, the device is there. `crossed` counts what went in and came out."""

    def __init__(self) -> None:
        super().__init__()
        self.crossed, self.strict = {"in": 0, "out": 0, "waits": 0}, False

    @contextmanager
    def inside(self) -> Iterator[None]:
        """A client's operation runs: nothing crosses, nothing waits, and nothing is made on the CPU."""
        self.strict = True
        try:
            yield
        finally:
            self.strict = False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs, name = kwargs or {}, func._schema.name
        given = [x for x in tree_leaves((args, kwargs)) if isinstance(x, Tensor)]
        remote, asked = [x for x in given if isinstance(x, Remote)], kwargs.get("device")
        numbers = [x for x in given if not x.dim() and not isinstance(x, Remote)]
        takes_numbers = torch.Tag.pointwise in func.tags and name != "aten::where"
        if name not in COPIES and remote and len(remote) + takes_numbers * len(numbers) < len(given):
            raise Misplaced(f"{func} of tensors on both devices: {[(x.device, tuple(x.shape)) for x in given]}")
        if any(x.device == NAME for x in given if not isinstance(x, Remote)):
            raise Misplaced(f"{func} of a tensor that was made on the device in a thread that does not know it")
        there = bool(remote) if asked is None else torch.device(asked) == NAME
        there = isinstance(args[0], Remote) if name == "aten::copy_" else there
        if len(numbers) < len(given) or (not given and name not in COPIES):  # vmap makes numbers of other types
            self._count(func, name, args, given, remote, there)
        out = func(*tree_map(_real, args), **tree_map(_real, kwargs))
        if torch.Tag.inplace_view in func.tags and there:
            with no_dispatch():
                func(*args, **kwargs)  # `squeeze_`: what is outside changes its shape too
        if name.endswith("_"):
            return args[0]
        return tree_map(lambda x: Remote(x) if isinstance(x, Tensor) else x, out) if there else out

    def _count(self, func: Any, name: str, args: Any, given: list, remote: list, there: bool) -> None:
        waits = remote and (name in WAITS or (name.startswith("aten::index") and _masks(args)))
        crosses = name in COPIES and len(remote) != (len(given) if there else 0)
        self.crossed["waits"] += bool(waits)
        self.crossed["in" if there else "out"] += crosses
        if self.strict and (waits or crosses or not there):
            raise Misplaced(f"{func} in a client's operation: on the device {there}, waits {bool(waits)}")


def _real(x: Any) -> Any:
    if isinstance(x, Remote):
        return x.held
    return torch.device("cpu") if isinstance(x, torch.device) and x == NAME else x


def _masks(args: Any) -> bool:
    return any(isinstance(x, Tensor) and x.dtype == torch.bool for x in tree_leaves(args[1:2]))


@dataclass(frozen=True)
class Inside:
    """A lift whose operations run inside."""

    lift: Any
    pretend: Pretend

    def run(self, operation: Callable, shared: Any, tasks: Iterable[Callable]) -> Iterator[Any]:
        def strictly(how: Any, shared: Any, each: Any) -> Any:
            with self.pretend.inside():
                return operation(how, shared, each)

        return self.lift.run(strictly, shared, tasks)


@contextmanager
def there() -> Iterator[Pretend]:
    """Within it, a run is on the pretended device, whatever device it names."""
    lift_of, pretend = run.lift_of, Pretend()

    def inside(*of: Any) -> Chosen:
        lift, why = lift_of(*of)
        return Chosen(Inside(lift, pretend), why)

    with pytest.MonkeyPatch.context() as patch, pretend:
        patch.setattr(device, "named", lambda name: NAME)
        patch.setattr(run, "lift_of", inside)
        patch.setattr(choice, "Graphs", Vectorized)  # there are no CUDA graphs, and a call computes the same
        patch.setattr(evaluate, "SideBySide", lambda chunk, _: SideBySide(chunk))  # others' threads know no such device
        yield pretend
