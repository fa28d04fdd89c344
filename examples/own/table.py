"""A table with text and gaps, one hospital a client: `python examples/own/table.py`."""

import numpy as np
import pandas
from torch import nn

from apiece import federate


def patients(rng: np.random.Generator, count: int = 400) -> pandas.DataFrame:
    """Invented patients; a tenth of their ages is missing."""
    age, ward = rng.normal(60, 12, count), rng.choice(["heart", "lung", "hip"], count)
    back = rng.random(count) < 1 / (1 + np.exp(-(age - 60) / 6 - (ward == "heart")))
    age[rng.random(count) < 0.1] = np.nan
    return pandas.DataFrame({"age": age, "ward": ward, "came_back": back, "hospital": rng.choice(list("ABCDE"), count)})


def main() -> float:
    """Text becomes one column a word, gaps are filled, numbers standardized; a line says so."""
    table = patients(np.random.default_rng(0))
    model = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 2))  # an age and three wards
    columns = {"target_column": "came_back", "client_column": "hospital", "split": "natural"}
    result = federate(model, table, "fedavg", **columns, rounds=10, steps=20, lr=0.1)
    return result.metrics[-1]["global_accuracy"]


if __name__ == "__main__":
    print(main())
