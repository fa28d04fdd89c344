"""The attention that models of `transformers` compute here."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

ATTENTION = "apiece"  # the name of the function below in `transformers`


def register() -> None:
    """Make the function known to `transformers` in this process: a model that is sent to another process has its name
    alone.
    """
    from transformers import AttentionInterface

    AttentionInterface.register(ATTENTION, attention)


def attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor,
    scaling: float,
    dropout: float = 0.0,
    sliding_window: int | None = None,
    **more: Any,
) -> tuple[Tensor, Tensor]:
    """softmax(scaling Q K' where the mask [B, 1, T, T] is true) V, as [B, T, heads, size], and the weights. Several
    heads of Q may share one of K and V.

    It works in the precision of the vectors and under vmap; of the functions in `transformers`, one works in float32
    and the other has no rule for vmap. TypeError at what would change the scores beside the mask: a window shorter than
    the rows, or another number or tensor, as a cap of the scores (`softcap`) or a sink (`s_aux`).
    """
    if sliding_window is not None and sliding_window < key.shape[2]:
        raise TypeError(f"This attention has no window, and the model has one of {sliding_window} tokens.")
    for name, given in more.items():  # flags, as use_cache, say nothing of the scores
        if name != "position_ids" and given is not None and not isinstance(given, bool):
            raise TypeError(f"This attention does not know {name}.")
    groups = query.shape[1] // key.shape[1]
    if groups > 1:
        key, value = (heads.repeat_interleave(groups, dim=1) for heads in (key, value))
    scores = query @ key.transpose(-1, -2) * scaling
    weights = scores.masked_fill(~attention_mask, torch.finfo(scores.dtype).min).softmax(-1)
    if dropout:
        weights = F.dropout(weights, dropout, module.training)
    return (weights @ value).transpose(1, 2), weights
