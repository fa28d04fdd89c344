"""A step size of each client's own: FedAvg and SCAFFOLD with two of them in NumPy, every lift, and resumption."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from oracles.problem import Fixture
from support.against import network
from support.helpers import Given, federation, run
from support.helpers import federate as by_hand
from support.readings import FIXTURES
from support.recipes import Stop, result, stopping

from apiece import federate
from apiece.engine.federated import Federated
from apiece.errors import UserError
from apiece.language import algorithms as named
from apiece.lifts.lift import Sequential, Vectorized

OWN = np.array([0.4, 0.1, 0.25, 0.4, 0.1, 0.0])  # of each client of the fixture
SMALL: dict[str, Any] = {"clients": 4, "rounds": 3, "batch": 8, "steps": 3, "model": "mlp(hidden=[8])"}
SMALL |= {"schedule": "exponential(0.9)", "drift": "none"}
SIZES = [0.05, 0.2, 0.1, 0.0]

pytestmark = pytest.mark.usefixtures("no_report")


def by_paper(f: Fixture, scaffold: bool) -> np.ndarray:
    """K times  y <- y - e_i s_t (g - c_i + c);  x <- x + mean (y_i - x);  c_i+ = c_i - c + (x - y_i) / (K e_i s_t),
    kept as it is where e_i = 0;  c <- c + sum (c_i+ - c_i) / N. Without c, FedAvg.
    """
    x, c, own = f.initial.copy(), np.zeros_like(f.initial), np.zeros((f.clients, len(f.initial)))
    for t, cohort in enumerate(f.cohorts):
        ends, moved = [], np.zeros_like(x)
        for i in cohort:
            y, lr = x.copy(), OWN[i] * f.lr[t]
            for k in range(f.steps(t, i)):
                y = y - lr * (f.gradient(y, t, i, k) + (c - own[i] if scaffold else 0.0))
            new = own[i] - c + (x - y) / (f.steps(t, i) * lr) if lr else own[i]
            ends, moved, own[i] = [*ends, y], moved + new - own[i], new
        x, c = np.mean(ends, axis=0), c + moved / f.clients
    return x


@pytest.mark.parametrize("lift", [Sequential(), Vectorized(2)], ids=["one by one", "in one call"])
@pytest.mark.parametrize("scaffold", [False, True], ids=["fedavg", "scaffold"])
def test_equals_the_papers_loop(scaffold, lift):
    f = FIXTURES["ragged"]
    subject = named.scaffold(control="difference") if scaffold else named.fedavg()
    setup = by_hand(subject, network(), weighting="uniform").setup
    setup = replace(setup, initial=torch.from_numpy(f.initial), lr_by_client=lambda name: float(OWN[int(name[1:])]))
    table = {(t, f"c{i}"): torch.from_numpy(rows) for (t, i), rows in f.batches.items()}
    ran = run(Federated(setup), federation(f.x, f.y), Given(table), f.cohorts, f.lr, lift)
    assert np.abs(ran.last.numpy() - by_paper(f, scaffold)).max() < 1e-10


# FedCM divides by the step size on the server where all clients have one; APFL's mixture and AdamW's decay use it, too
@pytest.mark.parametrize("algorithm, optimizer", [("fedcm", "sgd"), ("apfl", "adamw"), ("fedals(alpha=2)", "sgd")])
@pytest.mark.parametrize("lift", ["sequential", "vectorized"])
def test_one_size_by_client_is_the_number(algorithm, optimizer, lift):
    settings = SMALL | {"algorithm": algorithm, "optimizer": optimizer, "lift": lift}
    one, two = (federate(lr=lr, **settings) for lr in (0.07, [0.07] * 4))
    assert torch.equal(one.server.params, two.server.params)
    assert not torch.equal(one.server.params, federate(lr=SIZES, **settings).server.params)


def test_fedcm_is_not_told_one_length_where_lengths_differ():
    settings = SMALL | {"algorithm": "fedcm", "weighting": "uniform", "lift": "sequential"}
    one, two = (federate(lr=lr, **settings) for lr in (0.07, [0.07] * 4))
    assert torch.allclose(one.server.params, two.server.params, atol=1e-6)
    assert one.metrics[-1]["control_up"] < two.metrics[-1]["control_up"]


@pytest.mark.parametrize("lift", ["threaded", "vectorized"])
def test_all_lifts_agree(lift):
    one, two = (federate(lr=SIZES, algorithm="scaffold", lift=which, **SMALL) for which in ("sequential", lift))
    assert torch.allclose(one.server.params, two.server.params, atol=1e-6)


# a process has the function's text, a wired client a message, and compiled code the sizes as inputs
@pytest.mark.slow
@pytest.mark.parametrize("lift", ["processes", "wired", "compiled"])
def test_all_lifts_agree_that_take_long(lift):
    settings = SMALL | {"algorithm": "scaffold(control=difference)", "lr": SIZES}
    one, two = (federate(lift=which, **settings) for which in ("sequential", lift))
    assert torch.allclose(one.server.params, two.server.params, atol=1e-6 if lift == "compiled" else 0.0)


def test_goes_on_bitwise(tmp_path: Path):
    sizes = {f"client-{i}": lr for i, lr in enumerate(SIZES)}
    settings = SMALL | {"algorithm": "scaffold", "lr": sizes.__getitem__}
    federate(out=str(tmp_path / "whole"), **settings)
    with pytest.raises(Stop):
        federate(out=str(tmp_path / "run"), on_round=stopping(2), **settings)
    federate(out=str(tmp_path / "run"), resume=True, **(settings | {"lr": sizes}))
    assert result(tmp_path / "run") == result(tmp_path / "whole")


WRONG: dict[str, tuple[Any, str]] = {
    "a short list": ([0.1, 0.2], "lr has 2 numbers, for 4 clients"),
    "a client left out": ({"client-0": 0.1}, "lr has no number for client 'client-1'"),
    "below zero": ([0.1, 0.1, -0.1, 0.1], "lr gives -0.1 for client 'client-2'"),
    "text": (lambda name: name, "lr gives 'client-0' for client 'client-0'"),
    "no number": (lambda name: float("nan"), "lr gives nan"),
    "an error": (lambda name: {}[name], "lr has no number for client 'client-0': KeyError"),
    "nothing of this kind": (3j, "lr is 3j: give a number, a function of a client's name"),
}


@pytest.mark.parametrize("lr, said", WRONG.values(), ids=WRONG)
def test_what_is_no_step_size_is_refused(lr, said):
    with pytest.raises(UserError, match=said):
        federate(lr=lr, **SMALL)


def test_the_servers_own_use_of_the_step_size_is_refused():
    with pytest.raises(UserError, match="has the clients' step size on the server, too"):
        federate(lr=SIZES, **(SMALL | {"algorithm": "pefll(server=sgd, lambda_h=0.001)"}))


def test_who_became_not_finite_is_told_with_its_own_size():
    with pytest.raises(UserError, match=r"'client-1' became non-finite in round .*step size .*e\+"):
        federate(lr=[0.1, 1e30, 0.1, 0.1], **SMALL)
