"""FedInit, Table 5: as Table 4, on CIFAR-100."""

from __future__ import annotations

from apiece.papers.fedinit._setup import (
    BLURRED,
    COLUMNS,
    HARD,
    LATE,
    METHODS,
    NUMBERS,
    OPEN,
    READINGS,
    SETUP,
    SMOKE,
    WIDE,
    WORK,
    by_model,
    drop,
    first,
)  # fmt: skip
from apiece.papers.fedinit.table4 import AT_HAND, OURS
from apiece.reproduce.card import Card, Claim, Scale
from apiece.reproduce.figures import by_column

CARD = Card(
    title="FedInit, Table 5: seven methods on CIFAR-100",
    setup=SETUP | {"data": "cifar100", "rounds": 800},
    columns=COLUMNS,
    rows=by_model(METHODS | READINGS),
    work=WORK,
    numbers=NUMBERS,
    published={"accuracy": {
        "ResNet-18-GN: FedAvg": [(46.35, 0.15), (42.62, 0.22), (44.70, 0.22), (40.41, 0.33)],
        "ResNet-18-GN: FedAdam": [(48.35, 0.17), (40.77, 0.31), (44.33, 0.26), (38.04, 0.25)],
        "ResNet-18-GN: FedSAM": [(47.51, 0.26), (43.43, 0.12), (45.98, 0.27), (40.22, 0.27)],
        "ResNet-18-GN: SCAFFOLD": [(51.98, 0.23), (44.41, 0.15), (50.70, 0.29), 41.83],
        "ResNet-18-GN: FedDyn": [(50.82, 0.19), (42.50, 0.28), (47.32, 0.21), (41.74, 0.21)],
        "ResNet-18-GN: FedCM": [(51.56, 0.20), (43.03, 0.26), (50.93, 0.19), (42.33, 0.19)],
        "ResNet-18-GN: FedInit": [(52.21, 0.09), (44.22, 0.21), (51.16, 0.18), (43.77, 0.36)],
        "VGG-11: FedAvg": [53.46, 50.53, (47.55, 0.13), (45.05, 0.33)],
        "VGG-11: FedAdam": [(55.56, 0.29), (53.41, 0.18), (51.33, 0.25), (47.26, 0.21)],
        "VGG-11: FedSAM": [(54.85, 0.31), (51.88, 0.27), 48.65, (46.58, 0.08)],
        "VGG-11: SCAFFOLD": [(59.45, 0.17), 56.67, (53.73, 0.30), (50.08, 0.19)],
        "VGG-11: FedDyn": [(56.13, 0.18), (53.97, 0.11), (51.74, 0.18), (48.16, 0.17)],
        "VGG-11: FedCM": [(53.88, 0.22), (50.73, 0.35), (47.83, 0.19), (46.33, 0.25)],
        "VGG-11: FedInit": [(58.84, 0.11), (57.22, 0.21), (54.12, 0.08), (50.27, 0.29)],
    }},
    claims=(
        *first({("ResNet-18-GN", HARD): "SCAFFOLD", ("VGG-11", WIDE): "SCAFFOLD"}),
        Claim(
            "FedInit loses less than SCAFFOLD where participation is lower (in its own table 0.45 and 2.58)",
            "when the participation ratio decreases, FedInit can still achieve the test accuracy of 43.77%, "
            "while the second best method SCAFFOLD drops 3.21% from the former",
            lambda t: drop(t, OURS) < drop(t, "ResNet-18-GN: SCAFFOLD"), LATE,
        ),
    ),
    open=(*OPEN, BLURRED),
    figure=by_column("curve", "round", "accuracy (%)", 100),
    scales={
        "smoke": Scale("It runs, and says nothing more.", SMOKE, (0,), columns={HARD: {}}, rows={
            row: {} for row in ("ResNet-18-GN: FedCM", "ResNet-18-GN: FedDyn")}),
        "cpu": Scale(
            "One column and ResNet-18-GN on 20,000 training images in 30 rounds of 800, one seed: no more fits.",
            {"data": "cifar100_20k", "rounds": 30, "checkpoint_every": 5}, (0,), AT_HAND, {HARD: {}},
        ),
        "paper": Scale("As the paper has it."),
    },
)  # fmt: skip
