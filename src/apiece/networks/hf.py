"""Models of `transformers` by name: any causal language model, or classifier of texts or images, from a folder or hub.

The modules keep their own parameters' names, behind `whole.`; adapters go into `whole` (`networks.adapters`). FedALS's
groups of layers are the model's numbered blocks, and what stands before, between and after them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from apiece.data.tokens import NO_CODE, Reading, library
from apiece.errors import UserError, said
from apiece.networks.attention import ATTENTION, attention
from apiece.networks.opt import quiet

Kind = Literal["causal-lm", "sequence-classification", "image-classification"]
CLASSES = {
    "causal-lm": "AutoModelForCausalLM",
    "sequence-classification": "AutoModelForSequenceClassification",
    "image-classification": "AutoModelForImageClassification",
}
PREDICTS = {"causal-lm": "next", "sequence-classification": "label"}


class Whole(nn.Module):
    """A model of `transformers`, called at a tensor: pixels [B, C, H, W] -> scores [B, C]."""

    def __init__(self, whole: Any):
        super().__init__()
        self.whole = whole

    @property
    def layer_starts(self) -> list[str]:
        """The first trained parameter of each numbered block, and of what stands between blocks."""
        names = [name for name, p in self.named_parameters() if p.requires_grad]
        block = lambda name: found[0] if (found := re.findall(r"\.(\d+)\.", name)) else ""
        return [name for i, name in enumerate(names) if not i or block(name) != block(names[i - 1])]

    def forward(self, x: Tensor) -> Tensor:
        return self.whole(x).logits


class OfTokens(Whole):
    """The same at rows of tokens [B, T] -> scores of each text [B, C], or of each token's next [B, T, V].

    No token attends to padding. If our attention with the whole mask [B, 1, T, T] gives the scores that the model's own
    attention gives with the columns [B, T] (`_agrees`), it is taken, since it lets many clients' models share a call.
    Otherwise, as with a sliding window, the model keeps its own.
    """

    def __init__(self, whole: Any, padding: int, length: int):
        super().__init__(whole)
        self.padding, self.causal = padding, any(getattr(part, "is_causal", False) for part in whole.modules())
        self.mask_is_whole = _agrees(self, length)

    def forward(self, ids: Tensor) -> Tensor:
        real = ids != self.padding
        seen = real[:, None, None, :].expand(-1, 1, ids.shape[-1], -1)
        if self.causal:
            seen = seen & torch.ones(ids.shape[-1], ids.shape[-1], dtype=torch.bool, device=ids.device).tril()
        return self.whole(input_ids=ids, attention_mask=seen if self.mask_is_whole else real.long()).logits


@dataclass(frozen=True)
class HuggingFace:
    """A model's source, a folder or a name of the hub, what it is for, and how it reads text."""

    source: str
    kind: Kind
    reading: Reading | None

    def module(self, shape: tuple[int, ...], classes: int) -> Whole:
        """The module for samples of this shape, [T] or [C, H, W]."""
        transformers = library()
        settings: dict[str, Any] = {} if self.kind == "causal-lm" else {"num_labels": classes}
        with quiet(transformers):
            if self.reading is None:
                return Whole(_loaded(transformers, self.source, CLASSES[self.kind], settings, shape))
            transformers.AttentionInterface.register(ATTENTION, attention)
            padding, size = self.reading.tokenizer.padding, self.reading.tokenizer.size
            settings |= {"pad_token_id": padding, "use_cache": False}
            whole = _loaded(transformers, self.source, CLASSES[self.kind], settings, shape)
            if size > whole.get_input_embeddings().num_embeddings:
                raise UserError(
                    f"hf({self.source!r}): its tokenizer has {size} tokens, and its model knows "
                    f"{whole.get_input_embeddings().num_embeddings}: give the model's own tokenizer."
                )
            return OfTokens(whole, padding, shape[0])


def hf(source: str, task: Kind = "causal-lm", length: int = Reading.length) -> HuggingFace:
    """A model of `transformers` from a folder or the hub, with its own tokenizer: task=causal-lm,
    sequence-classification or image-classification. Texts are rows of `length` tokens.
    """
    if source.startswith(("/", ".")) and not Path(source).is_dir():
        raise UserError(f"hf({source!r}): there is no such folder; give one that save_pretrained wrote.")
    reading = None if task == "image-classification" else Reading(length, source, PREDICTS[task])  # pyright: ignore
    return HuggingFace(source, task, reading)


def _loaded(transformers: Any, source: str, name: str, settings: dict[str, Any], shape: tuple[int, ...]) -> Any:
    """The model of a source, with new weights where its folder has none; UserError where there is no such model."""
    local = NO_CODE if Path(source).is_dir() else {"trust_remote_code": False}
    try:
        config = transformers.AutoConfig.from_pretrained(source, **local, **settings)
        limit = getattr(config, "max_position_embeddings", None)
        if len(shape) == 1 and limit is not None and shape[0] > limit:
            raise UserError(f"hf({source!r}): rows have {shape[0]} tokens, and the model takes {limit}: give length.")
        made = getattr(transformers, name)
        weights = local is not NO_CODE or any(Path(source).glob("*.safetensors*")) or any(Path(source).glob("*.bin*"))
        if not weights:
            return made.from_config(config)
        return made.from_pretrained(source, config=config, **local, weights_only=True)
    except UserError:
        raise
    except (OSError, ValueError, RuntimeError, KeyError, ImportError) as error:
        raise UserError(f"hf({source!r}) is no model for {name.removeprefix('AutoModelFor')}: {said(error)}") from None


@torch.no_grad()
def _agrees(module: OfTokens, length: int) -> bool:
    """Whether the model gives the same scores by our attention with the whole mask as by its own; ours is left set."""
    was, whole = module.training, module.whole
    module.eval()
    ids = torch.arange(3 * length).reshape(3, length) * 7 % (whole.get_input_embeddings().num_embeddings - 1)
    ids += ids >= module.padding
    ids[1, -(length // 2) :] = module.padding
    module.mask_is_whole, own = False, whole.config._attn_implementation
    scores = module(ids)
    try:
        whole.set_attn_implementation(ATTENTION)
        module.mask_is_whole = True
        ours = module(ids)
    except Exception:  # a model of others may raise anything at a mask that it does not know
        ours = torch.full_like(scores, torch.nan)
    real = ids != module.padding if scores.dim() == 3 else slice(None)
    alike = torch.allclose(scores[real], ours[real], atol=1e-4, rtol=1e-3)
    if not alike:
        whole.set_attn_implementation(own)
    module.train(was)
    return alike
