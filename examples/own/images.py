"""A folder of images of unequal size, one folder a class: `python examples/own/images.py`."""

import tempfile
from pathlib import Path

import numpy as np
from PIL import Image

from apiece import federate


def draw(folder: Path, rng: np.random.Generator, count: int = 120) -> None:
    """Dark and light images, each of its own size."""
    for i in range(count):
        kind, size = ("dark", "light")[i % 2], rng.integers(12, 40, 2)
        (folder / kind).mkdir(exist_ok=True)
        pixels = rng.integers(0, 160, (*size, 3)) + (90 if kind == "light" else 0)
        Image.fromarray(pixels.astype(np.uint8)).save(folder / kind / f"{i}.png")


def main() -> float:
    """The command line has the same: `apiece run --data FOLDER --resize 16 --model cnn`."""
    with tempfile.TemporaryDirectory() as folder:
        draw(Path(folder), np.random.default_rng(0))
        result = federate("cnn", folder, resize=16, clients=4, split="dirichlet(1)", rounds=4, steps=10, lr=0.05)
    return result.metrics[-1]["global_accuracy"]


if __name__ == "__main__":
    print(main())
