"""The named augmentations of training images: `--augment "flip + crop(4)"`. Light: nothing heavy is imported."""

from __future__ import annotations


def flip(probability: float = 0.5) -> dict[str, float]:
    """Mirror an image left and right with this probability."""
    return {"flip": probability}


def crop(padding: int = 4, probability: float = 1.0) -> dict[str, float]:
    """Pad with zeros and cut the old size at a random place, with this probability."""
    return {"padding": padding, "crop": probability}
