"""Real targets: the progression of diabetes by ten measurements, for clients whose patients differ in it."""

from pathlib import Path
from tempfile import mkdtemp

from sklearn.datasets import load_diabetes
from torch import nn

from apiece import client_metrics, federate

x, y = load_diabetes(return_X_y=True)
x, y = x / x.std(0), (y - y.mean()) / y.std()  # of one size, so that usual step sizes fit
model = nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 1))

if __name__ == "__main__":
    out = Path(mkdtemp()) / "run"
    settings = {"split": "dirichlet(1)", "clients": 8, "rounds": 10, "steps": 20, "lr": 0.02}
    last = federate(model, (x, y), "scaffold", out=out, **settings).metrics[-1]
    print(f"mean absolute error {last['global_mae']:.3f}, R2 {last['global_r2']:.3f}; by client:")
    found = client_metrics(out)
    print(found[found["round"] == 10].pivot(index="client", columns="metric", values="value").round(3))
