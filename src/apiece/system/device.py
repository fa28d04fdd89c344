"""Where tensors are: on the host, which draws, packs and writes them, or on the run's device, which computes with them.

They cross here and nowhere else. In: the data once, a client's task when it is made (`clients.local_work`), a
checkpoint that is read. Out: rows as they are packed, models and checkpoints as they are written. All that is between
makes its tensors where its inputs are, and names no device.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils._pytree import tree_map

from apiece.errors import UserError


def named(name: str) -> torch.device:
    """The device of this name, once it is known to be there: cpu, cuda, cuda:1. Raises UserError."""
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
    """Within it, a GPU rounds what it multiplies of float32 to TF32's ten bits where this is the precision, and to
    nothing else. Torch's own default is TF32 for what cuDNN computes, and not for other products.
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


def to_device(tree: Any, device: torch.device | str) -> Any:
    """The tree, which the host made, with its tensors on the device; numbers stay numbers."""
    if torch.device(device).type == "cpu":
        return tree
    return tree_map(lambda x: x.to(device, non_blocking=True) if isinstance(x, Tensor) else x, tree)


@dataclass(frozen=True)
class Crossing:
    """Something with tensors on their way to the host: before they have arrived nothing may read them."""

    thing: Any
    events: tuple[Any, ...] = ()  # of torch.cuda, after the last copies from each GPU

    def arrived(self) -> Any:
        """The thing, once its tensors are there."""
        for event in self.events:
            event.synchronize()
        return self.thing


def crossing(tree: Any) -> Crossing:
    """Begin to bring the tree's tensors to the host, from a GPU without waiting."""
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
    """The tree with its tensors on the host, where files and messages are made. Waits for the device, once for all."""
    return crossing(tree).arrived()


def in_turn(begun: Iterable[Crossing]) -> Iterator[Any]:
    """The things, in order. One that comes from a GPU is waited for only after the GPU was given the work for the next
    one, so that it never idles meanwhile. One that is here already is given at once.
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
    """A tensor as an array; its own memory where that is the host's."""
    return tensor.detach().cpu().numpy()


def scalar(value: Any, like: Tensor, dtype: torch.dtype | None = None) -> Tensor:
    """A number as a tensor [] where `like` is, filled there; what vmap has made a tensor of stays one."""
    if isinstance(value, Tensor):
        return value if dtype is None else value.to(dtype)
    return torch.full((), value, dtype=dtype, device=like.device)
