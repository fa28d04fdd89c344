"""A dataset of Hugging Face with column names of its own: `python examples/own/hugging_face.py`."""

import datasets
import numpy as np
from torch import nn

from apiece import early_stopping, federate


def flowers(rng: np.random.Generator, count: int = 300) -> datasets.Dataset:
    """Invented flowers from six gardens; `datasets.load_dataset` gives one of yours."""
    kind = rng.integers(0, 3, count)
    petal, sepal = kind + rng.normal(0, 0.3, count), 2 - kind + rng.normal(0, 0.5, (2, count))
    columns = {"petal": petal, "sepal": sepal.T.tolist(), "kind": [("iris", "rose", "lily")[k] for k in kind]}
    return datasets.Dataset.from_dict({**columns, "garden": rng.integers(0, 6, count), "note": ["-"] * count})


def main() -> float:
    """A column of lists counts as so many columns: the model reads three numbers."""
    columns = {"input": ["petal", "sepal"], "target_column": "kind", "client_column": "garden", "split": "natural"}
    data, stop = flowers(np.random.default_rng(0)), early_stopping("global_loss", patience=3)
    result = federate(nn.Linear(3, 3), data, "scaffold", **columns, rounds=30, steps=10, lr=0.2, on_round=stop)
    return result.metrics[-1]["global_accuracy"]


if __name__ == "__main__":
    print(main())
