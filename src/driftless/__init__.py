"""driftless: federated learning for clients whose data differ.

Every public name, once; each is loaded when it is first used, so that importing the package costs nothing.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import Any

_HOME = {
    "Algorithm": "algorithm", "Client": "algorithm", "Cohort": "algorithm", "Period": "algorithm", "Server": "algorithm",
    "StepSize": "algorithm", "algorithm": "algorithm", "combine": "algorithm",
    "Identity": "broadcast", "Pipeline": "broadcast",
    "Clients": "clients", "Config": "config", "UserError": "errors", "Federated": "federated",
    "Dataset": "data.sources", "load": "data.sources", "Federation": "data.federation", "MadeFederation": "data.federation",
    "Split": "data.split", "make_split": "data.split",
    "federate": "federate", "Result": "run", "execute": "run", "assemble": "assemble",
    "Draw": "piece", "Message": "piece", "Piece": "piece", "Rows": "piece", "Sum": "piece", "Uniform": "piece", "View": "piece",
    "Weighted": "piece", "Space": "space", "Task": "task", "NEVER": "synchronise", "check": "contract",
}  # fmt: skip

__all__ = sorted(_HOME)
__version__ = "0.1.0"


class _Package(ModuleType):
    """`driftless.federate` is the function, whoever imports the file of that name, and whenever."""

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in _HOME or not isinstance(value, ModuleType):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'driftless' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"driftless.{_HOME[name]}"), name)
    globals()[name] = value
    return value
