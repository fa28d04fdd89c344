"""apiece: federated learning for clients whose data differ.

Every public name, once; each is loaded when it is first used, so that importing the package costs nothing.
"""

from __future__ import annotations

import importlib
from typing import Any

_NAMES = {
    "composition": "Algorithm Alternate Client Cohort Period Phase Server StepSize algorithm combine",
    "broadcast": "Frozen Identity Pipeline Setting",
    "clients": "Clients",
    "config": "Config",
    "errors": "UserError",
    "federated": "Federated",
    "optim": "OnServer Sgd",
    "server_optim": "Descent",
    "global_average": "global_model",
    "lift": "Sequential",
    "state": "Plan",
    "work": "Between Work",
    "data.arrays": "Dataset",
    "data.sources": "load",
    "data.federation": "Federation MadeFederation",
    "data.split": "Split make_split",
    "launch": "federate",
    "run": "Result execute",
    "piece": "Draw Message Piece Rows Sum Uniform View Weighted",
    "space": "Space",
    "task": "Task",
    "synchronise": "NEVER",
    "contract": "check",
}
_HOME = {name: file for file, names in _NAMES.items() for name in names.split()}

__all__ = sorted(_HOME)
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'apiece' has no attribute {name!r}")
    return getattr(importlib.import_module(f"apiece.{_HOME[name]}"), name)
