"""A phase over a network that loses, delays, repeats and lies; what a node lets a coordinator decide."""

from __future__ import annotations

import itertools
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from apiece.config.settings import Config
from apiece.deploy import coordinator, doorway, frames, joining, own_data, phases
from apiece.deploy.coordinator import settled
from apiece.deploy.facts import Facts, federation, united
from apiece.deploy.failure import Failure
from apiece.deploy.newcomers import newcomers
from apiece.deploy.node import Node, Settings
from apiece.deploy.phases import Phases, gathered
from apiece.deploy.request import Request, Terms
from apiece.engine import messages
from apiece.errors import UserError
from apiece.language.plugins import pinned
from apiece.wired.client import FAILED, REFUSED, instead_of_errors

NORTH = Facts("north", 5, 2, [3], "float", [], "int64", "classification", 2, [0, 1], [])


class Net:
    """Nodes that answer by a function of (name, head, body, how often it was asked); None: not yet, or never."""

    def __init__(self, answer: Callable[[str, dict, bytes, int], bytes | Failure | None], *names: str) -> None:
        self.answer, self.names, self.marks = answer, names, itertools.count()
        self.asked: list[tuple[str, dict]] = []
        self.there: dict[str, bytes | Failure] = {}

    def online(self) -> Mapping[str, Any]:
        return {name: name for name in self.names}

    def push(self, to: str, frame: bytes, seconds: float) -> str:
        head, body = frames.unpack(frame)
        times = sum(name == to for name, _ in self.asked)
        self.asked.append((to, head))
        mark = str(next(self.marks))
        if (answer := self.answer(to, head, bytes(body), times)) is not None:
            self.there[mark] = answer
        return mark

    def pull(self, marks: Sequence[str]) -> list[tuple[str, bytes | Failure]]:
        return [(mark, self.there.pop(mark)) for mark in marks if mark in self.there]


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    for name, seconds in {"LOOK": 0.0, "POLL": 0.001, "AGAIN": 0.01}.items():
        monkeypatch.setattr(phases, name, seconds)


def echo(name: str, head: dict, body: bytes, times: int) -> bytes:
    return frames.pack({"is": "answer"}, body + name.encode())


def phase(net: Net, quorum: int = 1, deadline: float = 0.2) -> tuple[list[bytes | memoryview | None], list[str]]:
    said: list[str] = []
    made = Phases(net, ["north", "south"], "0" * 16, "text", quorum, deadline, said.append)
    return list(made.ask([0, 1], lambda client: b"%d" % client)), said


def test_answers_come_in_the_order_of_clients_and_the_text_goes_once():
    net = Net(echo, "south", "north")
    said: list[str] = []
    made = Phases(net, ["north", "south"], "0" * 16, "text", 1, 1.0, said.append)
    assert list(made.ask([1, 0], lambda client: b"%d" % client)) == [b"1south", b"0north"]
    assert list(made.ask([0], lambda client: b"more")) == [b"morenorth"]
    assert ["text" in head for _, head in net.asked] == [True, True, False] and not said


def test_who_is_silent_is_absent_and_named():
    answers, said = phase(Net(lambda n, h, b, t: echo(n, h, b, t) if n == "north" else None, "north", "south"))
    assert answers == [b"0north", None] and said == ["'south' did not answer in time."]


def test_nobody_waits_twice_for_a_node_that_is_away_and_it_is_asked_once_it_is_back():
    net, said = Net(echo, "north"), list[str]()
    made = Phases(net, ["north", "south"], "0" * 16, "text", 1, 0.3, said.append)
    ask = lambda: [answer is not None for answer in made.ask([0, 1], lambda client: b"")]
    began = time.monotonic()
    assert ask() == [True, False] and time.monotonic() - began > 0.3
    made.deadline = 1000.0
    assert ask() == [True, False] == ask() and said == ["'south' did not answer in time."]
    net.names = ("north", "south")
    assert ask() == [True, True]
    net.answer, made.deadline = lambda name, *rest: echo(name, *rest) if name == "north" else None, 0.3
    assert ask() == [True, False]  # it is there, and silent
    net.answer, made.deadline = echo, 1000.0
    assert ask() == [True, True]


