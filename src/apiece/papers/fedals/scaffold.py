"""FedALS's SCAFFOLD: what its authors' code computes under this name, beside SCAFFOLD and federated averaging."""

from __future__ import annotations

from apiece.config.tables import HELD_OUT
from apiece.papers.fedals._setup import COMMON, FIRST, NUMBERS, SETUP, SMALL, SMOKE
from apiece.papers.fedals._work import of_the_code
from apiece.reproduce.card import Card, Claim, Scale, Search
from apiece.reproduce.figures import by_column

FEDAVG, RIGHT, CODE = "FedAvg", "SCAFFOLD", "SCAFFOLD, of the authors' code"
SENTENCE = "while SCAFFOLD exhibits slight improvements in specific scenarios"

CARD = Card(
    title="FedALS's SCAFFOLD: that of its authors' code beside Karimireddy et al.'s",
    setup=SETUP,
    columns=SMALL,
    rows={
        FEDAVG: {"algorithm": "fedavg"},
        RIGHT: {"algorithm": "scaffold"},
        CODE: {"algorithm": "scaffold(init_control=grad)", "code": {"momentum": 0.9, "length": 5}},
    },
    work=of_the_code,
    numbers=NUMBERS,
    claims=(
        Claim(
            "its code's SCAFFOLD within 2 points of FedAvg (its Table 1: 1.1 below on CIFAR-10, 1.5 above on MNIST)",
            SENTENCE, lambda t: all(abs(t.mean((CODE, c)) - t.mean((FEDAVG, c))) < 0.02 for c in t.columns),
        ),
        Claim(
            "SCAFFOLD itself is above FedAvg on some data", SENTENCE,
            lambda t: any(t.above((RIGHT, c), (FEDAVG, c)) for c in t.columns),
        ),
    ),
    open=(
        *COMMON,
        "the whole set-up: this is no table of the paper's; its Table 1 has ResNet-20",
        "the code's SCAFFOLD is read off its source: its correction has the other sign, and its reference point is a "
        "shallow copy, so that the variates stay what the first gradients made them, over the number of local steps",
        "the code's correction passes by the momentum: here a tenth of it is added to the gradients, which momentum "
        "0.9 sums up to the same after some twenty steps",
    ),
    scales={
        "smoke": Scale("It runs, and says nothing more.", SMOKE, (0,), columns={"MNIST, a CNN, non-iid": {}}),
        "cpu": Scale(
            "1,000 iterations; the step size is searched for each cell with 500.",
            {"rounds": 200}, search=Search("lr", FIRST, changes=HELD_OUT | {"rounds": 100}),
        ),
        "paper": Scale("20,000 iterations.", search=Search("lr", FIRST)),
    },
    figure=by_column("curve", "round", "accuracy, %", 100.0),
)  # fmt: skip
