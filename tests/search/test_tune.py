"""A search tries what its seed says, on held-out samples, goes on after a kill, and treats algorithms alike."""

from __future__ import annotations

import io
import json
import re
import shutil
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from rich.console import Console
from support.outer import TINY, Ended, cli, metrics, sentence
from torch import nn

import apiece
from apiece.config.settings import Config
from apiece.engine.clients import NotFinite
from apiece.experiment import folders, saved
from apiece.report.metrics import ACCURACY, named
from apiece.search import given as module_of_given
from apiece.search import ranges, trials, tuning
from apiece.search.page import Tuned
from apiece.search.rungs import Budget
from apiece.search.trials import Tried

pytest.importorskip("optuna")
SEARCH = {"over": "lr=loguniform(1e-2, 1)", "trials": 3, "rounds": 3, "validation": 0.2}


def search(out: object, *flags: object, **settings: Any) -> Ended:
    words = [w for k, v in (TINY | SEARCH | settings).items() for w in (f"--{k.replace('_', '-')}", v)]
    return cli("tune", *words, "--out", out, *flags)


def lines(out: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (out / "trials.jsonl").read_text().splitlines()]


@pytest.mark.slow
def test_the_best_of_each_algorithm_is_found_and_can_be_run(tmp_path, no_report):
    """Two algorithms get the same values at the first rung, the same rungs, and as many trials at each."""
    ended = search(tmp_path / "s", algorithms="fedavg, scaffold")
    assert ended.code == 0, ended
    found = lines(tmp_path / "s")
    by_name = {name: [one for one in found if one["algorithm"] == name] for name in ("fedavg", "scaffold")}
    shape = {name: [(one["rung"], one["trial"]) for one in own] for name, own in by_name.items()}
    assert [rung for rung, _ in shape["fedavg"]] == [rung for rung, _ in shape["scaffold"]] == [1, 1, 1, 3]
    tried = [[one["values"] for one in own[:3]] for own in by_name.values()]
    assert tried[0] == tried[1] and len({one["lr"] for one in tried[0]}) == 3
    for name in shape:
        first = [one for one in by_name[name] if one["rung"] == 1]
        best = max(first, key=lambda one: one["found"][0])["trial"]
        assert shape[name][-1] == (3, best)
        settings = tomllib.loads((tmp_path / "s" / f"best-{name}.toml").read_text())
        assert settings["lr"] == first[best]["values"]["lr"] and "measure_on" not in settings and "out" not in settings
    for path in (tmp_path / "s").rglob("run.toml"):
        assert tomllib.loads(path.read_text())["config"]["measure_on"] == "validation"
    assert (tmp_path / "s" / "tune.png").stat().st_size > 5000
    text = (tmp_path / "s" / "tune.md").read_text()
    assert "3 trials to 1 round; 1 trial to 3 rounds" in text and "the test set was not used" in text
    again = search(tmp_path / "s", algorithms="fedavg, scaffold")
    assert again.err.count(", kept") == len(found) == again.err.count("trial") and lines(tmp_path / "s") == found
    told = json.loads(search(tmp_path / "s", "--json", algorithms="fedavg, scaffold").out)
    assert len(told) == 6 and sum(one["best"] for one in told) == 2
    assert [one["rounds"] for one in told if one["best"]] == [3, 3]
    run = cli("run", "--config", tmp_path / "s" / "best.toml", "--out", tmp_path / "final")
    assert run.code == 0 and len(metrics(tmp_path / "final")) == 3


@pytest.mark.slow
def test_a_trial_that_goes_on_is_the_run_from_the_start(tmp_path, no_report):
    """Its value at the last rung is that of a run without rungs, mean over the seeds."""
    assert search(tmp_path / "s", seeds="0,1").code == 0
    last = lines(tmp_path / "s")[-1]
    for seed, found in enumerate(last["found"]):
        whole = apiece.federate(
            seed=seed, measure_on="validation", **TINY | {"rounds": 3, "validation": 0.2} | last["values"]
        )
        assert found == whole.metrics[-1]["global_accuracy"]


