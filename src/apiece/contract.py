"""The contract that every piece and algorithm passes: `check(it)` raises an AssertionError that names the broken law.

    law 1    a lift does not change the meaning: threads bitwise (float32), vectorized within 1e-10 (float64)
    law 2    a part with its neutral value is bitwise absent; a part without one says why
    law 8    a round leaves its input as it was and repeats bitwise
    law 9    a run saved, killed, loaded and continued after any round is bitwise the run that never stopped
    law 10   the order in which the clients are listed, under their own names, changes nothing (1e-10)
    reads    a piece declares all that it reads of the past: storing more, for diagnostics, changes nothing

The problem is built here: seven clients of different sizes, each with labels of its own; one has fewer samples than a
batch, one a single sample, one none. Some are asked, some are absent, some take no step. Momentum, weight decay,
clipping and a decaying step size are on.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_flatten, tree_map_only

from apiece.algebra.broadcast import FederationFacts
from apiece.algebra.composition import Algorithm, Period, algorithm, combine
from apiece.algebra.optim import Sgd
from apiece.algebra.periods import NEVER
from apiece.algebra.piece import Piece
from apiece.algebra.slots import misspelled
from apiece.data.federation import Federation
from apiece.engine import row
from apiece.engine.clients import Clients
from apiece.engine.cohorts import absent, cohort
from apiece.engine.federated import Federated
from apiece.engine.setup import Setup
from apiece.engine.state import Plan, Server
from apiece.engine.work import Between, Work
from apiece.lifts.lift import Sequential, Threaded, Vectorized
from apiece.randomness import generator
from apiece.storage import checkpoint
from apiece.storage.disk import DiskRows
from apiece.storage.row_format import RowFormat
from apiece.storage.trees import flatten, restore
from apiece.vector.space import Space
from apiece.vector.task import Task

NAMES = ("quince", "apple", "medlar", "fig", "sloe", "none", "cherry")
SAMPLES = (12, 5, 26, 3, 1, 0, 17)
FEATURES, HIDDEN, CLASSES = 6, 5, 3
ASKED, ABSENT, ROUNDS, SEED = 5, 0.2, 5, 0
TOLERANCE = 1e-10
PLACES = (), (Period("body", 2),), (Period("head", NEVER),)  # a piece alone, beside a slow and a personal group
PADDED = (
    ": most likely a piece takes len(view.batches) for the client's number of steps, or reads a batch beyond it; "
    "batches are padded to the longest where clients are stacked, and view.planned is the client's own number of steps"
)


class Report(NamedTuple):
    """What `check` found: the largest differences left by rounding, and each part's neutral value or why not."""

    name: str
    vectorized: float
    permuted: float
    neutral: tuple[str, ...]


def model() -> nn.Module:
    """The contract's model from FEATURES to CLASSES; what is trained of it is drawn elsewhere, what is frozen here."""
    sizes, rng = ((FEATURES, HIDDEN), (HIDDEN, CLASSES)), generator(SEED, "frozen")
    one, two = (nn.utils.skip_init(nn.Linear, *size) for size in sizes)
    for parameter in (*one.parameters(), *two.parameters()):
        parameter.data.copy_(torch.from_numpy(0.5 * rng.standard_normal(parameter.shape)))
    return nn.Sequential(one, nn.Tanh(), two)


def check(subject: Algorithm | Piece, module: Callable[[], nn.Module] = model, **settings: Any) -> Report:
    """Check that an algorithm obeys the laws; a piece is checked alone, and beside a slow and a personal group.

    `module` makes another model than the contract's own, say with norm layers; `settings` go to `Setup`. Raises
    AssertionError, which names the law that is broken, and UserError for a slot that returns what no round can use.

    >>> from apiece import Period
    >>> check(algorithm(Period("body", 2), name="slow body")).neutral
    ("Period(which='body', every=1): fedavg",)
    """
    if isinstance(subject, Piece):
        assert not misspelled(subject), misspelled(subject)
        reports = [check(algorithm(subject, *place, name=repr(subject)), module, **settings) for place in PLACES]
        vectorized, permuted = (max(gaps) for gaps in zip(*((r.vectorized, r.permuted) for r in reports), strict=True))
        return Report(repr(subject), vectorized, permuted, reports[0].neutral)
    exact, rounded = (_Trial(subject, dtype, module, settings) for dtype in (torch.float32, torch.float64))
    neutral = tuple(_neutral(exact, k) for k, p in enumerate(subject.parts) if hasattr(p, "neutral"))
    _pure(exact)  # first: a round that changed its input would do so under threads while others read it
    alone = exact.run(Sequential(), rounds=3)
    _same("law 1 (threaded)", exact, alone, exact.run(Threaded(2), rounds=3))
    _resumes(exact, alone := exact.further(alone))
    _declares(exact, alone)
    alone = rounded.run(Sequential(), rounds=3)
    return Report(subject.name, _vectorized(rounded, alone), _permuted(rounded, rounded.further(alone)), neutral)