def test_with_fewer_than_the_quorum_nobody_goes_on_without_who_is_away():
    net, said = Net(echo, "north"), list[str]()
    made = Phases(net, ["north", "south"], "0" * 16, "text", 1, 0.01, said.append)
    assert sum(answer is not None for answer in made.ask([0, 1], lambda client: b"")) == 1
    made.quorum, looks, online = 2, iter(range(9)), net.online

    def look() -> Mapping[str, Any]:
        net.names = net.names if next(looks, None) is not None else ("north", "south")
        return online()

    net.online = look  # type: ignore[method-assign]
    assert all(answer is not None for answer in made.ask([0, 1], lambda client: b""))
    assert "1 of 2 nodes answered, and the quorum is 2: 'south' did not" in said[-1]


def test_who_fails_is_asked_again_and_an_answer_that_came_is_kept():
    def once(name: str, head: dict, body: bytes, times: int) -> bytes | Failure:
        return Failure("code 5") if name == "south" and times < 2 else echo(name, head, body, times)

    net = Net(once, "north", "south")
    answers, said = phase(net, deadline=5.0)
    assert answers == [b"0north", b"1south"] and len(said) == 1 and "code 5" in said[0]
    assert [name for name, _ in net.asked].count("north") == 1


def test_who_was_gone_and_is_back_is_asked_again_without_an_error():
    """It died in sending its answer, of which nothing more is heard; who stays is not asked twice."""

    class Restarted(Net):
        looks = 0

        def online(self) -> Mapping[str, Any]:
            self.looks += 1
            away = "south" if 3 <= self.looks < 6 else ""
            return {name: name for name in self.names if name != away}

    net = Restarted(lambda n, h, b, t: None if n == "south" and not t else echo(n, h, b, t), "north", "south")
    answers, said = phase(net, deadline=5.0)
    assert answers == [b"0north", b"1south"]
    assert said == ["node 'south' was gone while it was asked, and is back; it is asked again."]
    assert [name for name, _ in net.asked].count("south") == 2 and net.looks < 50


def test_with_fewer_than_the_quorum_the_phase_goes_on():
    def late(name: str, head: dict, body: bytes, times: int) -> bytes | None:
        return None if name == "south" and times < 2 else echo(name, head, body, times)

    answers, said = phase(Net(late, "north", "south"), quorum=2, deadline=0.05)
    assert answers == [b"0north", b"1south"] and "quorum is 2: 'south' did not" in said[0]


def test_who_refuses_for_good_is_told_of_once_and_the_run_can_be_stopped():
    looks, said = iter(range(9)), list[str]()

    def refusing(name: str, head: dict, body: bytes, times: int) -> bytes:
        return frames.pack({"is": "refused", "why": "no plug-in"}) if name == "south" else echo(name, head, body, times)

    stopped = lambda: next(looks, None) is None
    made = Phases(Net(refusing, "north", "south"), ["north", "south"], "0" * 16, "t", 2, 0.01, said.append, stopped)
    with pytest.raises(phases.Stopped):
        list(made.ask([0, 1], lambda client: b""))
    assert len(said) == 2 and "no plug-in" in said[0] and "the quorum is 2" in said[1]


def test_a_node_that_lacks_the_text_gets_it():
    def forgetful(name: str, head: dict, body: bytes, times: int) -> bytes:
        return echo(name, head, body, times) if "text" in head and times else frames.pack({"is": "stranger"})

    answers, said = phase(Net(forgetful, "north", "south"), deadline=5.0)
    assert answers == [b"0north", b"1south"] and not said


LIES = [b"", b"apiece1\n", frames.pack({"is": "gift"}), frames.pack({"is": "refused", "why": "no"})]


@pytest.mark.parametrize("lie", LIES)
def test_a_node_that_answers_something_else_is_left_out_with_a_sentence(lie):
    answers, said = phase(Net(lambda n, h, b, t: lie if n == "south" else echo(n, h, b, t), "north", "south"))
    assert answers == [b"0north", None] and said[0].startswith("node 'south' is left out: ")


def test_frames_are_whole_or_refused():
    whole = frames.pack({"a": 1}, b"body")
    assert frames.unpack(whole) == ({"a": 1}, b"body")
    for bad in (whole[1:], whole[:14], b"apiece1\n\xff\xff\xff\xff{}", frames.pack([1])):  # type: ignore[arg-type]
        with pytest.raises(UserError, match="no frame of a deployed run"):
            frames.unpack(bad)


# --- hello ----------------------------------------------------------------------------------------------------------
def telling(**changes: Any) -> Callable[..., bytes]:
    return lambda name, *_: frames.pack({"is": "facts"} | asdict(NORTH) | {"name": name} | changes)


