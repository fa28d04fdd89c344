"""Messages that changed on their way, or were made up, to clients and to the server: what becomes of them.

    python tests/mutations.py [--each 100] [--seed 0] [NAME ...]

Every algorithm plays three rounds; then the messages of a fourth are changed, one at a time, in place of honest ones. A
change is refused in one sentence, or makes no difference. `changed number` counts apart those that are well formed,
with a checksum to match, in which nothing but a number differs: without a signature they are an honest client's. The
exit code is 1 where a change met anything else.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
import zlib
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from apiece.config.assemble import assemble
from apiece.config.settings import Config
from apiece.engine import messages
from apiece.engine.clients import BadClient
from apiece.engine.messages import Header
from apiece.engine.state import Plan
from apiece.errors import UserError
from apiece.experiment import identity
from apiece.storage.row_format import Row
from apiece.wired.client import FAILED, NOT_FINITE, REFUSED, Client
from apiece.wired.server import Wired, WiredClients, text_of

ALGORITHMS = ("fedavg", "scaffold", "fedals(alpha=3) + scaffold", "fedavg_p(outer_personal=0.5)",
    "feddyn + relaxed_init(0.1)", "fednova + fedavgm(form=normalized)", "fedgen(epochs=1) + relaxed_init(0.1)",
    "moon + fedcog(samples=4, steps=1)", "pefll(embedding=mlp, size=S, lambda_h=0.1)", "pfedhn")  # fmt: skip
CONFIG = Config(clients=4, steps="2", batch=8, model="mlp(hidden=[4])", weighting="samples", lift="wired", drift="none")
GOOD = ("refused", "no difference", "changed number")
LONGEST = 20.0  # seconds that one message may take on a busy machine


class Sent(NamedTuple):
    """One honest message and its answer."""

    message: bytes
    answer: bytes


# --- one algorithm, three rounds on -------------------------------------------------------------------------------
class Scene:
    """Clients and a server in this process, the messages of the rounds that counted, and those of the next one."""

    def __init__(self, algorithm: str, folder: Path) -> None:
        experiment = assemble(replace(CONFIG, algorithm=algorithm))
        self.server = WiredClients.open(experiment, folder, identity.digest(experiment.config), Wired(1))
        self.text, self.built = text_of(experiment, self.server.run), {}
        self.said: list[Sent] = []
        self.server.transport.processes = SimpleNamespace(ask=self.ask, close=lambda: None)  # type: ignore[assignment]
        federated = experiment.federated
        state = federated.start()
        for t in range(3):
            state, _ = federated.round(state, self.server, Plan([0, 1, 2], frozenset(), 0.1))
            self.server.commit(t)
            self.server.checkpointed(t + 1)
        self.past, self.said = self.said, []
        federated.round(state, self.server, Plan([0, 1, 2, 3], frozenset(), 0.1))
        self.now = self.said
        self.server.rows.unstage()

    def ask(self, folder: Path, message: bytes) -> bytes:
        """A client's answer, made in this process."""
        if folder not in self.built:
            self.built[folder] = Client.build(self.text, folder)
        self.said.append(Sent(message, self.built[folder].answer(message)))
        return self.said[-1].answer

    def client(self, who: int) -> Client:
        return self.built[self.server.folder(who)]

    def lead_up(self, to: Sent) -> None:
        """The honest messages of this round that the client gets before that one."""
        who = messages.unpack(to.message)[0].client
        for sent in self.now:
            if sent is to:
                return
            if messages.unpack(sent.message)[0].client == who:
                assert self.client(who).answer(sent.message) == sent.answer

    def memories(self) -> dict[Any, Row]:
        """Every memory that the server may ask for, as it is now."""
        counted = self.server.counts._records
        return {(c, w): self.server.counts._recalled(c, w) for c, all in counted.items() for w in all}

    def taken(self, asked: Header, answer: bytes) -> Any:
        """What the server makes of an answer: all that it keeps of it."""
        self.server.rows.unstage()
        reply, _ = self.server.answered(asked, answer)
        staged = dict(self.server.counts._staged)
        if isinstance(reply, BadClient):
            assert not staged, "something of a refused answer was kept"
            raise reply
        return bool(reply.finite), tree_leaves(reply.message), staged


def same(one: Any, two: Any) -> bool:
    """Bitwise, whatever lies within."""
    if isinstance(one, Tensor):
        return isinstance(two, Tensor) and one.dtype == two.dtype and torch.equal(one, two)
    if isinstance(one, (list, tuple)):
        return len(one) == len(two) and all(map(same, one, two))
    if isinstance(one, dict):
        return one.keys() == two.keys() and all(same(one[key], two[key]) for key in one)
    return one == two


