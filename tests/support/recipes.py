"""Every algorithm and composition that a run can be killed in, with all that they keep between rounds."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import safetensors.torch
import torch

from apiece.language import algorithms

RECIPES: dict[str, dict[str, Any]] = {
    "fedavg": {},
    "fedprox": {"algorithm": "fedprox(mu=0.1)"},
    "scaffold": {"algorithm": "scaffold"},
    "fedinit, paper": {"algorithm": "fedinit(beta=0.1)"},
    "fedinit, delta": {"algorithm": "fedinit(beta=0.1, aggregate=delta)"},
    "fedals, redrawn": {"algorithm": "fedals(alpha=3)"},
    "fedals, held": {"algorithm": "fedals(alpha=3, cohort=held)"},
    "fedavg_p": {"algorithm": "fedavg_p(outer_shared=0.9, outer_personal=0.5, inner_personal=0.5)"},
    "scaffold_p": {"algorithm": "scaffold_p(outer_shared=0.9, outer_personal=0.5)"},
    "fedals + scaffold": {"algorithm": "fedals(alpha=3) + scaffold"},
    "scaffold + relaxed_init": {"algorithm": "scaffold + relaxed_init(beta=0.1)"},
    "fedprox + relaxed_init": {"algorithm": "fedprox(mu=0.1) + relaxed_init(beta=0.1)"},
    "scaffold_p + relaxed_init": {"algorithm": "scaffold_p(outer_personal=0.5) + relaxed_init(beta=0.1)"},
    "fedals + relaxed_init": {"algorithm": "fedals(alpha=3) + relaxed_init(beta=0.1, aggregate=delta)"},
    "scaffold, momentum kept": {"algorithm": "scaffold", "optimizer": "sgd(momentum=0.9)", "optimizer_state": "kept"},
    "fedals, AdamW kept": {"algorithm": "fedals(alpha=3)", "optimizer": "adamw", "optimizer_state": "kept", "lr": 0.01},
    "scaffold, server momentum": {"algorithm": "scaffold", "server": "momentum(0.9)"},
    "fedals, server Adam": {"algorithm": "fedals(alpha=3)", "server": "adam(lr=0.01)"},
    "scaffold + fedals, absentees": {"algorithm": "scaffold + fedals(alpha=2)", "absent": 0.4},
    "scaffold, stragglers": {"algorithm": "scaffold", "steps": "uniform(0,3)", "schedule": "exponential(0.9)"},
    "feddyn + fedals": {"algorithm": "feddyn + fedals(alpha=3)"},
    "feddyn + relaxed_init": {"algorithm": "feddyn(mean=model) + relaxed_init(beta=0.1, aggregate=delta)"},
    "fedcm + relaxed_init": {"algorithm": "fedcm + relaxed_init(beta=0.1)"},
    "fedsam + fedexp": {"algorithm": "fedsam + fedexp"},
    "fednova + fedavgm, normalized": {"algorithm": "fednova + fedavgm(form=normalized)", "steps": "uniform(1,3)"},
    "fedyogi + fedals": {"algorithm": "fedyogi(lr=0.01) + fedals(alpha=3)"},
    "fedinit, bernoulli": {"algorithm": "fedinit(beta=0.1)", "sampling": "bernoulli"},
    "fedavg, epochs, crops": {"steps": "50", "epochs": 1, "augment": "flip + crop(1)", "validation": 0.1},
    "pefll": {"algorithm": "pefll + class_mask", "split": "classes(4)"},
    "pfedhn": {"algorithm": "pfedhn", "absent": 0.3},
    "local": {"algorithm": "local"},
    "fedrep": {"algorithm": "fedrep"},
    "ditto + fine_tune": {"algorithm": "ditto + fine_tune(steps=3)"},
    "moon + feddecorr": {"algorithm": "moon + feddecorr"},
    "scaffold + fedals + fedcog": {"algorithm": "scaffold + fedals(alpha=2) + fedcog(steps=5, samples=20)"},
    "fedadam": {"algorithm": "fedadam"},
    "fedadagrad": {"algorithm": "fedadagrad"},
    "fedper": {"algorithm": "fedper"},
    "lg_fedavg": {"algorithm": "lg_fedavg"},
    "fedbn": {"algorithm": "fedbn(norm='*bias')"},  # the small model has no norm layer
    "fedsim": {"algorithm": "fedsim"},
    "fedalt": {"algorithm": "fedalt"},
    "per_fedavg": {"algorithm": "per_fedavg"},
    "knn_per": {"algorithm": "knn_per"},
    "apfl": {"algorithm": "apfl"},
    "pfedme": {"algorithm": "pfedme(lam=2, beta=0.9)"},
    "fedreg + relaxed_init": {"algorithm": "fedreg(steps=2) + relaxed_init(beta=0.1)"},
    "fedgen + fedals, absentees": {"algorithm": "fedgen(epochs=5) + fedals(alpha=2)", "absent": 0.4},
    "vhl + scaffold": {"algorithm": "vhl(samples=60, batch=16) + scaffold"},
    "centralized": {"algorithm": "centralized"},
    "scaffold, difference": {"algorithm": "scaffold(control=difference)", "optimizer": "sgd(momentum=0.9)"},
    "scaffold_p, gradients first": {"algorithm": "scaffold_p(init_control=grad, outer_personal=0.5)", "absent": 0.3},
    "pefll, its Algorithm 2": {"algorithm": "pefll(server=sgd, clip=none, lambda_h=0.001)"},
    "pefll, described by all": {"algorithm": "pefll(descriptor=all, embedding=cnn)", "absent": 0.3},
    "fedals, first step": {"algorithm": "fedals(alpha=2, phase=first_step) + scaffold", "steps": "50", "epochs": 1},
    "three groups, held": {
        "algorithm": "fedals(1, cohort=held, phase=first_step) + period(body, 2) + period(fc1.bias, 3)"
    },
    "fedprox to the server's model": {"algorithm": "fedprox(mu=0.1, center=server) + relaxed_init(beta=0.1)"},
    "two groups in turn": {"algorithm": "period(body, 3, 1) + period(head, 3, 2)", "server": "momentum(0.9)"},
    "diloco": {"algorithm": "diloco(every=2)", "optimizer": "adamw", "lr": 0.01},
    "streaming_diloco": {"algorithm": "streaming_diloco(alpha=0.3)", "optimizer": "adamw", "lr": 0.01, "absent": 0.3},
    "fedit": {"algorithm": "fedit('*')"},  # the small model has no adapter
    "ffa_lora": {"algorithm": "ffa_lora('*bias')"},
    "fedsa_lora": {"algorithm": "fedsa_lora('*bias')"},
    "rolora": {"algorithm": "rolora('*bias', '*weight')", "optimizer": "sgd(momentum=0.9)", "optimizer_state": "kept"},
    "fed_dpa": {"algorithm": "fed_dpa('*bias')"},
    "fedcog, reshuffled": {"algorithm": "fedcog(steps=5, samples=9, batch=5, temperature=2, shuffle=each_pass)"},
}
NAMED = {name: {"algorithm": name} for name in algorithms.NAMED if name not in RECIPES}
CASES: dict[str, dict[str, Any]] = RECIPES | NAMED | {
    "fedbn": {"algorithm": "fedbn", "model": "resnet20", "clients": 3, "rounds": 2, "steps": "1"},
    "fedavg, epochs, crops": {"steps": "50", "epochs": 1, "augment": "flip + crop(1)", "batch": 100, "rounds": 2},
    "fedcog": {"algorithm": "fedcog(steps=2, samples=8, kd_weight=counts)"},
    "pefll, decay": {"algorithm": "pefll(lambda_v=0.1)"},
    "per_fedavg, Hessian-free": {"algorithm": "per_fedavg(variant=hessian_free)"},
    "per_fedavg, whole batches": {"algorithm": "per_fedavg(batches=whole)"},
    "ditto, its own steps": {"algorithm": "ditto(lr=0.05, steps=3)"},
    "fedexp, the average": {"algorithm": "fedexp(evaluate=average)"},
}  # fmt: skip
SMALL: dict[str, Any] = {"clients": 6, "cohort": 0.5, "rounds": 5, "steps": "2", "batch": 8, "model": "mlp(hidden=[8])",
                         "unseen": 1, "clip": 10.0, "panel": 2}  # fmt: skip


class Stop(Exception):
    """The run is stopped by its watcher."""


def stopping(after: int) -> Callable[[dict[str, Any]], None]:
    """A watcher that stops a run after this round."""

    def watch(info: dict[str, Any]) -> None:
        if info["round"] == after:
            raise Stop

    return watch


def result(folder: Path) -> dict[str, Any]:
    """All that must be the same, to the bit, however a run came to its end."""
    log = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    for info in log:
        del info["seconds"]
    last = sorted((folder / "checkpoints").glob("round-*.safetensors"))[-1]
    with safetensors.safe_open(last, "pt") as stored:
        rows = (stored.metadata() or {})["rows"]
        server = {name: _bits(stored.get_tensor(name)) for name in stored.keys()}  # noqa: SIM118
    return {"log": log, "rows": rows, "server": server, "model": (folder / "model.safetensors").read_bytes(),
            "clients": (folder / "clients.json").read_bytes()}  # fmt: skip


def _bits(tensor: torch.Tensor) -> bytes:
    return tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
