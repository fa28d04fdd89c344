"""Splitters: which client gets which training samples.

A splitter is a value; called with the labels, the number of clients and a generator it returns one sorted array of
indices per client. Redraws are bounded: an impossible split is refused with its numbers, and never waited for.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from apiece.data.dealing import Parts, check, cumulative, deal, in_order, owned, pools, redraw
from apiece.errors import UserError, nearest


class Splitter(Protocol):
    """Divides samples among clients: labels [n], clients, generator -> one sorted index array per client."""

    def __call__(
        self, labels: np.ndarray, clients: int, rng: np.random.Generator, natural: np.ndarray | None = None
    ) -> Parts: ...


@dataclass(frozen=True)
class Iid:
    """Equal random parts for all clients, whose sizes differ by at most one."""

    def __call__(self, labels, clients, rng, natural=None) -> Parts:
        check(self, len(labels), clients)
        return in_order(np.array_split(rng.permutation(len(labels)), clients))


@dataclass(frozen=True)
class Dirichlet:
    """Each class is divided by Dirichlet shares, and sizes vary (Li et al., ICDE 2022, without its cap).

    p_c ~ Dir(alpha 1_N) for class c, every sample once; redrawn until each client has `minimum` samples.
    """

    alpha: float = 0.5
    minimum: int = 1

    def __call__(self, labels, clients, rng, natural=None) -> Parts:
        check(self, len(labels), clients, self.minimum, alpha=self.alpha)
        by_class = pools(labels, rng)
        sizes = np.array([len(pool) for pool in by_class])[:, None]
        one = np.full(clients, self.alpha)

        def draw() -> np.ndarray:
            shares = rng.dirichlet(one, size=len(by_class))
            return np.diff(np.floor(cumulative(shares) * sizes), axis=1, prepend=0).astype(int)

        return deal(by_class, redraw(self, draw, self.minimum))


@dataclass(frozen=True)
class DirichletCapped:
    """As dirichlet, but full clients get no more of later classes (NIID-Bench, MOON, FedCOG).

    For each class: p ~ Dir(alpha 1_N); p_j = 0 where client j has >= n/N samples; renormalize; cut. All is redrawn
    until each client has `minimum` samples.
    """

    alpha: float = 0.5
    minimum: int = 10

    def __call__(self, labels, clients, rng, natural=None) -> Parts:
        check(self, len(labels), clients, self.minimum, alpha=self.alpha)
        by_class = pools(labels, rng)
        one = np.full(clients, self.alpha)

        def draw() -> np.ndarray:
            counts = np.zeros((len(by_class), clients), dtype=int)
            for c, pool in enumerate(by_class):
                room = counts.sum(axis=0) * clients < len(labels)
                shares = rng.dirichlet(one) * room
                shares = shares if shares.sum() > 0 else room * 1.0
                counts[c] = np.diff(np.floor(cumulative(shares) * len(pool)), prepend=0)
            return counts

        return deal(by_class, redraw(self, draw, self.minimum))


@dataclass(frozen=True)
class DirichletRefill:
    """Equal sizes, a Dirichlet class prior per client; used-up classes repeat (FL-Simulator, FedInit).

    Every client draws floor(n/N) samples by its own pi_i ~ Dir(alpha 1_C), as in FedDyn's split. The k-th draw of class
    c takes sample k mod n_c of that class, so an image may lie on several clients, or twice on one, and others on none.
    """

    alpha: float = 0.5

    def __call__(self, labels, clients, rng, natural=None) -> Parts:
        check(self, len(labels), clients, alpha=self.alpha)
        by_class = pools(labels, rng)
        size = len(labels) // clients
        priors = rng.dirichlet(np.full(len(by_class), self.alpha), size=clients)
        drawn = np.stack([rng.choice(len(by_class), size=size, p=prior) for prior in priors]).ravel()
        taken = np.empty(clients * size, dtype=np.int64)
        turns = rng.permutation(clients * size)  # the order in which the clients' places are filled
        for c, pool in enumerate(by_class):
            mine = turns[drawn[turns] == c]
            taken[mine] = pool[np.arange(len(mine)) % len(pool)]
        return in_order(list(taken.reshape(clients, size)))


@dataclass(frozen=True)
class DirichletPrior:
    """Class priors pi_i ~ Dir(alpha), or Dir(alpha_unseen) for the last `unseen` clients, shared out class by class.

    q_ic = pi_ic / sum_j pi_jc, and client i receives floor(n_c q_ic) samples of class c (PeFLL's split).
    """

    alpha: float = 0.5
    alpha_unseen: float | None = None
    unseen: int = 0
    minimum: int = 1

    def __call__(self, labels, clients, rng, natural=None) -> Parts:
        new = self.alpha if self.alpha_unseen is None else self.alpha_unseen
        check(self, len(labels), clients, self.minimum, alpha=self.alpha, alpha_unseen=new)
        by_class = pools(labels, rng)
        sizes, one = np.array([len(pool) for pool in by_class])[:, None], np.ones(len(by_class))

        def draw() -> np.ndarray:
            seen = rng.dirichlet(self.alpha * one, size=clients - self.unseen)
            priors = np.concatenate([seen, rng.dirichlet(new * one, size=self.unseen)]).T
            column = np.maximum(priors.sum(axis=1, keepdims=True), np.finfo(float).tiny)
            return np.floor(sizes * (priors / column)).astype(int)

        return deal(by_class, redraw(self, draw, self.minimum))

    def expecting(self, unseen: int) -> DirichletPrior:
        """The same splitter for this number of unseen clients."""
        return replace(self, unseen=unseen)


def dirichlet_prior(
    alpha: float = DirichletPrior.alpha,
    alpha_unseen: float | None = DirichletPrior.alpha_unseen,
    minimum: int = DirichletPrior.minimum,
) -> DirichletPrior:
    """A Dirichlet class prior per client, normalized per class; another alpha for unseen clients (PeFLL)."""
    return DirichletPrior(alpha, alpha_unseen, minimum=minimum)


@dataclass(frozen=True)
class Classes:
    """A fixed number of classes per client, at random (pFedHN, PeFLL) or in consecutive "clusters" (FedCOG, NIID-2).

    Each class is shared equally among the clients that have it. `order="random"`: each client takes the classes with
    most places left, ties at random, so every class has equally many clients but for one. `order="clusters"`: client i
    has the consecutive classes k (i mod C/k), ..., k (i mod C/k) + k - 1.
    """

    per_client: int = 2
    order: str = "random"

    def __call__(self, labels, clients, rng, natural=None) -> Parts:
        check(self, len(labels), clients)
        if self.order not in _ORDERS:
            raise UserError(f"{self}: there is no order {self.order!r}; {nearest(self.order, _ORDERS)}")
        by_class = pools(labels, rng)
        classes, places = len(by_class), self.per_client * clients
        if not 1 <= self.per_client <= classes:
            raise UserError(f"{self}: the data have {classes} classes; give each client 1 to {classes} of them.")
        if places < classes:
            raise UserError(
                f"{self}: {clients} clients have {places} places for {classes} classes, so some would go unused; "
                f"use at least {-(-classes // self.per_client)} clients or {-(-classes // clients)} classes per client."
            )
        holds = _ORDERS[self.order](self, classes, clients, rng)
        counts = np.zeros((classes, clients), dtype=int)
        for c, pool in enumerate(by_class):
            holders = np.flatnonzero(holds[:, c])
            if len(pool) < len(holders):
                raise UserError(
                    f"{self}: a class of {len(pool)} samples cannot be shared by {len(holders)} clients; use fewer."
                )
            counts[c, holders] = [len(part) for part in np.array_split(pool, len(holders))]
        return deal(by_class, counts)


def _random_classes(splitter: Classes, classes: int, clients: int, rng: np.random.Generator) -> np.ndarray:
    places = np.full(classes, splitter.per_client * clients // classes)
    places[rng.permutation(classes)[: splitter.per_client * clients % classes]] += 1
    holds = np.zeros((clients, classes), dtype=bool)
    for own in holds:
        own[np.lexsort((rng.random(classes), -places))[: splitter.per_client]] = True
        places -= own
    return holds


def _class_clusters(splitter: Classes, classes: int, clients: int, rng: np.random.Generator) -> np.ndarray:
    clusters, left = divmod(classes, splitter.per_client)
    if left:
        raise UserError(f"{splitter}: {classes} classes do not divide into clusters of {splitter.per_client}.")
    return np.arange(classes)[None] // splitter.per_client == np.arange(clients)[:, None] % clusters


_ORDERS: dict[str, Callable[..., np.ndarray]] = {"random": _random_classes, "clusters": _class_clusters}


@dataclass(frozen=True)
class Shards:
    """Samples sorted by label (or owner: by=natural) and cut into shards (McMahan et al., AISTATS 2017; FedALS with 1).

    They are sorted stably and cut into N * per_client equal shards, which are dealt at random (section 3); with one
    each, client i has shard i. The n mod (N * per_client) samples that fill no shard go unused. `by="natural"`: sorted
    by the owner of each sample (FedALS's sentences by genre).
    """

    per_client: int = 2
    by: str = "label"

    def __call__(self, labels, clients, rng, natural=None) -> Parts:
        check(self, len(labels), clients, self.per_client)
        if self.by not in ("label", "natural"):
            raise UserError(f"{self}: there is no order by {self.by!r}; {nearest(self.by, ('label', 'natural'))}")
        if self.by == "natural":
            labels = owned(self, natural, "sort by=label")
        shards = clients * self.per_client
        size = len(labels) // shards
        ordered = np.argsort(labels, kind="stable")[: shards * size].reshape(shards, size)
        dealt = rng.permutation(shards) if self.per_client > 1 else np.arange(shards)
        return in_order(list(ordered[dealt].reshape(clients, -1)))


@dataclass(frozen=True)
class Quantity:
    """Sizes by Dirichlet shares p ~ Dir(alpha 1_N); labels are mixed alike everywhere (NIID-Bench, quantity skew)."""

    alpha: float = 0.5
    minimum: int = 1

    def __call__(self, labels, clients, rng, natural=None) -> Parts:
        check(self, len(labels), clients, self.minimum, alpha=self.alpha)
        one, size = np.full(clients, self.alpha), len(labels)

        def draw() -> np.ndarray:
            return np.diff(np.floor(cumulative(rng.dirichlet(one, size=1)) * size), axis=1, prepend=0).astype(int)

        return deal([rng.permutation(size)], redraw(self, draw, self.minimum))
