"""FedCOG, A.4.2: a network makes the inputs that otherwise are learnt themselves."""

from __future__ import annotations

from apiece.papers.fedcog import _setup as shared
from apiece.papers.fedcog._setup import COLUMNS, SETUP, cog
from apiece.papers.fedcog._work import later
from apiece.reproduce.card import Card, Claim, Scale

ROWS = shared.rows({"FedCOG": cog(), "with a generator": cog(source="network")})
HARDER, EASIER = "CIFAR-10 NIID-2", "CIFAR-10 NIID-1"
CARD = Card(
    title="FedCOG, A.4.2: with a generator",
    setup=SETUP,
    columns={c: COLUMNS[c] for c in (EASIER, HARDER)},
    rows=ROWS,
    work=later,
    numbers=shared.NUMBERS,
    claims=(
        Claim(
            "the generator gains under NIID-2",
            "introducing a generator brings performance gain to NIID-2 setting (1.5% absolute accuracy improvement)",
            lambda t: t.mean(("with a generator", HARDER)) > t.mean(("FedCOG", HARDER)),
        ),
        Claim(
            "the generator loses under NIID-1",
            "but degrades performance to NIID-1 setting (0.93% absolute accuracy deterioration)",
            lambda t: t.mean(("with a generator", EASIER)) < t.mean(("FedCOG", EASIER)),
        ),
    ),
    open=(
        *shared.OPEN, "the data: CIFAR-10, as in Figure 5 and Table 10 beside it",
        "the generator: 8192 numbers as 128 maps of 8 x 8, enlarged twice; each layer's outputs are standardized over "
        "the generated set",
    ),
    scales={
        "smoke": Scale(
            "It runs, and says nothing more.", shared.SMOKE, (0,), columns={EASIER: {}},
            rows=shared.rows({"with a generator": cog(wait=1, steps=2, samples=16, source="network")}),
        ),
        "cpu": Scale(f"{shared.FEWER}.", shared.CPU, rows=shared.after(20, ROWS)),
        "paper": Scale("As the paper has it."),
    },
)  # fmt: skip
