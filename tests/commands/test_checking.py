"""`apiece check`: the contract for an expression, and what it says of a piece that breaks or changes nothing."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.outer import cli, run, sentence

PIECE = '''
from apiece import Piece, algorithm


class Drawn(Piece):
    def personal(self, view, theta):
        {line}
        return theta

    @classmethod
    def neutral(cls):
        return "a test"


def drawn():
    return algorithm(Drawn(), name="drawn")
'''


@pytest.fixture
def plugin(tmp_path: Path):
    def write(line: str) -> list[object]:
        (tmp_path / "own.py").write_text(PIECE.format(line=line))
        return ["--plugin", tmp_path / "own.py"]

    return write


def test_an_algorithm_that_keeps_the_laws_is_told_with_its_differences(plugin):
    ended = cli("check", "drawn + scaffold", *plugin("theta = 0.5 * theta"))
    assert ended.code == 0, ended
    assert ended.out.startswith("drawn + scaffold keeps the laws.\n") and "Vectorized: within " in ended.out
    assert "Drawn: none, for a test" in ended.out and "it changes the models, or the losses" in ended.out


def test_a_piece_that_changes_nothing_is_told(plugin):
    assert "- On this problem it changes nothing: its models" in cli("check", "drawn", *plugin("theta = 1 * theta")).out


def test_the_slots_are_told_and_what_nothing_calls(plugin):
    lines = "return self.half(theta)\n\n    def half(self, theta):\n        theta = theta / 2"
    said = cli("check", "drawn", *plugin(lines))
    assert "- Drawn fills: personal.\n" in said.out
    assert "- No slots of Drawn, so called only where its slots call them: half.\n" in said.out


def test_a_piece_that_does_not_say_what_it_reads_is_told_how(plugin):
    said = "Drawn reads view.model and does not say so", "give the class the line `reads = frozenset({'model'})`"
    made = plugin("theta = 0.5 * (theta + view.model)")
    sentence(cli("check", "drawn", *made), *said)
    sentence(cli("run", "--algorithm", "drawn", *made, "--rounds", "1", "--steps", "1"), *said)


def test_a_broken_law_is_one_sentence(plugin):
    said = "Drawn.personal changes a tensor in place that it was given: a slot makes a new tensor, as theta - x does"
    sentence(cli("check", "drawn", *plugin("theta -= 1")), said)
    sentence(run(*plugin("theta -= 1"), algorithm="drawn", lift="sequential"), said)
    said = "relied on: on the contract's problem, Drawn.personal of the plugin", "line 7", "'nope'; a view has sent, "
    sentence(cli("check", "drawn", *plugin("theta = view.nope")), *said)
    said = "law 8", "is not finite on the contract's problem: look in its slots for a division by zero"
    sentence(cli("check", "drawn", *plugin("theta = theta / 0")), *said)
    said = "law 8 (a measurement does not repeat: declare in the slot `draws` what is drawn at random"
    sentence(cli("check", "drawn", *plugin("theta = theta + theta.new_empty(1).normal_()")), said)
    sentence(cli("check", "drown", *plugin("pass")), "did you mean 'drawn'?")


@pytest.mark.parametrize("samples", ["(x, y)", "y"])
def test_a_loss_of_a_model_is_told_what_it_takes(plugin, samples):
    line = f"(x, y) = view.data.all(); theta = theta + 0 * view.task.loss(theta, {samples})"
    said = "is given a model where it takes (outputs, y): write view.task.loss(view.task.outputs(theta, x), y)"
    sentence(cli("check", "drawn", *plugin(line)), said)


def test_one_hot_of_stacked_clients_is_one_sentence_of_our_own(plugin):
    """torch's own message has four sentences, and asks for a report to torch."""
    line = "import torch; torch.func.vmap(lambda t: 1 if t > 0 else 0)(torch.ones(2))"
    ended = cli("check", "drawn", *plugin(line))
    told = sentence(ended)
    assert "F.one_hot in a loss, reads a tensor that stands for many clients" in told and "github" not in told
