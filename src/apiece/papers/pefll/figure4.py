"""PeFLL, Figure 4: accuracy on new clients whose class proportions come from another Dirichlet distribution."""

from __future__ import annotations

from itertools import product

from apiece.papers.pefll._setup import AS_PAPER, BASELINES, OPEN, OPEN_BASELINES, SETUP, SMOKE, UNSEEN, pefll
from apiece.papers.pefll._work import work
from apiece.reproduce.card import Card, Claim, Scale
from apiece.reproduce.figures import Panel, over_setting, panels
from apiece.reproduce.table import every

ALPHAS = [a / 10 for a in range(1, 11)]
OTHERS = ("kNN-Per", "FedRep", "pFedMe")
ALONE = {"rounds": 1, "cohort": 1.0}  # new clients train alone, so nothing else counts
ROWS = {
    "Local": BASELINES["Local"] | ALONE, **{row: BASELINES[row] for row in OTHERS}, "PeFLL": pefll(embedding="cnn"),
}  # fmt: skip


def name(alpha):
    return f"alpha = {alpha}"


def dominates(table):
    """PeFLL at the largest alpha lies above every baseline at every smaller one."""
    *smaller, last = table.columns
    others = product([row for row in OTHERS if row in table.rows], smaller)
    return every(lambda other: table.mean(("PeFLL", last), "unseen") > table.mean(other, "unseen"), others)


CARD = Card(
    title="PeFLL, Figure 4: extrapolation to clients that are more dissimilar",
    setup=SETUP | {"data": "cifar10", "clients": 1000, "cohort": 50},
    columns={name(a): {"split": f"dirichlet_prior(0.1, alpha_unseen={a})"} for a in ALPHAS},
    rows=ROWS,
    work=work,
    numbers={"unseen": UNSEEN},
    claims=(
        Claim(
            "Local falls as alpha grows",
            "as α increases so does the difficulty of the client's problem, as illustrated by the fact that the "
            "accuracy of purely local training decreases",
            lambda t: t.mean(("Local", t.columns[0]), "unseen") > t.mean(("Local", t.columns[-1]), "unseen"),
        ),
        Claim(
            "PeFLL at alpha = 1 above the other methods at smaller alpha",
            "Even at α=1, PeFLL produces models that are more accurate than those learned by the other methods for "
            "smaller values of α", dominates,
        ),
        Claim(
            "PeFLL at alpha = 1 above Local by 10 points",
            "and far superior to purely local training on the new clients",
            lambda t: t.mean(("PeFLL", name(1.0)), "unseen") > t.mean(("Local", name(1.0)), "unseen") + 0.1, ("paper",),
        ),
    ),
    open=(
        "the number of clients: 1000 as in Figure 3; the share of new clients: a tenth, a group for each alpha with a "
        "training of its own, as in the authors' code",
        "the best performing baselines: kNN-Per, FedRep and pFedMe; the figure's numbers, which its text lacks",
        *OPEN, *OPEN_BASELINES,
    ),
    figure=panels(Panel(
        "", "alpha of the new clients", "accuracy on new clients, %",
        {row: over_setting({a: (row, name(a)) for a in ALPHAS}, "unseen", 100.0) for row in ROWS},
    )),
    scales={
        "smoke": Scale("It runs.", SMOKE | {"cohort": 0.3}, (0,), rows={"FedRep": {}}, columns={
            name(a): {"split": f"dirichlet_prior(0.3, alpha_unseen={a})"} for a in (0.1, 1.0)
        }),
        "cpu": Scale(
            "100 clients (4 a round), both ends of alpha, three methods, 150 rounds, not 5,000; PeFLL as in Table 1. "
            "Local keeps its 200 passes, so PeFLL is not held against it.",
            {"clients": 100, "cohort": 0.05, "rounds": 150, "eval_every": 150, "panel": 1},
            columns={name(a): {} for a in (0.1, 1.0)},
            rows={"Local": ALONE, "kNN-Per": {}, "PeFLL": pefll(embedding="cnn", descriptor="first")},
        ),
        "paper": Scale(f"{AS_PAPER}."),
    },
)  # fmt: skip
