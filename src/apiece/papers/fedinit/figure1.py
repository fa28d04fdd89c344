"""FedInit, Figure 1: accuracy over the number of local epochs K, and over beta."""

from __future__ import annotations

from apiece.papers.fedinit._setup import COLUMNS, HARD, IN_SMALL, NEARLY_ALL, NUMBERS, OPEN, SETUP, SMALL, SMOKE, WORK
from apiece.reproduce.card import Card, Claim, Scale
from apiece.reproduce.figures import Panel, over_setting, panels
from apiece.reproduce.table import Table

EPOCHS, BETAS = (1, 2, 5, 10, 20), (0.0, 0.01, 0.05, 0.1, 0.15, 0.2)
READINGS = {"the paper's mean": "", "delta": ", aggregate=delta"}
BY_K = {f"K = {k}": {"epochs": k, "algorithm": "fedinit(beta=0.1)"} for k in EPOCHS}
BY_BETA = {
    f"beta = {beta}, {name}": {"algorithm": f"fedinit(beta={beta}{text})"}
    for name, text in READINGS.items() for beta in BETAS
}  # fmt: skip
UP_AND_DOWN = "As local interval K increases, test accuracy rises first and then decreases"
VALID = [beta for beta in BETAS if 0 < beta <= 0.1]


def at(beta: float) -> str:
    """The row of a beta, by the paper's aggregation."""
    return f"beta = {beta}, the paper's mean"


def up_and_down(t: Table) -> bool:
    """Whether the K with the best mean lies above both ends by more than its spread."""
    first, *_, last = EPOCHS
    top = max(EPOCHS, key=lambda k: t.mean((f"K = {k}", HARD)))
    return all(t.above((f"K = {top}", HARD), (f"K = {end}", HARD)) for end in (first, last))


K_LINE = {"FedInit": over_setting({k: (f"K = {k}", HARD) for k in EPOCHS}, "accuracy", 100)}
BETA_LINES = {
    name: over_setting({beta: (f"beta = {beta}, {name}", HARD) for beta in BETAS}, "accuracy", 100) for name in READINGS
}
CARD = Card(
    title="FedInit, Figure 1: local epochs K and relaxation beta",
    setup=SETUP,
    columns={HARD: COLUMNS[HARD]},
    rows=BY_K | BY_BETA,
    work=WORK,
    numbers=NUMBERS,
    claims=(
        Claim("there is a best K between the ends", UP_AND_DOWN, up_and_down),
        Claim(
            "no beta from 0.01 to 0.1 is below 0, and some is above",
            "the selection of the [beta] is stable within its valid range, which has great potential to improve "
            "performance",
            lambda t: any(t.above((at(b), HARD), (at(0.0), HARD)) for b in VALID)
            and not any(t.above((at(0.0), HARD), (at(b), HARD)) for b in VALID),
        ),
        Claim(
            "beta = 0.2 becomes non-finite, or is below beta = 0 after the last round",
            "When it is larger than the threshold, the training process will diverge quickly",
            lambda t: (at(0.2), HARD) in t.diverged or t.above((at(0.0), HARD), (at(0.2), HARD), "last"),
        ),
    ),
    open=(*OPEN, "the values of K and beta, and the setting: 10 % of 100 clients, Dir-0.1; all K have as many rounds"),
    figure=panels(
        Panel("local epochs", "K (epochs)", "accuracy (%)", K_LINE),
        Panel("relaxation", "beta", "accuracy (%)", BETA_LINES),
    ),
    scales={
        "smoke": Scale("It runs, and says nothing more.", SMOKE, (0,), columns={HARD: {}},
                       rows={"K = 2": {}, "beta = 0.1, delta": {}}),
        "cpu": Scale(f"{IN_SMALL}, in 60 rounds of 500. {NEARLY_ALL}", SMALL),
        "paper": Scale("As the paper has it."),
    },
)  # fmt: skip