class Cut(Exception):
    """The power is cut here."""


@pytest.mark.slow
@pytest.mark.parametrize("after", [1, 3, 5])
def test_a_search_that_was_cut_off_is_the_search_that_was_not(tmp_path, monkeypatch, no_report, after):
    """Cut as a round of some trial is saved: its finished trials are kept, and it goes on to the same end."""
    assert search(tmp_path / "whole").code == 0
    save, count = saved.save, []

    def cut(*arguments: Any) -> None:
        save(*arguments)
        count.append(None)
        if len(count) == after:
            raise Cut

    with monkeypatch.context() as patch, pytest.raises(Cut):
        patch.setattr(saved, "save", cut)
        search(tmp_path / "cut")
    assert search(tmp_path / "cut").code == 0
    one, two = (tmp_path / name / "trials.jsonl" for name in ("whole", "cut"))
    assert one.read_bytes() == two.read_bytes()


@pytest.mark.slow
def test_the_best_settings_name_their_data_from_any_folder(tmp_path, monkeypatch, no_report):
    monkeypatch.chdir(tmp_path)
    np.savez("mine.npz", x_train=np.random.default_rng(0).normal(size=(60, 4)), y_train=np.arange(60) % 3)
    assert search("s", data="mine.npz", trials=1, rounds=1, split="iid", model="mlp").code == 0
    assert tomllib.loads((tmp_path / "s" / "best.toml").read_text())["data"] == str(tmp_path / "mine.npz")


@pytest.mark.slow
def test_a_budget_in_bytes_ends_runs_by_what_they_sent(tmp_path, no_report):
    ended = search(tmp_path / "s", trials=1, budget="100kB", rounds=9, algorithms="fedavg, scaffold")
    assert ended.code == 0, ended
    rounds = {one["algorithm"]: one["rounds"][0] for one in lines(tmp_path / "s")}
    assert rounds["scaffold"] < rounds["fedavg"] < 9 and all(one["bytes"][0] >= 100e3 for one in lines(tmp_path / "s"))
    ended = search(tmp_path / "short", trials=1, budget="900MB")
    assert "more --rounds would use the budget" in ended.out


@pytest.mark.slow
def test_from_python_with_a_model_of_ones_own_and_a_trial_that_diverges(tmp_path, no_report):
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 10))
    given = {k: v for k, v in TINY.items() if k != "model"}
    found = apiece.tune("lr=choice(3e38, 0.1)", trials=4, reduction=1, out=tmp_path / "s", model=model, **given)
    assert found.best["fedavg"].values == {"lr": 0.1} and found.settings()["lr"] == 0.1
    failed = [one for one in lines(tmp_path / "s") if one["values"] == {"lr": 3e38}]
    assert failed and all(one["failed"] for one in failed)
    assert f"Trial {failed[0]['trial'] + 1} failed: client" in (tmp_path / "s" / "tune.md").read_text()


@pytest.mark.slow
def test_where_a_trial_fails_at_a_rung_the_next_best_takes_its_place(tmp_path, monkeypatch, no_report):
    real, failed = tuning._to, []

    def fails(search: Any, settings: Any, folder: Path, at: float) -> Any:
        if at == 3 and (not failed or folder in failed):
            failed.append(folder)
            raise NotFinite("it became non-finite.")
        return real(search, settings, folder, at)

    monkeypatch.setattr(tuning, "_to", fails)
    assert search(tmp_path / "s").code == 0
    *first, one, two = lines(tmp_path / "s")
    order = sorted(first, key=lambda line: -line["found"][0])
    assert [one["trial"], two["trial"]] == [line["trial"] for line in order[:2]]
    assert one["failed"] and not two["failed"]
    monkeypatch.setattr(tuning, "_to", lambda *_: (_ for _ in ()).throw(NotFinite("it became non-finite.")))
    assert "no trial ran to the end, so there are no best settings: it became" in search(tmp_path / "t").err


