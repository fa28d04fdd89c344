"""Law 9: a run that was stopped, at any moment and however, ends bitwise as the one that never stopped."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support import ROOT, TESTS, tiers
from support.crashes import Crash, Disk
from support.recipes import RECIPES, SMALL, Stop, result, stopping
from support.subjects import algorithms, names_of

from apiece.engine import messages
from apiece.engine.row import OPTIMIZER
from apiece.errors import UserError
from apiece.experiment import identity, lifecycle
from apiece.experiment.launch import federate
from apiece.experiment.result import Result
from apiece.report import page
from apiece.storage import checkpoint
from apiece.storage.row_format import RowFormat

QUICK = ("fedinit, paper", "scaffold, momentum kept", "scaffold + fedals, absentees", "pefll", "ditto + fine_tune")
TABLE = ROOT / "docs" / "results" / "torture.md"


pytestmark = pytest.mark.usefixtures("no_report")


def run(folder: Path, stop: int = 0, **settings: Any) -> Result:
    """Begin a run or go on with it; its watcher raises after round `stop`."""
    return federate(out=str(folder), resume=True, on_round=stopping(stop), **(SMALL | settings))


def stopped(folder: Path, at: int, **settings: Any) -> None:
    with pytest.raises(Stop):
        run(folder, at, **settings)


def checkpoints(folder: Path) -> list[Path]:
    return sorted((folder / "checkpoints").glob("round-*.safetensors"))


def check(whole: tuple[Path, Result], again: tuple[Path, Result]) -> None:
    a, b = result(whole[0]), result(again[0])
    for part in a:
        assert a[part] == b[part], part
    assert whole[1].clients.digest() == again[1].clients.digest()
    assert whole[1].metrics[-1].get("global_accuracy") == again[1].metrics[-1].get("global_accuracy")


def test_every_named_algorithm_has_a_recipe():
    recipes = {name for recipe in RECIPES.values() for name in names_of(str(recipe.get("algorithm", "fedavg")))}
    assert set(algorithms()) == recipes


def test_the_committed_table_of_kills_is_of_these_recipes():
    """Every one was killed after a checkpoint, and ended bitwise as if it had not been; `make torture` makes it."""
    lines = [line.strip("| ").split(" | ") for line in TABLE.read_text().splitlines() if line.startswith("| ")]
    rows = [cells for cells in lines[1:] if len(cells) == 5]
    assert [name for name, *_ in rows] == list(RECIPES), "docs/results/torture.md is stale"
    for name, kills, torn, compared, equal in rows:
        assert int(kills) > int(torn) and int(compared) > 0 and equal == "yes", name


# a recipe catches what its algorithm alone keeps, where no checkpoint has it
@pytest.mark.slow
@pytest.mark.parametrize("recipe", tiers.but(QUICK, RECIPES))
def test_stopped_twice_and_with_a_torn_checkpoint(recipe, tmp_path):
    settings = RECIPES[recipe]
    whole = run(tmp_path / "whole", **settings)
    folder = tmp_path / "stopped"
    stopped(folder, 1, **settings)
    stopped(folder, 4, **settings)
    newest = checkpoints(folder)[-1]
    newest.write_bytes(newest.read_bytes()[:-9])
    again = run(folder, **settings)
    assert "round-000004" in (folder / "notes.txt").read_text()  # refused by name
    check((tmp_path / "whole", whole), (folder, again))


@pytest.mark.slow
@pytest.mark.parametrize("every", [2, 3, 9])
def test_between_two_checkpoints(every, tmp_path):
    settings = {"algorithm": "fedals(alpha=3) + scaffold", "checkpoint_every": every, "rounds": 7}
    whole = run(tmp_path / "whole", **settings)
    for stop in range(1, 7):
        stopped(tmp_path / "stopped", stop, **settings)
    again = run(tmp_path / "stopped", **settings)
    check((tmp_path / "whole", whole), (tmp_path / "stopped", again))


def test_without_a_checkpoint_yet_it_goes_on_with_fewer_of_them(tmp_path):
    """Killed in its first round, then before the first of fewer checkpoints; its rounds were not lost."""

    def killed(round: Any) -> None:
        raise Crash

    with pytest.raises(Crash):
        federate(out=str(tmp_path / "run"), watchers=[killed], **SMALL)
    stopped(tmp_path / "run", 3, checkpoint_every=9)
    assert not checkpoints(tmp_path / "run")
    stopped(tmp_path / "run", 3, checkpoint_every=9)
    again = run(tmp_path / "run")
    check((tmp_path / "whole", run(tmp_path / "whole")), (tmp_path / "run", again))


def test_a_crash_as_it_gets_fewer_rounds_before_its_first_checkpoint(tmp_path, monkeypatch):
    """Its log has rounds that it has no longer, and no checkpoint of them was lost."""
    more, folder = {"rounds": 12, "checkpoint_every": 9}, tmp_path / "run"

    def killed(*_: Any) -> None:
        raise Crash

    with pytest.raises(Crash):
        federate(out=str(folder), watchers=[killed], **SMALL | more | {"rounds": 2})
    stopped(folder, 5, **more)
    with monkeypatch.context() as patch, pytest.raises(Crash):
        patch.setattr(lifecycle, "note", killed)  # what it tells once the number of rounds is written
        run(folder, **more | {"rounds": 4})
    run(folder, **more | {"rounds": 4})
    assert len(result(folder)["log"]) == 4


def test_what_does_not_belong_to_the_result_may_change(tmp_path):
    """Another number of workers, another lift of the exact class' default, fewer checkpoints: the same run."""
    whole = run(tmp_path / "whole", algorithm="scaffold", workers=1)
    stopped(tmp_path / "moved", 2, algorithm="scaffold", workers=1)
    (tmp_path / "moved").rename(tmp_path / "elsewhere")
    again = run(tmp_path / "elsewhere", algorithm="scaffold", workers=3, checkpoint_every=2)
    check((tmp_path / "whole", whole), (tmp_path / "elsewhere", again))


