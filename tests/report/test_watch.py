"""The page that follows runs: what it shows of a run that goes on, and whom it answers."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path

import pytest
from support.folders import write

from apiece.errors import UserError
from apiece.report import watch
from apiece.report.watch import Watch, serve, server_of, watched


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A run that writes its second of three rounds now."""
    made = write(tmp_path / "run", rounds=3, full=False)
    lines = (made / "metrics.jsonl").read_text().splitlines(keepends=True)
    (made / "metrics.jsonl").write_text(lines[0] + lines[1][:40])
    return made


@pytest.fixture
def port(folder: Path) -> Iterator[int]:
    server = server_of(Watch([folder]), 0)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server.server_port
    server.shutdown()
    thread.join()
    server.server_close()


def asked(port: int, path: str, host: str = "") -> tuple[int, str]:
    connection = HTTPConnection(watch.HERE, port, timeout=30)
    connection.request("GET", path, headers={"Host": host} if host else {})
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    return answer.status, text


def test_a_page_follows_a_run(folder: Path, port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "REST", 0)
    (_, before), (_, page) = asked(port, "/stamp"), asked(port, "/")
    assert "1 of 3 rounds are done" in page and "Results so far" in page and f'data-stamp="{before}"' in page
    (folder / "metrics.jsonl").write_text('{"round": 1, "train_loss": 2.0}\n{"round": 2, "train_loss": 1.0}\n')
    (_, after), (_, page) = asked(port, "/stamp"), asked(port, "/")
    assert after != before and "2 of 3 rounds are done" in page


def test_only_this_machine_and_this_page_are_answered(port: int) -> None:
    assert asked(port, "/run.toml")[0] == 404
    assert asked(port, "/", "evil.example")[0] == 403  # a name that leads here


def test_a_run_without_a_round_is_waited_for(folder: Path) -> None:
    (folder / "metrics.jsonl").unlink()
    assert "No run has finished a round yet" in Watch(watched([folder])).newest().text


def test_what_holds_no_run_is_refused(folder: Path, port: int, tmp_path: Path) -> None:
    (tmp_path / "report.html").touch()
    assert watched([tmp_path / "report.html", folder]) == [folder]  # runs/* matches both
    (tmp_path / "empty").mkdir()
    for path, told in (("none", "does not exist"), ("empty", "holds no run"), ("report.html", "No folder was named")):
        with pytest.raises(UserError, match=told):
            serve([tmp_path / path], 0)
    with pytest.raises(UserError, match=f"Port {port} is taken by another program"):
        serve([folder], port)
    with pytest.raises(UserError, match="between 0 and 65535"):
        serve([folder], 70000)
