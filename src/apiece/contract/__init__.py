"""The contract that every piece and algorithm passes: `check(it)` raises an AssertionError that names the broken law.

    law 1    a lift does not change the meaning: threads bitwise (float32), vectorized within 1e-10 (float64)
    law 2    a part with its neutral value is bitwise absent, and clients predict as without it (1e-10); a part without
             one says why
    law 8    a round leaves its input as it was and repeats bitwise; so does what is measured between rounds
    law 9    a run saved, killed, loaded and continued after any round is bitwise the run that never stopped
    law 10   the order in which the clients are listed, under their own names, changes nothing (1e-10)
    reads    a piece declares all that it reads of the past: storing more, for diagnostics, changes nothing

The problem is built here: seven clients of different sizes, each with labels of its own; one has fewer samples than a
batch, one a single sample, one none. Some are asked, some are absent, some take no step. Momentum, weight decay,
clipping and a decaying step size are on.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map_only

from apiece.algebra.composition import Algorithm, Period, algorithm, combine
from apiece.algebra.periods import NEVER
from apiece.algebra.piece import Piece
from apiece.algebra.returned import MADE, blamed
from apiece.algebra.slots import misspelled
from apiece.contract.comparing import REPEATS, alike, close, equal, same
from apiece.contract.measured import measured, measures
from apiece.contract.trial import NAMES, ROUNDS, SEED, Here, Trial, model
from apiece.data.federation import Federation
from apiece.errors import UserError, said
from apiece.lifts.lift import Sequential, Threaded, Vectorized
from apiece.randomness import generator
from apiece.storage import checkpoint
from apiece.storage.disk import DiskRows
from apiece.storage.trees import flatten

PLACES = (), (Period("body", 2),), (Period("head", NEVER),)  # a piece alone, beside a slow and a personal group
SINGLE = 1e-6  # a difference below this comes from a float32 among float64
RANDOM = "in randomness error mode"  # how torch refuses to draw for stacked clients
PADDED = (
    ": most likely a piece takes len(view.batches) for the client's number of steps, or reads a batch beyond it; "
    "batches are padded to the longest where clients are stacked, and view.planned is the client's own number of steps"
)
ROUNDED = (
    ": so little comes from arithmetic in float32, as of view.data.size or view.who, which are whole numbers there, "
    "with a number of Python; write torch.as_tensor(view.data.size, dtype=view.sent.dtype)"
)


class Report(NamedTuple):
    """What `check` found: the largest differences left by rounding, each part's neutral value or why not, and whether
    anything on the contract's problem differs from federated averaging's run.
    """

    name: str
    vectorized: float
    permuted: float
    neutral: tuple[str, ...]
    changes: bool


def check(subject: Algorithm | Piece, module: Callable[[], nn.Module] = model, **settings: Any) -> Report:
    """Check that an algorithm obeys the laws; a piece is checked alone, and beside a slow and a personal group.

    `module` makes another model than the contract's own, say with norm layers; `settings` go to `Setup`. Raises
    AssertionError, which names the law that is broken or the slot that fails, and UserError for a slot that returns
    what no round can use.

    >>> from apiece import Period
    >>> check(algorithm(Period("body", 2), name="slow body")).neutral
    ("Period(which='body', every=1): fedavg",)
    """
    try:
        return _checked(subject, module, settings)
    except (AssertionError, UserError):
        raise
    except Exception as error:
        if not (slot := blamed(error)):
            raise
        drawn = "it draws at random: declare in the slot `draws` what is drawn" if RANDOM in str(error) else ""
        what = drawn or f"{type(error).__name__}: {said(error)}"
        raise AssertionError(f"{slot} fails on the contract's problem: {what}.") from error


def _checked(subject: Algorithm | Piece, module: Callable[[], nn.Module], settings: dict[str, Any]) -> Report:
    if isinstance(subject, Piece):
        assert not misspelled(subject), misspelled(subject)
        reports = [_checked(algorithm(subject, *place, name=repr(subject)), module, settings) for place in PLACES]
        vectorized, permuted = (max(gaps) for gaps in zip(*((r.vectorized, r.permuted) for r in reports), strict=True))
        return Report(repr(subject), vectorized, permuted, reports[0].neutral, reports[0].changes)
    exact, rounded = (Trial(subject, dtype, module, settings) for dtype in (torch.float32, torch.float64))
    neutral = tuple(_neutral(exact, rounded, k) for k, p in enumerate(subject.parts) if hasattr(p, "neutral"))
    _pure(exact)  # first: a round that changed its input would do so under threads while others read it
    alone = exact.run(Sequential(), rounds=3)
    measures(exact, alone)
    same("law 1 (threaded)", exact, alone, exact.run(Threaded(2), rounds=3))
    _resumes(exact, alone := exact.further(alone))
    _declares(exact, alone)
    alone = rounded.run(Sequential(), rounds=3)
    changes = _changes(rounded, alone)
    gaps = _vectorized(rounded, alone), _permuted(rounded, rounded.further(alone))
    return Report(subject.name, *gaps, neutral, changes)


# --- the laws, each compared with the run of one client after the other -----------------------------------------------
def _vectorized(trial: Trial, alone: Here) -> float:
    why = lambda gap: ROUNDED if gap < SINGLE else PADDED
    return close("law 1 (vectorized)", trial, alone, trial.run(Vectorized(3), rounds=3), why=why)


def _neutral(trial: Trial, rounded: Trial, place: int) -> str:
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
    subjects = [combine([*parts[:place], *there, *parts[place + 1 :]], subject.name) for there in ([value], [])]
    one, two = (replace(trial, subject=tried, settings=watched) for tried in subjects)
    left, right = one.run(Sequential()), two.run(Sequential())
    law = f"law 2 ({value!r} is not {meaning} to the bit; with that value a slot shall return what it was given)"
    bare = {"memory": ()} | ({"optimizer": ()} if kind == "Server" else {})
    equal(law, subject, left.server._replace(**bare), right.server._replace(**bare))
    equal(law, subject, one.models(left), two.models(right))
    # clients who predict with one model are measured together, and else apart, which differs by rounding
    losses = [measured(replace(rounded, subject=tried).run(Sequential(), rounds=1))[0] for tried in subjects]
    assert alike(*losses), (
        f"law 2 ({value!r} is not {meaning} where clients are measured: with that value `personal` shall return the "
        f"model that it was given, and `predict` nothing): {subject.name} differs"
    )
    return f"{value!r}: {meaning}"


def _changes(trial: Trial, alone: Here) -> bool:
    """Whether the server's model, or what is measured, differs from federated averaging's by more than rounding:
    where all clients predict with one model, they are measured together, and else apart.
    """
    usual = replace(trial, subject=algorithm(name="fedavg")).run(Sequential(), rounds=3)
    one, two = ((here.server.params, measured(here)) for here in (alone, usual))
    return not alike(one, two)


def _pure(trial: Trial) -> None:
    reference, again = trial.begin(Sequential()), trial.begin(Sequential())
    pool, copied = cast(Federation, again.clients.federation).pool, partial(tree_map_only, Tensor, torch.clone)
    for t in range(3):
        before, rows, data = copied(again.server), again.clients.rows.digest(), copied(pool)
        once, twice = trial.round(again, t), trial.round(again, t)
        equal(f"law 8 (a round changed its input; {MADE})", trial.subject, before, again.server)
        equal("law 8 (a round changed the data)", trial.subject, data, pool)
        assert rows == again.clients.rows.digest(), "law 8 (a round changed rows before they were committed)"
        equal(f"law 8 (a round {REPEATS})", trial.subject, once, twice)
        reference, again = trial.step(reference, t), trial.commit(again, t, twice)
        same(f"law 8 (a round {REPEATS})", trial, reference, again)


def _resumes(trial: Trial, never_stopped: Here) -> None:
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
        same("law 9 (resumed after every round)", trial, never_stopped, here)
        here.clients.rows.close()


def _declares(trial: Trial, alone: Here) -> None:
    watched = replace(trial, settings=trial.settings | {"watch": frozenset({"drift", "divergence"})})
    seen = watched.run(Sequential())
    law = (
        "reads (a slot reads view.model, view.gradient or view.fresh, and its piece does not say so: give the class "
        "the line `reads = frozenset({'model'})`, with the names that it reads)"
    )
    equal(law, trial.subject, alone.server, seen.server)
    equal(law, trial.subject, measured(alone), measured(seen))


def _permuted(trial: Trial, alone: Here) -> float:
    order = [int(i) for i in generator(SEED, "order").permutation(len(NAMES))]
    moved = trial.run(Sequential(), order=order)
    back = [moved.clients.row(order.index(client))[0] for client in range(len(NAMES))]
    law = "law 10 (clients in another order; a server's memory with a place for each client goes by names, not numbers)"
    return close(law, trial, alone, moved, back)