def test_a_run_that_had_ended(tmp_path):
    whole = run(tmp_path / "run", algorithm="fedavg_p")
    before = result(tmp_path / "run")
    again = run(tmp_path / "run", algorithm="fedavg_p")
    assert result(tmp_path / "run") == before and again.accuracy == whole.accuracy


def test_other_settings_do_not_continue_a_run(tmp_path):
    stopped(tmp_path / "run", 3, drift="none")
    with pytest.raises(UserError, match="run of another configuration .lr is 0.1 there and 0.2 here.: take"):
        run(tmp_path / "run", drift="none", lr=0.2)
    run(tmp_path / "run", drift="none")  # and are as they were


@pytest.mark.slow
def test_seeds_go_on_each(tmp_path):
    """The first seed had ended, the second was stopped, the third had not begun."""
    from dataclasses import replace

    from apiece.config.tables import from_table
    from apiece.experiment.launch import resume, run_config

    config = from_table(SMALL | {"algorithm": "scaffold", "seeds": [0, 1, 2]}, "test")
    run_config(replace(config, out=str(tmp_path / "whole")))
    folder = tmp_path / "stopped"
    page.write_report, kept = _stopping, page.write_report
    with pytest.raises(Stop):
        run_config(replace(config, out=str(folder)))
    page.write_report = kept
    assert [path.name for path in sorted(folder.glob("seed-*"))] == ["seed-0"]
    stopped(folder / "seed-1", 2, algorithm="scaffold", seed=1)
    resume(folder)
    for seed in range(3):
        assert result(folder / f"seed-{seed}") == result(tmp_path / "whole" / f"seed-{seed}")


def _stopping(*_: object) -> None:
    raise Stop


# --- a crash at every write, flush and rename ------------------------------------------------------------------------
CRASHED = {"algorithm": "fedals(alpha=2) + scaffold", "model": "mlp(hidden=[2])", "rounds": 3, "clients": 3,
    "cohort": 1.0, "steps": 1, "unseen": 0, "eval_every": 3, "drift": "selected", "lift": "sequential"}  # fmt: skip


@pytest.fixture
def disk(tmp_path, monkeypatch) -> Disk:
    return Disk(tmp_path / "disk", monkeypatch)


# ways to crash catch a flush or a rename that is left out, or a file written in place
@pytest.mark.slow
@pytest.mark.parametrize("how", ["killed", "killed in a write", "power cut", "power cut, some was written"])
def test_a_crash_at_every_operation_of_a_whole_run(how, disk):
    folder = disk.root / "run"
    run(folder, **CRASHED)
    expected, total = result(folder), disk.count
    assert total > 70
    for at in range(1, total + 1, 1 if how == "killed in a write" else 2):
        disk.reset()
        disk.arm(at, half=how == "killed in a write" or at % 4 == 1)
        with pytest.raises(Crash):
            run(folder, **CRASHED)
        if "cut" in how:
            disk.cut(np.random.default_rng(at), 0.5 if "some" in how else 0.0)
        disk.arm(0)
        run(folder, **CRASHED)
        assert result(folder) == expected, at


