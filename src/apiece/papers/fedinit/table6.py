"""FedInit, Table 6: relaxed initialization added to six methods."""

from __future__ import annotations

from apiece.papers.fedinit._setup import (
    COLUMNS,
    HARD,
    IN_SMALL,
    METHODS,
    NEARLY_ALL,
    NUMBERS,
    OPEN,
    SETUP,
    SHORT,
    SMOKE,
    WORK,
    gain,
    with_relaxed,
)  # fmt: skip
from apiece.reproduce.card import Card, Claim, Scale

SIX = [name for name in METHODS if name != "FedInit"]
PLAIN = {name: METHODS[name] for name in SIX}
RELAXED = {f"{name} + RI": with_relaxed(name) for name in SIX}
DELTA = {f"{name} + RI, delta": with_relaxed(name, more=", aggregate=delta") for name in SIX}
PUBLISHED = {  # by column, without and with relaxed initialization
    "FedAvg": ((78.77, 83.11), (72.53, 75.95), (74.81, 80.58), (70.65, 74.92)),
    "FedAdam": ((76.52, 78.33), (70.44, 72.55), (73.28, 78.33), (68.87, 71.34)),
    "FedSAM": ((79.23, 83.36), (72.89, 76.34), (75.45, 80.66), (71.23, 75.08)),
    "SCAFFOLD": ((81.37, 83.27), (75.06, 77.30), (78.17, 81.02), (74.24, 76.22)),
    "FedDyn": ((82.43, 81.91), (75.08, 75.11), (79.96, 79.88), (74.15, 74.34)),
    "FedCM": ((81.67, 81.77), (73.93, 73.71), (79.49, 79.72), (73.12, 72.98)),
}


def improves(more: str, *names: str):
    """Whether these methods gain by more than their spread in every column."""
    return lambda t: all(t.above((name + more, c), (name, c)) for name in names for c in t.columns)


def unhindered(more: str):
    """Whether no method loses by more than its spread."""
    return lambda t: not any(t.above((name, c), (name + more, c)) for name in SIX for c in t.columns)


TWO = "it helps the classical SCAFFOLD method to improve about 2% ~ 3%"
BETTER = "RI does not hinder other algorithms and significantly improves their performance"
THREE = "FedInit could be considered as (RI + FedAvg), whose improvement achieves about over 3% on each setup"
CARD = Card(
    title="FedInit, Table 6: relaxed initialization added to six methods",
    setup=SETUP,
    columns=COLUMNS,
    rows={name: settings for one in SIX for name, settings in (PLAIN | RELAXED | DELTA).items()
          if name.partition(" ")[0] == one},
    work=WORK,
    numbers=NUMBERS,
    published={"accuracy": {
        name + more: [pair[place] for pair in pairs]
        for name, pairs in PUBLISHED.items() for place, more in enumerate(("", " + RI"))
    }},
    claims=(
        Claim("no method loses (in its own table FedDyn does, by 0.52)", BETTER, unhindered(" + RI")),
        Claim("no method loses, by the code's form", BETTER, unhindered(" + RI, delta")),
        Claim("FedAvg, FedAdam and FedSAM gain", BETTER, improves(" + RI", "FedAvg", "FedAdam", "FedSAM")),
        Claim("the same by the code's form", BETTER, improves(" + RI, delta", "FedAvg", "FedAdam", "FedSAM")),
        Claim("SCAFFOLD gains", TWO, improves(" + RI", "SCAFFOLD")),
        Claim("FedAvg gains 3", THREE, lambda t: all(gain(t, "FedAvg + RI", "FedAvg", c) >= 3 for c in t.columns)),
    ),
    open=OPEN,
    scales={
        "smoke": Scale("It runs, and says nothing more.", SMOKE, (0,), columns={HARD: {}},
                       rows={"FedAdam + RI": {}, "FedDyn + RI, delta": {}}),
        "cpu": Scale(
            f"{IN_SMALL}, in 40 rounds of 500, in one column; the code's form for FedAvg and FedAdam. {NEARLY_ALL}",
            SHORT, columns={HARD: {}},
            rows={row: {} for row in (*PLAIN, *RELAXED, "FedAvg + RI, delta", "FedAdam + RI, delta")},
        ),
        "paper": Scale("As the paper has it."),
    },
)  # fmt: skip