@pytest.mark.slow
def test_a_narrow_terminal_breaks_no_name_and_a_name_of_one_algorithm_is_drawn(tmp_path, no_report, monkeypatch):
    """Only one of the two has a mu: the other has no panel of it."""
    monkeypatch.setenv("COLUMNS", "80")
    both, over = "fedavg, scaffold + fedprox(0.1) + relaxed_init(0.1)", "lr=loguniform(1e-2, 1), fedprox.mu=0.1..0.2"
    ended = search(tmp_path / "s", algorithms=both, over=over, trials=1, rounds=1)
    assert ended.code == 0 and (tmp_path / "s" / "tune.png").is_file(), ended.err
    words, shown = ended.out.split(), ended.out.partition(str(tmp_path))[0]
    assert max(map(len, shown.splitlines())) <= 80 and {"relaxed_init(0.1)", "fedprox(0.1)", "fedavg"} <= {*words}
    assert sum(word.startswith("fedprox.mu=0.1") and len(word) == len("fedprox.mu=0.1234") for word in words) == 1


GIVEN = {
    "a pair": {"data": (np.eye(40, 4), np.arange(40) % 2), "clients": 2},
    "clients apart": {"data": [(np.eye(20, 4), np.arange(20) % 2)] * 2},
    "a metric": {"metrics": [lambda outputs, y: (outputs.argmax(-1) == y).float()], "clients": 2},
    "names of metrics": {"metrics": ["accuracy", "f1"], "clients": 2},
    "steps by client": {"steps": [1, 2], "clients": 2},
    "step sizes by client": {"lr": [0.1, 0.2], "over": "batch=8..16", "clients": 2},
    "rows by client": {"split": [range(40), range(40, 80)]},
}


@pytest.mark.parametrize("given", GIVEN.values(), ids=GIVEN)
def test_objects_that_federate_takes_are_taken(tmp_path, no_report, given):
    found = apiece.tune(**{"over": "lr=0.1..1", "rounds": 1, "steps": 1, "trials": 1, "out": tmp_path / "s"} | given)
    assert len(found.best["fedavg"].found) == 1


def test_a_search_on_other_data_or_with_another_plugin_is_refused(tmp_path, monkeypatch, no_report):
    monkeypatch.chdir(tmp_path)
    table, plugin = tmp_path / "mine.csv", tmp_path / "mine.py"
    text = "a,b,label\n" + "".join(f"{i},{i % 3},{'yn'[i % 2]}\n" for i in range(40))
    code = "import apiece\n\n\ndef mine():\n    return apiece.algorithm(name='mine')\n"
    table.write_text(text)
    plugin.write_text(code)
    flags = {"data": "mine.csv", "algorithm": "mine", "plugin": "mine.py", "clients": 2, "rounds": 1, "trials": 1}
    assert search("s", **flags).code == 0
    assert ", kept" in search("s", **flags).err
    plugin.write_text(code + "# edited\n")
    sentence(search("s", **flags), "holds another search (plugin is ['", "take another --out")
    plugin.write_text(code)
    table.write_text(text.replace("\n1,", "\n7,"))
    sentence(search("s", **flags), "holds another search (the data's checksum is ", "take another --out")
    table.write_text(text)
    assert ", kept" in search("s", **flags).err


def test_a_search_with_another_object_of_a_program_is_refused(tmp_path, no_report):
    one, two, deep = nn.Linear(4, 2), nn.Linear(4, 2), nn.Sequential(nn.Linear(4, 2), nn.ReLU())
    deep[0].load_state_dict(one.state_dict())
    data = (np.eye(40, 4, dtype=np.float32), np.arange(40) % 2)
    same: dict[str, Any] = {"over": "lr=0.1..1", "trials": 1, "rounds": 1, "clients": 2, "out": tmp_path / "s"}
    given: dict[str, Any] = same | {"data": data, "model": one, "steps": [1, 2], "schedule": lambda *_: 1.0}
    found = apiece.tune(**given).best
    assert apiece.tune(**given | {"schedule": lambda *_: 1.0}).best == found
    loss = nn.functional.cross_entropy
    others = [("model", two), ("model", deep), ("model", "mlp"), ("steps", [2, 2]), ("steps", 2), ("loss", loss)]
    for name, other in others:
        with pytest.raises(apiece.UserError, match=rf"holds another search \({name} is .*take another --out"):
            apiece.tune(**given | {name: other})
    with pytest.raises(apiece.UserError, match="the data's checksum is .* there and .* here"):
        apiece.tune(**given | {"data": (data[0] + 1, data[1])})


