"""A network with low-rank adapters as peft makes it: by its names, with frozen layers beneath."""

from __future__ import annotations

import torch
from oracles.lora import BASE, RANK, SCALE
from torch import nn


class Adapted(nn.Module):
    """base(x) + scale sum_a B_a A_a x, the base frozen."""

    def __init__(self, base: nn.Linear, adapters: tuple[str, ...], scale: float = SCALE):
        super().__init__()
        self.base_layer, self.scale = base.requires_grad_(False), scale
        inner = [nn.Linear(base.in_features, RANK, bias=False) for _ in adapters]
        self.lora_A = nn.ModuleDict(dict(zip(adapters, inner, strict=True)))
        self.lora_B = nn.ModuleDict({a: nn.Linear(RANK, base.out_features, bias=False) for a in adapters})

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        added = (self.lora_B[a](low(x)) for a, low in self.lora_A.items())
        return self.base_layer(x) + self.scale * sum(added)


def network(*adapters: str) -> nn.Sequential:
    """The network of oracles/lora.py, in float64; what it trains is drawn from a fixed seed."""
    layers: list[nn.Module] = []
    with torch.random.fork_rng():
        torch.manual_seed(2)
        for weight, bias in BASE:
            base = nn.Linear(weight.shape[1], weight.shape[0]).double()
            base.load_state_dict({"weight": torch.from_numpy(weight), "bias": torch.from_numpy(bias)})
            layers += [Adapted(base, adapters or ("default",)).double(), nn.Tanh()]
    return nn.Sequential(*layers[:-1])


def dual() -> nn.Sequential:
    """With a shared adapter and a local one."""
    return network("default", "local")
