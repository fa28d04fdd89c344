"""docs/conformance.md: what the tests measure of every algorithm and composition.

    python tests/conformance.py [--out docs/conformance.md]

Every figure is measured when the page is made, by the functions with which the tests assert; if one of their bounds is
broken, the page is not made. No algorithm is listed here: `subjects` finds them.
"""

from __future__ import annotations

import argparse
import inspect
import re
from dataclasses import fields, replace
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import torch
from oracles import ORACLES
from support import ROOT
from support.against import build, follow, furthest, network
from support.costs import CLAIMS, HEAD, SIZE, cost, measured
from support.helpers import federate
from support.readings import FIXTURES, SHOWS, TIGHT, reading
from support.readings import followed as ours
from support.subjects import Names, decomposed, held, key, reference, subjects
from support.values import CASES
from support.wired import CONFIG, same, sequential

from apiece.algebra.composition import Algorithm, Period, Server
from apiece.algebra.periods import NEVER
from apiece.algebra.piece import Piece
from apiece.config.assemble import chosen_algorithm
from apiece.data.federation import Federation
from apiece.experiment.launch import run_config
from apiece.experiment.personalize import serve
from apiece.report.text import markdown
from apiece.system.files import atomic_write

PAGE = ROOT / "docs" / "conformance.md"
# slots that leave training as it is
AT_PREDICTION = {"draws", "personal", "predict", "evaluate", "observe", "log", "neutral"}
WEIGHTS = ("uniform", "samples")


# --- oracles ----------------------------------------------------------------------------------------------------------
class Followed(NamedTuple):
    """Which oracle an algorithm was compared with, and the largest difference."""

    oracle: str
    gap: float
    training: bool = False  # in training alone: it predicts in a way of its own


def followed(names: Names, subject: Algorithm) -> Followed | None:
    """The oracle of that name; else one that writes out the same parts, or the same with other parameters personal."""
    for oracle in ORACLES:
        if key(decomposed(oracle)) == key(names):
            return Followed(oracle, max(gap(n, str(h)) for n, h in CASES if n == oracle))
    if len(names) > 1:
        return None
    kinds = _kinds(subject)
    training = any(type(p).__name__ not in kinds for p in subject.pieces)
    alike = [(n, h) for n, h in CASES if _kinds(build(n, **h)) == kinds]
    if alike:
        return Followed(alike[0][0], max(gap(n, str(h)) for n, h in alike if n == alike[0][0]), training)
    for oracle, hyper in CASES:
        takes = "personal" in inspect.signature(ORACLES[oracle].run).parameters
        if takes and _anywhere(_kinds(build(oracle, **hyper))) == _anywhere(kinds):
            return Followed(oracle, _with_others_personal(oracle, subject), training)
    return None


@cache
def gap(oracle: str, case: str) -> float:
    """The largest difference from an oracle at these values, on every fixture and under both weightings."""
    hyper = next(h for n, h in CASES if n == oracle and str(h) == case)
    gaps = [
        furthest(follow(build(oracle, **given), f, **given)[1], ORACLES[oracle].run(f, **given))
        for f in FIXTURES.values()
        for given in ({**hyper, "weights": weights} for weights in WEIGHTS)
    ]
    return _below(TIGHT, max(gaps), oracle)


def _with_others_personal(oracle: str, subject: Algorithm) -> float:
    """The same where the algorithm itself says which parameters are personal; how it predicts is not compared."""
    personal = federate(subject, network()).setup.periods.never.numpy()
    gaps = [
        furthest(
            follow(subject, f, weights=weights)[1],
            [r._replace(scores=None) for r in ORACLES[oracle].run(f, personal=personal, weights=weights)],
        )
        for f in FIXTURES.values()
        for weights in WEIGHTS
    ]
    return _below(TIGHT, max(gaps), oracle)


@cache
def wrong(oracle: str) -> dict[str, float]:
    """How far each wrong reading of the paper is from what runs, at the least."""
    gaps = {
        mutation: min(furthest(ours(oracle, f), reading(oracle, f, mutation)) for f in FIXTURES)
        for mutation in ORACLES[oracle].MUTATIONS
    }
    assert all(gap > SHOWS for gap in gaps.values()), (oracle, gaps)
    return gaps


