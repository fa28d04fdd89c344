"""A loss of one's own and three metrics at once: one of each sample, one of all predictions, one by name."""

import torch
from sklearn.datasets import load_breast_cancer
from torch import nn

from apiece import federate

data = load_breast_cancer()
x, y = (data.data - data.data.mean(0)) / data.data.std(0), 1 - data.target  # 1: malignant


def loss(scores, y):
    """A missed tumor counts three times."""
    return nn.functional.cross_entropy(scores, y, weight=torch.tensor([1.0, 3.0]))


def sure(scores, y):
    """The probability of each sample's class: one value a sample, of which a client's is the mean."""
    return scores.softmax(1).gather(1, y[:, None])[:, 0]


def recall(scores, y):
    """The share of tumors found, by all of a client's predictions: one number."""
    return ((scores.argmax(1) == 1) & (y == 1)).sum() / (y == 1).sum()


if __name__ == "__main__":
    run = federate(nn.Linear(30, 2), (x, y), loss=loss, metrics=[sure, recall, "accuracy"], clients=6, rounds=20)
    print(", ".join(f"{name} {run.metrics[-1][f'global_{name}']:.3f}" for name in ("sure", "recall", "accuracy")))
