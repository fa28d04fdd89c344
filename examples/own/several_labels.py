"""Several labels a sample: F1, accuracy and the area under the ROC curve of five labels, for twelve clients."""

from sklearn.datasets import make_multilabel_classification
from torch import nn

from apiece import federate

x, y = make_multilabel_classification(1200, n_features=20, n_classes=5, random_state=0)
x = (x - x.mean(0)) / x.std(0)
model = nn.Sequential(nn.Linear(20, 32), nn.ReLU(), nn.Linear(32, 5))

if __name__ == "__main__":
    names = ["f1", "accuracy", "auroc"]
    settings = {"split": "quantity(1)", "clients": 12, "rounds": 10, "steps": 20}
    last = federate(model, (x, y), "fedals(alpha=2)", metrics=names, **settings).metrics[-1]
    print(", ".join(f"{name} {last[f'global_{name}']:.3f}" for name in names))
