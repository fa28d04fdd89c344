"""Real nodes of Flower on this machine, with certificates and keys: bitwise the runs of `--lift wired`."""

from __future__ import annotations

from dataclasses import replace

import pytest

from apiece.config.settings import Config
from apiece.deploy import rehearsal
from apiece.deploy.request import Terms

USUAL = Config(rounds=2, steps="2", split="iid", eval_every=99)


@pytest.mark.slow
def test_two_algorithms_on_real_nodes_are_bitwise_the_wired_ones(tmp_path):
    """One keeps a memory on every node and on the server, one is a pipeline of three phases a round."""
    pytest.importorskip("flwr")
    usual = rehearsal.both(USUAL, 2)
    with rehearsal.deployment(tmp_path, rehearsal.deal(usual, tmp_path), print) as made:
        for place, algorithm in enumerate(("scaffold", "pefll")):
            outcome = rehearsal.tried(replace(usual, algorithm=algorithm), made, Terms(2, 2, 300.0), print, f"-{place}")
            assert outcome.differences == [] and len(outcome.rounds) == 2
            ledger = outcome.rounds[-1]["bytes_down"] + outcome.rounds[-1]["bytes_up"]
            trained = outcome.phases[: len(outcome.phases) - (2 if algorithm == "scaffold" else 4)]
            frames = sum(phase.down + phase.up for phase in trained)
            assert ledger < frames < 1.03 * ledger
