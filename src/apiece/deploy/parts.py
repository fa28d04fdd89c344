"""Large frames in parts. Flower removes a message from its database at once, for which all others wait, and after five
seconds they give up: a model of 500 MB in one message is too much. A message has at most `PART` bytes of a frame.

    down    {"ask": "part", "mark", "number", "of"} + bytes of a frame
    up      {"is": "kept"} while others are missing, then the answer to the frame
    up      {"is": "part", "mark", "number", "of"} + bytes of an answer, for an answer that is large: its first part
    down    {"ask": "rest", "mark", "number"}: give me another part of that answer

Parts are kept in memory. Where a node began anew in between they are lost, and the message gets no answer: it is sent
anew, as any message that a node did not answer.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from apiece.deploy import frames
from apiece.deploy.failure import Failure
from apiece.deploy.phases import Nodes
from apiece.errors import UserError

PART, MOST = 1 << 26, 1 << 12  # bytes of a part, parts of a frame
AT_ONCE = 2  # frames, and answers, of which a node has some parts: of one that was given up, and of the next
KEPT, LOST = frames.pack({"is": "kept"}), frames.pack({"is": "lost"})
ANEW = Failure("it began anew while parts of a message were under way")


def cut(frame: bytes) -> list[memoryview]:
    """The frame in parts, without a copy."""
    return [memoryview(frame)[start : start + PART] for start in range(0, len(frame), PART)]


def refused(why: str) -> bytes:
    """The frame that says why parts are not taken."""
    return frames.pack({"is": "refused", "why": why})


def place(head: Mapping[str, Any], body: memoryview) -> tuple[str, int, int] | None:
    """(mark, number, of how many) of a part; None if what its sender says cannot be."""
    mark, number, of = head.get("mark"), head.get("number"), head.get("of")
    if type(mark) is str and len(mark) == 32 and type(number) is int and type(of) is int and len(body) <= PART:
        return (mark, number, of) if 0 <= number < of <= MOST else None
    return None


@dataclass
class Sent:
    """A frame on its way, and what has arrived of its answer."""

    to: Any
    until: float
    waiting: set[str] = field(default_factory=set)  # the marks of messages without an answer
    answer: tuple[str, int] | None = None  # the mark of an answer in parts, and how many these are
    parts: dict[int, memoryview] = field(default_factory=dict)


@dataclass
class Divided:
    """Nodes to which large frames go in parts, and whose large answers are fetched in parts."""

    nodes: Nodes
    sent: dict[str, Sent] = field(default_factory=dict)

    def online(self) -> Mapping[str, Any]:
        return self.nodes.online()

    def push(self, to: Any, frame: bytes, seconds: float) -> str:
        now, mark = time.monotonic(), secrets.token_hex(16)
        self.sent = {other: sent for other, sent in self.sent.items() if sent.until > now}  # nobody listens for others
        sent = self.sent[mark] = Sent(to, now + seconds)
        if len(frame) <= PART:
            self._push(sent, frame)
            return mark
        parts = cut(frame)
        for number, part in enumerate(parts):
            self._push(sent, frames.pack({"ask": "part", "mark": mark, "number": number, "of": len(parts)}, part))
        return mark

    def pull(self, marks: Sequence[str]) -> list[tuple[str, bytes | Failure]]:
        frame_of = {each: mark for mark in marks if mark in self.sent for each in self.sent[mark].waiting}
        found: dict[str, bytes | Failure] = {}
        for each, answer in self.nodes.pull(list(frame_of)) if frame_of else ():
            sent = self.sent.get(mark := frame_of[each])
            if sent is None:
                continue  # another message of this frame has failed
            sent.waiting.discard(each)
            whole = answer if isinstance(answer, Failure) else self._taken(sent, answer)
            if whole is None and not sent.waiting:
                whole = ANEW
            if whole is not None:
                found[mark] = whole
                del self.sent[mark]
        return list(found.items())

    def _push(self, sent: Sent, frame: bytes) -> None:
        sent.waiting.add(self.nodes.push(sent.to, frame, max(1.0, sent.until - time.monotonic())))

    def _taken(self, sent: Sent, answer: bytes) -> bytes | None:
        """The whole answer, if this completes it."""
        try:
            head, body = frames.unpack(answer)
        except UserError:
            return answer  # who reads it says what is wrong with it
        if answer in (KEPT, LOST):
            return None
        if head.get("is") != "part":
            return answer
        placed = place(head, body)
        if placed is not None and sent.answer is None and placed[1] == 0:
            sent.answer = placed[0], placed[2]
            for number in range(1, placed[2]):
                self._push(sent, frames.pack({"ask": "rest", "mark": placed[0], "number": number}))
        if placed is None or (placed[0], placed[2]) != sent.answer or placed[1] in sent.parts:
            return refused("its answer is in parts that do not belong together.")
        sent.parts[placed[1]] = body
        return b"".join(sent.parts[n] for n in range(placed[2])) if len(sent.parts) == placed[2] else None


@dataclass
class Whole:
    """A node whose `answer` sees whole frames, and gives whole answers."""

    answer: Callable[[bytes], bytes]
    kept: dict[str, dict[int, memoryview]] = field(default_factory=dict)  # of frames, by their marks
    given: dict[str, tuple[int, dict[int, memoryview]]] = field(default_factory=dict)  # of answers: not fetched yet

    def __call__(self, frame: bytes) -> bytes:
        try:
            head, body = frames.unpack(frame)
        except UserError:
            return self.answer(frame)
        if head.get("ask") == "part":
            return self._part(head, body)
        if head.get("ask") == "rest":
            return self._rest(head.get("mark"), head.get("number"))
        return self._said(self.answer(frame))

    def _part(self, head: Mapping[str, Any], body: memoryview) -> bytes:
        placed = place(head, body)
        if placed is None:
            return refused("a part of a message that cannot be: the other side has another version.")
        mark, number, of = placed
        parts = self.kept.setdefault(mark, {})
        parts[number] = body
        _forget(self.kept)
        if len(parts) < of:
            return KEPT
        del self.kept[mark]
        return self._said(self.answer(b"".join(parts[n] for n in sorted(parts))))

    def _said(self, answer: bytes) -> bytes:
        """The answer, or the first of its parts."""
        if len(answer) <= PART:
            return answer
        parts, mark = cut(answer), secrets.token_hex(16)
        self.given[mark] = len(parts), dict(enumerate(parts[1:], 1))
        _forget(self.given)
        return frames.pack({"is": "part", "mark": mark, "number": 0, "of": len(parts)}, parts[0])

    def _rest(self, mark: Any, number: Any) -> bytes:
        if type(mark) is not str or type(number) is not int or mark not in self.given:
            return LOST
        of, parts = self.given[mark]
        part = parts.pop(number, None)
        if not parts:
            del self.given[mark]
        return LOST if part is None else frames.pack({"is": "part", "mark": mark, "number": number, "of": of}, part)


def _forget(parts: dict[str, Any]) -> None:
    """Keep the latest alone."""
    while len(parts) > AT_ONCE:
        del parts[next(iter(parts))]
