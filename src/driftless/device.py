"""Where tensors are: on the host, which draws, packs and writes them, or on the run's device, which computes with them.

They cross here and nowhere else. In: the data once, a client's task when it is made (`clients.local_work`), a
checkpoint that is read. Out: rows as they are packed, models and checkpoints as they are written. All that is between
makes its tensors where its inputs are, and names no device.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils._pytree import tree_map

from driftless.errors import UserError


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


def to_host(tree: Any) -> Any:
    """The tree with its tensors on the host, where files and messages are made. Waits for the device, once for all."""
    devices = set[torch.device]()

    def crossing(x: Any) -> Any:
        if not isinstance(x, Tensor):
            return x
        if x.is_cuda:
            devices.add(x.device)
        return x.detach().to("cpu", non_blocking=True)

    crossed = tree_map(crossing, tree)
    for device in devices:
        torch.cuda.current_stream(device).synchronize()
    return crossed


def to_numpy(tensor: Tensor) -> np.ndarray:
    """A tensor as an array; its own memory where that is the host's."""
    return tensor.detach().cpu().numpy()


def scalar(value: Any, like: Tensor, dtype: torch.dtype | None = None) -> Tensor:
    """A number as a tensor [] where `like` is, filled there; what vmap has made a tensor of stays one."""
    if isinstance(value, Tensor):
        return value if dtype is None else value.to(dtype)
    return torch.full((), value, dtype=dtype, device=like.device)
