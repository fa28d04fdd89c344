"""The named algorithms: `--algorithm "scaffold + relaxed_init(0.1)"` is the sum of what these return.

Each has the defaults of its paper. This module imports nothing heavy, so that listing what there is costs nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from driftless.algorithm import Algorithm

__all__ = ["fedals", "fedavg", "fedavg_p", "fedinit", "fedprox", "relaxed_init", "scaffold", "scaffold_p"]


def fedavg() -> Algorithm:
    """Federated averaging (McMahan et al. 2017)."""
    from driftless.algorithm import algorithm

    return algorithm(name="fedavg")


def fedprox(mu: float = 0.01) -> Algorithm:
    """Local training held near its start (Li et al. 2020)."""
    from driftless.algorithm import algorithm
    from driftless.pieces.proximal import Proximal

    return algorithm(Proximal(mu), name=f"fedprox(mu={mu:g})")


def scaffold() -> Algorithm:
    """Control variates against client drift (Karimireddy et al. 2020)."""
    from driftless.algorithm import algorithm
    from driftless.pieces.scaffold import Scaffold

    return algorithm(Scaffold(), name="scaffold")


def relaxed_init(beta: float = 0.1, aggregate: str = "paper", first: str = "initial") -> Algorithm:
    """Start beyond the server's model, added to anything: aggregate=paper|delta, first=initial|current (Sun et al. 2023)."""
    from driftless.algorithm import algorithm
    from driftless.pieces.relaxed_init import RelaxedInit

    return algorithm(RelaxedInit(beta, aggregate, first), name=f"relaxed_init(beta={beta:g})")


def fedinit(beta: float = 0.1, aggregate: str = "paper", first: str = "initial") -> Algorithm:
    """FedInit: federated averaging with relaxed initialisation (Sun et al. 2023)."""
    from dataclasses import replace

    return replace(relaxed_init(beta, aggregate, first), name=f"fedinit(beta={beta:g})")


def fedals(alpha: int = 10, head: str | int | None = None, cohort: str = "redrawn") -> Algorithm:
    """The body is averaged alpha times less often than the head; head: a pattern, or L leading layers of body; cohort=held|redrawn (2024)."""
    from driftless.algorithm import Cohort, Period, algorithm
    from driftless.errors import UserError

    if alpha < 1 or cohort not in ("held", "redrawn"):
        raise UserError(f"fedals(alpha={alpha}, cohort={cohort}) is impossible: alpha is 1 or more, cohort held or redrawn.")
    body = head if isinstance(head, int) else "body" if head is None else f"!{head}"
    parts = [Period(body, alpha)] if alpha > 1 else []
    return algorithm(*parts, Cohort(cohort), name=f"fedals(alpha={alpha}{', cohort=held' if cohort == 'held' else ''})")


def fedavg_p(personal: str | None = None, outer_shared: float = 1.0, outer_personal: float = 1.0,
             inner_personal: float = 1.0) -> Algorithm:
    """Shared and personal parameters with inner and outer steps; inner_personal is a factor of the step size (Chen et al. 2023)."""
    from driftless.algorithm import Period, Server, StepSize, algorithm
    from driftless.optim import Descent
    from driftless.pieces.outer_step import OuterStep
    from driftless.synchronise import NEVER

    which = personal or "head"
    parts: list[Any] = [Period(which, NEVER)]
    if inner_personal != 1.0:
        parts.append(StepSize(which, inner_personal))
    if outer_personal != 1.0:
        parts.append(OuterStep(outer_personal))
    if outer_shared != 1.0:
        parts.append(Server(Descent(outer_shared)))
    return algorithm(*parts, name="fedavg_p")


def scaffold_p(personal: str | None = None, outer_shared: float = 1.0, outer_personal: float = 1.0,
               inner_personal: float = 1.0) -> Algorithm:
    """FedAvg-P with control variates on the shared parameters only (Chen et al. 2023)."""
    from dataclasses import replace

    return replace(scaffold() + fedavg_p(personal, outer_shared, outer_personal, inner_personal), name="scaffold_p")