def _loss(names: str, factor: float, text: str = "return factor * torch.nn.functional.cross_entropy(out, y)") -> Any:
    """A loss as another start of a program has it, whose line numbers and comments may be others."""
    scope: dict[str, Any] = {"torch": torch}
    exec(f"def made(factor):\n{names}    def loss(out, y):\n        {text}\n    return loss", scope)
    return scope["made"](factor)


def test_a_search_with_other_code_of_a_program_is_refused(tmp_path, no_report):
    """Trials of two losses of one name were one search."""

    class Twice(nn.Linear):
        def forward(self, input: torch.Tensor) -> torch.Tensor:  # noqa: A002
            return 2 * super().forward(input)

    other, twice = Twice.__dict__["forward"], Twice(4, 2)
    data = (np.eye(40, 4, dtype=np.float32), np.arange(40) % 2)
    same: dict[str, Any] = {"over": "lr=0.1..1", "trials": 1, "rounds": 1, "clients": 2, "data": data}
    first = same | {"out": tmp_path / "s", "model": twice, "loss": _loss("", 1.0)}
    found = apiece.tune(**first).best
    assert apiece.tune(**first | {"loss": _loss("    # a comment\n\n", 1.0)}).best == found
    for loss in (_loss("", 2.0), _loss("", 1.0, "return factor * torch.nn.functional.cross_entropy(out, y) * 3")):
        with pytest.raises(apiece.UserError, match=r"holds another search \(loss is .*take another --out"):
            apiece.tune(**first | {"loss": loss})
    Twice.forward = lambda self, input: 3 * nn.Linear.forward(self, input)  # noqa: A002
    with pytest.raises(apiece.UserError, match=r"holds another search \(model is .*take another --out"):
        apiece.tune(**first)
    Twice.forward = other
    twice.factor = 3.0
    with pytest.raises(apiece.UserError, match=r"holds another search \(model is .*take another --out"):
        apiece.tune(**first)
    del twice.factor
    assert apiece.tune(**first).best == found


