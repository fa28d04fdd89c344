"""PeFLL, Table 7: the embedding network."""

from __future__ import annotations

from apiece.papers.pefll._setup import AS_PAPER, COLUMNS, FIRST, OPEN, SEEN, SETUP, SMOKE, UNSEEN, pefll
from apiece.papers.pefll._work import work
from apiece.reproduce.card import Card, Claim, Scale, published
from apiece.reproduce.table import every

PUBLISHED = """
MLP  88.5 1.2  87.8 1.1  87.5 2.1  59.1 0.2  53.4 0.4  51.2 0.5
CNN  88.9 0.7  88.9 0.3  88.4 0.4  59.4 0.2  54.4 0.3  53.2 0.3"""
CARD = Card(
    title="PeFLL, Table 7: the embedding network",
    setup=SETUP,
    columns=COLUMNS,
    rows={row: pefll(embedding=row.lower()) for row in ("MLP", "CNN", "linear")},
    work=work,
    numbers={"seen": SEEN, "unseen": UNSEEN},
    published={"seen": published(PUBLISHED)},
    claims=(
        Claim(
            "CNN above MLP in every column",
            "As we can see in Table 7 CNN embedding outperforms MLP in all experiments.",
            lambda t: every(lambda c: t.mean(("CNN", c), "seen") > t.mean(("MLP", c), "seen"), t.columns),
        ),
    ),
    open=(
        "what MLP is: “a single hidden layer fully connected network” (Table 7), “a single linear projection” "
        "(section 4) or “a single-layer MLP” (A.4); the authors' code has a linear map of the label alone: linear",
        "whose accuracy it is: the seen clients', as in Table 5",
        *OPEN,
    ),
    scales={
        "smoke": Scale(
            "It runs, and says nothing more.", SMOKE | {"steps": "2"}, (0,), rows={"MLP": {}}, columns={FIRST: {}}
        ),
        "cpu": Scale(
            "CIFAR-10 with 100 clients, and 300 rounds instead of 5,000.",
            {"rounds": 300, "eval_every": 100}, columns={FIRST: {}},
        ),
        "paper": Scale(f"{AS_PAPER}."),
    },
)  # fmt: skip
