"""FedCOG, Table 11: the seconds of a client's generation by the number of samples."""

from __future__ import annotations

from apiece.papers.fedcog import _setup as shared
from apiece.papers.fedcog._setup import CIFAR10, NIID1, SETUP, cog
from apiece.papers.fedcog._work import timed
from apiece.reproduce.card import Card, Claim, Number, Scale

ROW, SAMPLES = "CIFAR-10 NIID-1", (16, 32, 64, 128, 256, 512, 1024)
COLUMNS = {f"{n} samples": {"algorithm": cog(wait=1, samples=n)} for n in SAMPLES}
CARD = Card(
    title="FedCOG, Table 11: the seconds of generation",
    setup=SETUP | CIFAR10 | NIID1 | {"rounds": 1, "lift": "sequential"},
    columns=COLUMNS,
    rows={ROW: {}},
    work=timed,
    numbers={
        "generation": Number("seconds of one client's generation", 2, timed=True),
        "training": Number("seconds of one client's local training", 2, timed=True),
    },
    published={
        "generation": {ROW: [0.72, 0.78, 0.79, 0.80, 0.81, 0.83, 1.27]},
        "training": {ROW: [None] * 4 + [14.81, None, None]},
    },
    claims=(
        Claim(
            "256 samples take less than a tenth of local training",
            "which costs only 0.81 seconds. As a reference, the conventional SGD-based local model training takes "
            "14.81 seconds.",
            lambda t: t.mean((ROW, "256 samples"), "generation") < 0.1 * t.mean((ROW, "256 samples"), "training"),
        ),
        Claim(
            "1024 samples take less than twice as long as 16",
            "even when the number of generated samples is 1024, the required generation time is still only 1.27 "
            "seconds",
            lambda t: t.mean((ROW, "1024 samples"), "generation") < 2 * t.mean((ROW, "16 samples"), "generation"),
        ),
    ),
    open=("what is timed: one client's generation of 100 steps after one round, in one thread", *shared.OPEN),
    scales={
        "smoke": Scale(
            "It runs, and says nothing more.", shared.SMOKE | {"rounds": 1}, (0,), columns={"16 samples": {}}
        ),
        "cpu": Scale("As the paper has it, on a processor."),
        "paper": Scale("As the paper has it."),
    },
)  # fmt: skip