# --- changes ------------------------------------------------------------------------------------------------------
def flipped(data: bytes, others: list[bytes], rng: random.Random) -> bytes:
    """One to four bits."""
    new = bytearray(data)
    for bit in rng.sample(range(8 * len(new)), rng.randint(1, 4)):
        new[bit // 8] ^= 1 << bit % 8
    return bytes(new)


def cut(data: bytes, others: list[bytes], rng: random.Random) -> bytes:
    """Shorter, longer, empty, or the beginning of one and the end of another."""
    place, other = rng.randrange(len(data)), rng.choice(others)
    return rng.choice([data[:place], data + rng.randbytes(8), b"", data[:place] + other[place:], data[place:]])


def replayed(data: bytes, others: list[bytes], rng: random.Random) -> bytes:
    """Another message as it was: of another round, another client, another operation, or the other way."""
    return rng.choice(others)


def header(data: bytes, others: list[bytes], rng: random.Random) -> bytes:
    """Another header, with a checksum to match: another message's, or one to three fields of it changed."""
    (head, tensors), other = messages.unpack(data), messages.unpack(rng.choice(others))[0]
    whole = [-(1 << 63), -2, -1, 0, 1, 2, 3, 4, 5, 7, 1000, 1 << 40, (1 << 63) - 1]
    values: dict[str, list[Any]] = {name: whole for name in ("client", "round", "accepted", "older", "newer")}
    values |= {"memory": [0, 1, (1 << 32) - 1], "number": [0.0, -5.0, 0.3, 1e300, *map(float, ("nan", "inf", "-inf"))]}
    values |= {"run": ["", "another", "ä" * 8, "\0"]}
    values |= {"operation": ["", "train", "embed", "embed_back", "__init__", "round", NOT_FINITE, REFUSED, FAILED]}
    if rng.random() < 0.2:
        return messages.pack(other, tensors)
    fields = rng.sample(Header._fields, rng.randint(1, 3))
    return messages.pack(head._replace(**{f: rng.choice([*values[f], getattr(other, f)]) for f in fields}), tensors)


def form(data: bytes, others: list[bytes], rng: random.Random) -> bytes:
    """Tensors of other names, shapes or types, with a checksum to match."""
    head, tensors = messages.unpack(data)
    if not tensors:
        return messages.pack(head, {"x": torch.zeros(3)})
    name = rng.choice(sorted(tensors))
    leaf, rest = tensors[name], {k: v for k, v in tensors.items() if k != name}
    types = [torch.float16, torch.bfloat16, torch.float64, torch.int64, torch.bool, torch.uint8, torch.complex64]
    kind = rng.choice([t for t in types if t != leaf.dtype])
    longer = torch.cat([leaf.flatten(), leaf.new_zeros(1)])
    changed = rng.choice(
        [
            rest,
            rest | {name + "s": leaf},
            tensors | {"more": leaf},
            rest | {name: longer},
            rest | {name: longer[:-2] if leaf.numel() else longer},
            rest | {name: leaf[None]},
            rest | {name: leaf.new_zeros(0, 7)},
            rest | {name: torch.ones(leaf.shape, dtype=kind)},
            messages.unpack(rng.choice(others))[1] or rest,
            {},
        ]
    )
    return messages.pack(head, changed)


def body(data: bytes, others: list[bytes], rng: random.Random) -> bytes:
    """Bytes that are no tensors, with a length and a checksum to match."""
    old = data[messages.HEADER.size + messages.CHECKSUM.size :]
    fields, at = list(messages.HEADER.unpack_from(data)), rng.randrange(len(old))
    texts = [
        b'{"a":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,4]}}',
        b"[" * 4000,
        b"{}",
        b'{"a":1}',
    ]
    texts += [b'{"a":{"dtype":"F8_E8M0","shape":[4],"data_offsets":[0,4]}}', b'{"__metadata__":{"a":"b"}}']
    framed = [len(text).to_bytes(8, "little") + text + bytes(4) for text in texts]
    new = rng.choice([*framed, rng.randbytes(60), old[:at] + rng.randbytes(3) + old[at + 3 :], b"", b"\xff" * 16])
    fields[-1] = len(new)
    head = messages.HEADER.pack(*fields)
    return head + messages.CHECKSUM.pack(zlib.crc32(new, zlib.crc32(head))) + new


def number(data: bytes, others: list[bytes], rng: random.Random) -> bytes:
    """One number of a tensor, with a checksum to match: not finite, the largest, the negative."""
    head, tensors = messages.unpack(data)
    named = [name for name, leaf in tensors.items() if leaf.numel()]
    if not named:
        return messages.pack(head._replace(number=float("nan")), tensors)
    leaf = tensors[rng.choice(named)].view(-1)
    place = rng.randrange(len(leaf))
    if leaf.is_floating_point():
        largest = torch.finfo(leaf.dtype).max
        leaf[place] = rng.choice([float("nan")] * 4 + [float("inf"), -float("inf"), largest, -float(leaf[place]) - 1.0])
    else:
        leaf[place] = ~leaf[place]
    return messages.pack(head, tensors)


CHANGES = (flipped, cut, replayed, header, form, body, number)


def only_a_number(honest: bytes, changed: bytes, up: bool) -> bool:
    """Whether nothing but a number differs: of a tensor, or the header's own (up: and which memory was made)."""
    try:
        (one, tensors), (two, others) = messages.unpack(honest), messages.unpack(changed)
    except UserError:
        return False
    free = {"number": 0.0} | ({"memory": 0} if up else {})
    return one._replace(**free) == two._replace(**free) and not messages.misfit(others, tensors)


# --- what becomes of them -----------------------------------------------------------------------------------------
def verdict(take: Callable[[bytes], Any], honest: bytes, changed: bytes, up: bool) -> str:
    """What became of a changed message, `take` being all that follows from one."""
    wanted, began = take(honest), time.perf_counter()
    told = _told(take, wanted, honest, changed, up)
    return "hung" if time.perf_counter() - began > LONGEST else told


def _told(take: Callable[[bytes], Any], wanted: Any, honest: bytes, changed: bytes, up: bool) -> str:
    try:
        found = take(changed)
    except UserError as error:
        return "refused" if "\n" not in str(error).strip() and str(error).endswith(".") else f"no sentence: {error}"
    except Exception as error:
        return f"raw {type(error).__name__}: {error}"
    if same(found, wanted):
        return "no difference"
    return "changed number" if only_a_number(honest, changed, up) else "another result was taken"


def play(scene: Scene, each: int, rng: random.Random) -> Counter[tuple[str, str, str]]:
    """So many changed messages each way: how many of (way, kind of change, verdict)."""
    counted: Counter[tuple[str, str, str]] = Counter()
    every = [data for sent in (*scene.past, *scene.now) for data in sent]
    kept = scene.memories()
    for turn in range(2 * each):
        up, change, sent = bool(turn % 2), CHANGES[turn // 2 % len(CHANGES)], rng.choice(scene.now)
        asked, honest = messages.unpack(sent.message)[0], sent.answer if up else sent.message
        others, changed = [data for data in every if data != honest], honest
        while changed == honest:
            changed = change(honest, others, rng)
        client = scene.client(asked.client)
        scene.lead_up(sent)
        take = partial(scene.taken, asked) if up else lambda data, a=asked, c=client: scene.taken(a, c.answer(data))
        said = verdict(take, honest, changed, up)
        try:
            scene.lead_up(sent)
            if not same(scene.memories(), kept) or client.answer(sent.message) != sent.answer:
                said = "a memory is another"
        except UserError as error:
            said = f"a memory is lost: {error}"
        counted["up" if up else "down", change.__name__, said] += 1
    return counted


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--each", type=int, default=100, help="messages each way, of every algorithm")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("names", nargs="*", default=ALGORITHMS)
    given = parser.parse_args(words)
    torch.set_num_threads(1)
    whole: Counter[tuple[str, str, str]] = Counter()
    for name in given.names or ALGORITHMS:
        with tempfile.TemporaryDirectory() as folder:
            whole += play(Scene(name, Path(folder)), given.each, random.Random(f"{given.seed} {name}"))
    verdicts = sorted({said for *_, said in whole}, key=lambda said: (said not in GOOD, said))
    print("|".join(["way", "change", *verdicts]))
    for way in ("down", "up"):
        for change in CHANGES:
            print("|".join([way, change.__name__, *(str(whole[way, change.__name__, said]) for said in verdicts)]))
        print("|".join([way, "all", *(str(sum(n for k, n in whole.items() if k[::2] == (way, s))) for s in verdicts)]))
    return int(any(said not in GOOD for said in verdicts))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
