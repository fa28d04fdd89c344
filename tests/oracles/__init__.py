"""Plain NumPy float64 transcriptions of the papers' pseudo-code, one file an algorithm, to test the library against.

They import nothing of the library and nothing of torch. Those that no paper writes down, sums of two or three, are
written in one loop (loop.py), which is checked against four that are written by hand. Every module has

    run(fixture, **hyperparameters, mutation=None) -> list[Round]     one `Round` after each round
    EXAMPLE      hyperparameters at which every wrong reading shows
    MUTATIONS    {name: a wrong reading of the paper}, selectable by `mutation=name`
"""

from __future__ import annotations

from importlib import import_module

NAMES = (
    "fedavg fedprox scaffold fedinit fedals fedals_scaffold fedals_fedinit fedavg_p scaffold_p fedprox_fedinit "
    "scaffold_fedinit scaffold_p_fedinit feddyn feddyn_fedinit fedcm fedcm_fedinit fedsam fedsam_fedinit fednova "
    "fedexp fedavgm fedopt fedadam_fedinit moon feddecorr fedcog scaffold_fedcog fedavgm_fedcog fedprox_fedcog "
    "moon_fedcog fedinit_fedcog fedals_fedcog fedals_fedinit_fedcog fedals_feddyn fedreg fedgen vhl ditto apfl pfedme "
    "per_fedavg fedrep knn_per fine_tune pefll pfedhn fedals_first_step pefll_sgd fedprox_fedinit_server "
    "scaffold_difference scaffold_p_grad fedcog_each_pass period "
    "diloco streaming_diloco ffa_lora rolora fed_dpa"
).split()
ORACLES = {name: import_module(f"oracles.{name}") for name in NAMES}
