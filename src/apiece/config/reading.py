"""Whether float samples [n, a, b] are images or sequences: what a model of one's own takes decides."""

from __future__ import annotations

import copy
import logging
import warnings
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from apiece.data.arrays import Dataset
from apiece.data.federation import tensors

BATCHES = (2, 3)  # a module that takes single samples too would take a batch of one size alone for a sample


def as_taken(dataset: Dataset, module: nn.Module | None, loss: Any = None) -> Dataset:
    """The data set whose float samples [n, a, b] are sequences if the given module takes a batch [B, a, b] and none of
    images [B, 1, a, b]. If it takes both, they are images. Named models, uint8 and other shapes are read as always.
    """
    shape = list(dataset.x_train.shape[1:])
    fixed = module is None or dataset.text or dataset.inputs_train is not None
    if fixed or len(shape) != 2 or dataset.x_train.dtype == np.uint8:
        return dataset
    as_images, as_sequences = replace(dataset, sequences=False), replace(dataset, sequences=True)
    one, two = (_outputs(made, module, loss) for made in (as_images, as_sequences))
    a, b = shape
    if one is None:
        if two is not None:
            _say(f"{dataset.name}: samples of shape {shape} are sequences to this model: a batch is [B, {a}, {b}].")
        return as_sequences
    if two is None:
        _say(f"{dataset.name}: samples of shape {shape} are images to this model: a batch is [B, 1, {a}, {b}].")
    elif any(x.shape != y.shape or not torch.equal(x, y) for x, y in zip(one, two, strict=False)):
        _say(
            f"{dataset.name}: the model takes samples of shape {shape} both as images and as sequences, and they are "
            f"images: a batch is [B, 1, {a}, {b}]; for [B, {a}, {b}] give a Federation of tensors."
        )
    return as_images


def _outputs(dataset: Dataset, module: Any, loss: Any) -> list[Tensor] | None:
    """What the module makes of some samples, as tensors; None if it or the loss fails on them."""
    dtype = next((p.dtype for p in module.parameters() if p.is_floating_point()), torch.float32)
    own = dataset.targets_train
    targets = own if isinstance(own, np.ndarray) else dataset.y_train
    model, found = copy.deepcopy(module).eval(), list[Tensor]()
    try:
        with torch.no_grad(), torch.random.fork_rng(devices=()), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for count in BATCHES:
                rows = np.arange(count) % len(targets)
                y = torch.from_numpy(targets[rows])
                outputs = model(tensors(dataset, dataset.x_train[rows], dtype))
                found = [leaf for leaf in tree_leaves(outputs) if isinstance(leaf, Tensor)]
                labels = y.dim() == 1 and not y.is_floating_point()
                scores = isinstance(outputs, Tensor) and outputs.dim() == 2
                if any(not leaf.dim() or len(leaf) != count for leaf in found) or (loss is None and labels > scores):
                    return None
                if loss is not None:
                    loss(outputs, y)
    except Exception:  # a module and a loss of one's own may raise anything
        return None
    return found


def _say(text: str) -> None:
    logging.getLogger(__name__).warning(text)
