"""A network with BatchNorm and dropout on your own arrays: masks come from named streams, statistics from clients."""

from sklearn.datasets import load_wine
from torch import nn

from apiece import federate

wine = load_wine()
x = (wine.data - wine.data.mean(0)) / wine.data.std(0)


def network():
    return nn.Sequential(nn.Linear(13, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Dropout(0.3), nn.Linear(32, 3))


if __name__ == "__main__":
    for buffers in ("average", "local"):  # BatchNorm's statistics: averaged with their layer, or left with the client
        result = federate(network(), (x, wine.target), clients=4, split="dirichlet(1.0)", rounds=20, buffers=buffers)
        last = result.metrics[-1]
        print(f"{buffers}: global {last['global_accuracy']:.2f}, personal {last['personal_accuracy_mean']:.2f}")
