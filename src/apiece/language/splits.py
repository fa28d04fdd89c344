"""The named splits: `--split "dirichlet(0.1)"` calls one of these; each returns a splitter of `data.partitions`.

This module imports nothing heavy, so that listing what there is costs nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from apiece.data.partitions import Splitter


def iid() -> Splitter:
    """Every client the same: equal random parts."""
    from apiece.data.partitions import Iid

    return Iid()


def dirichlet(alpha: float = 0.5, minimum: int = 1) -> Splitter:
    """Each class divided over the clients by Dirichlet shares, sizes vary (Li et al., ICDE 2022, without its cap)."""
    from apiece.data.partitions import Dirichlet

    return Dirichlet(alpha, minimum)


def dirichlet_capped(alpha: float = 0.5, minimum: int = 10) -> Splitter:
    """As dirichlet, but full clients get no more of later classes (NIID-Bench, MOON, FedCOG)."""
    from apiece.data.partitions import DirichletCapped

    return DirichletCapped(alpha, minimum)


def dirichlet_refill(alpha: float = 0.5) -> Splitter:
    """Equal sizes, a Dirichlet class prior per client, used-up classes refilled: repeats (FL-Simulator, FedInit)."""
    from apiece.data.partitions import DirichletRefill

    return DirichletRefill(alpha)


def dirichlet_prior(alpha: float = 0.5, alpha_unseen: float | None = None, minimum: int = 1) -> Splitter:
    """A Dirichlet class prior per client, normalised per class; another alpha for unseen clients (PeFLL)."""
    from apiece.data.partitions import DirichletPrior

    return DirichletPrior(alpha, alpha_unseen, minimum=minimum)


def classes(per_client: int = 2, order: str = "random") -> Splitter:
    """A fixed number of classes per client, at random (pFedHN, PeFLL) or in consecutive "clusters" (FedCOG, NIID-2)."""
    from apiece.data.partitions import Classes

    return Classes(per_client, order)


def shards(per_client: int = 2, by: str = "label") -> Splitter:
    """Sorted by label (or genre, writer: by=natural), cut into shards (McMahan et al., AISTATS 2017; FedALS with 1)."""
    from apiece.data.partitions import Shards

    return Shards(per_client, by)


def quantity(alpha: float = 0.5, minimum: int = 1) -> Splitter:
    """Sizes by Dirichlet shares, labels alike everywhere (NIID-Bench, quantity skew)."""
    from apiece.data.partitions import Quantity

    return Quantity(alpha, minimum)


def natural(minimum: int = 1) -> Splitter:
    """The data set's own clients: writers, users, roles (LEAF)."""
    from apiece.data.partitions import Natural

    return Natural(minimum)


def saved(path: str) -> Splitter:
    """A split saved before, to the sample."""
    from apiece.data.partitions import Saved

    return Saved(path)
