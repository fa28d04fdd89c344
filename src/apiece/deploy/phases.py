"""A phase over a network: each node is asked, and asked again when it is back, until all have answered or the deadline.

Who did not answer by the deadline is absent, and from then on nobody waits for it until it is back. With fewer answers
than the quorum they are asked again, and nothing counts until then. The same message gives the same answer, so that
nothing depends on how often it was sent.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from apiece.deploy import frames
from apiece.deploy.facts import Facts
from apiece.deploy.failure import Failure
from apiece.errors import UserError

LOOK, POLL, AGAIN = 1.0, 0.5, 3.0  # seconds: between looks at who is there, between polls, before asking once more

TELLING = 60.0  # seconds in which a node tells of its data
FACTS = frames.pack({"ask": "facts"})


class Phase(NamedTuple):
    """What a phase took: seconds, and the bytes of all frames down and up."""

    seconds: float
    down: int
    up: int


class Stopped(Exception):
    """The run is to stop, and would wait for nodes."""


class Nodes(Protocol):
    """The nodes of a consortium, by name."""

    def online(self) -> Mapping[str, Any]:
        """The address of each node that is there now."""
        ...

    def push(self, to: Any, frame: bytes, seconds: float) -> str:
        """Send a frame to that address, where it is worth so many seconds; gives the message's mark."""
        ...

    def pull(self, marks: Sequence[str]) -> list[tuple[str, bytes | Failure]]:
        """The answers that have arrived to the messages of these marks."""
        ...


# (name, head, body) -> "done", or "again": the node is asked again
Take = Callable[[str, dict[str, Any], memoryview], str]


@dataclass
class Asking:
    """Nodes that are asked the same thing until they have answered or a deadline passes."""

    nodes: Nodes
    say: Callable[[str], None]
    frame: Callable[[str], bytes]
    take: Take
    open: list[str]  # whose answer is missing
    away: set[str] = field(default_factory=set)  # who is not waited for: it missed a deadline, and was not seen since
    sent: dict[str, str] = field(default_factory=dict)  # mark -> name
    not_before: dict[str, float] = field(default_factory=dict)
    gone: set[str] = field(default_factory=set)  # who was asked and is not there

    def until(self, deadline: float) -> None:
        """Ask and listen until then, or until nobody is open who is waited for."""
        online: Mapping[str, Any] = {}
        looked = 0.0
        while self.open and (now := time.monotonic()) < deadline:
            if now - looked > LOOK:
                online, looked = self.nodes.online(), now
                self._look(online)
            if self.away.issuperset(self.open):
                return
            waiting = set(self.sent.values())
            ready = [n for n in self.open if n in online and n not in waiting and now >= self.not_before.get(n, 0.0)]
            for name in ready:  # one after the other: a frame may have gigabytes
                self.sent[self.nodes.push(online[name], self.frame(name), deadline - now)] = name
            for mark, answer in self.nodes.pull(list(self.sent)) if self.sent else ():
                self._taken(self.sent.pop(mark), answer)
            time.sleep(POLL)

    def _look(self, online: Mapping[str, Any]) -> None:
        """Forget what was sent to a node that was gone meanwhile, so that it is asked anew: an answer that it died in
        sending never arrives, and Flower does not say so for three minutes.
        """
        for name in sorted(self.gone & online.keys() & set(self.sent.values())):
            self.say(f"node {name!r} was gone while it was asked, and is back; it is asked again.")
            self.sent = {mark: to for mark, to in self.sent.items() if to != name}
        self.away.difference_update(online)
        self.gone = {name for name in self.sent.values() if name not in online}

    def _taken(self, name: str, answer: bytes | Failure) -> None:
        if isinstance(answer, Failure):
            self.say(f"node {name!r} gave no answer ({answer.why}); it is asked again when it is back.")
            self.not_before[name] = time.monotonic() + AGAIN
            return
        try:
            head, body = frames.unpack(answer)
            if head.get("is") == "refused":
                raise UserError(f"it refused: {str(head.get('why'))[:2000]}")
            if self.take(name, head, body) == "done" and name in self.open:
                self.open.remove(name)
        except UserError as error:
            self.say(f"node {name!r} is left out: {error}")
            self.open.remove(name)