def _below(bound: float, gap: float, what: str) -> float:
    assert gap < bound, f"{what}: {gap}"
    return gap


def _kinds(subject: Algorithm) -> list[str]:
    """What an algorithm's training is made of, but for its numbers and for periods of one round."""
    parts = (part for part in subject.parts if not (isinstance(part, Period) and part.every == 1))
    return sorted(_kind(part) for part in parts if not _at_prediction(part))


def _kind(part: Any) -> str:
    if isinstance(part, Period):
        return f"Period({part.which}, {'never' if part.every == NEVER else 'slow'})"
    return type(part.optimizer if isinstance(part, Server) else part).__name__


def _anywhere(kinds: list[str]) -> list[str]:
    """The same without which parameters."""
    return [re.sub(r"\(.*, ", "(", kind) for kind in kinds]


def _at_prediction(part: Any) -> bool:
    slots = {name for name, value in vars(Piece).items() if callable(value) and name[0] != "_"} - AT_PREDICTION
    return isinstance(part, Piece) and all(getattr(type(part), s) is getattr(Piece, s) for s in slots)


# --- lifts, and unseen clients ------------------------------------------------------------------------------------
def wired(text: str) -> str:
    """Every client a process of its own is the same run."""
    config = replace(CONFIG, algorithm=text)
    assert same(run_config(config)[0], sequential(config)), f"{text}: wired is not sequential"
    return "bitwise"


def unseen(text: str) -> str:
    """How `apiece personalize` serves a client that a run never saw, and what for."""
    result = sequential(replace(CONFIG, algorithm=text))
    there = result.experiment.federation
    new = Federation(there.pool, there.test_pool, [there.train[0]], [torch.arange(9)], ["newcomer"])
    served = serve(result, new)
    spent = [f"{models(n)} {way}" for way, n in (("down", served.down), ("up", served.up)) if n]
    return ", ".join(
        [served.way, *spent, *([f"{served.steps} gradient{'s' * (served.steps > 1)}"] * bool(served.steps))]
    )


def models(numbers: float) -> str:
    """Numbers in sizes of the model, or that many and a few over."""
    whole, over = divmod(numbers, SIZE)
    if not over:
        return f"{whole:.0f}"
    return f"{whole:.0f} + {over:.0f} number{'s' * (over > 1)}" if over <= 8 and whole else f"{numbers / SIZE:.3g}"


# --- the page ---------------------------------------------------------------------------------------------------------
ABOUT = f"""\
`make conformance` writes this page. It measures every figure then, and writes nothing if a bound of the tests is
broken. Arguments that cost time are reduced; the tables show them.

- **oracle**: the largest difference from a NumPy transcription of the paper, over the server, the clients' models,
  their control variates and predictions after each of six rounds, at all values that the tests have, on two problems
  and under two weightings. *of X*: X's oracle writes out the same parts. *training alone*: other tests check how it
  predicts.
- **wrong readings** of the paper that the oracle detects, and their smallest difference; they are listed below.
- **degenerate identity**: the value that is bitwise the algorithm without that part, or the reason why there is none.
- **threads**: bitwise in float32; **vectorized**: the largest difference in float64; **wired**: every client is a
  process of its own, and all phases are messages, bitwise. For FedBN the identity, threads and vectorized are measured
  on a model with BatchNorm, for algorithms on adapters on one that has two in each layer.
- **a client keeps**: its storage between rounds, beside the model that it trains. **the server keeps**: its parameters,
  memory and optimizer. **up** and **down**: per client and round, from the ledger, with models weighted by samples,
  over an interval of the longest period. The unit is the model, an `mlp` of {SIZE} parameters, {HEAD} of them its head.
- **secure aggregation**: whether sums of the clients' messages suffice for the server, or what it reads one by one.
- **an unseen client**: what `apiece personalize` does, and its cost.
"""
RIGHT = ("algorithm", "reference", "oracle", "wrong readings", "degenerate identity", "threads", "vectorized", "wired")
COSTS = ("algorithm", "a client keeps", "the server keeps", "up", "down", "secure aggregation", "an unseen client")


