"""Text as rows of tokens of one length: tokenizers that need no network, and each row's targets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from apiece.errors import UserError, with_extra

NO_CODE = {"local_files_only": True, "trust_remote_code": False}  # a folder's own Python is not run, nor asked about


@dataclass(frozen=True)
class Bytes:
    """A text's UTF-8 bytes, each plus 2, between two tokens 1. Nothing is learnt or looked up.

    `size` is the number of tokens, `padding` the one that stands for no text.
    """

    size: int = 258
    padding: int = 0

    def __call__(self, texts: Sequence[str]) -> list[list[int]]:
        return [[1, *(byte + 2 for byte in text.encode()), 1] for text in texts]


class Pretrained:
    """The tokenizer in a model's folder, as `transformers` saves it; it has `size` and `padding` as `Bytes` has."""

    def __init__(self, folder: str):
        transformers = library()
        try:
            local = NO_CODE if Path(folder).is_dir() else {"trust_remote_code": False}  # else a name of the hub
            self.tokenizer: Any = transformers.AutoTokenizer.from_pretrained(folder, **local)
        except (OSError, ValueError, TypeError, KeyError) as error:
            raise UserError(f"folder={folder!r} holds no tokenizer: {str(error).splitlines()[0]}") from None
        if self.tokenizer.pad_token_id is None:
            raise UserError(f"folder={folder!r}: its tokenizer has no token for padding; set pad_token and save it.")
        self.size, self.padding = len(self.tokenizer), int(self.tokenizer.pad_token_id)

    def __call__(self, texts: Sequence[str]) -> list[list[int]]:
        return self.tokenizer(list(texts), verbose=False)["input_ids"] if len(texts) else []


def library() -> Any:
    """The package `transformers`; UserError where it is not installed."""
    try:
        import transformers
    except ImportError as error:
        raise UserError(f"{error.name} is needed for models of text: {with_extra('text')}.") from None
    return transformers


class Rows(NamedTuple):
    """Texts as rows of tokens: x int64 [n, T]; targets int64 [n, T], or None; source [n], the number of each row's
    text; `cut`, how many texts lost their end.
    """

    x: np.ndarray
    targets: np.ndarray | None
    source: np.ndarray
    cut: int = 0


@dataclass(frozen=True)
class Reading:
    """How a model reads text: rows of `length` tokens, padded at their end, by the bytes or by a folder's tokenizer.

    `predicts` is "label" (of a whole text), "next" (each token's next one), or None: the label where a text has one.
    """

    length: int = 128
    folder: str | None = None
    predicts: Literal["label", "next"] | None = None

    def __post_init__(self) -> None:
        if self.length < 1:
            raise UserError(f"length={self.length} is no number of tokens: give 1 or more.")

    @cached_property
    def tokenizer(self) -> Bytes | Pretrained:
        return Bytes() if self.folder is None else Pretrained(self.folder)

    def whole(self, texts: Sequence[str]) -> Rows:
        """One row for each text, with its first `length` tokens."""
        tokens = self.tokenizer(texts)
        cut = sum(len(row) > self.length for row in tokens)
        return Rows(self._padded(tokens, self.tokenizer.padding), None, np.arange(len(tokens)), cut)

    def windows(self, texts: Sequence[str]) -> Rows:
        """Every text in windows of `length` tokens, each token's target the next one; padding's target is IGNORED.

        A text of m tokens has m - 1 targets, each in one window; a text of one token has none and no row.
        """
        inputs, targets, source = [], [], []
        for i, row in enumerate(self.tokenizer(texts)):
            for start in range(0, len(row) - 1, self.length):
                inputs.append(row[start : start + self.length][: len(row) - 1 - start])
                targets.append(row[start + 1 : start + 1 + self.length])
                source.append(i)
        x, y = self._padded(inputs, self.tokenizer.padding), self._padded(targets, IGNORED)
        return Rows(x, y, np.array(source, dtype=np.int64))

    def _padded(self, rows: list[list[int]], fill: int) -> np.ndarray:
        out = np.full((len(rows), self.length), fill, dtype=np.int64)
        for i, row in enumerate(rows):
            kept = row[: self.length]
            out[i, : len(kept)] = kept
        return out


IGNORED = -100  # the target of padding, in no mean: torch leaves this number out
