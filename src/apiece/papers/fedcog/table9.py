"""FedCOG, Table 9: personalized accuracy, next to methods of personalization."""

from __future__ import annotations

from apiece.papers.fedcog import _setup as shared
from apiece.papers.fedcog._setup import CIFAR10, NIID1, SETUP, cog
from apiece.reproduce.card import ACCURACY, Card, Claim, Scale
from apiece.reproduce.work import last, runs

TUNED = "fine_tune(steps=400, batch=64)"
ROWS = shared.rows({
    "FedAvg+FT": f"fedavg + {TUNED}", "FedProx+FT": f"fedprox(mu=0.01) + {TUNED}", "FedRep": "fedrep",
    "Ditto": "ditto", "FedCOG+FT": f"{cog()} + {TUNED}",
})  # fmt: skip
CARD = Card(
    title="FedCOG, Table 9: personalization",
    setup=SETUP | CIFAR10 | NIID1 | {"eval_every": 70, "panel": 1},
    columns={"CIFAR-10 NIID-1": {}},
    rows=ROWS,
    work=runs(accuracy=last("personal_accuracy_mean")),
    numbers={"accuracy": ACCURACY._replace(title="mean accuracy of the clients' own models on their own test sets, %")},
    published={
        "accuracy": dict(zip(ROWS, ([76.16], [76.38], [74.90], [76.57], [78.34]), strict=True)),
    },
    claims=(
        Claim(
            "FedCOG+FT highest",
            "From the table, we see that FedCOG outperforms all these strong and representative baselines.",
            lambda t: t.highest("FedCOG+FT"),
        ),
    ),
    open=(
        *shared.OPEN,
        "fine-tuning: one round's 400 local steps (A.4.1 evaluates “local models before aggregation”); FedRep: 5 "
        "of 6 steps for the head; Ditto: lambda 1, as many personal steps as local ones",
        "a client's test set: of the test set, its share by its own class proportions",
    ),
    scales={
        "smoke": Scale(
            "It runs, and says nothing more.", shared.SMOKE, (0,),
            rows=shared.rows({"FedAvg+FT": "fedavg + fine_tune(steps=2, batch=8)"}),
        ),
        "cpu": Scale(
            f"{shared.FEWER}.", shared.CPU | {"eval_every": 24},
            rows={
                row: {"algorithm": s["algorithm"].replace("steps=400", "steps=100").replace("wait=50", "wait=20")}
                for row, s in ROWS.items()
            },
        ),
        "paper": Scale("As the paper has it."),
    },
)  # fmt: skip
