"""A model's call computes outputs and moves its buffers: what else it would change is found as it is tried."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from apiece.errors import UserError

ROUNDING = 1e-5  # by so much of the largest output may two equal passes differ, as where an operation adds in any order


class ChangesInputs(UserError):
    """A model's call writes to what it is given."""


class Watched(TorchDispatchMode):
    """Within it, the error that belongs to a tensor is raised where an operation would write to the tensor's memory."""

    supports_higher_order_operators = True

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Nothing is compiled within: torch would import its compiler to leave this class out of it."""
        return False

    def __init__(self, errors: Iterable[tuple[Tensor, UserError]]):
        super().__init__()  # pyright: ignore[reportUnknownMemberType]
        self.errors = {place: error for tensor, error in errors if (place := memory(tensor))}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        for number, argument in enumerate(func._schema.arguments if hasattr(func, "_schema") else ()):
            if argument.alias_info is not None and argument.alias_info.is_write:
                for leaf in tree_leaves(args[number] if number < len(args) else kwargs.get(argument.name)):
                    if error := self.errors.get(memory(leaf) if isinstance(leaf, Tensor) else 0):
                        raise error
        return func(*args, **kwargs)


def uncompiled() -> AbstractContextManager[Any]:
    """A context in which compiled parts of a model run as they are written: it is seen there alone to what they write.

    Nothing is compiled in a process without torch's compiler, which takes two seconds to import.
    """
    known = "torch._dynamo" in sys.modules and hasattr(torch.compiler, "set_stance")  # torch 2.5 has none
    return torch.compiler.set_stance("force_eager") if known else nullcontext()


def memory(tensor: Tensor) -> int:
    """Where the tensor's memory begins; 0 if it has none of its own."""
    try:
        return tensor.untyped_storage().data_ptr()
    except (NotImplementedError, RuntimeError):  # a sparse tensor, or one that is made of others
        return 0


def alike(one: Any, other: Any, autocast: torch.dtype | None) -> bool:
    """Whether two passes gave the same outputs, up to the rounding of the type in which they computed."""
    leaves = [[leaf for leaf in tree_leaves(tree) if isinstance(leaf, Tensor)] for tree in (one, other)]
    return len(leaves[0]) == len(leaves[1]) and all(
        a.shape == b.shape and _close(a, b, autocast or a.dtype) for a, b in zip(*leaves, strict=True)
    )


def _close(a: Tensor, b: Tensor, computed: torch.dtype) -> bool:
    if not a.is_floating_point() or not a.numel():
        return torch.equal(a, b)
    rounding = max(ROUNDING, 2 * torch.finfo(computed).eps) * float(a.abs().nan_to_num(0.0, 0.0).max())
    return torch.allclose(a, b, rtol=0.0, atol=rounding, equal_nan=True)
