"""Run folders as a run writes them, with numbers that a test knows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np


def write(folder: Path, rounds: int = 12, clients: int = 6, full: bool = True, **config: object) -> Path:
    """A run's folder; `full`: with drift, personal metrics, clients and a split."""
    folder.mkdir(parents=True)
    settings: dict[str, Any] = {"algorithm": "fedavg", "data": "digits", "rounds": rounds, "seed": 0, **config}
    body = "\n".join(f"{key} = {json.dumps(value)}" for key, value in settings.items())
    (folder / "run.toml").write_text(f'[config]\n{body}\n[versions]\ntorch = "2.13"\n')
    with (folder / "metrics.jsonl").open("w") as file:
        for t in range(1, rounds + 1):
            row: dict[str, Any] = {"round": t, "global_accuracy": 1 - 1 / (t + 1) + 0.01 * settings["seed"]}
            row |= {"bytes_up": 100 * t, "bytes_down": 50 * t, "seconds": 0.5, "train_loss": 1 / t}
            if full:
                row |= {
                    "divergence_all": 1 / t,
                    "update_norm_mean": 2 / t,
                    "numbers_up": 25 * t,
                    "numbers_down": 12 * t,
                }
                row |= {"consensus": {"conv.weight": 0.1 / t, "fc.weight": 0.0}, "unseen_accuracy": 0.4}
                row |= {"personal_accuracy_mean": 0.8, "gradient_dissimilarity": 1.0}
            file.write(json.dumps(row) + "\n")
    if full:
        counts = np.random.default_rng(0).integers(0, 9, (clients, 3)).tolist()
        listed = [
            {"name": f"c{i}", "seen": i > 0, "samples": sum(row), "accuracy": i / clients, "counts": row}
            for i, row in enumerate(counts)
        ]
        (folder / "clients.json").write_text(json.dumps(listed))
    return folder