def test_nodes_tell_of_their_data_once_enough_are_there():
    assert gathered(Net(telling(), "south", "north"), 2, 5.0, print) == [NORTH, replace(NORTH, name="south")]
    with pytest.raises(UserError, match="1 of 2 nodes told of their data in 0.05 seconds|0 of 2"):
        gathered(Net(telling(), "north"), 2, 0.05, print)


@pytest.mark.parametrize("lie", [{"samples": -1}, {"samples": True}, {"shape": "big"}, {"shape": [10**9, 10**9]},
    {"labels": [[1]]}, {"kind": "float128"}, {"name": "east"}, {"columns": [3]}, {"labels": [0.0, float("nan")]},
    {"labels": ["a", "\udcff"]}, {"labels": [1, 1]}, {"labels": [0, 1, 2]}, {"task": "magic"}, {"task": "regression"},
    {"task": "multilabel"}, {"columns": ["\udcff"]}, {"target": [2]}, {"classes": 10**12}])  # fmt: skip
def test_facts_that_cannot_be_are_left_out(lie):
    said: list[str] = []
    with pytest.raises(UserError, match="0 of 1 nodes told"):
        gathered(Net(telling(**lie), "north"), 1, 0.2, said.append)
    assert "node 'north' is left out: it " in said[0]


def test_nodes_whose_data_do_not_fit_are_refused_in_a_sentence():
    other = replace(NORTH, name="south", shape=[4])
    with pytest.raises(UserError, match=r"'north' and 'south' do not fit: shape is \[3\] on the first and \[4\] on"):
        federation([NORTH, other], lambda *_: None)  # type: ignore[arg-type]
    assert united([NORTH, replace(NORTH, labels=[7, 3])]) == (0, 1, 3, 7)
    for labels in (["a"], ["01"], ["0", "1", "1.5"], ["9" * 5000, "00"]):
        with pytest.raises(UserError, match="numbers on some and text on others"):
            united([NORTH, replace(NORTH, labels=labels)])


def own(folder: Path, text: str, **settings: Any) -> Facts:
    """What a node tells of a table."""
    (folder / "mine.csv").write_text(text)
    node = Node(folder / "state", Settings("south", str(folder / "mine.csv"), **settings))
    return own_data.facts(node.dataset, "south")


AGES = "\n".join(["age,weight,label", *(f"{20 + i % 7},{70 + i % 3},{i % 2}" for i in range(20))])
OTHERS = {
    "another order": AGES.replace("age,weight", "weight,age"),
    "another name": AGES.replace("age", "height"),
    "a gap, so that its numbers are standardized": AGES.replace("20,", ",", 1),
}


@pytest.mark.parametrize("how", OTHERS)
def test_tables_whose_columns_are_not_alike_are_refused(tmp_path, how):
    first = own(tmp_path, AGES)
    assert first.columns == ["age", "weight"]
    with pytest.raises(UserError, match="column 1 is 'age' on the first and '(weight|height|age .stand.*)'"):
        federation([first, own(tmp_path, OTHERS[how])], lambda *_: None)  # type: ignore[arg-type]
    named = own(tmp_path, AGES.replace("age,weight", "weight,age"), input=("age", "weight"))
    federation([first, named], lambda *_: None)  # type: ignore[arg-type]


def test_a_node_without_a_code_numbers_its_classes_as_the_others_do(tmp_path):
    """Of the classes 01, 02 and 10 one node has 10 alone, which it reads as a number."""
    rows = lambda *labels: "\n".join(["age,label", *(f"{i},{labels[i % len(labels)]}" for i in range(20))])
    north, south = own(tmp_path, rows("01", "02")), own(tmp_path, rows("10"))
    assert (north.labels, south.labels, united([north, south])) == (["01", "02"], [10], ("01", "02", "10"))
    data = Node(tmp_path / "state", Settings("south", str(tmp_path / "mine.csv"))).dataset
    assert own_data.samples(data, united([north, south])).train[1].unique().tolist() == [2]
    net = Net(telling(labels=[10], classes=1, shape=[1], columns=["age"]), "west")
    assert [facts.labels for facts in newcomers(net, [north, south], set(), print)] == [[10]]


