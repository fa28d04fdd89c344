"""Plain NumPy float64 transcriptions of the papers' pseudo-code, one file an algorithm, to test the library against.

They import nothing of the library and nothing of torch. Every module has

    run(fixture, **hyperparameters, mutation=None) -> list[Round]     one `Round` after each round
    EXAMPLE      hyperparameters at which every wrong reading shows
    MUTATIONS    {name: a wrong reading of the paper}, selectable by `mutation=name`
"""

from __future__ import annotations

from . import (
    fedals,
    fedals_fedinit,
    fedals_scaffold,
    fedavg,
    fedavg_p,
    fedinit,
    fedprox,
    fedprox_fedinit,
    scaffold,
    scaffold_fedinit,
    scaffold_p,
    scaffold_p_fedinit,
)

ORACLES = {
    "fedavg": fedavg,
    "fedprox": fedprox,
    "scaffold": scaffold,
    "fedinit": fedinit,
    "fedals": fedals,
    "fedals_scaffold": fedals_scaffold,
    "fedals_fedinit": fedals_fedinit,
    "fedavg_p": fedavg_p,
    "scaffold_p": scaffold_p,
    "fedprox_fedinit": fedprox_fedinit,
    "scaffold_fedinit": scaffold_fedinit,
    "scaffold_p_fedinit": scaffold_p_fedinit,
}
