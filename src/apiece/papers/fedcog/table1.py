"""FedCOG, Table 1 and Figure 6: accuracy of eleven baselines and FedCOG, and their curves."""

from __future__ import annotations

from apiece.papers.fedcog import _setup as shared
from apiece.papers.fedcog._claims import HIGHEST, SATURATED
from apiece.papers.fedcog._setup import COLUMNS, SETUP, cog
from apiece.papers.fedcog._work import later
from apiece.reproduce.card import Card, Scale, published
from apiece.reproduce.figures import by_column

PUBLISHED = """
FedAvg     73.07 0.08  64.11 0.78  64.36 0.11  50.55 0.45  39.07 0.36  30.93 0.23
FedAvgM    76.81 0.48  67.73 0.65  64.36 0.33  51.32 0.74  39.21 0.19  30.97 0.11
FedProx    73.35 0.07  64.44 1.36  63.91 0.36  53.51 0.32  38.81 0.03  30.76 0.21
SCAFFOLD   77.02 0.63  58.47 3.05  64.36 0.43  48.35 1.86  42.25 0.40  34.27 0.22
MOON       73.21 0.28  63.11 1.08  63.65 0.04  51.01 1.54  39.34 0.18  31.17 0.13
FedSAM     76.44 0.06  68.14 0.60  61.38 0.23  50.76 0.36  37.97 0.26  30.75 0.11
VHL        73.08 0.89  70.26 1.79  60.81 1.33  51.60 0.98  37.55 1.06  28.41 0.48
FedExP     65.03 1.14  59.49 1.69  48.96 2.11  37.97 1.75  35.14 1.25  22.47 0.29
FedDecorr  72.77 0.70  60.70 4.59  63.40 0.29  47.53 1.99  37.68 0.40  27.08 0.29
FedReg     70.75 0.23  69.89 0.74  55.40 0.33  46.64 0.42  30.95 0.39  23.70 0.31
FedGen     72.64 1.27  61.34 2.44  62.45 0.40  49.12 0.51  37.99 0.23  26.93 0.15
FedCOG     77.34 0.07  73.68 0.38  64.83 0.12  54.00 0.84  42.88 0.02  34.80 0.42"""
ROWS = shared.rows(shared.BASELINES | {"FedCOG": cog(), "FedCOG by counts": cog(kd_weight="counts")})

CARD = Card(
    title="FedCOG, Table 1 and Figure 6: accuracy, and its curves",
    setup=SETUP,
    columns=COLUMNS,
    rows=ROWS,
    work=later,
    numbers=shared.NUMBERS,
    published={"accuracy": published(PUBLISHED)},
    claims=(*HIGHEST, SATURATED),
    open=(
        *shared.OPEN, *shared.OPEN_BASELINES,
        "CIFAR-100: augmentation as of CIFAR-10, and a third pooling, which A.2.1 omits and 69,380 parameters (A.4.3) "
        "imply; the table's column of averages is left out",
    ),
    figure=by_column("curve", "round", "accuracy on the test set, %", 100.0),
    scales={
        "smoke": Scale(
            "It runs, and says nothing more.", shared.SMOKE, (0,), columns={"Fashion-MNIST NIID-1": {}},
            rows=shared.rows({"FedAvg": "fedavg", "FedCOG": cog(wait=1, steps=2, samples=16)}),
        ),
        "cpu": Scale(
            f"Fashion-MNIST, {shared.FEWER}; FedReg generates with 25 batches instead of 100; "
            "`--scale paper --only 'Fashion-MNIST NIID-1'` has the full settings.",
            shared.CPU, columns={c: {} for c in COLUMNS if c.startswith("Fashion")},
            rows=shared.after(20, ROWS) | {"FedReg": {"algorithm": "fedreg(batches=25)"}},
        ),
        "paper": Scale("As the paper has it."),
    },
)  # fmt: skip
