"""All numbers of a run, and how far those of two runs are apart."""

from __future__ import annotations

from typing import Any

import torch


def everything(ran: Any) -> dict[str, Any]:
    """The numbers of a run: its model, clients' rows, and what was logged."""
    home = ran.clients
    rows = {f"{client} {name}": value for client in home.touched() for name, value in home.row(client)[0].items()}
    logged = {f"{info['round']} {name}": value for info in ran.metrics for name, value in info.items()
              if isinstance(value, float) and name != "seconds"}  # fmt: skip
    return ran.model() | rows | logged


def apart(one: Any, other: Any) -> float:
    """The largest difference, as a share of the largest number of its tensor or of one."""
    one, other = (torch.as_tensor(x, dtype=torch.float64, device="cpu") for x in (one, other))
    assert one.shape == other.shape and torch.equal(one.isfinite(), other.isfinite())
    one, other = one.nan_to_num(0, 0, 0), other.nan_to_num(0, 0, 0)
    return float((one - other).abs().max() / one.abs().max().clamp(min=1.0)) if one.numel() else 0.0
