"""The settings that an algorithm's paper has: said once, in the docstring and in the listing."""

from __future__ import annotations

import inspect
import json
from dataclasses import replace

import pytest
from support.outer import cli

from apiece.algebra.papers import paper
from apiece.config.assemble import assemble, chosen_algorithm
from apiece.config.settings import Config
from apiece.language import algorithms as named

NONE = {"centralized", "class_mask", "fine_tune", "local", "period"}  # references, and what is added to others
NOTED = [name for name in named.NAMED if name not in NONE]


def listed(*words: object) -> dict[str, dict]:
    return {entry["name"]: entry["paper_defaults"] for entry in json.loads(cli("algorithms", "--json", *words).out)}


def test_every_algorithm_of_a_paper_says_its_weighting_and_optimizer():
    entries = listed()
    assert {name for name, noted in entries.items() if not noted} == NONE
    assert all(list(entries[name])[:2] == ["weighting", "optimizer"] and entries[name]["source"] for name in NOTED)


# a name catches a paper's setting that its docstring or a run does not know
@pytest.mark.parametrize("name", NOTED)
def test_they_are_settings_of_a_run_and_stand_in_the_docstring(name):
    noted = getattr(named, name).paper_defaults
    settings = {key: value for key, value in noted.items() if key != "source"}
    said = " ".join((inspect.getdoc(getattr(named, name)) or "").split())
    assert all(f"{key}={value}" in said for key, value in settings.items()) and f"by {noted['source']}:" in said
    assemble(replace(Config(algorithm="fedavg", clients=4, model="softmax_regression"), **settings))


def test_what_an_algorithm_decides_itself_is_what_its_paper_has():
    for name in ("pefll", "pfedhn"):
        settings = getattr(named, name).paper_defaults
        config = Config(clients=4, model="softmax_regression", optimizer=settings["optimizer"])
        assert assemble(config).federated.setup.client == chosen_algorithm(name).client


def test_a_plug_in_notes_its_own(tmp_path):
    plugin = tmp_path / "own.py"
    plugin.write_text(
        "from apiece import algorithm\n"
        "from apiece.algebra.papers import paper\n\n"
        '@paper("Table 1", weighting="uniform", optimizer="sgd", lr=0.2)\n'
        "def own(strength: float = 1.0):\n"
        '    """Mine (Somebody et al. 2031)."""\n'
        '    return algorithm(name="own")\n'
    )
    assert listed("--plugin", plugin)["own"] == {
        "weighting": "uniform",
        "optimizer": "sgd",
        "lr": 0.2,
        "source": "Table 1",
    }


def test_a_function_is_otherwise_what_it_was():
    def plain(a: int = 1):
        """One line."""
        return a

    noted = paper("Table 2", weighting="uniform")(plain)
    assert noted is plain and noted(3) == 3
    assert inspect.getdoc(noted) == "One line.\n\nThe paper's settings, by Table 2: weighting=uniform."
