"""FedInit, Table 7: seconds a round of seven methods, and their ratio to FedAvg's."""

from __future__ import annotations

from apiece.papers.fedinit._setup import (
    COLUMNS,
    CROPPED,
    FEW,
    METHODS,
    OPEN,
    READINGS,
    SETUP,
    SMOKE,
    WIDE,
)  # fmt: skip
from apiece.papers.fedinit._work import timed
from apiece.reproduce.card import Card, Claim, Number, Scale

SECONDS = {
    "FedAvg": (19.38, 15.87), "FedAdam": (23.22, 17.50), "FedSAM": (30.23, 22.18), "SCAFFOLD": (28.61, 24.49),
    "FedDyn": (23.84, 20.61), "FedCM": (22.63, 18.19), "FedInit": (20.41, 16.14),
}  # fmt: skip
RATIOS = {
    "FedAvg": (1.0, 1.0), "FedAdam": (1.19, 1.10), "FedSAM": (1.56, 1.40), "SCAFFOLD": (1.47, 1.54),
    "FedDyn": (1.23, 1.30), "FedCM": (1.17, 1.15), "FedInit": (1.05, 1.02),
}  # fmt: skip
LIGHT = (
    "Our proposed FedInit only adopts an additional initialization calculation, which requires about the same costs as "
    "the vanilla FedAvg"
)
CORRECTED = (
    "SCAFFOLD, FedDyn, and FedCM are required to calculate some additional vectors to correct the local updates. "
    "Therefore they need some additional time costs"
)
CARD = Card(
    title="FedInit, Table 7: seconds a round",
    setup=SETUP | {"rounds": 10, "eval_every": 10},
    columns={name: COLUMNS[name] for name in (WIDE, FEW)},
    rows=METHODS | {"FedInit, delta": READINGS["FedInit, delta"]},
    work=timed,
    numbers={
        "ratio": Number("ratio to FedAvg's seconds a round", 2, timed=True),
        "seconds": Number("seconds a round", 2, timed=True),
    },
    published={"ratio": RATIOS, "seconds": SECONDS},
    claims=(
        Claim("FedInit costs less than 1.1 of FedAvg", LIGHT, lambda t: all(
            t.mean(("FedInit", c), "ratio") < 1.1 for c in t.columns)),
        Claim(
            "FedSAM is the slowest (in its own table SCAFFOLD is, where 5 % take part)",
            "FedSAM calculation double gradients, which is the main reason for being slowest among the benchmarks",
            lambda t: all(
                t.mean(("FedSAM", c), "ratio") > t.mean((row, c), "ratio")
                for row in METHODS if row != "FedSAM" for c in t.columns
            ),
        ),
        Claim("corrections cost more than FedAvg against itself", CORRECTED, lambda t: all(
            t.above((row, c), ("FedAvg", c), "ratio") for row in ("SCAFFOLD", "FedDyn", "FedCM") for c in t.columns)),
    ),
    open=(
        *OPEN,
        "the machine: a round of FedAvg is timed before each, and the median of the ratios is what compares",
        "the split: Dir-0.6; the seconds: the median over rounds of training, each from the initial model",
    ),
    scales={
        "smoke": Scale("It runs, and says nothing more.", SMOKE, (0,), columns={WIDE: {}}, rows={"FedSAM": {}}),
        "cpu": Scale(
            "ResNet-18-GN, every image cropped; 5 rounds of 1 epoch of 1 client: 10 steps where a round of the paper's "
            "has 500, so what is done once a round or once a client weighs more.",
            {"rounds": 5, "epochs": 1, "cohort": 1} | CROPPED,
        ),
        "paper": Scale("As the paper has it, over 10 rounds."),
    },
)  # fmt: skip
