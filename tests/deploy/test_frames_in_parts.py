"""Large frames in parts: what arrives is what was sent, whatever is lost, repeated, out of order or a lie."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable

import pytest

from apiece.deploy import frames, parts
from apiece.deploy.failure import Failure
from apiece.deploy.parts import ANEW, LOST, Divided, Whole


@pytest.fixture(autouse=True)
def small(monkeypatch):
    monkeypatch.setattr(parts, "PART", 1000)


def frame(size: int, seed: int = 0) -> bytes:
    return frames.pack({"ask": "answer"}, random.Random(seed).randbytes(size))


class Wire:
    """One node behind a wire. `way` gives, for the messages under way, those that arrive now, in their order."""

    def __init__(self, answer: Callable[[bytes], bytes], way: Callable[[list], list] = list) -> None:
        self.node, self.way, self.marks = Whole(answer), way, itertools.count()
        self.open: list[tuple[str, bytes]] = []
        self.largest = 0

    def online(self) -> dict[str, str]:
        return {"north": "north"}

    def push(self, to: str, message: bytes, seconds: float) -> str:
        assert to == "north" and seconds > 0
        self.largest = max(self.largest, len(message))
        self.open.append((mark := str(next(self.marks)), message))
        return mark

    def pull(self, marks: list[str]) -> list[tuple[str, bytes | Failure]]:
        now = self.way([each for each in self.open if each[0] in marks])
        self.open = [each for each in self.open if each not in now]
        return [(mark, self.node(message)) for mark, message in now]


def heard(nodes: Divided, mark: str, turns: int = 100) -> bytes | Failure | None:
    """The answer, if there is one after so many looks."""
    for _ in range(turns):
        if found := nodes.pull([mark]):
            ((own, answer),) = found
            assert own == mark and not nodes.sent
            return answer
    return None


@pytest.mark.parametrize("up", [0, 980, 1001, 7777])
@pytest.mark.parametrize("down", [0, 900, 1000, 1001, 5000])
def test_a_frame_and_its_answer_arrive_whole_in_messages_of_a_limited_size(down, up):
    asked, answered = frame(down), frame(up, 1)
    wire = Wire(lambda got: answered if got == asked else b"")
    nodes = Divided(wire)
    assert heard(nodes, nodes.push("north", asked, 60.0)) == answered
    assert wire.largest <= 1000 + 120 and not wire.node.kept and not wire.node.given and not wire.open


@pytest.mark.parametrize("seed", range(5))
def test_the_order_of_parts_does_not_matter(seed):
    drawn, answered = random.Random(seed), frame(6500, 1)
    some = lambda under_way: drawn.sample(under_way, drawn.randint(0, len(under_way)))
    nodes = Divided(Wire(lambda got: answered if got == frame(4321) else b"", some))
    assert heard(nodes, nodes.push("north", frame(4321), 60.0)) == answered


@pytest.mark.parametrize("after", range(8))
def test_a_node_that_began_anew_in_between_gives_no_answer_and_is_asked_again(after):
    """Three messages down and five answers up: the node forgets after each of them but the last."""
    answered, wire = frame(4500, 1), Wire(lambda got: answered if got == frame(2500) else b"", lambda way: way[:1])
    nodes = Divided(wire)
    mark = nodes.push("north", frame(2500), 60.0)
    for _ in range(after):
        assert not nodes.pull([mark]) or after == 7
    wire.node = Whole(wire.node.answer)
    if after in (0, 7):  # nothing was there to be forgotten, or all was told
        assert after == 7 or heard(nodes, mark) == answered
        return
    assert heard(nodes, mark) == ANEW
    assert heard(nodes, nodes.push("north", frame(2500), 60.0)) == answered


def test_one_part_that_failed_is_the_whole_that_failed_once():
    wire = Wire(lambda got: b"")
    nodes = Divided(wire)
    mark = nodes.push("north", frame(3500), 60.0)
    down = Failure("Flower's code 1: the process ended")
    wire.pull = lambda marks: [(each, down) for each in marks]  # all of its messages fail in one look
    assert nodes.pull([mark]) == [(mark, down)] and nodes.pull([mark]) == [] and not nodes.sent


def test_a_message_that_arrives_twice_changes_nothing():
    answered = frame(1500, 1)
    wire = Wire(lambda got: answered if got == frame(2500) else b"")
    nodes = Divided(wire)
    mark = nodes.push("north", frame(2500), 60.0)
    for _, message in wire.open[:2]:
        wire.node(message)
    assert heard(nodes, mark) == answered


def test_what_is_given_up_does_not_stay_in_memory():
    wire = Wire(lambda got: frame(2500, 1))
    nodes = Divided(wire)
    for _ in range(5):  # nobody fetches the rest
        nodes.push("north", frame(10), 0.0)
        wire.node(wire.open[-1][1])
        nodes.push("north", frame(2500), 0.0)
        wire.node(wire.open[-1][1])
    assert len(wire.node.given) == len(wire.node.kept) == parts.AT_ONCE
    assert len(nodes.sent) == 1  # the others were over when the last was sent


def part(**said) -> bytes:
    return frames.pack({"is": "part", "mark": "0" * 32, "number": 0, "of": 2} | said, b"x")


@pytest.mark.parametrize(
    "lies",
    [
        [part(number=1)],
        [part(of=1 << 40)],
        [part(of=0)],
        [part(mark=3)],
        [part(number="0")],
        [part(number=True)],
        [frames.pack({"is": "part", "mark": "0" * 32, "number": 0, "of": 2}, bytes(1001))],
        [part(), part(mark="1" * 32, number=1)],
        [part(), part(number=1, of=3)],
        [part(), part()],
    ],
)
def test_a_node_that_lies_about_parts_is_left_out(lies):
    told = iter(lies)
    wire = Wire(lambda got: b"")
    wire.node = lambda message: next(told)
    nodes = Divided(wire)
    head, _ = frames.unpack(heard(nodes, nodes.push("north", frame(10), 60.0)))
    assert head == {"is": "refused", "why": "its answer is in parts that do not belong together."}


@pytest.mark.parametrize("head", [{}, {"mark": "../x", "number": 0, "of": 2}, {"mark": "0" * 32, "number": 2, "of": 2}])
def test_a_node_refuses_parts_that_cannot_be_and_has_no_rest_of_what_it_never_gave(head):
    node = Whole(lambda got: b"")
    assert frames.unpack(node(frames.pack({"ask": "part"} | head)))[0]["is"] == "refused" and not node.kept
    assert node(frames.pack({"ask": "rest"} | head)) == LOST


def test_what_is_no_frame_is_for_the_node_to_refuse():
    assert Whole(lambda got: b"no: " + got)(b"junk") == b"no: junk"
    nodes = Divided(Wire(lambda got: b"junk"))
    assert heard(nodes, nodes.push("north", frame(10), 60.0)) == b"junk"
