"""What `apiece deploy status` says of nodes and runs, to people and to programs."""

from __future__ import annotations

import json
import socket
from contextlib import suppress
from pathlib import Path

import pytest
from filelock import FileLock

pytest.importorskip("cryptography")

from apiece.cli import main
from apiece.config.settings import Config
from apiece.deploy import flower_commands
from apiece.deploy.flower_commands import Registered
from apiece.deploy.following import follow
from apiece.deploy.request import FOLDER, Request, Terms
from apiece.deploy.serving import HERE, reached
from apiece.errors import UserError

NODES = (Registered("south", "key", 2, "offline"), Registered("north", "key", 1, "online"))


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A coordinator's folder with a run that was asked for."""
    monkeypatch.setattr(flower_commands, "registered", lambda connection: NODES)
    request = Request(tmp_path / FOLDER / "first.toml")
    request.write(Config(algorithm="scaffold", rounds=9, out=str(tmp_path / "first")), Terms())
    (tmp_path / HERE).write_text(json.dumps({"port": 8000, "ca": "ca.pem"}))
    return tmp_path


def told(state: Path, capsys: pytest.CaptureFixture[str], *flags: str) -> str:
    main(["deploy", "status", "--state", str(state), *flags])
    return capsys.readouterr().out


def test_the_nodes_and_the_runs_are_a_line_each(state, capsys):
    assert told(state, capsys).splitlines() == [
        "node north: online",
        "node south: offline",
        f"run first: waits for the server, 0 of 9 rounds, scaffold, {state / 'first'}",
    ]


def test_programs_get_the_same_as_json(state, capsys):
    run = {"name": "first", "state": "waits for the server", "done": 0, "rounds": 9, "algorithm": "scaffold"}
    run |= {"out": str(state / "first"), "said": ""}
    nodes = {"north": "online", "south": "offline"}
    assert json.loads(told(state, capsys, "--json")) == {"nodes": nodes, "problem": "", "runs": [run]}


def test_where_a_run_stands_follows_it_to_its_end(state, capsys):
    request = Request(state / FOLDER / "first.toml")
    standing = lambda: json.loads(told(state, capsys, "--json"))["runs"][0]
    with FileLock(request.lock):
        assert standing()["state"] == "waits for its nodes"
        request.path.with_suffix(".nodes").write_text("[]")
        assert standing()["state"] == "at work"
    (state / "first").mkdir()
    (state / "first" / "metrics.jsonl").write_text('{"round": 1}\n{"round": 2}\n{"rou')  # the last is being written
    request.log.write_text("round 1: 1 of 2 nodes did not count\n'south' did not answer in time\n")
    found = standing()
    assert (found["done"], found["said"]) == (2, "'south' did not answer in time")
    request.end("done")
    assert standing()["state"] == "done"


def test_a_round_whose_value_is_no_number_is_shown_as_any_other(state, capsys):
    (state / "first").mkdir()
    log, request = state / "first" / "metrics.jsonl", Request(state / FOLDER / "first.toml")
    log.write_text('{"round": 1, "cohort": 3, "answered": 2, "global_loss": null}\n')
    request.end("done")
    follow(request, quiet=False)
    assert capsys.readouterr().out == "round 1: 2 of 3 answered, global_loss nan\nrun 'first': done.\n"
    (state / "first" / "report.html").touch()
    follow(request, quiet=True)
    assert capsys.readouterr().out == f"run 'first': done; see {state / 'first' / 'report.html'}.\n"
    log.write_text('{"rou\n{"round": 2}\n')
    assert f"run first: {log}, line 1, is not a round's metrics" in told(state, capsys)


def test_runs_are_told_where_the_server_does_not_answer(state, capsys, monkeypatch):
    def silent(connection):
        raise UserError("nobody listens at port 8000.")

    monkeypatch.setattr(flower_commands, "registered", silent)
    first, second = told(state, capsys).splitlines()
    assert first == "the server does not answer: nobody listens at port 8000." and second.startswith("run first: ")
    found = json.loads(told(state, capsys, "--json"))
    assert (found["nodes"], found["problem"]) == ({}, "nobody listens at port 8000.")


def test_a_request_that_was_changed_hides_no_other(state, capsys):
    (state / FOLDER / "second.toml").write_text("x = 1")
    first, second = told(state, capsys).splitlines()[2:]
    assert first.startswith("run first: waits for the server, 0 of 9")
    assert second.startswith("run second: ") and second.endswith("as it was changed: remove it, and ask anew.")


@pytest.mark.parametrize("text", ["[]", "{}", '{"port": "x", "ca": ""}', "no"])
def test_a_folder_that_is_no_coordinators_is_told_of(state, text):
    (state / HERE).write_text(text)
    with pytest.raises(UserError, match="is no folder of `apiece serve`"):
        reached(state)


@pytest.mark.parametrize("command", ["run", "resume", "personalize"])
def test_who_asks_a_server_that_does_not_run_is_told_how_to_start_it(state, capsys, command):
    first = Request(state / FOLDER / "first.toml")
    first.end({"run": "done", "resume": "failed: no node", "personalize": "failed: no node"}[command])
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    (state / HERE).write_text(json.dumps({"port": port, "ca": "/srv/team/ca.crt"}))
    words = ["--out", str(state / "second"), "--detach"] if command == "run" else ["first"]
    with suppress(SystemExit):  # no model is made for newcomers of a run that is not done
        main(["deploy", command, *words, "--state", str(state)])
    assert f"start `apiece serve /srv/team --state {state} --port {port}`, or its unit." in capsys.readouterr().out


def test_a_coordinator_that_has_nothing_yet_says_so(state, capsys, monkeypatch):
    monkeypatch.setattr(flower_commands, "registered", lambda connection: ())
    (state / FOLDER / "first.toml").unlink()
    assert told(state, capsys) == "there is no node and no run yet.\n"
