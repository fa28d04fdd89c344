"""PeFLL, Table 1: accuracy on clients that are seen in training, and on clients that are not."""

from __future__ import annotations

from apiece.papers.pefll import _claims as claims
from apiece.papers.pefll import _setup as shared
from apiece.papers.pefll._work import work
from apiece.reproduce.card import Card, Claim, Scale, published

PUBLISHED = """
Local       82.24 0.63  70.87 0.50  65.51 0.69  39.40 0.17  19.66 0.21  11.34 0.09  62.18 0.10
FedAvg      47.53 0.48  50.39 0.62  51.86 0.67  16.44 0.37  20.19 0.09  20.22 0.22  82.05 0.20
Per-FedAvg  79.09 2.07  76.90 0.92  76.60 0.31  40.01 0.34  31.48 0.21  20.52 0.12  82.73 0.94
FedRep      84.55 0.78  79.23 0.63  77.30 0.26  42.67 0.80  35.48 0.74  30.79 0.47  83.63 0.78
pFedMe      83.89 1.16  79.02 1.98  80.39 0.86  39.61 0.54  40.48 0.41  34.64 0.21  85.88 0.82
kNN-Per     84.02 0.27  81.96 0.52  79.87 0.72  42.20 0.91  38.06 0.41  34.50 0.52  85.17 0.25
pFedHN      87.76 0.51  77.43 1.27  65.99 1.13  53.60 0.17  25.52 0.31  19.95 1.19  83.81 0.29
PeFLL       88.90 0.69  88.94 0.31  88.42 0.37  59.46 0.74  53.23 0.62  51.38 0.25  90.12 0.05"""
PUBLISHED_UNSEEN = """
FedAvg      48.60 0.28  49.57 1.03  51.70 0.71  17.07 0.86  19.30 1.99  20.53 0.97  81.85 0.36
Per-FedAvg  77.60 1.90  69.03 2.53  67.25 0.75  35.60 1.50  30.60 0.40  20.50 0.50  81.13 1.50
FedRep      81.75 1.01  77.40 1.69  76.03 0.34  38.63 1.12  35.93 1.51  31.83 1.59  82.83 0.69
pFedMe      78.40 2.24  74.30 1.35  72.30 1.70  31.10 1.37  32.30 0.50  28.90 0.22  86.13 0.35
kNN-Per     82.43 0.73  80.83 1.51  78.40 1.13  41.77 1.23  37.20 1.95  33.73 0.73  84.55 0.64
pFedHN      63.33 3.67  60.87 2.37  57.83 2.04  24.10 1.20  21.50 1.42  20.83 1.18  82.52 0.13
PeFLL       88.90 2.40  88.23 0.93  87.43 1.25  55.60 1.63  53.37 0.12  51.10 0.24  90.68 0.21"""
BEST = "PeFLL achieves the best results in all cases, and often by a large margin."

CARD = Card(
    title="PeFLL, Table 1: accuracy on seen and unseen clients",
    setup=shared.SETUP,
    columns=shared.COLUMNS | {"FEMNIST": shared.FEMNIST},
    rows=shared.BASELINES | {"PeFLL": shared.pefll(embedding="auto")},
    work=work,
    numbers={"seen": shared.SEEN, "unseen": shared.UNSEEN},
    published={"seen": published(PUBLISHED), "unseen": published(PUBLISHED_UNSEEN)},
    claims=(
        Claim("PeFLL highest on seen clients", BEST, claims.best("seen")),
        Claim("PeFLL highest on unseen clients", BEST, claims.best("unseen")),
        Claim("PeFLL above each other method beyond chance in most columns", BEST, claims.often_by_far, ("paper",)),
        Claim(
            "PeFLL's lead over the best other method larger on unseen clients",
            "The improvements over previous methods are most prominent for previously unseen clients,",
            claims.leads_more_on_unseen,
        ),
        Claim(
            "PeFLL on unseen clients within 2 points of seen ones (in its own table 3.9 on CIFAR-100, 100 clients)",
            "for which PeFLL produces model of almost identical accuracy as for the clients used for training",
            claims.near_on_unseen,
        ),
        Claim("pFedHN falls beyond chance with the number of clients",
              "the latter's performance decreases noticeably when the number of clients increases",
              claims.falls("pFedHN", surely=True)),
        Claim(
            "Per-FedAvg, pFedMe and FedRep fall from 100 to 1000 clients on seen clients, and by more on CIFAR-100",
            "the model accuracy drops when the amount of data per client decreases, especially in the more challenging "
            "CIFAR100 setup", claims.fall_most_on_cifar100,
        ),
        Claim("kNN-Per falls with the number of clients",
              "its performance worsens when the number of samples per client drops", claims.falls("kNN-Per")),
        Claim(
            "PeFLL falls by less than 2 points from 100 to 1000 clients on CIFAR-10 (its own table on CIFAR-100: by 8)",
            "PeFLL's performance remains stable", claims.stable,
        ),
    ),
    open=(*shared.OPEN, *shared.OPEN_BASELINES, "FEMNIST: images of 28 x 28, where the code pads them to 32 x 32"),
    scales={
        "smoke": Scale("It runs.", shared.SMOKE, (0,), columns={shared.FIRST: {"embedding": "mlp"}},
                       rows={"pFedHN": {"steps": "2"}, "PeFLL": {"steps": "2"}}),
        "cpu": Scale(
            "CIFAR-10 with 100 clients, 300 rounds, not 5,000 (Local: 60 passes, not 200; new clients 200), 4 clients "
            "a round, not 5 (5 % of the 90 that train); PeFLL's descriptors in training: of the first step's batch.",
            {"rounds": 300, "eval_every": 100, "cohort": 0.05}, columns={shared.FIRST: {}},
            rows={row: {} for row in shared.BASELINES} | {"Local": {"rounds": 60, "cohort": 1.0}}
            | {"PeFLL": shared.pefll(embedding="auto", descriptor="first")},
        ),
        "paper": Scale(f"{shared.AS_PAPER}; FEMNIST has to be there (`apiece data`)."),
    },
)  # fmt: skip
