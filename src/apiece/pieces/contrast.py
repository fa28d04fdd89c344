"""A supervised contrast: it pulls features of the same label together and pushes all others away."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

TEMPERATURE = 0.07


def contrast(z: Tensor, labels: Tensor) -> Tensor:
    """The supervised contrastive loss of features z [N, F], N >= 2, with labels [N]; `VHL` has the equation."""
    z = F.normalize(z)
    alone = torch.eye(len(z), dtype=torch.bool, device=z.device)
    scores = (z @ z.T / TEMPERATURE).masked_fill(alone, -torch.inf)
    alike = (labels[:, None] == labels) & ~alone
    likelihood = torch.where(alike, scores - scores.logsumexp(1, keepdim=True), 0.0).sum(1)
    return -(likelihood / alike.sum(1).clamp(min=1)).mean()
