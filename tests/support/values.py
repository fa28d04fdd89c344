"""The values at which an algorithm is compared with its oracle: its example, and others."""

from __future__ import annotations

from typing import Any

from oracles import ORACLES

PERSONAL = [
    {},
    {"outer_shared": 0.7},
    {"outer_personal": 0.4},
    {"scale_personal": 0.3},
    {"scale_shared": 0.6, "scale_personal": 1.7},
]
ALS = [{"alpha": a, "cohort": c} for a, c in ((1, "redrawn"), (2, "redrawn"), (3, "redrawn"), (2, "held"), (3, "held"))]
INIT = [{"beta": b, "aggregate": a} for b, a in ((0.0, "paper"), (0.1, "paper"), (0.3, "delta"), (0.5, "delta"))]
VALUES: dict[str, list[dict[str, Any]]] = {
    "fedavg": [{}, {"server_lr": 0.7}, {"server_lr": 1.3}],
    "fedprox": [{"mu": 0.0}, {"mu": 0.01}, {"mu": 1.0}],
    "scaffold": [{}, {"server_lr": 0.6}],
    "fedinit": INIT,
    "fedals": ALS,
    "fedals_scaffold": ALS,
    "fedals_fedinit": [{**a, "beta": 0.2} for a in ALS],
    "fedavg_p": PERSONAL,
    "scaffold_p": PERSONAL,
    "fedprox_fedinit": [{"mu": 0.2, **i} for i in INIT],
    "scaffold_fedinit": INIT,
    "scaffold_p_fedinit": [{**p, "beta": 0.15, "aggregate": a} for p in PERSONAL for a in ("paper", "delta")],
}
VALUES |= {
    "feddyn": [{"alpha": 0.01}, {"alpha": 0.1}, {"alpha": 2.0}],
    "feddyn_fedinit": [{"alpha": 0.1, **i} for i in INIT],
    "fedcm": [{"alpha": 0.1}, {"alpha": 1.0}, {"alpha": 0.5, "server_lr": 0.6}],
    "fedcm_fedinit": [{"alpha": 0.1, **i} for i in INIT],
    "fedsam": [{"rho": 0.0}, {"rho": 0.1}, {"rho": 0.05, "server_lr": 0.6}],
    "fedsam_fedinit": [{"rho": 0.1, **i} for i in INIT],
    "fednova": [{}, {"momentum": 0.0, "weights": "samples"}, {"momentum": 0.9}],
    "fedexp": [{"epsilon": 1e-3}, {"epsilon": 0.5}, {"epsilon": 0.5, "evaluate": "average"}],
    "fedavgm": [{"momentum": 0.6, "form": form} for form in ("hsu", "mean", "normalized", "nesterov", "exp")],
    "fedopt": [
        {"kind": "adam", "tau": 0.01, "initial": 0.0},
        {"kind": "yogi"},
        {"kind": "yogi", "beta2": 0.5, "lr": 0.3},
        {"kind": "adagrad", "beta1": 0.0},
    ],
    "fedadam_fedinit": [{"lr": 0.1, "tau": 0.01, **i} for i in INIT],
}
SMALL_GENERATOR = {"noise": 3, "hidden": 4, "epochs": 3}
VALUES |= {
    "moon": [{"mu": 0.0}, {"mu": 1.0}, {"mu": 0.5, "temperature": 0.1, "server_lr": 0.7}],
    "feddecorr": [{"beta": 0.0}, {"beta": 0.01}, {"beta": 1.0}],
    "fedcog": [
        {"samples": 30, "steps": 12},
        {"kd_weight": 0.7, "dis": 0.3, "samples": 25, "steps": 12, "batch": 10, "wait": 2},
        {"kd_weight": 0.7, "dis": 0.0, "samples": 9, "steps": 0},
    ],
    "fedreg": [
        {},
        {"gamma": 1.0, "pseudo": 0.0, "steps": 2},
        {"gamma": 0.25, "steps": 3, "batches": 1, "server_lr": 0.6},
    ],
    "vhl": [
        {"alpha": 0.0, "align": 0.0, "among": 0.0, "samples": 4, "batch": 2},
        {"samples": 30, "batch": 12},
        {"epochs": 2, "samples": 7, "batch": 9, "server_lr": 0.7},
    ],
    "fedgen": [
        {"alpha": 0.0, "beta": 0.0, **SMALL_GENERATOR},
        {"alpha": 2.0, "beta": 2.0, "lr": 0.02, **SMALL_GENERATOR},
        {"alpha": 1.0, "beta": 0.0, "batch": 3, "server_lr": 0.7, **SMALL_GENERATOR},
    ],
    "scaffold_fedcog": [{"kd_weight": 1.0, "samples": 16, "steps": 8, "batch": 5}],
}
COG = {"kd_weight": 0.7, "dis": 0.3, "samples": 16, "steps": 8, "batch": 5}
VALUES |= {
    "fedavgm_fedcog": [{"momentum": 0.1, **COG}],
    "fedprox_fedcog": [{"mu": 0.2, **COG}],
    "moon_fedcog": [{"mu": 0.5, "temperature": 0.1, **COG}],
    "fedinit_fedcog": [{**i, **COG} for i in INIT],
    "fedals_fedcog": [{**a, **COG} for a in ALS],
    "fedals_fedinit_fedcog": [{**a, "beta": 0.2, **COG} for a in ALS],
    "fedals_feddyn": [{**a, "strength": s} for a, s in zip(ALS, (0.1, 0.1, 2.0, 0.5, 0.01), strict=True)],
}
VALUES |= {
    "ditto": [{}, {"lam": 0.0}, {"lr": 0.1}, {"steps": 1}, {"lam": 0.3, "steps": 20}],
    "apfl": [{}, {"rule": "fixed"}, {"alpha": 0.0, "rule": "fixed"}, {"alpha": 1.0, "rule": "fixed"}],
    "pfedme": [
        {"lam": 2.0, "step_size": 0.1, "batch": 64},
        {"lam": 1.0, "steps": 1, "epochs": 0, "batch": 64},
        {"lam": 1.0, "steps": 1, "epochs": 0, "batch": 64, "restart": "batch"},
    ],
    "per_fedavg": [
        {"batch": 64},
        {"alpha": 0.4, "epochs": 3, "batch": 64},
        {"variant": "hessian_free", "alpha": 0.1, "batch": 64},
        {"alpha": 0.4, "batch": 64, "batches": "whole"},
    ],
    "fedrep": [{"first": s, "epochs": 2, "batch": 64} for s in (0, 1, 4, 0.5, 5 / 6)]
    + [{"first": 0.5, "epochs": 2, "batch": 64, "inner_personal": p} for p in (0.0, 3.0)],
    "knn_per": [{}, {"weight": 0.7}, {"weight": 1.0, "scale": 0.5}, {"count": 100, "scale": 0.1, "weight": 0.4}],
    "fine_tune": [{"batch": 64}, {"epochs": 0, "batch": 64}, {"epochs": 2, "lr": 0.05, "batch": 64}],
}
VALUES |= {
    "pefll": [{"lr": 0.01}, {"lr": 0.02, "clip": 0.3, "lambda_h": 0.1, "lambda_v": 0.1}],
    "pfedhn": [{}, {"lr": 0.1, "clip": 0.3, "decay": 0.0}],
}
VALUES |= {
    "fedals_first_step": [
        {"alpha": 1},
        {"alpha": 3},
        {"alpha": 2, "third": 3},
        {"alpha": 2, "third": 5, "phase": "last_step"},
    ],
    "pefll_sgd": [
        {"server": "sgd", "descriptor": "all", "lr": 0.5, "clip": 0.3, "lambda_h": 0.1},
        {"server": "adam", "descriptor": "all", "lr": 0.02},
        {"server": "adam", "descriptor": "first", "lr": 0.02, "lambda_v": 0.1},
    ],
    "fedprox_fedinit_server": VALUES["fedprox_fedinit"],
    "scaffold_difference": [
        {"momentum": 0.0, "control": "difference"},
        {"momentum": 0.9, "control": "difference"},
        {"momentum": 0.9, "weight_decay": 0.1, "control": "mean_gradient"},
    ],
    "scaffold_p_grad": [{**p, "init_control": "grad"} for p in PERSONAL],
    "fedcog_each_pass": [
        {**COG, "temperature": 0.5},
        {**COG, "shuffle": "each_pass", "kd_weight": "counts", "batch": 64, "wait": 2},
    ],
}
VALUES |= {
    "diloco": [{}, {"server_lr": 1.0, "momentum": 0.0}, {"every": 3, "server_lr": 0.5, "momentum": 0.6}],
    "streaming_diloco": [
        {},
        {"blocks": 1, "every": 2},
        {"blocks": 2, "every": 1, "alpha": 0.5},
        {"blocks": 2, "every": 4, "server_lr": 0.4, "decay": 0.1},
    ],
    "ffa_lora": [{"frozen": "0.bias"}],
    "rolora": [{"first": "body", "second": "head"}, {"first": "0.bias", "second": "head"}],
    "fed_dpa": [{"local": "0.bias", "first": first} for first in (0, 2, 1000)],
}
VALUES |= {
    "period": [
        {"blocks": (("body", 3, 0),)},
        {"blocks": (("body", 3, 3), ("head", 2, 0))},
        {"blocks": (("body", 3, 2), ("0.bias", 4, 1)), "server_lr": 0.7, "momentum": 0.9},
        {"blocks": (("body", 4, 1), ("head", 4, 3)), "server_lr": 0.7, "momentum": 0.9},
    ],
}
CASES = [(n, h) for n in ORACLES for h in [ORACLES[n].EXAMPLE, *VALUES[n]]]