def test_the_classes_of_pixels_are_those_of_all_nodes(tmp_path):
    """No node needs to have all; pixels that are left out (-100) are of none."""
    told = []
    for name, classes in (("north", [0, 1, -100]), ("south", [0, 2, 1]), ("west", [-100])):
        x, y = np.zeros((6, 4, 4), np.float32), np.resize(classes, (6, 4, 4))
        np.savez(tmp_path / f"{name}.npz", x_train=x, y_train=y, x_test=x, y_test=y)
        told.append(own_data.facts(Node(tmp_path, Settings(name, str(tmp_path / f"{name}.npz"))).dataset, name))
    assert [(facts.task, facts.classes) for facts in told] == [("segmentation", n) for n in (2, 3, 1)]
    _, y = federation(told, lambda *_: None).test_pool  # type: ignore[arg-type]
    assert y.shape[1:] == (4, 4) and y.max() == 2


# --- a node ---------------------------------------------------------------------------------------------------------
@pytest.fixture
def node(tmp_path) -> Node:
    data = tmp_path / "mine.npz"
    x, y = np.arange(30.0, dtype=np.float32).reshape(10, 3), np.array([3, 7] * 5)
    np.savez(data, x_train=x, y_train=y, x_test=x[:4], y_test=y[:4])
    settings = Settings("north", str(data))
    settings.save(tmp_path / "state")
    return Node(tmp_path / "state", Settings.of(tmp_path / "state"))


def test_a_node_tells_counts_forms_and_names_and_no_sample(node):
    head, body = frames.unpack(node.answer(frames.pack({"ask": "facts"})))
    assert not body and head.pop("is") == "facts"
    assert Facts.of(head) == replace(NORTH, samples=10, tests=4, labels=[3, 7])


UNTOLD = [np.array([b"a", b"b"]), np.array(["2024-01-01", "2024-01-02"], "M8[D]")]


@pytest.mark.parametrize("y", UNTOLD)
def test_a_node_whose_classes_cannot_be_told_says_so_before_it_joins(tmp_path, y):
    x = np.zeros((10, 3), np.float32)
    np.savez(tmp_path / "mine.npz", x_train=x, y_train=np.tile(y, 5), x_test=x[:2], y_test=y)
    mine = Node(tmp_path / "state", Settings("north", str(tmp_path / "mine.npz")))
    with pytest.raises(UserError, match="^node 'north' cannot tell .* its class .* is neither a number nor a text"):
        own_data.facts(mine.dataset, "north")


@pytest.mark.parametrize("error", [ValueError("too\nbad"), MemoryError(), OSError(28, "No space left on device")])
def test_no_request_ends_a_node_and_its_own_log_says_what_happened(node, error, monkeypatch):
    log: list[str] = []
    mine = Node(node.state, node.settings, log.append)

    def fail(*_: Any) -> None:
        raise error

    monkeypatch.setattr(own_data, "facts", fail)
    answer = mine.answer(phases.FACTS)
    said: list[str] = []
    with pytest.raises(UserError, match="0 of 1 nodes told"):
        gathered(Net(lambda *_: answer, "north"), 1, 0.2, said.append)
    assert said[0].startswith(f"node 'north' is left out: it refused: node 'north' failed with {type(error).__name__}")
    assert "Traceback" in log[0] and log[1].startswith("a request was refused: ") and "\n" not in said[0]
    monkeypatch.undo()
    assert frames.unpack(mine.answer(phases.FACTS))[0]["is"] == "facts"


def test_what_a_client_of_a_node_cannot_answer_is_in_the_nodes_own_log(node):
    log: list[str] = []
    asked = {"ask": "answer", "to": "north", "run": "0" * 16, "who": 0, "text": "x = 1"}
    Node(node.state, node.settings, log.append).answer(frames.pack(asked))
    assert log == ["a message was refused: node 'north' was sent a run without its 'config': send it anew."]


def test_a_plugin_that_ends_the_program_ends_no_node():
    """Its client answers in the doorway's thread, which an error that nobody catches would end in silence."""
    assert messages.unpack(instead_of_errors(lambda: sys.exit(3)))[0].operation == FAILED


def test_a_doorway_stays_open_whatever_a_request_does(tmp_path, capfd):
    def answer(frame: bytes) -> bytes:
        if frame == b"bad":
            raise ValueError("too bad")
        return frame

    doorway.opened(tmp_path, answer)
    with pytest.raises((EOFError, OSError)):
        doorway.asked(tmp_path, b"bad")
    assert doorway.asked(tmp_path, b"good") == b"good"
    assert "ValueError: too bad" in capfd.readouterr().err


