"""PeFLL, Table 5: the number of hidden layers of the hypernetwork."""

from __future__ import annotations

from statistics import fmean

from apiece.papers.pefll._claims import C10, C100, within
from apiece.papers.pefll._setup import AS_PAPER, COLUMNS, FIRST, OPEN, SEEN, SETUP, SMOKE, UNSEEN, pefll
from apiece.papers.pefll._work import work
from apiece.reproduce.card import Card, Claim, Scale, published
from apiece.reproduce.table import every

PUBLISHED = """
S  88.7 0.3  88.2 0.4  87.7 0.4  57.9 0.3  51.9 0.6  47.4 1.4
M  88.9 0.7  88.9 0.3  88.1 0.3  59.4 0.2  53.1 0.4  50.8 0.5
L  88.7 0.8  88.8 0.3  88.2 0.6  59.8 0.1  53.8 0.2  52.6 1.0"""


def near(table):
    """S, M and L within 2 points of each other, in each column with CIFAR-10."""
    return every(lambda c: within(table, 0.02, [(size, c) for size in "SML"]), [c for c in C10 if c in table.columns])


def lowest(table):
    """S has less than M and L in the mean over the columns with CIFAR-10."""
    mean = lambda size: fmean(table.mean((size, c), "seen") for c in C10 if c in table.columns)  # noqa: E731
    return every(lambda size: mean("S") < mean(size), "ML")


CARD = Card(
    title="PeFLL, Table 5: the size of the hypernetwork",
    setup=SETUP,
    columns=COLUMNS,
    rows={  # M is the usual size
        "S": pefll(embedding="auto", size="S"), "M": pefll(embedding="auto"), "L": pefll(embedding="auto", size="L"),
    },
    work=work,
    numbers={"seen": SEEN, "unseen": UNSEEN},
    published={"seen": published(PUBLISHED)},
    claims=(
        Claim(
            "on CIFAR-10 the sizes differ by less than 2 points",
            "for CIFAR10 all 3 networks are reasonably similar",
            near,
        ),
        Claim(
            "on CIFAR-10 S lowest in the mean over the columns",
            "with a slight drop in performance observed for the S network.",
            lowest,
        ),
        Claim(
            "on CIFAR-100 L above M above S",
            "For CIFAR100 it is more pronounced, with a modest increase in performance for the L network and a "
            "noticeable drop for the S network.",
            lambda t: every(
                lambda c: t.mean(("L", c), "seen") > t.mean(("M", c), "seen") > t.mean(("S", c), "seen"), C100
            ),
        ),
    ),
    open=(
        *OPEN, "whose accuracy it is: the seen clients', as M has nearly those of Table 1 (a), 0.6 apart at the most",
    ),
    scales={
        "smoke": Scale(
            "It runs, and says nothing more.", SMOKE | {"steps": "2"}, (0,), rows={"S": {}},
            columns={FIRST: {"embedding": "mlp"}},
        ),
        "cpu": Scale(
            "CIFAR-10 with 100 clients, and 300 rounds instead of 5,000.",
            {"rounds": 300, "eval_every": 100}, columns={FIRST: {}},
        ),
        "paper": Scale(f"{AS_PAPER}."),
    },
)  # fmt: skip
