"""PeFLL's mask: Table 1 where every method predicts only the classes that a client has, and where none does."""

from __future__ import annotations

from apiece.papers.pefll._claims import best
from apiece.papers.pefll._setup import (
    AS_PAPER,
    BASELINES,
    COLUMNS,
    FIRST,
    OPEN,
    OPEN_BASELINES,
    SEEN,
    SETUP,
    SMOKE,
    UNSEEN,
    pefll,
)  # fmt: skip
from apiece.papers.pefll._work import work
from apiece.reproduce.card import Card, Claim, Scale

MASKED = ("Local", "FedAvg", "Per-FedAvg", "FedRep", "pFedMe")
ROWS = {row: {**BASELINES[row], "algorithm": f"{BASELINES[row]['algorithm']} + class_mask"} for row in MASKED}
BEST = "PeFLL achieves the best results in all cases, and often by a large margin."


CARD = Card(
    title="PeFLL, Table 1 with the mask of absent classes for six methods, and for none",
    setup=SETUP,
    columns=COLUMNS,
    rows=ROWS | {"PeFLL": pefll(embedding="auto")},
    work=work,
    numbers={
        "seen": SEEN._replace(title="with the mask: accuracy on seen clients, %"),
        "unseen": UNSEEN._replace(title="with the mask: accuracy on unseen clients, %"),
        "seen_plain": SEEN._replace(title="without the mask: accuracy on seen clients, %"),
        "unseen_plain": UNSEEN._replace(title="without the mask: accuracy on unseen clients, %"),
    },
    claims=(
        Claim("with the mask for all six, PeFLL highest", BEST, best("seen", "unseen")),
        Claim("with the mask for none, PeFLL highest", BEST, best("seen_plain", "unseen_plain")),
    ),
    open=(
        "whether the baselines are masked: the authors' code masks PeFLL by default, and FL-Bench, from which the "
        "baselines are, masks nothing",
        "kNN-Per and pFedHN are left out: kNN-Per decides by itself what a client predicts, and the descriptors of "
        "pFedHN's new clients are scored without a mask here",
        "what the mask does: absent classes cannot be predicted; the authors' code multiplies their scores by 0",
        *OPEN, *OPEN_BASELINES,
    ),
    scales={
        "smoke": Scale(
            "It runs, and says nothing more.", SMOKE, (0,), columns={FIRST: {"embedding": "mlp"}}, rows={"FedAvg": {}}
        ),
        "cpu": Scale(
            "CIFAR-10 with 100 clients, 300 rounds instead of 5,000, three methods.",
            {"rounds": 300, "eval_every": 100}, columns={FIRST: {}}, rows={"FedAvg": {}, "FedRep": {}, "PeFLL": {}},
        ),
        "paper": Scale(f"{AS_PAPER}; without FEMNIST, whose writers have most classes."),
    },
)  # fmt: skip
