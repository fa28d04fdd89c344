"""Errors that the user can correct: one sentence with the culprit, what was allowed and what to do."""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

FEW = 12  # up to so many allowed names are always listed
USUAL = {  # the names by which other libraries call our settings
    "batch_size": "batch", "client_fraction": "cohort", "clients_per_round": "cohort", "communication_rounds": "rounds",
    "dataset": "data", "dtype": "precision", "fraction": "cohort", "fraction_fit": "cohort", "global_rounds": "rounds",
    "learning_rate": "lr", "local_batch_size": "batch", "local_epochs": "epochs", "local_lr": "lr",
    "local_steps": "steps", "lr_scheduler": "schedule", "max_grad_norm": "clip", "momentum": "optimizer",
    "features": "input", "label": "target_column", "label_column": "target_column",
    "user_column": "client_column", "image_size": "resize", "early_stop": "early_stopping", "save_best": "keep_best",
    "n_clients": "clients", "n_rounds": "rounds", "num_clients": "clients", "num_epochs": "epochs",
    "num_rounds": "rounds", "num_workers": "workers", "output_dir": "out",
    "optimiser": "optimizer",  # codespell:ignore
    "participation": "cohort", "partition": "split", "random_state": "seed", "step_size": "lr", "strategy": "algorithm",
    "weight_decay": "optimizer",
}  # fmt: skip


class UserError(ValueError):
    """Bad input, described in one sentence; the command line prints it and exits with code 2.

    `met_by`: the rank that met the error, once all ranks know of it; the first rank then prints it for all.

    >>> from apiece import federate
    >>> try:
    ...     federate(rounds=0)
    ... except UserError as error:
    ...     print(error)
    rounds=0 must be 1 or more.
    """

    met_by: int | None = None


class Busy(UserError):
    """Another process is at work where this one would be."""


@contextmanager
def going_on(how: str, begun: Path | None = None) -> Iterator[None]:
    """An interruption in this context says `how` to continue, or that nothing had begun if the folder `begun` holds no
    run yet. Of nested contexts, the outermost decides what is said.
    """
    try:
        yield
    except KeyboardInterrupt as stop:
        stop.args = (how if begun is None or (begun / "run.toml").is_file() else "nothing had begun yet",)
        raise


STACKED = "vmap: It looks like you're"  # torch's first words, where a tensor of many clients was read as one number
UNREAD = (
    "`if`, int(), float(), item(), or F.one_hot in a loss, reads a tensor that stands for many clients at once; "
    "torch.where(condition, a, b) chooses for each client, and y[:, None] == torch.arange(classes) is one-hot"
)


def said(error: BaseException) -> str:
    """The message of any error in one line without its full stop; the error's type if it has no message."""
    lines = str(error).strip().splitlines()
    if lines and lines[0].startswith(STACKED):
        return UNREAD
    return lines[0].rstrip(".") if lines else type(error).__name__


def typed(error: BaseException) -> str:
    """An error's type and what `said` makes of it, for an error of another's code."""
    kind, text = type(error).__name__, said(error)
    return text if text == kind else f"{kind}: {text}"


@contextmanager
def tried(problem: str, advice: Callable[[Exception], str] = lambda error: "") -> Iterator[None]:
    """Raise UserError, which says the problem first, for whatever a program's own code raises in this context."""
    try:
        yield
    except UserError:
        raise
    except Exception as error:  # another's code may raise anything
        raise UserError(f"{problem}: {typed(error)}{advice(error)}.") from error


def refuse_other(what: str, given: object, *allowed: str) -> None:
    """Raise UserError unless what is given is one of the allowed words."""
    if given not in allowed:
        raise UserError(f"{what} {given!r} is unknown: use {' or '.join(allowed)}.")


def with_extra(extra: str) -> str:
    """How to install the packages of an extra: the advice where one of them is missing."""
    return f'run pip install ".[{extra}]" in a clone of apiece'


def nearest(name: str, allowed: Iterable[str], listed: str = "") -> str:
    """A clause that names what was allowed, the nearest names first: `did you mean 'scaffold'? Allowed: ...`. Of many
    names it lists only those that are near, if any are, and none if a sentence says where all are `listed`.
    """
    allowed = sorted(allowed)
    usual = USUAL.get(name.replace("-", "_").lower(), "")
    whole = [known for known in allowed if name and name.lower() in known.lower().split()]  # `site` of `study site`
    whole = whole or [known for known in allowed if sorted(known) == sorted(name)]  # letters in another order
    close = whole[:3] or difflib.get_close_matches(name, allowed, n=3, cutoff=0.5)
    close = [usual] if usual in allowed else close[:1] + [n for n in close[1:] if _near(name, n)]
    hint = f"did you mean {' or '.join(map(repr, close))}? " if close else ""
    if (close or listed) and len(allowed) > FEW:
        return f"{hint}{'There' if hint else 'there'} are {len(allowed)} to choose from. {listed}".rstrip()
    return f"{hint}{'Allowed' if hint else 'allowed'}: {', '.join(allowed)}. {listed}".rstrip()


def beside(path: str | Path) -> str:
    """Which file may be meant by a path at which nothing lies, as a clause; "" if none there has a near name."""
    place = Path(path)
    missing = os.path.isdir(place.parent) and not os.path.exists(place)  # of any length, which Path does not take
    there = [one.name for one in place.parent.iterdir()] if missing else []
    near = difflib.get_close_matches(place.name, there, n=1, cutoff=0.75)
    return f"{str(place.with_name(near[0]))!r} may be meant" if near else ""


def meant(path: str | Path) -> str:
    """`beside`, to stand before other advice."""
    return f"{near}, or " if (near := beside(path)) else ""


def _near(one: str, other: str) -> bool:
    return difflib.SequenceMatcher(None, one, other).ratio() > 0.7
