"""The apps that Flower runs, by its Message API alone: a frame travels as one array of bytes, and nothing is unpickled.

    server_app    runs a request: the project's own loop, with nodes as clients
    client_app    gives a frame to the node whose folder the node's configuration names
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, wait
from functools import partial
from pathlib import Path
from threading import Thread
from typing import Any

from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MessageType, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp

from apiece.deploy import doorway
from apiece.deploy.failure import Failure

FRAME, LARGE = "frame", 1 << 24  # LARGE in bytes
PATIENCE = 0.5  # seconds in which answers are waited for before others are looked at
server_app = ServerApp()
client_app = ClientApp()


def packed(frame: bytes) -> RecordDict:
    """A frame as a record of Flower's, which sends large arrays in parts."""
    array = Array(dtype="uint8", shape=(len(frame),), stype="bytes", data=frame)
    return RecordDict({FRAME: ArrayRecord({FRAME: array})})


def unpacked(content: RecordDict) -> bytes:
    """The inverse of `packed`; no bytes for a record of another form."""
    records = content.array_records
    if set(content) != {FRAME} or FRAME not in records or set(records[FRAME]) != {FRAME}:
        return b""
    return records[FRAME][FRAME].data


class Consortium:
    """The nodes of a grid by the names they are registered with; virtual nodes of a simulation tell their own."""

    def __init__(self, grid: Grid, virtual: bool) -> None:
        self.grid, self.told = grid, told_names(grid) if virtual else {}
        self.pulls: dict[str, Future[list[tuple[str, bytes | Failure]]]] = {}  # by mark: answers that are waited for

    def online(self) -> Mapping[str, int]:
        """The number of each node that is there now."""
        return {self.told.get(node.node_id, node.name): node.node_id for node in self.grid.get_nodes()}

    def push(self, to: int, frame: bytes, seconds: float) -> str:
        made = Message(packed(frame), dst_node_id=to, message_type=MessageType.TRAIN, ttl=seconds)
        (mark,) = self.grid.push_messages([made])
        return mark

    def pull(self, marks: Sequence[str]) -> list[tuple[str, bytes | Failure]]:
        """The answers that are there. Each is waited for in a thread of its own: for the rest of an answer whose sender
        died in sending it, Flower waits three minutes.
        """
        if self.told:
            return self._pulled(marks)
        self.pulls = {mark: pull for mark, pull in self.pulls.items() if mark in marks or not pull.done()}
        for mark in set(marks) - self.pulls.keys():
            self.pulls[mark] = Future()
            Thread(target=fulfilled, args=(self.pulls[mark], partial(self._pulled, [mark])), daemon=True).start()
        wait([self.pulls[mark] for mark in marks], PATIENCE)
        done = [mark for mark in marks if self.pulls[mark].done()]
        return [answer for mark in done for answer in self.pulls.pop(mark).result()]

    def _pulled(self, marks: Sequence[str]) -> list[tuple[str, bytes | Failure]]:
        found = [(reply.metadata.reply_to_message_id, answered(reply)) for reply in self.grid.pull_messages(marks)]
        if any(isinstance(answer, bytes) and len(answer) > LARGE for _, answer in found):
            gc.collect()  # a message that Flower has read refers to itself, and would stay in memory
        return found


def fulfilled(future: Future[Any], call: Callable[[], Any]) -> None:
    """Give a future what the call returns, or its error."""
    try:
        future.set_result(call())
    except Exception as error:
        future.set_exception(error)


def answered(reply: Message) -> bytes | Failure:
    """The frame of a reply, or why there is none."""
    if reply.has_error():
        return Failure(f"Flower's code {reply.error.code}: {reply.error.reason}")
    return unpacked(reply.content)


def told_names(grid: Grid) -> dict[int, str]:
    """What each node says that it is called, by its number."""
    numbers = [node.node_id for node in grid.get_nodes()]
    asked = [Message(RecordDict(), dst_node_id=number, message_type=MessageType.QUERY) for number in numbers]
    replies = [reply for reply in grid.send_and_receive(asked) if not reply.has_error()]
    return {reply.metadata.src_node_id: str(reply.content.config_records["is"]["name"]) for reply in replies}


@server_app.main()
def main(grid: Grid, context: Context) -> None:
    """Run what the request names."""
    from apiece.deploy.coordinator import coordinate
    from apiece.deploy.parts import Divided
    from apiece.deploy.request import Request

    virtual = bool(context.run_config["virtual_nodes"])
    nodes = Consortium(grid, virtual)  # a virtual node has no process that stays, and so nowhere to keep parts
    coordinate(Request(Path(str(context.run_config["request"]))), nodes if virtual else Divided(nodes))


@client_app.train()
def answer(message: Message, context: Context) -> Message:
    """The node's answer to a frame."""
    state, frame = folder_of(context), unpacked(message.content)
    said = doorway.asked(state, frame)
    if said is None:  # no `apiece join` is there, as in Flower's simulation
        from apiece.deploy.node import Node, Settings

        said = Node(state, Settings.of(state)).answer(frame)
    return Message(packed(said), reply_to=message)


@client_app.query()
def called(message: Message, context: Context) -> Message:
    """What the node is called."""
    return Message(RecordDict({"is": ConfigRecord({"name": folder_of(context).name})}), reply_to=message)


def folder_of(context: Context) -> Path:
    """The node's folder, which its own configuration names. A virtual node has none: its folder is that of its number
    among those that the run names.
    """
    if "state" in context.node_config:
        return Path(str(context.node_config["state"]))
    folders = sorted(Path(str(context.run_config["virtual_nodes"])).iterdir())
    return folders[int(str(context.node_config["partition-id"]))]
