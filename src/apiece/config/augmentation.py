"""What clients see of images: the augmentation and the noise that a configuration asks for."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch

from apiece.config.names import SOURCES
from apiece.config.settings import Config
from apiece.data.arrays import Dataset
from apiece.data.batches import Augmentation
from apiece.data.federation import Federation, federation
from apiece.data.noise import draw, noisy
from apiece.data.preparing import by_client, consecutive
from apiece.data.split import Split
from apiece.errors import UserError
from apiece.language.expression import build
from apiece.randomness import generator


def flip(probability: float = Augmentation.flip) -> dict[str, float]:
    """Mirror an image left and right with this probability."""
    return {"flip": probability}


def crop(padding: int = Augmentation.padding, probability: float = Augmentation.crop) -> dict[str, float]:
    """Pad with zeros and cut the old size at a random place, with this probability."""
    return {"padding": padding, "crop": probability}


def augmentation(text: str, shape: tuple[int, ...], task: str = "classification") -> Any:
    if text == "none":
        return None
    if task == "segmentation":
        raise UserError(f"augment={text!r} would move images and not their masks: leave it out.")
    if len(shape) != 3:
        raise UserError(f"augment={text!r} is for images, and samples have the shape {list(shape)}: leave it out.")
    wanted: dict[str, Any] = {"flip": 0.0, "crop": 0.0}
    for part in build(text, SOURCES["augment"]):
        wanted |= part
    made = Augmentation(**wanted)
    if wanted["crop"] and made.padding >= min(shape[1:]):
        raise UserError(
            f"augment={text!r}: with a padding of {made.padding} a cut may miss an image of "
            f"{shape[1]}x{shape[2]}: give less than {min(shape[1:])}."
        )
    return made


def under_noise(config: Config, dataset: Dataset, split: Split, dtype: torch.dtype) -> Federation:
    """The federation, with client RGB noise and class brightness noise on its training images if they are asked for,
    and with what each client prepares by itself.
    """
    dataset, split = by_client(dataset, split)
    if not config.noise_rgb and not config.noise_brightness:
        return federation(dataset, split, dtype)
    channels = len(dataset.mean or ())
    if not channels:
        raise UserError(f"noise_rgb and noise_brightness are for images, and {dataset.name} has none: leave them at 0.")
    noise = draw(
        generator(config.seed, "noise"),
        len(split.names),
        channels,
        dataset.classes,
        config.noise_rgb,
        config.noise_brightness,
    )
    parts = [
        noisy(dataset.x_train[rows], dataset.y_train[rows], noise.gains[i], noise.offsets)
        for i, rows in enumerate(split.train)
    ]
    labels = np.concatenate([dataset.y_train[rows] for rows in split.train])
    targets = dataset.targets_train
    targets = targets if targets is None else np.concatenate([targets[rows] for rows in split.train])
    changed = replace(dataset, x_train=np.concatenate(parts), y_train=labels, targets_train=targets)
    return federation(changed, replace(split, train=consecutive(split.train)), dtype)
