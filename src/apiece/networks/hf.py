"""Models of `transformers` by name: any causal language model, or classifier of texts or images, from a folder or hub.

The modules keep their own parameters' names, behind `whole.`; adapters go into `whole` (`networks.adapters`). FedALS's
groups of layers are the model's numbered blocks, and what stands before, between and after them.
"""

from __future__ import annotations

import logging
import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from apiece.data.tokens import NO_CODE, Reading, library
from apiece.errors import UserError, said
from apiece.networks.attention import ATTENTION, register
from apiece.networks.opt import quiet
from apiece.networks.pixels import Pixels, pixels

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


class OfPixels(Whole):
    """The same for a model that takes blue first, at pixels of red first."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.flip(1))


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

    def __setstate__(self, state: dict[str, Any]) -> None:
        register()
        super().__setstate__(state)

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
                return self._of_images(transformers, settings, shape)
            register()
            padding, size = self.reading.tokenizer.padding, self.reading.tokenizer.size
            settings |= {"pad_token_id": padding, "use_cache": False}
            whole = _loaded(transformers, self.source, CLASSES[self.kind], settings, shape)
            if size > whole.get_input_embeddings().num_embeddings:
                raise UserError(
                    f"hf({self.source!r}): its tokenizer has {size} tokens, and its model knows "
                    f"{whole.get_input_embeddings().num_embeddings}: give the model's own tokenizer."
                )
            return OfTokens(whole, padding, shape[0])

    @cached_property
    def pixels(self) -> Pixels | None:
        """How it reads pixels; None for a model of texts."""
        if self.kind != "image-classification":
            return None
        with quiet(library()):
            return pixels(self.source)

    def _of_images(self, transformers: Any, settings: dict[str, Any], shape: tuple[int, ...]) -> Whole:
        if len(shape) != 3 or self.pixels is None:
            raise UserError(f"hf({self.source!r}) takes images, and samples have the shape {list(shape)}: give images.")
        whole = _loaded(transformers, self.source, CLASSES[self.kind], settings, shape)
        whole.set_attn_implementation("eager")  # plain operations, which many clients' models can share
        made = (OfPixels if self.pixels.backwards else Whole)(whole)
        self.pixels.refuse_misfit(made, self.source, shape)
        return made


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
        made, before = getattr(transformers, name), _labels(transformers, source, local)
        weights = local is not NO_CODE or any(Path(source).glob("*.safetensors*")) or any(Path(source).glob("*.bin*"))
        if not weights:
            return made.from_config(config)
        new = {"ignore_mismatched_sizes": before != config.num_labels, "output_loading_info": True}
        whole, found = made.from_pretrained(source, config=config, **local, **new, weights_only=True)
        _tell_of_head(source, found, before, config.num_labels)
        return whole
    except UserError:
        raise
    except (OSError, ValueError, RuntimeError, KeyError, ImportError) as error:
        raise UserError(f"hf({source!r}) is no model for {name.removeprefix('AutoModelFor')}: {said(error)}") from None


def _labels(transformers: Any, source: str, local: dict[str, Any]) -> int:
    """For how many classes the weights of a source are."""
    return transformers.AutoConfig.from_pretrained(source, **local).num_labels


def _tell_of_head(source: str, found: Any, before: int, classes: int) -> None:
    """Say that a head is new, since the weights have one for another number of classes; UserError where anything else
    has another size.
    """
    odd = sorted((name, tuple(one), tuple(other)) for name, one, other in found["mismatched_keys"])
    for name, one, other in odd:
        if (one[0], other[0]) != (before, classes) or one[1:] != other[1:]:
            raise UserError(
                f"hf({source!r}) is damaged: {name} has the shape {list(one)}, and its config says {list(other)}."
            )
    if odd:
        head = odd[0][0].rpartition(".")[0]
        logging.getLogger(__name__).warning(
            "hf(%r): its head, %s, is for %d classes, and the data have %d: a new one is drawn; an adapter trains it "
            "with train=%s", source, head, before, classes, head,
        )  # fmt: skip


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