class _Scaled:
    """A loss that is an object: its number is an attribute, and its work a static method's."""

    def __init__(self, factor: float) -> None:
        self._factor = factor

    def __call__(self, out: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return self.of(out, y, by=self._factor)

    @staticmethod
    def of(out: torch.Tensor, y: torch.Tensor, *, by: float = 1.0) -> torch.Tensor:
        return by * nn.functional.cross_entropy(out, y)


def test_what_tells_an_object_of_a_program(monkeypatch):
    """Attributes, static methods and defaults by keyword alone: each makes another loss of one name."""
    told = lambda thing: [re.sub(r" at 0x\w+", "", part) for part in module_of_given._described(thing)]
    first, static = told(_Scaled(1.0)), _Scaled.of
    assert told(_Scaled(1.0)) == first and told(_Scaled(2.0)) != first
    monkeypatch.setattr(static, "__kwdefaults__", {"by": 2.0})
    assert told(_Scaled(1.0)) != first
    monkeypatch.undo()
    assert told(_Scaled(1.0)) == first
    monkeypatch.setattr(_Scaled, "of", staticmethod(lambda out, y, *, by=1.0: -static(out, y, by=by)))
    assert told(_Scaled(1.0)) != first


def test_the_best_settings_leave_out_what_a_program_gives_itself(tmp_path, no_report):
    """They were those of `digits` and a model that fits it, with a step size of 0.1."""
    own = {"data": {"train": (np.eye(40, 4), np.arange(40) % 2)}, "model": nn.Linear(4, 2), "lr": [0.1, 0.2]}
    found = apiece.tune("batch=2..4", trials=1, rounds=1, clients=2, out=tmp_path / "s", **own)
    settings = found.settings()
    assert not settings.keys() & own.keys() and settings["batch"] == found.best["fedavg"].values["batch"]
    assert tomllib.loads((tmp_path / "s" / "best.toml").read_text()) == settings
    assert "# They need the program's own data, model, lr: give" in (tmp_path / "s" / "best.toml").read_text()
    said = (tmp_path / "s" / "tune.md").read_text()
    assert "`apiece.federate(**found.settings(), data=..., model=..., lr=...)` measures" in said
    assert "apiece run" not in said and apiece.federate(**settings, **own).metrics
    with pytest.raises(apiece.UserError, match="'lr' would replace the program's own lr: leave one of them out"):
        apiece.tune("lr=0.1..1", clients=2, out=tmp_path / "t", **own)


def test_a_search_that_notes_no_checksums_is_refused(tmp_path, monkeypatch, no_report):
    """As those of earlier versions: their trials may be of other data."""
    assert search(tmp_path / "s", trials=1, rounds=1).code == 0
    about = json.loads((tmp_path / "s" / "tune.json").read_text())
    del about["settings"]["the data's checksum"]
    (tmp_path / "s" / "tune.json").write_text(json.dumps(about))
    sentence(search(tmp_path / "s", trials=1, rounds=1), "the data's checksum is not set there and ", "take another")


REAL = {"data": (np.eye(40, 4), np.linspace(0, 1, 40)), "clients": 2, "steps": 1, "rounds": 1, "trials": 3}


def test_the_least_error_is_the_best_without_the_runs_of_the_trials(tmp_path, no_report):
    given: dict[str, Any] = {"over": "lr=choice(1e-6, 0.1)", "out": tmp_path / "s"} | REAL
    best = apiece.tune(**given).best["fedavg"]
    assert {one["values"]["lr"] for one in lines(tmp_path / "s")} == {1e-6, 0.1} and best.values == {"lr": 0.1}
    shutil.rmtree(tmp_path / "s" / "fedavg")
    assert apiece.tune(**given).best["fedavg"] == best


def test_a_metric_that_is_not_the_first_is_known_where_the_first_trial_diverges(tmp_path, no_report):
    found = apiece.tune("lr=choice(3e38, 0.1)", metric="global_mae", metrics=["mse", "mae"], out=tmp_path / "s", **REAL)
    assert lines(tmp_path / "s")[0]["failed"] and found.best["fedavg"].values == {"lr": 0.1}
    assert found.number.key == "global_mae" and not found.number.higher


def test_a_trial_that_failed_at_once_says_nothing_of_how_long_others_take(tmp_path, monkeypatch, no_report):
    monkeypatch.setattr(tuning, "_to", lambda *_: (_ for _ in ()).throw(NotFinite("it became non-finite.")))
    said = [line for line in search(tmp_path / "s").err.splitlines() if "failed" in line]
    assert len(said) == 3 and all(line.endswith("failed: it became non-finite") for line in said)


def test_rungs_follow_from_the_budget_alone():
    assert [tuple(rung) for rung in Budget(50).rungs(20, 1)] == [(50, 20)]
    assert [tuple(rung) for rung in Budget(2).rungs(20, 3)] == [(2, 20)]
    assert [tuple(rung) for rung in Budget(9e6, True).rungs(9, 3)] == [(1e6, 9), (3e6, 3), (9e6, 1)]


PLACES = [
    ("fedinit", "lr=0.1..1, beta=0..0.2", {"lr": 0.5, "beta": 0.1}, {"lr": 0.5, "algorithm": "fedinit(beta=0.1)"}),
    ("scaffold + relaxed_init(0.1)", "relaxed_init.beta=0..1", {"relaxed_init.beta": 0.3},
     {"algorithm": "scaffold + relaxed_init(0.3)"}),
    ("period(conv1, 10) + period(conv2, 5)", "period.2.every=2..4", {"period.2.every": 3},
     {"algorithm": "period(conv1, 10) + period(conv2, 3)"}),
    ("fedadam", "run.lr=0.1..1, fedadam.lr=0.1..1", {"run.lr": 0.5, "fedadam.lr": 0.2},
     {"lr": 0.5, "algorithm": "fedadam(lr=0.2)"}),
    ("fedavg", "average.lr=0.5..2", {"average.lr": 1.5}, {"server": "average(lr=1.5)"}),
]  # fmt: skip


@pytest.mark.parametrize(("algorithm", "over", "values", "settings"), PLACES, ids=lambda v: str(v)[:30])
def test_a_name_goes_to_its_setting_or_argument(algorithm, over, values, settings):
    space = ranges.space(Config(algorithm=algorithm), ranges.read(over), set())
    assert space.settings(values) == settings


def test_whole_numbers_are_for_what_counts():
    read = ranges.read("lr=1..2, steps=1..2, batch=loguniform(8, 64)")
    space = ranges.space(Config(), read, set())
    assert [of.whole for of in space.ranges.values()] == [False, True, True]


FAILING = """
from dataclasses import dataclass
import apiece


@dataclass(frozen=True)
class Mine(apiece.Piece):
    share: float

    def start(self, view, theta):
        if self.share != 0.5:
            raise ValueError("no such share")
        return theta


def mine(share=0.5, count=2):
    return apiece.algorithm(Mine(share), name="mine")
"""


def test_an_argument_without_a_type_has_that_of_its_default_and_a_trial_that_fails_is_named(
    tmp_path, monkeypatch, no_report
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(FAILING)
    config = Config(algorithm="mine", plugin=("mine.py",))
    space = ranges.space(config, ranges.read("share=0..1, count=1..4"), set())
    assert [of.whole for of in space.ranges.values()] == [False, True]
    ended = search("s", over="share=0..1", algorithm="mine", plugin="mine.py", trials=1, clients=2, rounds=1)
    sentence(ended, "trial 1 of mine (share=", "): Mine.start of the plugin")


def test_a_damaged_line_of_trials_is_told_before_another_follows_it(tmp_path):
    path = tmp_path / "trials.jsonl"
    line = json.dumps(Tried("fedavg", 0, 1.0, {"lr": 0.1}, [0.5], [1], [9])._asdict())
    path.write_text(f"{line}\n{line[:-9]}")
    assert len(trials.read(path)) == 1
    for damaged in (f"{line}\n{line[:-9]}\n".encode(), line.encode() + b"\n\xff\n"):
        path.write_bytes(damaged)
        with pytest.raises(apiece.UserError, match="line 2 is no trial: put the file back"):
            trials.read(path)


@pytest.mark.parametrize("width", [40, 60, 80, 200])
def test_no_number_of_a_search_is_cut_however_narrow_the_terminal(width, tmp_path):
    tried = Tried("fedavg", 122, 50.0, {"lr": 0.07185, "server": "momentum(beta=0.9123456)"}, [0.81, 0.91], [50], [44])
    best, shown = {"fedavg": tried, "scaffold + relaxed_init(aggregate=delta)": tried}, io.StringIO()
    tuned = Tuned(tmp_path, best, [], {}, [], Budget.of("", 50), named("global", (ACCURACY,)), Config())
    Console(file=shown, width=width).print(tuned.table())
    for whole in ("86.00 ± 7.07", "held-out", "123", "trial", "50", "rounds", "44 B", "sent"):
        assert whole in shown.getvalue(), shown.getvalue()
    assert "…" not in shown.getvalue() and max(map(len, shown.getvalue().splitlines())) <= width


BAD = [
    ({"over": "lr"}, "at character 3: expected '='"),
    ({"over": "lr=0.1"}, "expected '..'", "write it as in 'lr=0.01..1, "),
    ({"over": ""}, "write it as in 'lr=0.01..1, "),
    ({"over": "steps=0..3"}, "steps='0' is no number of local steps"),
    ({"over": "lr=0.1..1, run.lr=1..2"}, "'lr' and 'run.lr' are one setting, run.lr: keep one"),
    ({"over": "beta=0..0.2, fedinit.beta=0..1", "algorithm": "fedinit"}, "are one setting, fedinit.beta"),
    ({"over": "lr=0.1...1"}, "--over"),
    ({"over": "lr=1..0.1"}, "from 1 to 0.1", "the first below the second"),
    ({"over": "lr=loguniform(0, 1)"}, "the first above 0"),
    ({"over": "lr=normal(0, 1)"}, "unknown name 'normal'", "uniform"),
    ({"over": "lr=0.1..1, lr=1..2"}, "'lr' is given twice"),
    ({"over": "lr=-1..1"}, "lr=-1 must not be negative"),
    ({"over": "lr=choice(a, b)"}, "lr='a' is not allowed"),
    ({"over": "lr=choice(0.1)"}, "choice needs two values"),
    ({"over": "epochs=1..2.5"}, "epochs=2.5"),
    ({"over": "optimizer=choice(sgd, adamm)"}, "adamm"),
    ({"over": "bta=0..1", "algorithm": "fedinit"}, "no setting or argument 'bta'", "'beta'"),
    ({"over": "beta=0..1"}, "no setting or argument 'beta'"),
    ({"over": "lr=0.1..1", "algorithm": "fedadam"}, "run.lr and fedadam.lr", "write one of these"),
    ({"over": "rounds=1..9"}, "'rounds' cannot be tuned, as the search itself decides it"),
    ({"over": "split=choice(iid, natural)"}, "another value would be another task"),
    ({"over": "beta=0..0.2", "algorithms": "fedavg, fedinit"}, "names nothing that 'fedavg' has"),
    ({"algorithms": "fedavg, fedavg"}, "names 'fedavg' twice"),
    ({"algorithms": "fedavg, fedinit("}, "--algorithms 'fedavg, fedinit(': at character 17: expected"),
    ({"algorithms": "fedavgg"}, "did you mean 'fedavg'"),
    ({"metric": "globl"}, "no metric 'globl'", "did you mean 'global'"),
    ({"metric": "unseen"}, "--unseen"),
    ({"budget": "20 rounds"}, "no number of bytes"),
    ({"trials": 0}, "apiece: trials=0 must be"),
    ({"reduction": 0}, "apiece: reduction=0 must be"),
    ({"early_stopping": 3}, "leave early_stopping"),
    ({"data": "nowhere.npz"}, "nowhere.npz"),
]


@pytest.mark.parametrize(("settings", "said"), [(s, said) for s, *said in BAD], ids=lambda v: str(v)[:40])
def test_bad_input_is_one_sentence(tmp_path, settings, said):
    sentence(search(tmp_path / "s", **settings), *said)
    assert not (tmp_path / "s").exists()


def test_another_search_and_a_folder_of_something_else_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(tuning, "_run", lambda search: (_ for _ in ()).throw(apiece.UserError("seen")))
    sentence(search(tmp_path / "s"), "seen")
    sentence(search(tmp_path / "s", trials=4, lr=0.2), "trials is 3 there and 4 here; lr is 0.1 there and 0.2 here")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "notes.txt").touch()
    sentence(search(tmp_path / "full"), "holds no search")
    sentence(cli("tune", "--over", "lr=0.1..1"), "--out")
    for damaged in ('{"over": ', "[1]", "{}"):
        (tmp_path / "s" / "tune.json").write_text(damaged)
        sentence(search(tmp_path / "s"), "tune.json does not say what is searched: put it back")
    with folders.alone(tmp_path / "s"):
        sentence(search(tmp_path / "s"), "another process is at work on")


def test_optuna_that_is_missing_is_one_sentence(tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "optuna", None)
    sentence(search(tmp_path / "s"), "needs optuna", 'pip install ".[tune]"')
