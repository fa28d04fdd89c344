"""PeFLL, Figure 3, and Figures 5 to 7: how well distances between descriptors rank clients, over the rounds."""

from __future__ import annotations

from itertools import pairwise

from apiece.papers.pefll._setup import AS_PAPER, OPEN, SETUP, SMOKE, pefll
from apiece.papers.pefll._work import correlated
from apiece.reproduce.card import Card, Claim, Number, Scale
from apiece.reproduce.figures import by_column
from apiece.reproduce.table import every

COLUMNS = {f"{n} clients": {"clients": n, "cohort": n // 20} for n in (100, 500, 1000)}
SENTENCE = (
    "One can see that the rank correlation increases over the course of training, reaching very high correlation "
    "values of approximately 0.93."
)
MORE = "With more clients we obtain higher levels of correlation and less variability in the results."


def of(table, column):
    """The correlation at the end: its mean and deviation over seeds."""
    return table.spread(("PeFLL", column), "correlation")


CARD = Card(
    title="PeFLL, Figure 3: rank correlation of the clients' descriptors and class proportions",
    setup=SETUP | {"data": "cifar10", "split": "dirichlet_prior(0.1)"},
    columns=COLUMNS,
    rows={"PeFLL": pefll(mask=False, embedding="cnn")},
    work=correlated,
    numbers={"correlation": Number("rank correlation on unseen clients", 3)},
    published={"correlation": {"PeFLL": [None, None, 0.93]}},
    claims=(
        Claim(
            "it increases",
            SENTENCE,
            lambda t: every(lambda c: (y := t.curve(("PeFLL", c), "curve").mean)[-1] > y[0], t.columns),
        ),
        Claim(
            "it reaches 0.9 with 1000 clients", SENTENCE, lambda t: of(t, "1000 clients").mean > 0.9,
        ),
        Claim(
            "it is higher, the more clients there are",
            MORE,
            lambda t: every(lambda at: of(t, at[0]).mean < of(t, at[1]).mean, pairwise(COLUMNS)),
        ),
        Claim(
            "its standard deviation over seeds is smaller with 1000 clients than with 100",
            MORE,
            lambda t: of(t, "1000 clients").sd < of(t, "100 clients").sd,
        ),
    ),
    open=(
        "how many clients are not seen in training: a tenth, as in Table 1",
        "the clients between which distances are taken: each unseen one and all others, itself left out; "
        "descriptors are of all samples, and class proportions those of a client's samples, where the paper has those "
        "that were drawn",
        *OPEN,
    ),
    figure=by_column("curve", "round", "rank correlation"),
    scales={
        "smoke": Scale(
            "It runs, and says nothing more.",
            SMOKE | {"split": "dirichlet_prior(0.3)", "steps": "2", "unseen": 2}, (0,),
            rows={"PeFLL": {"algorithm": "pefll(embedding=mlp)"}}, columns={"100 clients": {}},
        ),
        "cpu": Scale(
            "100 clients, 500 rounds instead of 5,000, 4 clients a round instead of 5 (5 % of the 90 that train), and "
            "in training descriptors of the first step's batch.",
            {"rounds": 500, "eval_every": 25, "panel": 1, "cohort": 0.05}, columns={"100 clients": {}},
            rows={"PeFLL": pefll(mask=False, embedding="cnn", descriptor="first")},
        ),
        "paper": Scale(f"{AS_PAPER}."),
    },
)  # fmt: skip