def test_what_a_node_says_is_one_line_of_a_runs_log(tmp_path):
    request = Request(tmp_path / "run.toml")
    request.say("it refused: too\nbad \x1b[31m\udcff")
    request.end("failed: one\ntwo\udcff")
    (line,) = request.log.read_text().splitlines()
    assert line.endswith(" it refused: too bad  [31m ") and request.ended() == "failed: one two "


def test_a_run_whose_process_fails_says_why_in_its_log(tmp_path, monkeypatch):
    request = Request(tmp_path / "run.toml")
    request.write(Config(out=str(tmp_path / "out"), task="classification"), Terms(1))

    def fail(*_: Any) -> None:
        raise ConnectionError("the grid is gone")

    monkeypatch.setattr(coordinator, "gathered", fail)
    with pytest.raises(ConnectionError):
        coordinator.coordinate(request, Net(telling(), "north"))
    assert "ended with ConnectionError: the grid is gone; it is begun again." in request.log.read_text()
    assert request.ended() is None


def test_a_run_that_is_done_stays_done_where_nobody_gets_a_model_afterwards(tmp_path, monkeypatch):
    request = Request(tmp_path / "run.toml")
    request.end("done")
    request.newcomers.touch()

    def fail(*_: Any) -> None:
        raise UserError("its folder is gone.")

    monkeypatch.setattr(coordinator, "personalized", fail)
    coordinator.coordinate(request, Net(telling(), "north"))
    assert request.ended() == "done" and not request.due()
    assert "no node got a model: its folder is gone." in request.log.read_text()


def test_a_node_that_is_left_out_again_and_again_is_told_of_once():
    said: list[str] = []
    with pytest.raises(UserError, match="0 of 1 nodes told"):
        gathered(Net(telling(samples=-1), "north"), 1, 0.2, said.append)
    assert len(said) == 1


@pytest.mark.parametrize("text", ["[]", "{}", '{"plugin": [], "input": [], "strange": 1}', "no"])
def test_the_settings_of_another_version_are_told_of(tmp_path, text):
    (tmp_path / "node.json").write_text(text)
    with pytest.raises(UserError, match="node.json cannot be read .*: begin with `apiece join`"):
        Settings.of(tmp_path)


REFUSALS = {
    "another's name": ({"ask": "answer", "to": "south", "run": "0" * 16, "who": 0}, "was sent a message for 'south'"),
    "a path as run": ({"ask": "answer", "to": "north", "run": "../../../etc/x", "who": 0}, "a message of no run"),
    "no number": ({"ask": "answer", "to": "north", "run": "0" * 16, "who": "0"}, "a message of no run"),
    "another wish": ({"ask": "execute"}, "was asked for 'execute', which it lacks"),
}


@pytest.mark.parametrize("how", REFUSALS)
def test_a_node_refuses_what_is_not_for_it(node, how):
    asked, why = REFUSALS[how]
    head, _ = frames.unpack(node.answer(frames.pack(asked)))
    assert head["is"] == "refused" and why in head["why"] and not (node.state / "runs").exists()


CONFIG = Config(data="your own", lift="wired", model="mlp", task="classification")
WISHES = {
    "a file to start from": ({"init": "/etc/passwd"}, "leave --init out"),
    "a plug-in": ({"plugin": ("/tmp/evil.py#sha256=" + "0" * 64,)}, "--plugin"),
    "a model's folder": ({"model": "hf('/etc')"}, "only if its owner names it"),
    "a tokenizer's folder": ({"model": "opt(folder='/etc')"}, "only if its owner names it"),
    "a text in a model": ({"model": "mlp(hidden='/etc')"}, "only if its owner names it"),
}


@pytest.mark.parametrize("how", WISHES)
def test_no_path_and_no_program_comes_from_a_coordinator(node, how):
    wish, why = WISHES[how]
    with pytest.raises(UserError, match=why):
        node.allowed(replace(CONFIG, **wish))
    assert node.allowed(replace(CONFIG, model="opt(layers=1)", out="/etc", data_dir="/etc")).out is None
    assert not node.allowed(replace(CONFIG, out="/etc", keep_best=True, tensorboard=True)).keep_best


