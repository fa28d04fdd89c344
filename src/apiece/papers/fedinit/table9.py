"""FedInit, Table 9: what methods send in a round, and what a client keeps, in sizes of the model."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from apiece.papers.fedinit._setup import COLUMNS, CROPPED, HARD, METHODS, OPEN, READINGS, SETUP, SMOKE
from apiece.reproduce.card import Card, Claim, Number, Scale

PAPER = {"FedAvg": (1, 1), "FedAdam": (1, 2), "FedSAM": (1, 2), "SCAFFOLD": (2, 2), "FedDyn": (1, 2), "FedCM": (2, 2),
         "FedInit": (1, 1)}  # fmt: skip


def work(settings: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """One round of one step: the ledger's numbers of a client, and what its row holds."""
    from apiece.config.assemble import assemble
    from apiece.config.tables import from_table
    from apiece.lifts.lift import Sequential

    experiment = assemble(from_table(dict(settings), str(folder)))
    home, plan, federated = experiment.clients(Sequential()), experiment.plan(0), experiment.federated
    _, answer = federated.round(federated.start(), home, plan)
    home.commit(0)
    row, size = home.row(plan.cohort[0])[0], federated.setup.task.space.size
    beside = sum(leaf.numel() for name, leaf in row.items() if name != "model")
    up, down = (x / len(answer.answered) / size for x in (answer.traffic.numbers_up, answer.traffic.numbers_down))
    return {"communication": (up + down) / 2, "up": up, "down": down, "storage": 1 + beside / size}


def near(number: str, value: float, *rows: str):
    """Whether these rows have this number of sizes of the model, within 1 %."""
    return lambda t: all(abs(t.mean((row, HARD), number) - value) < 0.01 * value for row in rows)


DOUBLE = "SCAFFOLD and FedCM both require double communication costs than the vanilla FedAvg"
CARD = Card(
    title="FedInit, Table 9: communication and storage",
    setup=SETUP | {"epochs": None, "steps": "1", "rounds": 1},
    columns={HARD: COLUMNS[HARD]},
    rows=METHODS | READINGS,
    work=work,
    numbers={
        "communication": Number("communication, sizes of the model, mean of both ways"),
        "up": Number("of that, client to server"), "down": Number("server to client"),
        "storage": Number("a client's storage, sizes of the model"),
    },
    published={
        name: {row: [float(pair[place])] for row, pair in PAPER.items()}
        for place, name in enumerate(("communication", "storage"))
    },
    claims=(
        Claim("SCAFFOLD sends double", DOUBLE, near("communication", 2.0, "SCAFFOLD")),
        Claim("FedCM sends double", DOUBLE, near("communication", 2.0, "FedCM")),
        Claim("SCAFFOLD and FedDyn store double",
              "SCAFFOLD and FedDyn are required to store 2x vectors on each local devices",
              near("storage", 2.0, "SCAFFOLD", "FedDyn")),
        Claim("FedInit sends what FedAvg sends", "FedInit does not require extra auxiliary information to communicate "
              "between the server and local clients", near("communication", 1.0, "FedInit", "FedInit, delta")),
        Claim("FedInit stores one model", "FedInit Nd 1x Cd 1x", near("storage", 1.0, "FedInit")),
    ),
    open=(
        *OPEN,
        "what is counted as stored: a client's model, whether or not it is kept between rounds, and what is kept "
        "beside it; FedAdam's moments are the server's, and FedSAM's ascended point lives for one step",
        "FedCM: the server's direction goes down only, and of each client the product of steps and step size goes up",
    ),
    scales={
        "smoke": Scale("It runs, and says nothing more.", SMOKE | {"epochs": None}, (0,)),
        "cpu": Scale("In full, with one seed: these numbers do not depend on training.", CROPPED, (0,)),
        "paper": Scale("In full, with one seed: these numbers do not depend on training.", {}, (0,)),
    },
)  # fmt: skip
