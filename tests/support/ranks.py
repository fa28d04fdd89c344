"""A small run by several ranks, as words of a command."""

from __future__ import annotations

from pathlib import Path

import safetensors.torch
import torch

SETTINGS = "--data digits --clients 6 --model mlp(hidden=[4]) --steps 3 --batch 8 --seed 1 --precision float64"
SETTINGS += " --lift sequential --eval-every 2 --panel 2"


def model(folder: Path) -> dict[str, torch.Tensor]:
    return safetensors.torch.load_file(folder / "model.safetensors")
