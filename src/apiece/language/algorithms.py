"""The named algorithms: `--algorithm "scaffold + relaxed_init(0.1)"` is the sum of what these functions return.

Each function stands in its piece's file, with the defaults of its paper or of the comparison that its docstring names.
The piece gives the equation, what is stored and sent, and how an unseen client is served; a function without a piece
gives them itself. In Python, `algorithms.scaffold()` imports the function when it is named.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from apiece.language.names import Names

if TYPE_CHECKING:
    from apiece.algebra.composition import Algorithm

NAMED = Names(
    {
        "fedavg": "apiece.language.sums.fedavg",
        "fedprox": "apiece.pieces.proximal.fedprox",
        "scaffold": "apiece.pieces.scaffold.scaffold",
        "relaxed_init": "apiece.pieces.relaxed_init.relaxed_init",
        "fedinit": "apiece.pieces.relaxed_init.fedinit",
        "fedals": "apiece.language.sums.fedals",
        "period": "apiece.language.sums.period",
        "fedavg_p": "apiece.pieces.outer_step.fedavg_p",
        "scaffold_p": "apiece.pieces.outer_step.scaffold_p",
        "diloco": "apiece.pieces.diloco.diloco",
        "streaming_diloco": "apiece.pieces.diloco.streaming_diloco",
        "fedit": "apiece.pieces.adapters.fedit",
        "ffa_lora": "apiece.pieces.adapters.ffa_lora",
        "fedsa_lora": "apiece.pieces.adapters.fedsa_lora",
        "rolora": "apiece.pieces.adapters.rolora",
        "fed_dpa": "apiece.pieces.adapters.fed_dpa",
        "feddyn": "apiece.pieces.feddyn.feddyn",
        "fedcm": "apiece.pieces.fedcm.fedcm",
        "fedsam": "apiece.pieces.fedsam.fedsam",
        "fednova": "apiece.pieces.fednova.fednova",
        "fedexp": "apiece.pieces.fedexp.fedexp",
        "fedavgm": "apiece.algebra.server_optim.fedavgm",
        "fedadam": "apiece.algebra.server_optim.fedadam",
        "fedyogi": "apiece.algebra.server_optim.fedyogi",
        "fedadagrad": "apiece.algebra.server_optim.fedadagrad",
        "fedcog": "apiece.pieces.fedcog.fedcog",
        "moon": "apiece.pieces.moon.moon",
        "feddecorr": "apiece.pieces.feddecorr.feddecorr",
        "fedreg": "apiece.pieces.fedreg.fedreg",
        "fedgen": "apiece.pieces.fedgen.fedgen",
        "vhl": "apiece.pieces.vhl.vhl",
        "local": "apiece.pieces.newcomer.local",
        "fedper": "apiece.pieces.newcomer.fedper",
        "lg_fedavg": "apiece.pieces.newcomer.lg_fedavg",
        "fedbn": "apiece.language.sums.fedbn",
        "fedsim": "apiece.pieces.newcomer.fedsim",
        "fedalt": "apiece.pieces.newcomer.fedalt",
        "fedrep": "apiece.pieces.newcomer.fedrep",
        "ditto": "apiece.pieces.ditto.ditto",
        "apfl": "apiece.pieces.apfl.apfl",
        "pfedme": "apiece.pieces.pfedme.pfedme",
        "per_fedavg": "apiece.pieces.per_fedavg.per_fedavg",
        "knn_per": "apiece.pieces.knn_per.knn_per",
        "fine_tune": "apiece.pieces.fine_tune.fine_tune",
        "pefll": "apiece.pieces.pefll.pefll",
        "pfedhn": "apiece.pieces.pfedhn.pfedhn",
        "class_mask": "apiece.pieces.class_mask.class_mask",
        "centralized": "apiece.language.sums.centralized",
    },
    listed="`apiece algorithms` lists them, and --plugin FILE.py adds those of a file of yours.",
)


def __getattr__(name: str) -> Callable[..., Algorithm]:
    if name not in NAMED:
        raise AttributeError(f"there is no algorithm {name!r}")
    return NAMED[name]


def __dir__() -> list[str]:
    return sorted(NAMED)
