"""A small run whose every client is a process of its own, and when two runs are one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from apiece.config.settings import Config
from apiece.experiment.launch import run_config

CONFIG = Config(clients=6, rounds=4, steps="uniform(1,4)", batch=8, cohort=4.0, absent=0.25, model="mlp(hidden=[8])",
    workers=2, eval_every=2, lift="wired")  # fmt: skip
# run by test_pefll.py
PIPELINES = ["pefll(lr=0.002)", "pefll(embedding=mlp, size=S, lambda_h=0.1) + class_mask", "pfedhn"]
SIMULATED = set(  # sums that no client would send
    "train_loss steps steps_counted divergence_selected divergence_all consensus update_norm_mean "
    "update_norm_std".split()
)


def said(metrics: list[dict]) -> list[dict]:
    return [{k: v for k, v in info.items() if k not in SIMULATED | {"seconds"}} for info in metrics]


def same(one: Any, two: Any) -> bool:
    """Whether two runs are bitwise one: models, every client's, the metrics, numbers and bytes."""
    clients = (None, *range(len(one.experiment.federation.names)))
    pairs = [zip(one.model(c).values(), two.model(c).values(), strict=True) for c in clients]
    models = all(torch.equal(a, b) for pair in pairs for a, b in pair)
    return models and said(one.metrics) == said(two.metrics) and one.accuracy == two.accuracy


_whole: dict[Config, Any] = {}


def sequential(config: Config) -> Any:
    """The sequential run, made once."""
    config = replace(config, lift="sequential", out=None)
    if config not in _whole:
        _whole[config] = run_config(config)[0]
    return _whole[config]
