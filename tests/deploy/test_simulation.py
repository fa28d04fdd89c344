"""Flower's simulation of a deployed run: the app of real nodes, with a hundred virtual ones."""

from __future__ import annotations

import pytest

from apiece.config.settings import Config
from apiece.deploy.request import Terms
from apiece.deploy.simulation import rehearse_virtually, simulate
from apiece.errors import UserError


def test_without_ray_it_says_what_to_install(tmp_path, monkeypatch):
    pytest.importorskip("flwr")
    monkeypatch.setattr("apiece.deploy.flower_commands.find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"needs ray, which is not here: run pip install 'flwr\[simulation\]'"):
        rehearse_virtually(Config(split="iid", rounds=1), 2, 60.0, tmp_path / "new", print)


@pytest.mark.slow
def test_a_hundred_virtual_nodes_are_bitwise_the_wired_clients(tmp_path):
    """SCAFFOLD: each of the hundred has a memory, which its second round reads."""
    pytest.importorskip("flwr")
    pytest.importorskip("ray")
    config = Config(algorithm="scaffold", rounds=2, steps="2", split="iid", eval_every=99)
    assert simulate(config, tmp_path, Terms(100, 100, 300.0), print) == []
    assert len(list((tmp_path / "nodes").glob("*/runs/*/round-000001-*.message"))) == 100