@dataclass
class Phases:
    """The transport of a run to the nodes of these names, in the order of their numbers."""

    nodes: Nodes
    names: Sequence[str]
    run: str
    text: str
    quorum: int
    deadline: float
    say: Callable[[str], None]
    stopped: Callable[[], bool] = lambda: False
    taken: list[Phase] = field(default_factory=list)
    told: set[str] = field(default_factory=set)  # who was sent the run's text by this process
    away: set[str] = field(default_factory=set)  # who missed a deadline, and was not seen since
    refusals: list[str] = field(default_factory=list)  # why answers did not count, until somebody reads them

    def ask(self, clients: Sequence[int], message: Callable[[int], bytes]) -> Iterator[memoryview | None]:
        """The answers of these clients, in their order; see `Transport`. Raises Stopped where the run is `stopped`
        while too few have answered.
        """
        number = {self.names[client]: client for client in clients}
        answers: dict[str, memoryview] = {}
        began, crossed = time.monotonic(), [0, 0]

        def frame(name: str) -> bytes:
            head = {"ask": "answer", "run": self.run, "to": name, "who": number[name]}
            head |= {} if name in self.told else {"text": self.text}
            self.told.add(name)
            made = frames.pack(head, message(number[name]))
            crossed[0] += len(made)
            return made

        def take(name: str, head: dict[str, Any], body: memoryview) -> str:
            crossed[1] += len(frames.pack(head)) + len(body)
            if head.get("is") == "stranger":
                self.told.discard(name)
                return "again"
            if head.get("is") != "answer":
                raise UserError(f"its answer is {str(head.get('is'))[:80]!r}, and no answer to a message.")
            answers[name] = body
            return "done"

        once = once_each(self.say)  # who refuses is asked again and again
        while True:
            due = time.monotonic() + self.deadline
            unanswered = [name for name in number if name not in answers]
            Asking(self.nodes, once, frame, take, unanswered, self.away).until(due)
            if len(answers) >= min(self.quorum, len(number)):
                break
            missing = ", ".join(repr(name) for name in number if name not in answers)
            once(
                f"{len(answers)} of {len(number)} nodes answered, and the quorum is {self.quorum}: {missing} did not; "
                "nothing counts until enough are back."
            )
            if self.stopped():
                raise Stopped
            time.sleep(max(0.0, min(due - time.monotonic(), AGAIN)))
        missing = {name for name in number if name not in answers}
        if late := sorted(missing - self.away):
            self.say(f"{', '.join(map(repr, late))} did not answer in time.")  # once, while it is away
        self.away |= missing
        self.taken.append(Phase(time.monotonic() - began, *crossed))
        for client in clients:
            yield answers.pop(self.names[client], None)

    def declined(self, client: int, why: str) -> None:
        """Say why an answer does not count."""
        self.say(f"node {self.names[client]!r} does not count: {why}")
        self.refusals.append(why)

    def close(self) -> None:
        """Do nothing: the nodes go on without this process."""


def once_each(say: Callable[[str], None]) -> Callable[[str], None]:
    """`say`, for a sentence that it was not yet given."""
    noted = set[str]()

    def once(text: str) -> None:
        if text not in noted:
            noted.add(text)
            say(text)

    return once


def gathered(
    nodes: Nodes, count: int, deadline: float, say: Callable[[str], None], stopped: Callable[[], bool] = lambda: False
) -> list[Facts]:
    """What so many nodes tell of their data: the first that are there, by name; nothing if it is `stopped` before.
    Raises UserError after the deadline.
    """
    told: dict[str, Facts] = {}
    until, waiting = time.monotonic() + deadline, ""
    once = once_each(say)  # who is left out is asked again, until enough have told
    while len(told) < count and time.monotonic() < until:
        if stopped():
            return []
        there = sorted(name for name in nodes.online() if name not in told)
        if len(there) + len(told) >= count:
            told |= telling(nodes, there, min(until, time.monotonic() + TELLING), once)
            if len(told) < count:
                time.sleep(LOOK)
            continue
        names = sorted([*told, *there])
        who = f": {', '.join(names)}" if names else ""
        here = f"{len(names)} of {count} nodes are there{who}; the run waits for more."
        if here != waiting:
            say(here)
        waiting = here
        time.sleep(LOOK)
    if len(told) < count:
        raise UserError(
            f"{len(told)} of {count} nodes told of their data in {deadline:g} seconds ({', '.join(sorted(told))}): see "
            "that the others have joined, or ask for fewer with --nodes."
        )
    return [told[name] for name in sorted(told)]


def telling(nodes: Nodes, names: Sequence[str], until: float, say: Callable[[str], None]) -> dict[str, Facts]:
    """What these nodes tell of their data until that moment, by name."""
    told: dict[str, Facts] = {}

    def take(name: str, head: dict[str, Any], body: memoryview) -> str:
        facts = Facts.of({key: value for key, value in head.items() if key != "is"})
        if facts.name != name:
            raise UserError(f"it calls itself {facts.name!r}, and is registered as {name!r}: `apiece join` it anew.")
        told[name] = facts
        return "done"

    Asking(nodes, say, lambda name: FACTS, take, list(names)).until(until)
    return told
