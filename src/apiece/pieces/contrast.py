"""A supervised contrast: features of one label are drawn together, and away from all others."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

TEMPERATURE = 0.07


def contrast(z: Tensor, labels: Tensor) -> Tensor:
    """The supervised contrastive loss of features z [N, F], N of 2 or more, by labels [N]."""
    z = F.normalize(z)
    alone = torch.eye(len(z), dtype=torch.bool, device=z.device)
    scores = (z @ z.T / TEMPERATURE).masked_fill(alone, -torch.inf)
    alike = (labels[:, None] == labels) & ~alone
    likelihood = torch.where(alike, scores - scores.logsumexp(1, keepdim=True), 0.0).sum(1)
    return -(likelihood / alike.sum(1).clamp(min=1)).mean()
