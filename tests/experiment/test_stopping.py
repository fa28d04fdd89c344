"""A run that is ended early by a watcher, and its best model: exact after a kill, and open to more rounds."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file
from support.outer import TINY, cli, metrics, sentence

from apiece import Round, early_stopping, keep_best
from apiece.errors import UserError
from apiece.experiment.folders import noted
from apiece.experiment.launch import federate, resume
from apiece.experiment.result import Told
from apiece.experiment.stopping import EarlyStopping, higher_is_better
from apiece.report.metrics import Measure
from apiece.report.results import read_runs

pytestmark = pytest.mark.usefixtures("no_report")
WHOLE = TINY | {"rounds": 6, "split": "dirichlet(0.3)"}


def rounds(folder: Path) -> list[dict[str, Any]]:
    return [{k: v for k, v in info.items() if k != "seconds"} for info in metrics(folder)]


def at(number: int) -> Any:
    return lambda info: "stop" if info["round"] == number else None


def stopped(folder: Path, number: int = 3, **settings: Any) -> Any:
    return federate(**WHOLE | settings, out=str(folder), on_round=at(number))


def test_a_stopped_run_is_complete_and_goes_on(tmp_path, capsys):
    """Its rounds are those of the run that was not stopped, and with more of them it is bitwise that run."""
    result, whole = stopped(tmp_path / "run"), federate(**WHOLE, out=str(tmp_path / "whole"))
    assert len(result.metrics) == 3 and len(result.accuracy) == 6
    assert rounds(tmp_path / "run")[:3] == rounds(tmp_path / "whole")[:3]
    assert (tmp_path / "run" / "model.safetensors").is_file() and noted(tmp_path / "run")["stopped"] == "3"
    (tmp_path / "run" / "report.html").touch()
    resume(tmp_path / "run")
    assert "has ended after round 3, stopped" in capsys.readouterr().out
    again = federate(**WHOLE, out=str(tmp_path / "run"), on_round=at(3), resume=True)  # the same program once more
    assert len(again.metrics) == 3 and again.metrics[-1] == result.metrics[-1]
    resume(tmp_path / "run", rounds=6)
    assert rounds(tmp_path / "run") == rounds(tmp_path / "whole") and "stopped" not in noted(tmp_path / "run")
    last = load_file(tmp_path / "run" / "model.safetensors")
    assert all(torch.equal(last[name], leaf) for name, leaf in whole.model().items())


@pytest.mark.parametrize("algorithm", ["fedavg", "apfl"])
def test_its_last_record_is_that_of_a_run_with_so_many_rounds(algorithm, tmp_path):
    """Every client and what adapts, measured at a round that is measured otherwise only in part, or not at all."""
    settings = {"algorithm": algorithm, "eval_every": 2, "panel": 2, "unseen": 2, "cohort": 0.5}
    one = stopped(tmp_path / "run", **settings)
    two = federate(**WHOLE | settings | {"rounds": 3})
    last, whole = ({k: v for k, v in ran.metrics[-1].items() if k != "seconds"} for ran in (one, two))
    assert last == whole and {"adapted_accuracy", "unseen_adapted_accuracy"} <= set(last)
    (read,) = read_runs(tmp_path / "run")[0].runs
    assert read.last("adapted_accuracy") == last["adapted_accuracy"] and len(read.metrics) == 3
    assert one.values == two.values


@pytest.mark.parametrize("more", [4, 9])  # fewer and more than it was to have
def test_it_may_go_on_to_any_number_of_rounds(more, tmp_path):
    stopped(tmp_path / "run", checkpoint_every=2)
    federate(**WHOLE | {"rounds": more, "checkpoint_every": 2}, out=str(tmp_path / "run"), resume=True)
    federate(**WHOLE | {"rounds": more}, out=str(tmp_path / "whole"))
    assert rounds(tmp_path / "run") == rounds(tmp_path / "whole")


def test_export_and_personalize_take_the_round_at_which_it_stopped(tmp_path):
    result = stopped(tmp_path / "run", checkpoint_every=100)
    assert cli("export", tmp_path / "run", "--out", tmp_path / "m.safetensors").code == 0
    exported = load_file(tmp_path / "m.safetensors")
    assert all(torch.equal(exported[name], leaf) for name, leaf in result.model().items())


def test_on_round_sees_the_models_the_clients_and_the_server():
    seen: list[Told] = []
    result = federate(**WHOLE | {"rounds": 2, "eval_every": 2}, on_round=lambda info: seen.append(info))
    assert [info["round"] for info in seen] == [1, 2] and dict(seen[-1]) == result.metrics[-1]
    assert not seen[0].clients and seen[1].clients == {
        result.experiment.federation.names[i]: values for i, values in result.values.items()
    }
    assert torch.equal(seen[1].server.params, result.server.params) and seen[1].history[0] is result.metrics[0]
    for client in (None, 3):
        own, last = seen[1].model(client), result.model(client)
        assert all(torch.equal(own[name], last[name]) for name in last)


# --- early stopping --------------------------------------------------------------------------------------------------
def records(key: str, *values: float | None) -> list[dict[str, Any]]:
    measured = [{} if v is None else {"global_accuracy": 0.5, "global_loss": 1.0, key: v} for v in values]
    return [{"round": t + 1, **info} for t, info in enumerate(measured)]


nan = float("nan")
DUE = [
    ("global_accuracy", (0.1, 0.2, 0.2, 0.2), 2, 0.0, True),
    ("global_accuracy", (0.1, 0.2, 0.2, 0.3), 2, 0.0, False),
    ("global_accuracy", (0.10, 0.11, 0.12), 2, 0.05, True),
    ("global_accuracy", (0.3, None, None, 0.2), 2, 0.0, False),  # what was not measured is not waited for
    ("global_loss", (3.0, 2.0, 1.0), 1, 0.0, False),
    ("global_loss", (1.0, 2.0), 1, 0.0, True),
    ("global_loss", (nan, 2.0, nan, nan), 2, 0.0, True),
]


@pytest.mark.parametrize(("key", "values", "patience", "delta", "due"), DUE)
def test_when_a_rule_is_due(key, values, patience, delta, due):
    assert early_stopping(key, patience, delta).due(records(key, *values)) == due
    assert higher_is_better("global_accuracy") and not higher_is_better("global_loss")


def test_the_direction_is_the_metrics():
    errors = (Measure("mae", higher=False), Measure("r2"))
    values = [{"round": 1, "global_mae": 2.0, "global_r2": 0.1}, {"round": 2, "global_mae": 3.0, "global_r2": 0.2}]
    assert early_stopping(patience=1).due(values, errors) and not early_stopping("global_r2", 1).due(values, errors)


def test_a_rule_waits_anew_after_its_run_went_on():
    rule, past = EarlyStopping(None, 2), records("global_accuracy", 0.3, 0.2, 0.2, 0.2)
    assert rule.due(past[:3]) and not rule.due(past[:3], since=3) and not rule.due(past, since=3)


def test_the_setting_ends_a_run_and_its_kill_changes_nothing(tmp_path):
    """Killed between the checkpoint of its last round and the note that it ended, a run ends at the same round."""
    flags = [word for key, value in (WHOLE | {"rounds": 40, "lr": 0.0}).items() for word in (f"--{key}", value)]
    ended = cli("run", *flags, "--early-stopping", 3, "--keep-best", "--out", tmp_path / "run")
    assert ended.code == 0, ended.err
    # nothing is better than the first at lr=0
    assert [info["round"] for info in rounds(tmp_path / "run")] == [1, 2, 3, 4, 4]
    toml = (tmp_path / "run" / "run.toml").read_text()
    assert "early_stopping = 3" in toml and "keep_best = true" in toml
    shutil.copytree(tmp_path / "run", tmp_path / "killed")
    for name in ("model.safetensors", "clients.json"):
        (tmp_path / "killed" / name).unlink()
    (tmp_path / "killed" / "run.toml").write_text(
        "".join(line for line in toml.splitlines(True) if "stopped" not in line)
    )
    assert cli("resume", tmp_path / "killed").code == 0
    assert rounds(tmp_path / "killed") == rounds(tmp_path / "run") and noted(tmp_path / "killed")["stopped"] == "4"
    assert cli("resume", tmp_path / "run", "--rounds", 40).code == 0
    assert [info["round"] for info in rounds(tmp_path / "run")][4:] == [5, 6, 7, 7]  # it waited anew


# --- the best model --------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("metric", ["global_accuracy", "train_loss"])
def test_the_best_model_is_kept_through_a_kill(metric, tmp_path):
    models: dict[int, Any] = {}

    def watch(round: Round) -> None:
        models[round.number] = round.model()

    settings = WHOLE | {"rounds": 7, "lr": 0.6, "steps": "3"}
    watchers = [watch, keep_best(metric)]
    stopped = {"on_round": lambda info: 1 / 0 if info["round"] == 5 else None}
    with pytest.raises(ZeroDivisionError):
        federate(**settings, out=str(tmp_path / "run"), watchers=watchers, **stopped, checkpoint_every=3)
    result = federate(**settings | {"checkpoint_every": 3}, out=str(tmp_path / "run"), watchers=watchers, resume=True)
    values = [info[metric] for info in result.metrics]
    best = values.index(max(values) if metric == "global_accuracy" else min(values)) + 1
    with safe_open(tmp_path / "run" / "best.safetensors", "pt") as kept:
        assert kept.metadata()["round"] == str(best)
        assert all(torch.equal(kept.get_tensor(name), leaf) for name, leaf in models[best].items())


@pytest.mark.parametrize(("rounds", "kept"), [(4, False), (12, True)])
def test_the_best_model_of_a_round_that_the_run_has_no_longer_is_removed(rounds, kept, tmp_path, capsys):
    """Killed after its best round, it goes on from an earlier one: to fewer rounds, or past that round again."""
    watchers = [lambda round: {"mine": 1.0 if round.number == 5 else 1 / (round.number + 1)}, keep_best("mine")]
    settings = WHOLE | {"rounds": 9, "checkpoint_every": 3, "out": str(tmp_path / "run"), "watchers": watchers}
    with pytest.raises(ZeroDivisionError):
        federate(**settings, on_round=lambda info: 1 / 0 if info["round"] == 5 else None)
    federate(**settings | {"rounds": rounds}, resume=True)
    assert (tmp_path / "run" / "best.safetensors").is_file() == kept
    assert ("best.safetensors was of round 5" in capsys.readouterr().err) != kept


def test_mistakes_get_one_sentence(tmp_path):
    with pytest.raises(UserError, match="patience=0"):
        early_stopping(patience=0)
    with pytest.raises(UserError, match="no round has a number 'acuracy'.*did you mean"):
        federate(**WHOLE, on_round=early_stopping("acuracy"))
    with pytest.raises(UserError, match="give out="):
        federate(**WHOLE, watchers=[keep_best()])
    with pytest.raises(UserError, match="give watchers="):
        federate(**WHOLE, on_round=keep_best())  # pyright: ignore[reportArgumentType]
    with pytest.raises(UserError, match="returned 'halt'"):
        federate(**WHOLE, on_round=lambda info: "halt")
    sentence(cli("run", "--keep-best"), "keep_best needs out")
    sentence(cli("run", "--early-stopping", 0), "early_stopping=0")