# --- the laws, each compared with the run of one client after the other -----------------------------------------------
def _vectorized(trial: _Trial, alone: _Here) -> float:
    try:
        return _close("law 1 (vectorized)", trial, alone, trial.run(Vectorized(3), rounds=3))
    except AssertionError as error:
        raise AssertionError(f"{error}{PADDED}") from None


def _neutral(trial: _Trial, place: int) -> str:
    subject, parts = trial.subject, trial.subject.parts
    kind = type(parts[place]).__name__
    try:
        declared = parts[place].neutral()
    except NotImplementedError as error:
        raise AssertionError(f"law 2: {error}") from None
    if isinstance(declared, str):
        assert declared.strip(), f"law 2: {kind} has no neutral value and does not say why"
        return f"{kind}: none, for {declared}"
    value, meaning = declared
    watched = trial.settings | {"watch": frozenset({"divergence"})}  # every client's model is stored, and compared too
    subjects = (combine([*parts[:place], *there, *parts[place + 1 :]], subject.name) for there in ([value], []))
    one, two = (replace(trial, subject=tried, settings=watched) for tried in subjects)
    left, right = one.run(Sequential()), two.run(Sequential())
    law = f"law 2 ({value!r} is not {meaning} to the bit; a sum of vectors rounds)"
    bare = {"memory": ()} | ({"optimizer": ()} if kind == "Server" else {})
    _equal(law, subject, left.server._replace(**bare), right.server._replace(**bare))
    _equal(law, subject, one.models(left), two.models(right))
    return f"{value!r}: {meaning}"


def _pure(trial: _Trial) -> None:
    reference, again = trial.begin(Sequential()), trial.begin(Sequential())
    pool, copied = cast(Federation, again.clients.federation).pool, partial(tree_map_only, Tensor, torch.clone)
    for t in range(3):
        before, rows, data = copied(again.server), again.clients.rows.digest(), copied(pool)
        once, twice = trial.round(again, t), trial.round(again, t)
        _equal("law 8 (a round changed its input)", trial.subject, before, again.server)
        _equal("law 8 (a round changed the data)", trial.subject, data, pool)
        assert rows == again.clients.rows.digest(), "law 8 (a round changed rows before they were committed)"
        _equal("law 8 (a round does not repeat)", trial.subject, once, twice)
        reference, again = trial.step(reference, t), trial.commit(again, t, twice)
        _same("law 8 (a round does not repeat)", trial, reference, again)


def _resumes(trial: _Trial, never_stopped: _Here) -> None:
    with TemporaryDirectory() as folder:
        here = trial.begin(Sequential(), DiskRows(folder, trial.layout, "contract"))
        for t in range(ROUNDS):
            here = trial.step(here, t)
            rows = here.clients.rows
            rows.sync()
            tensors = flatten("server", tuple(here.server[1:]))
            checkpoint.write(folder, t + 1, tensors, {"rows": rows.digest()}, "contract")
            rows.checkpoint(t + 1)
            rows.close()
            here = trial.load(Path(folder))
        _same("law 9 (resumed after every round)", trial, never_stopped, here)
        here.clients.rows.close()


def _declares(trial: _Trial, alone: _Here) -> None:
    watched = replace(trial, settings=trial.settings | {"watch": frozenset({"drift", "divergence"})})
    seen = watched.run(Sequential())
    _equal("reads (what a piece reads of the past is declared)", trial.subject, alone.server, seen.server)


def _permuted(trial: _Trial, alone: _Here) -> float:
    order = [int(i) for i in generator(SEED, "order").permutation(len(NAMES))]
    moved = trial.run(Sequential(), order=order)
    back = [moved.clients.row(order.index(client))[0] for client in range(len(NAMES))]
    return _close("law 10 (clients in another order)", trial, alone, moved, back)


# --- trying an algorithm on the problem -----------------------------------------------------------------------------
class _Here(NamedTuple):
    server: Server
    clients: Clients