def test_a_node_says_which_plugin_it_lacks_and_what_its_owner_does(node, tmp_path):
    """The path in a coordinator's run is of the coordinator's machine: a node may have another file at the same."""
    own = tmp_path / "mine.py"
    own.write_text("def mine():\n    pass\n")
    asked = (f"{own}#sha256={'0' * 64}",)
    for plugin, has in (((), "none"), ((str(own),), str(own))):
        mine = Node(node.state, replace(node.settings, plugin=plugin))
        with pytest.raises(UserError) as error:
            mine.allowed(replace(CONFIG, plugin=asked))
        assert str(error.value) == (
            f"the run needs the plugin mine.py with the SHA-256 {'0' * 64}, and node 'north' has no file with this "
            f"content (it joined with {has}): the coordinator sends the file to the node's owner, who reads it and, if "
            "they trust it, joins anew with --plugin mine.py."
        )


@pytest.mark.parametrize(("text", "why"), [(None, "cannot be read"), ("def (", "cannot be loaded: line 1")])
def test_a_node_whose_plugin_cannot_be_used_says_so_before_it_joins(node, tmp_path, text, why):
    own = tmp_path / "own.py"
    if text is not None:
        own.write_text(text)
    with pytest.raises(UserError, match=f"own.py {why}"):
        joining.join(tmp_path, tmp_path, replace(node.settings, plugin=(str(own),)), "localhost:1", print, lambda: True)


def test_the_plugin_of_a_request_is_found_by_a_server_in_another_folder_and_is_the_one_that_was_asked_for(
    tmp_path, monkeypatch
):
    (tmp_path / "own.py").write_text("from apiece import algorithm\n\ndef own():\n    return algorithm(name='own')\n")
    monkeypatch.chdir(tmp_path)
    found = settled(Config(algorithm="own", plugin=("own.py",), out="out"), 2)
    assert found.plugin == pinned([str(tmp_path / "own.py")])


def test_a_run_without_its_parts_is_refused_as_an_answer(node):
    asked = {"ask": "answer", "to": "north", "run": "0" * 16, "who": 0}
    assert frames.unpack(node.answer(frames.pack(asked)))[0] == {"is": "stranger"}
    for text in ("x = 1", "[config]\n[resolved]\ndigest = 'another'", "not toml ["):
        head, body = frames.unpack(node.answer(frames.pack(asked | {"text": text})))
        assert head == {"is": "answer"} and messages.unpack(body)[0].operation == REFUSED


IMPOSSIBLE = [{"nodes": 0}, {"quorum": 0}, {"quorum": 3}]
IMPOSSIBLE += [{name: value} for name in ("deadline", "patience") for value in (0.0, -1.0, float("inf"), float("nan"))]


@pytest.mark.parametrize("wrong", IMPOSSIBLE)
def test_terms_that_cannot_be_met_are_refused(wrong):
    with pytest.raises(UserError, match=f"{next(iter(wrong))} .* must be"):
        Terms(**wrong)


CHANGED = [("[terms]", "[others]"), ("nodes =", "knots ="), ("out =", "into ="), ("[config]", "[configs]")]


@pytest.mark.parametrize("change", CHANGED)
def test_a_request_that_was_changed_is_told_of(tmp_path, change):
    request = Request(tmp_path / "run.toml")
    request.write(Config(out=str(tmp_path / "out"), task="classification"), Terms(1))
    request.path.write_text(request.path.read_text().replace(*change))
    for use in (request.read, request.refuse_out_of_reach):
        with pytest.raises(UserError, match="is no request of a run"):
            use()


SIMULATED = [("data", "mnist"), ("target_column", "y"), ("prepare", "ordinal"), ("validation", 0.2), ("noise_rgb", 1.0)]


@pytest.mark.parametrize(("name", "value"), SIMULATED)
def test_settings_of_data_are_refused_where_nodes_read_their_own(name, value):
    with pytest.raises(UserError, match=f"{name}={value!r} is for simulated clients, .* leave it out"):
        coordinator.settled(replace(Config(out="runs/mine"), **{name: value}), 2)


def test_a_task_that_the_nodes_data_are_not_for_is_refused(tmp_path):
    request = Request(tmp_path / "requests" / "run.toml")
    request.write(coordinator.settled(Config(out=str(tmp_path / "out"), task="regression"), 2), Terms(1))
    coordinator.coordinate(request, Net(telling(), "north"))
    assert "task='regression' is asked for, and the nodes' data are for classification" in str(request.ended())
