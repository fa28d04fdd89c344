"""The model that a configuration names, for samples of one shape and a number of classes."""

from __future__ import annotations

import functools
import inspect
import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import nn

from apiece.config.names import SOURCES, one, read
from apiece.config.settings import Config
from apiece.data.arrays import Dataset
from apiece.data.catalog import OWN
from apiece.errors import UserError, nearest
from apiece.language.expression import build, functions
from apiece.system.allocator import enough, memory


def make_model(text: str, shape: tuple[int, ...], classes: int) -> nn.Module:
    """A named model that fits samples of this shape and this number of classes."""
    from apiece.networks import models

    refuse_own(text, "model")
    if text == "auto":
        side = min(shape[1:]) if len(shape) == 3 else 0  # of an image
        text = "cnn_fedcog" if side >= 16 else "cnn" if side >= 8 else "mlp"
    call, *more = read("model", text)
    if call.name in SOURCES["model"]:
        return one("model", text).module(shape, classes)
    named = functions(models)
    if more or call.name not in named:
        raise UserError(f"there is no model {text!r}; {nearest(call.name, [*named, *SOURCES['model']])}")
    make = _of_samples(named[call.name], shape, classes)
    if call.arguments or call.keywords:  # given its own sizes, every model fits
        with enough(f"model {text!r}"), torch.device("meta"), torch.random.fork_rng(devices=()):
            drawn = build(text, {call.name: make})[0]
        _refuse_too_large(text, sum(p.numel() for p in drawn.parameters()))
    return build(text, {call.name: make})[0]


def _of_samples(make: Callable[..., nn.Module], shape: tuple[int, ...], classes: int) -> Callable[..., nn.Module]:
    """The function of a model with samples and classes filled in: only its other arguments remain."""

    @functools.wraps(make)
    def made(*arguments: Any, **keywords: Any) -> nn.Module:
        return make(shape, classes, *arguments, **keywords)

    signature = inspect.signature(make)
    made.__signature__ = signature.replace(parameters=[*signature.parameters.values()][2:])  # pyright: ignore
    return made


def _refuse_too_large(text: str, parameters: int) -> None:
    """Refuse a model if four copies exceed this machine's memory: model, clients' start, a gradient and a step."""
    held = memory()
    if 4 * 4 * parameters > held:
        raise UserError(
            f"model {text!r} has {parameters:,} parameters, {4 * parameters / 1e9:,.0f} GB, too many for a memory of "
            f"{held / 1e9:,.0f} GB: take a smaller one."
        )


def reading_of(model: str) -> Any:
    """How a named model reads text; None if it reads none, or is not named."""
    return getattr(_from_source(model), "reading", None)


def _from_source(model: str) -> Any:
    """What a model's text names, with a folder or a size of its own; None if it is not so named."""
    return None if model == OWN or read("model", model)[0].name not in SOURCES["model"] else one("model", model)


def fitting_images(config: Config, dataset: Dataset, module: nn.Module | None) -> Dataset:
    """The data set whose images are normalized as the image processor of the named model says. Gray images get as many
    channels as it has means. Floats beyond [0, 1] are normalized already, and stay as they are.
    """
    pixels = None if module is not None else getattr(_from_source(config.model), "pixels", None)
    x = dataset.x_train
    if pixels is None or dataset.text or x.ndim < 3:
        return dataset
    own = x.shape[-1] if x.ndim == 4 else 1
    gray, count = own == 1, pixels.channels or own
    if not gray and own != count:
        raise UserError(
            f"{dataset.name}: its images have {own} channels, and model={config.model!r} takes {count}: convert "
            "them, or take another model."
        )
    if x.dtype != np.uint8 and (x.min() < 0 or x.max() > 1):
        return replace(dataset, mean=(0.0,) * count, std=(1.0,) * count)
    if pixels.mean is None:
        mean, std = (each and each * (count if gray else 1) for each in (dataset.mean, dataset.std))
        logging.getLogger(__name__).warning(
            "model=%r has no image processor: pixels are normalized by the data's own mean and deviation", config.model
        )
        return replace(dataset, mean=mean or (0.0,) * count, std=std or (1.0,) * count)
    return replace(dataset, mean=pixels.mean, std=pixels.std)


def fitting_text(config: Config, dataset: Dataset, module: nn.Module | None) -> Config:
    """The configuration with the model that `auto` means for text; raises UserError if only one of model and data is of
    text.
    """
    reads = module is None and reading_of(config.model) is not None
    if reads and not dataset.text:
        raise UserError(
            f"model={config.model!r} reads text, and {dataset.name} is none: give a .jsonl file of texts, or, if it is "
            "a model of images, say task=image-classification in hf(...)."
        )
    if module is not None or not dataset.text or reads:
        return config
    if config.model != "auto":
        raise UserError(f"{dataset.name} is text, which model={config.model!r} does not read: take opt or opt_lm.")
    return replace(config, model=of_text(dataset.targets_train is not None))


def of_text(tokens: bool) -> str:
    """The model that `auto` means for text: one of its tokens, or one of its classes."""
    return "opt_lm" if tokens else "opt"


def refuse_own(text: str, what: str) -> None:
    if text == OWN:
        raise UserError(
            f"this run's {what} came from a program or from nodes, and this command cannot have it. In that program, "
            "federate(..., resume=True) continues the run, its result.model(client=...) is a client's model, and "
            "apiece.experiment.personalize.personalize(result, ...) serves a new client. A run on nodes goes on by "
            "`apiece deploy resume`, its model.safetensors is the global model, each node keeps its own, and `apiece "
            "deploy personalize` gives one to a new node. `compare` takes such runs with --no-references."
        )
