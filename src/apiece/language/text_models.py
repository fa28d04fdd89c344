"""The named models of text: `--model "opt(length=64)"`; each returns the value that reads the text and makes the model.

This module imports nothing heavy; `apiece.networks.models` has the models of images and features.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from apiece.networks.opt import Opt

__all__ = ["opt", "opt_lm"]


def opt(
    length: int = 128,
    hidden: int | None = None,
    layers: int | None = None,
    heads: int | None = None,
    folder: str | None = None,
) -> Opt:
    """OPT as a classifier of whole texts, at their last token: of this size, or as it lies in a folder (Zhang et al.
    2022).
    """
    from apiece.data.tokens import Reading
    from apiece.networks.opt import Classifier, Opt

    return Opt(Classifier, Reading(length, folder, "label"), hidden, layers, heads)


def opt_lm(
    length: int = 128,
    hidden: int | None = None,
    layers: int | None = None,
    heads: int | None = None,
    folder: str | None = None,
) -> Opt:
    """OPT as a language model, of every next token: of this size, or as it lies in a folder (Zhang et al. 2022)."""
    from apiece.data.tokens import Reading
    from apiece.networks.opt import LanguageModel, Opt

    return Opt(LanguageModel, Reading(length, folder, "next"), hidden, layers, heads)
