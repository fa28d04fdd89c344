"""Which modules are taken as models, and what their copies do otherwise than they."""

from __future__ import annotations

import torch
from torch import nn

from apiece.errors import UserError
from apiece.vector.groups import BATCH_NORMS, is_frozen_batch_norm, parts_of

EMBEDDINGS = (nn.Embedding, nn.EmbeddingBag)
COUNTING = nn.modules.batchnorm._BatchNorm  # pyright: ignore[reportPrivateUsage]


def refuse_module(module: nn.Module) -> None:
    """Raise UserError for a module that cannot be called at parameters of ours."""
    if isinstance(module, torch.jit.ScriptModule):
        raise UserError("the model is a ScriptModule, which computes at no parameters but its own: give its nn.Module.")
    if any(nn.parameter.is_lazy(p) for p in module.parameters()):
        raise UserError("the model has lazy layers that know no shape yet: call it once on a batch of its samples.")
    if any(p.is_meta for p in module.parameters()):
        raise UserError("the model is on the device meta, where it has no numbers: make it on the CPU.")
    for name, p in module.named_parameters():
        if p.requires_grad and p.is_complex():
            raise UserError(
                f"the model's parameter {name!r} is complex, and a model is a vector of real numbers: keep it as "
                "torch.view_as_real(...) gives it, and call torch.view_as_complex in forward."
            )
        if any(getattr(p, hooks, None) for hooks in ("_backward_hooks", "_post_accumulate_grad_hooks")):
            raise UserError(
                f"the model's parameter {name!r} has a hook on its gradient, and clients compute at parameters of "
                "their own, which have none: leave it out, and let a piece change gradients (docs/adding-a-piece.md)."
            )
    for name, part in parts_of(module):
        if isinstance(part, EMBEDDINGS) and part.max_norm is not None:
            raise UserError(
                f"the model's {name!r} has max_norm={part.max_norm}, by which a call changes its weights: leave "
                "max_norm out, and let forward scale what is looked up."
            )


def is_by_batch(part: nn.Module) -> bool:
    """Whether a part is a BatchNorm without statistics, which normalizes by the batch in evaluation mode too."""
    return isinstance(part, COUNTING) and part.running_mean is None


def as_taken(copied: nn.Module, buffers: str) -> None:
    """Let a copy of a module give dense gradients, and drop its statistics under that policy; UserError for statistics
    that are means over all batches.
    """
    for name, part in parts_of(copied):
        if isinstance(part, EMBEDDINGS):
            part.sparse = False
        if not isinstance(part, BATCH_NORMS) or is_frozen_batch_norm(part):
            continue
        if buffers == "drop":
            part.track_running_stats = False
            part.running_mean = part.running_var = part.num_batches_tracked = None
        elif isinstance(part, COUNTING) and part.momentum is None and part.running_mean is not None:
            raise UserError(
                f"the model's {name!r} has momentum=None, a mean over all batches that it counts, and counts are not "
                "averaged: give it a number (momentum=0.1), or take buffers='drop'."
            )