def line(names: Names, text: str, reasons: list[str]) -> tuple[list[str], list[str]]:
    """An algorithm's row in the table of what is right, and in that of what it costs."""
    subject, oracle, caught = chosen_algorithm(text), "–", "–"
    if (like := followed(names, subject)) is not None:
        own = key(decomposed(like.oracle)) == key(names)
        oracle = f"{like.gap:.0e}" + ("" if own else f" of {like.oracle}") + ", training alone" * like.training
        caught = f"{len(wrong(like.oracle))}, from {min(wrong(like.oracle).values()):.0e}"
    report, spent = held(names, subject), cost(text)
    right = [
        oracle,
        caught,
        _identities(report.neutral, subject, reasons),
        "bitwise",
        f"{report.vectorized:.0e}",
        wired(text),
    ]
    kept = [models(n) for n in (spent.client, spent.server, spent.up, spent.down)]
    alone = "no: " + ", ".join(f"`{what}`" for what in spent.alone) if spent.alone else "yes"
    return [f"`{text}`", reference(names[0]), *right], [f"`{text}`", *kept, alone, unseen(text)]


def page(say: Any = print) -> str:
    """The page, made anew."""
    reasons: list[str] = []
    lines = {}
    for names, text in subjects().items():
        lines[names] = line(names, text, reasons)
        say(text, flush=True)
    parts = ["# Conformance", ABOUT.strip()]
    for title, composed in (("Algorithms", False), ("Compositions", True)):
        these = [both for names, both in lines.items() if (len(names) > 1) == composed]
        right = [first[:1] + first[1 + composed :] for first, _ in these]  # a sum has no one reference
        parts += [f"## {title}", markdown(RIGHT[:1] + RIGHT[1 + composed :], right)]
        parts += [f"## {title}: what they cost", markdown(COSTS, [second for _, second in these])]
    parts += ["## Why there is no degenerate identity", "\n".join(f"{i}. {r}" for i, r in enumerate(reasons, start=1))]
    readings = [
        [f"`{oracle}`", ORACLES[oracle].MUTATIONS[mutation], f"{least:.0e}"]
        for oracle in ORACLES
        for mutation, least in wrong(oracle).items()
    ]
    parts += ["## Wrong readings that the oracles catch"]
    parts += [markdown(("oracle", "the wrong reading", "smallest difference"), readings)]
    claims = [[f"`{c.algorithm}`", c.where, c.what, f"{c.paper:.4g}", f"{measured(c):.4g}", c.why] for c in CLAIMS]
    parts += ["## What the papers say of cost", "In sizes of the model, models weighted uniformly as the papers do."]
    parts += [markdown(("algorithm", "where", "what", "the paper's", "ours", "why ours is another"), claims)]
    return "\n\n".join(parts) + "\n"


def _identities(neutral: tuple[str, ...], subject: Algorithm, reasons: list[str]) -> str:
    """The neutral values in words; the reasons where there are none, by number."""
    told = []
    for text in neutral:
        kind, none, why = text.partition(": none, for ")
        if none:
            reason = f"{kind}: {why}."
            if reason not in reasons:
                reasons.append(reason)
            told.append(f"none ({reasons.index(reason) + 1})")
        else:
            value, _, meaning = text.partition(": ")
            for part in subject.parts:
                value = _less(value, part)
            told.append(f"`{value}`: {meaning}")
    return "; ".join(told) or "it is FedAvg"


def _less(value: str, part: Any) -> str:
    """A value like this part without what is at its default."""
    if not value.startswith(f"{type(part).__name__}("):
        return value
    usual = [f"{field.name}={field.default!r}" for field in fields(part)]
    inside = re.split(r", (?=\w+=)", value.partition("(")[2][:-1])
    return f"{type(part).__name__}({', '.join(said for said in inside if said not in usual)})"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="What the tests measure of every algorithm and composition.")
    parser.add_argument("--out", type=Path, default=PAGE, help="the page, as Markdown")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    atomic_write(asked.out, page().encode())
