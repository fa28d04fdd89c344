"""Where tensors are: on the host, which draws, packs and writes them, or on the run's device, which computes with them.

Tensors cross here and nowhere else. To the device: the data once, a client's task when it is made
(`clients.local_work`), and a checkpoint that is read. To the host: rows as they are packed, models and checkpoints as
they are written. Everything else makes tensors where its inputs are, and names no device.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor
from torch.utils._pytree import tree_map

from apiece.errors import UserError

PINNED = 1 << 26  # bytes of the largest tensor that is copied while the host goes on: torch keeps pinned memory


def named(name: str) -> torch.device:
    """The device of this name, after a check that it exists: cpu, cuda, cuda:1. Raises UserError."""
    try:
        device = torch.device(name)
    except RuntimeError:
        device = None
    if device is None or device.type not in ("cpu", "cuda"):
        raise UserError(f"there is no device {name!r}: use cpu or cuda.")
    if device.type == "cuda" and not torch.cuda.is_available():
        raise UserError(
            f"device={name!r} cannot be used: this machine, or this build of torch, has no CUDA; use --device cpu."
        )
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        last = torch.cuda.device_count() - 1
        raise UserError(f"there is no device {name!r}: this machine's are cuda:0 to cuda:{last}.")
    return device


@contextmanager
def multiplying(precision: str) -> Iterator[None]:
    """In this context a GPU rounds float32 factors to TF32's ten bits if this is the precision, and otherwise not
    at all. Torch's own default is TF32 for cuDNN alone.
    """
    settings: tuple[Any, ...] = torch.backends.cuda.matmul, torch.backends.cudnn
    before = [setting.allow_tf32 for setting in settings]
    for setting in settings:
        setting.allow_tf32 = precision == "tf32"
    try:
        yield
    finally:
        for setting, allowed in zip(settings, before, strict=True):
            setting.allow_tf32 = allowed


@contextmanager
def fitting() -> Iterator[None]:
    """Raise UserError if what is placed or computed in this context needs more memory than the GPU has."""
    try:
        yield
    except torch.OutOfMemoryError as error:
        needed = str(error).partition(". ")[2].partition(". ")[0].lower() or "more than it has"
        raise UserError(
            f"the GPU has too little memory for this run, one client at a time ({needed}): take a smaller --batch, a "
            "smaller model, --precision bfloat16, or --device cpu."
        ) from error


def to_device(tree: Any, device: torch.device | str) -> Any:
    """The tree, made by the host, with its tensors on the device; numbers stay numbers.

    The host does not wait for the copies. So they are made from pinned memory, from which alone a GPU copies while the
    host goes on, and which torch keeps until a copy is over.
    """
    return tree if torch.device(device).type == "cpu" else _moved(tree, torch.device(device))


def _moved(tree: Any, device: torch.device) -> Any:
    """`tree_map` over tuples, lists and dicts, at a tenth of its price: this is done for every client's task."""
    if isinstance(tree, Tensor):
        if tree.device.type != "cpu":
            return tree
        pinned = device.type == "cuda" and 0 < tree.nbytes <= PINNED
        return tree.pin_memory().to(device, non_blocking=True) if pinned else tree.to(device)
    if isinstance(tree, dict):
        return {name: _moved(part, device) for name, part in cast("dict[Any, Any]", tree).items()}
    if isinstance(tree, tuple | list):
        parts = [_moved(part, device) for part in cast("Iterable[Any]", tree)]
        return parts if isinstance(tree, list) else getattr(type(tree), "_make", tuple)(parts)
    return tree


@dataclass(frozen=True)
class Crossing:
    """An object with tensors on their way to the host: they must not be read before they have arrived."""

    thing: Any
    events: tuple[Any, ...] = ()  # of torch.cuda: after the last copies from each GPU

    def arrived(self) -> Any:
        """The object, once its tensors have arrived."""
        for event in self.events:
            event.synchronize()
        return self.thing


def crossing(tree: Any) -> Crossing:
    """Start to copy the tree's tensors to the host; copies from a GPU are not waited for."""
    devices = set[torch.device]()

    def begin(x: Any) -> Any:
        if not isinstance(x, Tensor):
            return x
        if x.is_cuda:
            devices.add(x.device)
        return x.detach().to("cpu", non_blocking=True)

    crossed = tree_map(begin, tree)
    return Crossing(crossed, tuple(torch.cuda.current_stream(device).record_event() for device in devices))


def to_host(tree: Any) -> Any:
    """The tree with its tensors on the host, where files and messages are made. Waits once for the whole device."""
    return crossing(tree).arrived()


def in_turn(begun: Iterable[Crossing]) -> Iterator[Any]:
    """The objects, in order. One that comes from a GPU is waited for only after the GPU has the work for the next one,
    so that it is never idle. One that is on the host already is yielded at once.
    """
    before: Crossing | None = None
    for one in begun:
        if before is not None:
            yield before.arrived()
        before = one if one.events else None
        if before is None:
            yield one.thing
    if before is not None:
        yield before.arrived()


def to_numpy(tensor: Tensor) -> np.ndarray:
    """A tensor as an array, which shares the tensor's memory if that is on the host."""
    return tensor.detach().cpu().numpy()


def scalar(value: Any, like: Tensor, dtype: torch.dtype | None = None) -> Tensor:
    """A number as a tensor [] on the device of `like`, created there; a tensor made by vmap is returned as it is."""
    if isinstance(value, Tensor):
        return value if dtype is None else value.to(dtype)
    return torch.full((), value, dtype=dtype, device=like.device)
