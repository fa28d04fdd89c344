"""apiece: federated learning for clients whose data differ.

Every public name, once; each is loaded when it is first used, so that importing the package costs nothing.
"""

from __future__ import annotations

import importlib
from typing import Any

_NAMES = {
    "algebra.composition": "Algorithm Alternate Client Cohort Period Phase Server StepSize algorithm combine",
    "algebra.broadcast": "Frozen Identity Pipeline Setting",
    "engine.clients": "Clients",
    "config.settings": "Config",
    "errors": "UserError",
    "engine.federated": "Federated",
    "engine.setup": "Setup",
    "algebra.optim": "OnServer Sgd",
    "algebra.server_optim": "Descent",
    "measure.global_average": "global_model",
    "lifts.lift": "Sequential",
    "engine.state": "Plan",
    "engine.work": "Between Work",
    "data.arrays": "Dataset",
    "data.sources": "load",
    "data.federation": "Federation MadeFederation",
    "data.split": "Split",
    "config.splitting": "make_split",
    "experiment.launch": "federate",
    "experiment.result": "Result",
    "experiment.run": "execute",
    "algebra.draws": "Draw",
    "algebra.message": "Message Rows Sum Uniform Weighted",
    "algebra.piece": "Piece",
    "algebra.view": "View",
    "vector.space": "Space",
    "vector.task": "Task",
    "algebra.periods": "NEVER",
    "contract": "check",
}
_HOME = {name: file for file, names in _NAMES.items() for name in names.split()}

__all__ = sorted(_HOME)
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'apiece' has no attribute {name!r}")
    return getattr(importlib.import_module(f"apiece.{_HOME[name]}"), name)
