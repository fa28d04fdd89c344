"""OPT, a language model, as a classifier of texts or a predictor of next tokens: of a given size, or from a folder.

Parameters have the names that `transformers` gives them, so that it loads a trained model.safetensors. FedALS's groups
of layers are the embeddings (with the last norm), the decoder's layers, and the head; the language model's head is tied
to the tokens' embeddings, which therefore belong to the head. There is no dropout; no token attends to padding.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch
from torch import Tensor, nn

from apiece.data.tokens import NO_CODE, Reading, library
from apiece.errors import UserError
from apiece.networks.attention import ATTENTION, register

HIDDEN, LAYERS, HEADS = 64, 2, 4


class Decoded(nn.Module):
    """OPT's decoder of rows of tokens [B, T]; a head follows it."""

    layer_starts = ("*.embed_tokens.weight", "*.k_proj.weight", "score.weight", "lm_head.weight")

    def __init__(self, model: nn.Module, padding: int):
        super().__init__()
        self.model, self.padding = model, padding

    def __setstate__(self, state: dict[str, Any]) -> None:
        register()
        super().__setstate__(state)

    def hidden(self, ids: Tensor) -> tuple[Tensor, Tensor]:
        """(the decoder's output for each token [B, T, H], which tokens are not padding [B, T])."""
        real = ids != self.padding
        before = torch.ones(ids.shape[-1], ids.shape[-1], dtype=torch.bool, device=ids.device).tril()
        seen = before & real[:, None, None, :]
        positions = real.long().cumsum(-1) * real - 1
        decoder: Any = self.model.decoder
        out = decoder(input_ids=ids, attention_mask=seen, position_ids=positions, use_cache=False)
        return out.last_hidden_state, real


class Classifier(Decoded):
    """Scores [B, C] of a text at its last token: the modules of `OPTForSequenceClassification`."""

    architecture = "OPTForSequenceClassification"

    def __init__(self, whole: Any, padding: int):
        super().__init__(whole.model, padding)
        self.score = whole.score

    def forward(self, ids: Tensor) -> Tensor:
        hidden, real = self.hidden(ids)
        last = (real * torch.arange(ids.shape[-1], device=ids.device)).amax(-1)
        return self.score(torch.take_along_dim(hidden, last[:, None, None], 1).squeeze(1))


class LanguageModel(Decoded):
    """Scores [B, T, V] of the token after each token: the modules of `OPTForCausalLM`."""

    architecture = "OPTForCausalLM"

    def __init__(self, whole: Any, padding: int):
        super().__init__(whole.model, padding)
        self.lm_head = whole.lm_head

    def forward(self, ids: Tensor) -> Tensor:
        return self.lm_head(self.hidden(ids)[0])


@dataclass(frozen=True)
class Opt:
    """An OPT and how it reads text: of this size (feed-forward layers are 4 `hidden` wide) with initial weights, or
    from the reading's folder: config.json, the tokenizer's files, and weights if there are any.

    Zhang et al., "OPT: Open Pre-trained Transformer Language Models", 2022. Parameters, with V tokens, T positions, L
    layers of width H: (V + T + 2) H + 2 H + L (12 H^2 + 13 H), and C H of a classifier's head. FedALS's experiment:
    OPT-125M, length=128, batch 16, AdamW, `fedals(alpha=10, head=10)`. UserError for what cannot be made.
    """

    kind: type[Classifier] | type[LanguageModel]
    reading: Reading
    hidden: int | None = None
    layers: int | None = None
    heads: int | None = None

    def __post_init__(self) -> None:
        given = [size for size in (self.hidden, self.layers, self.heads) if size is not None]
        if given and self.reading.folder is not None:
            raise UserError(
                f"folder={self.reading.folder!r} says how large its model is: give no hidden, layers, heads."
            )
        hidden, layers, heads = self.size
        if min(self.size) < 1 or hidden % heads:
            raise UserError(
                f"hidden={hidden}, layers={layers}, heads={heads}: give 1 or more, hidden a multiple of heads."
            )

    @property
    def size(self) -> tuple[int, ...]:
        """(hidden, layers, heads), where no folder gives them."""
        given = ((self.hidden, HIDDEN), (self.layers, LAYERS), (self.heads, HEADS))
        return tuple(usual if size is None else size for size, usual in given)

    def module(self, shape: tuple[int, ...], classes: int) -> Classifier | LanguageModel:
        """The module for rows of tokens of this shape, [T]."""
        transformers, tokenizer = library(), self.reading.tokenizer
        register()
        hidden, layers, heads = self.size
        settings = {"dropout": 0.0, "attention_dropout": 0.0, "layerdrop": 0.0, "use_cache": False}
        settings |= {"attn_implementation": ATTENTION, "pad_token_id": tokenizer.padding}
        settings |= {"num_labels": classes} if self.kind is Classifier else {}
        with quiet(transformers):
            if self.reading.folder is not None:
                whole = _from_folder(transformers, self.kind.architecture, self.reading.folder, settings)
            else:
                whole = getattr(transformers, self.kind.architecture)(
                    transformers.OPTConfig(
                        vocab_size=tokenizer.size,
                        max_position_embeddings=shape[0],
                        hidden_size=hidden,
                        word_embed_proj_dim=hidden,
                        ffn_dim=4 * hidden,
                        num_hidden_layers=layers,
                        num_attention_heads=heads,
                        **settings,
                    )
                )
        if tokenizer.size > whole.config.vocab_size or shape[0] > whole.config.max_position_embeddings:
            raise UserError(
                f"the model of folder={self.reading.folder!r} knows {whole.config.vocab_size} tokens and rows of "
                f"{whole.config.max_position_embeddings}, but its tokenizer has {tokenizer.size} and rows are of "
                f"{shape[0]}: give a length that fits, and the model's own tokenizer."
            )
        return self.kind(whole, tokenizer.padding)


def opt(
    length: int = Reading.length,
    hidden: int | None = None,
    layers: int | None = None,
    heads: int | None = None,
    folder: str | None = None,
) -> Opt:
    """OPT as a classifier of whole texts at their last token, of this size or from a folder (Zhang et al. 2022)."""
    return Opt(Classifier, Reading(length, folder, "label"), hidden, layers, heads)


def opt_lm(
    length: int = Reading.length,
    hidden: int | None = None,
    layers: int | None = None,
    heads: int | None = None,
    folder: str | None = None,
) -> Opt:
    """OPT as a language model that predicts every next token, of this size or from a folder (Zhang et al. 2022)."""
    return Opt(LanguageModel, Reading(length, folder, "next"), hidden, layers, heads)


def _from_folder(transformers: Any, architecture: str, folder: str, settings: dict[str, Any]) -> Any:
    try:
        config = transformers.AutoConfig.from_pretrained(folder, **NO_CODE, **settings)
        if config.model_type != "opt":
            raise UserError(f"folder={folder!r} holds a model of type {config.model_type}: give an OPT.")
        made = getattr(transformers, architecture)
        if not [*Path(folder).glob("*.safetensors*"), *Path(folder).glob("*.bin*")]:
            return made(config)
        return made.from_pretrained(folder, config=config, **NO_CODE, weights_only=True, dtype=torch.float32)
    except (OSError, ValueError, RuntimeError, UnpicklingError) as error:
        if isinstance(error, UserError):
            raise
        raise UserError(f"folder={folder!r} holds no model: {str(error).splitlines()[0]}") from None


@contextmanager
def quiet(transformers: Any) -> Iterator[None]:
    """Without a progress bar, and without the warning that a classifier's head is new."""
    logging = transformers.utils.logging
    before = logging.get_verbosity()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(before)
