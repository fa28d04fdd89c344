"""What a run's log lacks is said, at resume and in a report; a run goes on from the last checkpoint that agrees."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from support import tiers
from support.outer import cli, run, sentence
from support.recipes import result

from apiece.report import page
from apiece.report.results import read_run
from apiece.storage import log
from apiece.storage.log import Log

ROUNDS = 6


@pytest.fixture(scope="module")
def ended(tmp_path_factory) -> Path:
    """A run that came to its end, without a page of its own."""
    folder = tmp_path_factory.mktemp("ended") / "run"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(page, "write_report", lambda _, out, *rest: Path(out))
        assert run(out=folder, rounds=ROUNDS, algorithm="scaffold").code == 0
    return folder


@pytest.fixture
def folder(ended, tmp_path, monkeypatch) -> Path:
    """The same run, stopped before its end."""
    monkeypatch.setattr(page, "write_report", lambda _, out, *rest: Path(out))
    shutil.copytree(ended, tmp_path / "run")
    (tmp_path / "run" / "model.safetensors").unlink()
    return tmp_path / "run"


def without(*rounds: int) -> Callable[[bytes], bytes]:
    return lambda data: b"".join(
        line for line in data.splitlines(keepends=True) if json.loads(line)["round"] not in rounds
    )


def digit(data: bytes, of: int) -> bytes:
    """Another digit in one round's loss."""
    lines = data.splitlines(keepends=True)
    at = lines[of - 1].index(b'"train_loss": ') + len(b'"train_loss": 0.1')
    lines[of - 1] = lines[of - 1][:at] + (b"7" if lines[of - 1][at:][:1] != b"7" else b"3") + lines[of - 1][at + 1 :]
    return b"".join(lines)


LOST = {
    "empty": (lambda _: b"", "metrics.jsonl is empty, though rounds were done"),
    "halved": (lambda data: data[: len(data) // 2], "metrics.jsonl lacks rounds "),
    "a line removed": (without(2), "metrics.jsonl lacks round 2"),
    "several removed": (without(1, 3, 4), "metrics.jsonl lacks rounds 1, 3 to 4"),
    "a digit changed": (lambda data: digit(data, 2), "something in it was changed"),
    "two lines exchanged": (lambda data: b"".join(data.splitlines(keepends=True)[i] for i in (1, 0, 2, 3, 4, 5)),
                            "something in it was changed"),
    "a round that is none": (lambda data: data.replace(b'"round": 2,', b'"round": 999999999999,'),
                             "lacks rounds 2, 7 to"),
}  # fmt: skip


# a loss catches a check that reads the length or the last line alone
@pytest.mark.slow
@pytest.mark.parametrize("how", tiers.but(("halved", "a line removed"), ["missing", *LOST]))
def test_a_log_that_no_checkpoint_agrees_with_is_refused_by_name(folder, tmp_path, how):
    path = folder / "metrics.jsonl"
    spoil, said = LOST.get(how, (None, "metrics.jsonl is missing, though rounds were done"))
    path.write_bytes(spoil(path.read_bytes())) if spoil else path.unlink()
    before = {file: file.read_bytes() for file in folder.rglob("*") if file.is_file()}
    sentence(cli("resume", folder), "no checkpoint of", f"{folder / said}" if said.startswith("m") else said, "a copy")
    sentence(cli("resume", folder, "--rounds", 9), "no checkpoint of", said)
    assert {file: file.read_bytes() for file in folder.rglob("*") if file.is_file()} == before
    assert cli("export", folder, "--out", tmp_path / "model.safetensors").code == 0  # models do not depend on it
    if how in ("missing", "empty"):
        sentence(cli("report", folder), said, "put it back from a copy")
        sentence(cli("report", tmp_path), said)  # a folder that holds it: it is not passed over
    else:
        assert said in read_run(folder).lost
        assert said in cli("report", folder, "--out", tmp_path / "page.html").err
        assert said in cli("compare", folder, "--no-references").err


@pytest.mark.parametrize("spoil", [without(6), lambda data: data[:-9], lambda data: digit(data, 6)])
def test_a_run_goes_on_from_the_last_checkpoint_that_agrees(ended, folder, spoil):
    path = folder / "metrics.jsonl"
    path.write_bytes(spoil(path.read_bytes()))
    again = cli("resume", folder)
    assert again.code == 0 and str(path) in again.err and "checkpoint of round 5 is taken instead" in again.err
    assert str(path) in (folder / "notes.txt").read_text() and result(folder) == result(ended)


def test_what_comes_after_the_newest_checkpoint_is_written_anew(ended, folder):
    """Whatever a crash has left there."""
    for path in (folder / "checkpoints").iterdir():
        path.rename(path) if "5" in path.name else path.unlink()
    with open(folder / "metrics.jsonl", "a") as file:
        file.write('{"round": 7, "train_')
    assert cli("resume", folder).code == 0 and result(folder) == result(ended)


def test_a_report_says_what_is_lost(folder, monkeypatch, tmp_path):
    monkeypatch.undo()
    path = folder / "metrics.jsonl"
    path.write_bytes(without(2, 3)(path.read_bytes()))
    said = cli("report", folder, "--out", tmp_path / "page.html").err
    assert said == f"apiece: {path} lacks rounds 2 to 3.\n"
    assert f"scaffold: {path} lacks rounds 2 to 3." in (tmp_path / "page.html").read_text()


def test_a_checkpoint_from_before_knows_nothing_of_the_log(folder):
    """It is believed as it was then, and what a report sees without it is a gap."""
    path = folder / "metrics.jsonl"
    path.write_bytes(digit(path.read_bytes(), 2))
    assert [json.loads(line)["round"] for line in log.kept(folder, 4, None)] == [1, 2, 3, 4]
    for file in (folder / "checkpoints").iterdir():
        file.unlink()
    assert read_run(folder).lost == ""
    path.write_bytes(without(2)(path.read_bytes()))
    assert read_run(folder).lost == f"{path} lacks round 2"


def test_a_line_is_hashed_once(tmp_path, monkeypatch):
    """Ten thousand rounds cost ten thousand lines: what was written is not read again."""
    kept = Log(tmp_path)
    for t in range(3):
        kept.append({"round": t + 1})
    content = (tmp_path / "metrics.jsonl").read_bytes()
    monkeypatch.setattr(Path, "read_bytes", lambda path: pytest.fail(f"{path} was read"))
    kept.append({"round": 4})
    digest = kept.settle()
    monkeypatch.undo()
    assert digest == Log.rewound(tmp_path, [content, b'{"round": 4}\n']).settle()
    assert (tmp_path / "metrics.jsonl").read_bytes() == content + b'{"round": 4}\n'
