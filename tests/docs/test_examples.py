"""The examples: each can be imported, and the plain loop of federated averaging gives the engine's numbers."""

from __future__ import annotations

import importlib.util
import os
import re
import runpy
from pathlib import Path
from types import ModuleType

import pytest
import torch
from support import ROOT

from apiece import Round, federate

EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
OWN = [ROOT / "examples" / "own" / f"{name}.py" for name in ("table", "images", "hugging_face")]


def example(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"example_{path.stem}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_says_what_it_is(path):
    """None is run here, but those below: what it imports is there."""
    assert example(path).__doc__


# each has targets of another form, and is read off them; the first number that it prints is well above guessing
@pytest.mark.parametrize("name", ["regression", "several_labels", "segmentation", "own_loss_and_metrics"])
def test_an_example_of_a_task_runs(name, no_report, capsys):
    path = ROOT / "examples" / "own" / f"{name}.py"
    runpy.run_path(str(path), run_name="__main__")
    first = float(re.findall(r"\d\.\d{3}", capsys.readouterr().out)[0])
    assert (first < 0.7) if name == "regression" else (first > 0.4)
    assert len(path.read_text().splitlines()) <= 30


@pytest.mark.slow
@pytest.mark.parametrize("name", ["batch_norm_dropout", "forecasting", "transformer"])
def test_an_example_of_a_model_runs(name, capsys):
    """It learns: accuracies are high, and the forecast's error is a small part of a constant's."""
    path = ROOT / "examples" / "own" / f"{name}.py"
    runpy.run_path(str(path), run_name="__main__")
    numbers = [float(found) for found in re.findall(r"\d\.\d+", capsys.readouterr().out)]
    first, last = numbers[0], numbers[-1]
    assert first < 0.1 * last if name == "forecasting" else first > 0.8
    assert len(path.read_text().splitlines()) <= 30


@pytest.mark.parametrize("path", OWN, ids=lambda path: path.stem)
def test_an_example_with_data_of_ones_own_is_short_and_learns(path):
    assert len(path.read_text().splitlines()) <= 30
    assert example(path).main() > 0.6


def test_the_plain_loop_gives_the_engines_numbers_bitwise():
    fedavg = example(EXAMPLES[0].with_name("fedavg.py"))
    models: list[torch.Tensor] = []

    def watch(round: Round) -> None:
        models.append(round.state.server.params)

    result = federate(
        fedavg.perceptron(), "digits", "fedavg", watchers=[watch], split=fedavg.SPLIT, clients=fedavg.CLIENTS,
        cohort=fedavg.COHORT, rounds=fedavg.ROUNDS, steps=fedavg.STEPS, batch=fedavg.BATCH, lr=fedavg.LR,
        seed=fedavg.SEED, lift="sequential", drift="none",
    )  # fmt: skip
    plain = list(fedavg.rounds(fedavg.perceptron()))
    assert len(plain) == len(models) == fedavg.ROUNDS
    assert all(torch.equal(model, there) for (model, _), there in zip(plain, models, strict=True))
    assert [accuracy for _, accuracy in plain] == [info["global_accuracy"] for info in result.metrics]
    assert plain[-1][1] > 0.85


@pytest.mark.slow
def test_groups_in_turn_are_compared_and_a_second_call_makes_nothing_anew(tmp_path, no_report, capsys):
    """Streaming DiLoCo's largest message is smaller than DiLoCo's, which is FedAvg's; DiLoCo sends a fourth."""
    if not (Path(os.environ.get("APIECE_DATA", "absent")) / "tinyshakespeare.jsonl.gz").is_file():
        pytest.skip("no tinyshakespeare in APIECE_DATA")
    in_turn = example(EXAMPLES[0].with_name("in_turn.py"))
    words = ["--small", "--out", str(tmp_path)]
    in_turn.main(words)
    made = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("metrics.jsonl")}
    in_turn.main(words)
    assert made == {path: path.stat().st_mtime_ns for path in tmp_path.rglob("metrics.jsonl")} and len(made) == 4
    assert (tmp_path / "in-turn.png").stat().st_size > 10_000
    rows = [line.split("|") for line in (tmp_path / "table.md").read_text().splitlines() if line.startswith("| `")]
    sent, peak = ({row[1].strip(" `").partition("(")[0]: float(row[k]) for row in rows} for k in (3, 4))
    assert peak["streaming_diloco"] < peak["diloco"] == peak["fedavg"] and sent["diloco"] < 0.3 * sent["fedavg"]
