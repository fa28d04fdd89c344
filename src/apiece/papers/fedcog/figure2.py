"""FedCOG, Figure 2: local models after one round that starts from 50 rounds of FedAvg."""

from __future__ import annotations

from apiece.papers.fedcog import _setup as shared
from apiece.papers.fedcog._claims import best_by_far, first, of_most
from apiece.papers.fedcog._setup import CIFAR10, NIID1, SETUP, cog
from apiece.papers.fedcog._work import local_models
from apiece.reproduce.card import ACCURACY, Card, Claim, Number, Scale
from apiece.reproduce.figures import Panel, over_rounds, panels

CIFAR = "CIFAR-10 NIID-1"
ROWS = {
    "FedAvg": {"algorithm": "fedavg"},
    "FedProx": {"algorithm": "fedprox(mu=0.01)", "begin": 50},
    "FedCOG": {"algorithm": cog()},
}
HIGHEST = "FedCOG consistently and significantly achieves the highest accuracy of local models"


def panel(key, title, y, factor=1.0):
    return Panel(title, "client", y, {r: over_rounds((r, CIFAR), f"{key} by client", factor) for r in ROWS})


CARD = Card(
    title="FedCOG, Figure 2: local models after one round",
    setup=SETUP | CIFAR10 | NIID1 | {"rounds": 51, "eval_every": 10, "drift": "all"},
    columns={CIFAR: {}},
    rows=ROWS,
    work=local_models,
    numbers={
        "far": Number("distance of local models from the global model, mean over clients", 3),
        "general": ACCURACY._replace(title="accuracy of local models on the test set, %"),
        "personal": ACCURACY._replace(title="accuracy of local models on their clients' own test sets, %"),
        "accuracy": ACCURACY._replace(title="accuracy of the global model, %"),
    },
    published={"accuracy": {"FedAvg": [63.34], "FedProx": [64.57], "FedCOG": [65.59]}},
    claims=(
        Claim(
            "FedCOG's local models are nearest in the mean, in every seed",
            "From Figure 2(a), we see that FedCOG achieves the lowest model difference between local and global model",
            first("far", -1),
        ),
        Claim("FedCOG's local models generalize best in the mean, in every seed", HIGHEST, first("general")),
        Claim("FedCOG's local models generalize best in the mean, beyond chance", HIGHEST, best_by_far("general")),
        Claim(
            "FedCOG's local models fit their clients best in the mean, in every seed",
            "from Figure 2(c), we find that FedCOG also consistently achieves the highest personalization performance",
            first("personal"),
        ),
        Claim(
            "FedCOG's local models fit most of the clients best, in every seed",
            "we see that FedCOG consistently achieves the highest accuracy across clients",
            of_most("personal"),
        ),
        Claim("best global model in every seed", "FedCOG achieves best generalization performance", first("accuracy")),
    ),
    open=(*shared.OPEN, "FedProx starts from the model of 50 rounds of FedAvg; its batches are those of a first round"),
    figure=panels(
        panel("far", "(a) model difference", "distance of the local model from the global one"),
        panel("general", "(b) generalization", "accuracy on the test set, %", 100.0),
        panel("personal", "(c) personalization", "accuracy on the client's test set, %", 100.0),
    ),
    scales={
        "smoke": Scale("It runs.", shared.SMOKE, (0,), rows={"FedProx": {"begin": 1}}),
        "cpu": Scale(
            "20 rounds of FedAvg and one more, of 100 local steps instead of 400.",
            {"rounds": 21, "steps": "100"}, rows=shared.after(20, ROWS) | {"FedProx": {"begin": 20}},
        ),
        "paper": Scale("As the paper has it."),
    },
)  # fmt: skip
