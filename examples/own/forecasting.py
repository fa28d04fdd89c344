"""Forecast the next value of sequences of unequal length: a recurrent network that gets the sequences and a mask."""

import numpy as np
import torch
from torch import nn

from apiece import federate


class Forecaster(nn.Module):
    def __init__(self):
        super().__init__()
        self.recurrent, self.out = nn.GRU(1, 16, batch_first=True), nn.Linear(16, 1)

    def forward(self, x, mask):
        states, _ = self.recurrent(x)
        last = mask.sum(1).long() - 1  # the last real step of each sequence
        return self.out(torch.take_along_dim(states, last[:, None, None], 1)[:, 0])[:, 0]


rng = np.random.default_rng(0)
starts, lengths = rng.uniform(0, 6, 400), rng.integers(5, 20, 400)
waves = [np.sin(start + 0.5 * np.arange(length + 1)) for start, length in zip(starts, lengths)]
x, y = [wave[:-1, None] for wave in waves], np.array([wave[-1] for wave in waves])

if __name__ == "__main__":
    result = federate(Forecaster(), (x, y), "scaffold", task="forecasting", clients=8, split="iid", rounds=15, lr=0.3)
    print(f"mean squared error {result.metrics[-1]['global_mse']:.4f}, of a constant {y.var():.4f}")
