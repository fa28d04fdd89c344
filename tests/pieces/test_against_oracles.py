"""Law 12: every algorithm equals the NumPy transcription of its paper's pseudo-code.

So it equals no wrong reading of it, for these are far from the right one: test_oracles.py.

Equal means within 1e-10, or within ten times what the training itself makes of a last bit, where that is more.
Processors round sums in different ways. In 2,910 runs with AVX-512, with AVX2 and with SSE alone, ours was at most 4.4
times as far from the oracle as the oracle was from itself on four nudged problems. One training amplifies a last bit to
more than 1e-11: MOON + FedCOG with everyone, to 6e-11.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import cycle, product
from typing import Any

import pytest
import torch
from oracles import ORACLES
from oracles.problem import everyone
from support.against import amplified, build, follow
from support.readings import FIXTURES, ROUNDING, SHOWS, followed, off
from support.values import CASES, VALUES

from apiece.lifts.lift import Threaded, Vectorized

# ragged problems catch steps that are counted as everyone's, weights a mean that is taken without them
COMBINATIONS = list(product(FIXTURES, ("uniform", "samples")))


def compared() -> Iterator[Any]:
    """An oracle's example on all combinations, and its other values, each of which catches one misread, on one."""
    turn = cycle(COMBINATIONS)
    for oracle, hyper in CASES:
        example = hyper is ORACLES[oracle].EXAMPLE
        for on in COMBINATIONS if example else (next(turn),):
            name = "-".join([oracle, *(f"{k}={v}" for k, v in hyper.items()), *on])
            marks = () if example and on == ("ragged", "samples") else pytest.mark.slow
            yield pytest.param(oracle, hyper, *on, id=name, marks=marks)


def test_every_oracle_is_followed():
    assert set(VALUES) == set(ORACLES)


@pytest.mark.parametrize("oracle, hyper, problem, weights", list(compared()))
def test_equals_the_oracle(oracle, hyper, problem, weights):
    """Servers, every client's kept model, the server's variate and the clients', after each of six rounds."""
    hyper, f = {**hyper, "weights": weights}, FIXTURES[problem]
    assert off(follow(build(oracle, **hyper), f, **hyper)[1], oracle, f, **hyper) == 0


# an oracle catches what its pieces alone do across clients
@pytest.mark.slow
@pytest.mark.parametrize("oracle", ORACLES)
def test_equals_the_oracle_under_every_lift_and_full_participation(oracle):
    hyper, f = ORACLES[oracle].EXAMPLE, FIXTURES["ragged"]
    one, two = (follow(build(oracle, **hyper), f, lift=lift, **hyper)[1] for lift in (Vectorized(2), Threaded(2)))
    assert off(one, oracle, f, **hyper) == off(two, oracle, f, **hyper) == 0
    f = everyone(f)
    assert off(follow(build(oracle, **hyper), f, **hyper)[1], oracle, f, **hyper) == 0


# an oracle catches a tolerance that would hide a wrong reading of it
@pytest.mark.slow
@pytest.mark.parametrize("oracle", ORACLES)
def test_what_rounding_makes_is_far_from_a_wrong_reading(oracle):
    hyper, problems = ORACLES[oracle].EXAMPLE, (FIXTURES["even"], everyone(FIXTURES["ragged"]))
    assert all(ROUNDING * amplified(oracle, f, **hyper) < SHOWS / 10_000 for f in problems)


@pytest.mark.slow
def test_what_amplifies_a_last_bit_is_told_from_what_does_not(monkeypatch):
    """As far off as rounding takes the wild one is right in the wild one and wrong in the calm one."""
    monkeypatch.setitem(globals(), "TIGHT", 0.0)
    f = everyone(FIXTURES["ragged"])
    calm, wild = (amplified(oracle, f, **ORACLES[oracle].EXAMPLE) for oracle in ("fedavg", "moon_fedcog"))
    assert 0 < calm < 1e-13 and 1e-12 < wild
    for oracle, wrong in (("fedavg", True), ("moon_fedcog", False)):
        hyper = ORACLES[oracle].EXAMPLE
        moved = [r._replace(server=r.server + 5 * wild) for r in ORACLES[oracle].run(f, **hyper)]
        assert (off(moved, oracle, f, **hyper) > 0) == wrong


# an oracle catches a piece that reads what is kept for the test alone
@pytest.mark.slow
@pytest.mark.parametrize("oracle", ORACLES)
def test_what_is_looked_at_changes_nothing(oracle):
    """Keeping every client's model for the test leaves the run as it is without."""
    hyper, f = ORACLES[oracle].EXAMPLE, FIXTURES["ragged"]
    without = follow(build(oracle, **hyper), f, keep=False, **hyper)[1]
    assert all(torch.equal(a.server, b.server) for a, b in zip(followed(oracle, "ragged"), without, strict=True))
