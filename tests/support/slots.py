"""Algorithms that together fill every slot of a piece, with the settings that they need: what is deployed in tests."""

from __future__ import annotations

from typing import Any

SLOTS: dict[str, dict[str, Any]] = {
    "scaffold + relaxed_init(0.1)": {},
    "fedals(alpha=2, head=1)": {},
    "fedals(alpha=2, head=1, cohort=redrawn)": {"cohort": 2},
    "scaffold_p": {},
    "fedcog": {},
    "pefll": {},
    "feddyn": {},
    "fednova": {"steps": "uniform(2,5)"},
    "knn_per": {"model": "mlp"},
}