@pytest.mark.slow
def test_crash_after_crash(disk):
    """Each start is struck again soon: what one of them leaves half done, the next has to bear."""
    folder, settings = disk.root / "run", CRASHED | {"lift": "auto"}
    run(folder, **settings)
    expected = result(folder)
    for case in range(12):
        rng = np.random.default_rng(case)
        disk.reset()
        for _ in range(8):
            disk.arm(int(rng.integers(1, 40)), half=bool(rng.integers(2)))
            with suppress(Crash):
                run(folder, **settings)
            if case % 2:
                disk.cut(rng, float(rng.choice([0.0, 0.5, 1.0])))
        disk.arm(0)
        run(folder, **settings)
        assert result(folder) == expected, case


# --- SIGKILL ---------------------------------------------------------------------------------------------------------
@pytest.mark.slow
def test_sigkill_at_random_moments(tmp_path):
    """Six algorithms, each killed again and again in processes of their own; `torture.py` does it for all."""
    six = ["scaffold", "fedinit, paper", "fedals, held", "scaffold_p", "scaffold + relaxed_init", "fedals + scaffold"]
    script, table = TESTS / "torture.py", tmp_path / "torture.md"
    words = [sys.executable, script, "--kills", "4", "--seed", "1", "--out", table, *six]
    ended = subprocess.run(words, capture_output=True, text=True, timeout=300)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    text = table.read_text()
    assert all(f"| {name} |" in text for name in six) and text.count("| yes |") == 6


# --- folders of an earlier day ---------------------------------------------------------------------------------------
BEFORE = {
    "memory.Scaffold.variate": "memory.0",
    "memory.Ditto.model": "memory.1",
    "told.Scaffold.variate": "told.0",
    f"{OPTIMIZER}.momentum": f"{OPTIMIZER}.0",
    f"{OPTIMIZER}.first": f"{OPTIMIZER}.0",
    f"{OPTIMIZER}.second": f"{OPTIMIZER}.1",
}


@pytest.mark.slow
@pytest.mark.parametrize("lift", ["sequential", "wired"])
def test_a_folder_from_before_pieces_had_names_goes_on(tmp_path, lift):
    """What pieces and optimizers keep went by number then, on the server and on the clients."""
    settings = {"algorithm": "scaffold + fedals(2) + ditto + fedadam", "optimizer": "sgd(momentum=0.9)", "lift": lift}
    settings |= {"optimizer_state": "kept", "rounds": 4, "model": "mlp(hidden=[4])"}
    settings |= {"clients": 3, "checkpoint_every": 1}
    whole = run(tmp_path / "whole", **settings)
    stopped(tmp_path / "old", 3, **settings)
    for path in checkpoints(tmp_path / "old"):
        number, tensors, about = checkpoint.read(path, identity.digest(whole.experiment.config))
        renamed = {BEFORE.get(name, name): leaf for name, leaf in tensors.items()}
        assert renamed.keys() >= {"memory.0", f"{OPTIMIZER}.1"}
        if lift == "wired":  # memories had no checksums either
            rows = json.loads(about["rows"])
            counted = {client: [round for round, _ in made] for client, made in rows.pop("memories").items()}
            about = {"rows": json.dumps(rows | {"counted": counted})}
        checkpoint.write(tmp_path / "old", number, renamed, about, identity.digest(whole.experiment.config))
    memories = list((tmp_path / "old").glob("clients/*/round-*"))
    assert bool(memories) == (lift == "wired")
    for path in memories:
        row = {BEFORE.get(name, name): leaf for name, leaf in messages.unpack(path.read_bytes())[1].items()}
        assert row.keys() >= {"memory.0", "memory.1", "told.0", f"{OPTIMIZER}.0"}
        path.with_name(f"round-{path.name.split('-')[1]}.safetensors").write_bytes(messages.save(row))
        path.unlink()
    run(tmp_path / "old", **settings)
    one, two = result(tmp_path / "whole"), result(tmp_path / "old")
    if lift == "wired":  # beside what counts, the server notes older rounds, by when it was stopped
        del one["rows"], two["rows"]
    assert one == two


def test_a_file_of_rows_is_known_by_the_numbers_of_what_pieces_keep():
    row = {"model": 2, "memory.Scaffold.variate": 2, "memory.Ditto.model": 2, "touched": 0, "optimizer.momentum": 2}
    text = "model [2] float32, memory.0 [2] float32, memory.1 [2] float32, touched [0] float32, optimizer.0 [2] float32"
    layout = RowFormat.of({name: torch.zeros(size) for name, size in row.items()})
    assert layout.hash == hashlib.sha256(text.encode()).hexdigest()