@dataclass(frozen=True)
class _Trial:
    """An algorithm on the problem in one number format; every call makes all objects anew."""

    subject: Algorithm
    dtype: torch.dtype
    module: Callable[[], nn.Module]
    settings: dict[str, Any]

    def federated(self, order: list[int] | None = None) -> Federated:
        with torch.random.fork_rng():
            module = self.module()
            for piece in self.subject.pieces:
                module = piece.prepare(module)
        space = Space(module, dtype=self.dtype)
        initial = torch.from_numpy(0.5 * generator(SEED, "initial").standard_normal(space.size)).to(self.dtype)
        given = {"client": Sgd(momentum=0.9, weight_decay=1e-3), "clip": 1.0} | self.settings
        names = [NAMES[i] for i in order or range(len(NAMES))]
        setting = FederationFacts((FEATURES,), CLASSES, names, range(len(NAMES)), SEED)
        return Federated(Setup(self.subject, Task(space), initial, space.ravel_buffers(), setting=setting, **given))

    @property
    def layout(self) -> RowFormat:
        return RowFormat.of(row.write(row.fresh(self.federated().setup)))

    def begin(self, lift: Any, rows: Any = None, order: list[int] | None = None) -> _Here:
        federated = self.federated(order)
        clients = Clients(federated, problem(self.dtype, order), Work(Between(0, 3), batch=4), SEED, lift, rows)
        return _Here(federated.start(), clients)

    def round(self, here: _Here, t: int) -> Server:
        clients, names = here.clients, list(here.clients.federation.names)
        periods = clients.federated.setup.periods
        held = int(periods.slowest.interval(t)) * periods.longest if self.subject.cohort == "held" else t
        asked = cohort(SEED, held, names, clients.federation.participants, ASKED)
        away = absent(SEED, t, names, asked, ABSENT)
        return clients.federated.round(here.server, clients, Plan(asked, away, 0.1 * 0.9**t))[0]

    def commit(self, here: _Here, t: int, server: Server) -> _Here:
        here.clients.commit(t)
        return here._replace(server=server)

    def step(self, here: _Here, t: int) -> _Here:
        return self.commit(here, t, self.round(here, t))

    def run(self, lift: Any, rounds: int = ROUNDS, order: list[int] | None = None) -> _Here:
        return self.further(self.begin(lift, order=order), rounds)

    def further(self, here: _Here, rounds: int = ROUNDS) -> _Here:
        """The same run, continued until `rounds` rounds are done."""
        for t in range(here.server.round, rounds):
            here = self.step(here, t)
        return here

    def load(self, folder: Path) -> _Here:
        """The run as it stands on the disk, in new objects."""
        found = checkpoint.latest(folder, "contract")[0]
        assert found is not None
        rows = DiskRows(folder, self.layout, "contract")
        rows.restore(found.number, found.about["rows"])
        here = self.begin(Sequential(), rows)
        template = tuple(here.server[1:])
        return here._replace(server=Server(found.number, *restore(template, found.tensors, "server")))

    def models(self, here: _Here) -> list[Tensor]:
        return [here.clients.row(client)[0]["model"] for client in range(len(NAMES))]


def problem(dtype: torch.dtype, order: list[int] | None = None) -> Federation:
    """The contract's clients: each has labels and shifted features of its own."""
    rng = generator(SEED, "data")
    x, y = [], []
    for count in SAMPLES:
        x.append(rng.standard_normal((count, FEATURES)) + rng.standard_normal(FEATURES))
        y.append(np.argmax(x[-1] @ rng.standard_normal((FEATURES, CLASSES)), axis=1))
    pool = (torch.from_numpy(np.concatenate(x)).to(dtype), torch.from_numpy(np.concatenate(y)))
    rows = list(torch.arange(sum(SAMPLES)).split(list(SAMPLES)))
    names, mine = zip(*[(NAMES[i], rows[i]) for i in order or range(len(NAMES))], strict=True)
    return Federation(pool, pool, mine, mine, names)


# --- comparing ------------------------------------------------------------------------------------------------------
def _rows(here: _Here) -> list[dict[str, Tensor]]:
    return [here.clients.row(client)[0] for client in range(len(NAMES))]


def _same(law: str, trial: _Trial, one: _Here, two: _Here) -> None:
    _equal(law, trial.subject, one.server, two.server)
    assert one.clients.rows.digest() == two.clients.rows.digest(), f"{law}: rows differ under {trial.subject.name}"


def _equal(law: str, subject: Algorithm, one: Any, two: Any) -> None:
    _compare(law, subject, one, two, lambda a, b: torch.equal(a, b))


def _close(law: str, trial: _Trial, one: _Here, two: _Here, rows: list | None = None) -> float:
    gaps = [0.0]

    def close(a: Tensor, b: Tensor) -> bool:
        gaps.append(float((a.double() - b.double()).abs().max()) if a.numel() else 0.0)
        return gaps[-1] < TOLERANCE

    _compare(law, trial.subject, (one.server, _rows(one)), (two.server, rows or _rows(two)), close)
    return max(gaps)


def _compare(law: str, subject: Algorithm, one: Any, two: Any, holds: Callable[[Tensor, Tensor], bool]) -> None:
    (left, spec), (right, other) = tree_flatten(one), tree_flatten(two)
    assert spec == other, f"{law}: {subject.name} keeps other things"
    for a, b in zip(left, right, strict=True):
        a, b = torch.as_tensor(a), torch.as_tensor(b)
        assert bool(torch.isfinite(a).all()), f"{law}: {subject.name} is not finite on the contract's problem"
        gap = float((a.double() - b.double()).abs().max()) if a.numel() and a.shape == b.shape else float("nan")
        assert a.shape == b.shape and a.dtype == b.dtype and holds(a, b), f"{law}: {subject.name} differs by {gap:.3g}"
