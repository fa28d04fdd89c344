"""The place where clients live: their data, their rows, and `at(cohort).map(operation, shared, each)`.

The engine says where an operation runs, never how. Answers are summed as they arrive; rows are written as they arrive
and count only once the caller commits them. Who did not answer is as it was.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import reduce
from typing import Any, Protocol, cast

from torch import Tensor
from torch.utils._pytree import tree_leaves

from apiece.algebra.draws import draw
from apiece.algebra.place import Answer, Shared, Traffic
from apiece.data.federation import Owners
from apiece.data.samples import Samples
from apiece.engine import row
from apiece.engine.cohorts import different
from apiece.engine.federated import Federated
from apiece.engine.operations import Operation, operations
from apiece.engine.reduce import Totals
from apiece.engine.setup import Setup
from apiece.engine.state import ClientTask, Reply
from apiece.engine.traffic import Count
from apiece.engine.work import Work
from apiece.errors import UserError
from apiece.randomness import generator
from apiece.storage.row_format import RowFormat
from apiece.storage.rows import MemoryRows, Rows
from apiece.system.device import to_device
from apiece.system.ranks import Ranks
from apiece.system.typed import from_array, map_tree


class NotFinite(UserError):
    """Training became non-finite: whose, when, and the likely cause. Raised on every rank alike."""

    met_by = 0


class BadClient(NotFinite):
    """That of a client, or an answer of it that cannot be taken."""


class Lift(Protocol):
    """How an operation that is written for one client runs for many: see `lifts.lift`."""

    def run(
        self, operation: Operation, shared: Shared, tasks: Iterable[Callable[[], ClientTask]]
    ) -> Iterator[Reply]: ...


@dataclass
class Clients:
    """Clients in this process: data in a federation, rows in memory or on disk, operations run by a lift.

    >>> from apiece import federate
    >>> federate(clients=5, rounds=1, steps=5, lift="sequential").clients  # a run's own, after it
    Clients(5 registered, 5 with a row, Work(steps=5, epochs=None, batch=32), Sequential())
    """

    federated: Federated
    federation: Owners
    work: Work
    seed: int
    lift: Lift
    rows: Rows = cast(Rows, None)  # in memory where none are given
    on_bad_client: str = "stop"
    ranks: Ranks = Ranks()

    def __post_init__(self) -> None:
        self.first = row.fresh(self.federated.setup)  # of a client that never took part
        self.fresh = row.write(self.first)
        self.write, self.read = row.writer(self.first), row.reader(self.first)
        self.operations = operations(self.federated.setup)
        if not isinstance(self.rows, Rows):  # pyright: ignore[reportUnnecessaryIsInstance]
            self.rows = MemoryRows(RowFormat.of(self.fresh))
        self.rows.names = self.federation.names

    def __repr__(self) -> str:
        return f"Clients({self.registered} registered, {len(self.touched())} with a row, {self.work!r}, {self.lift!r})"

    @property
    def registered(self) -> int:
        return len(self.federation.participants)

    def at(self, cohort: Iterable[int], absent: frozenset[int], round: int) -> Place:
        """The clients of a round, of whom those absent will not answer; raises UserError for what is no cohort."""
        self.rows.unstage()  # what an earlier round staged and gave up
        return Place(self, different(cohort, len(self.federation.names)), absent, round)

    def expect(self, clients: list[int]) -> None:
        """These clients are asked next: their rows are fetched, and their data made, while others train."""
        mine = self.ranks.share(clients)
        self.rows.expect(mine)
        self.federation.expect(mine)

    def commit(self, round: int) -> None:
        """From now on the rows that this round changed count."""
        self.rows.commit_staged()

    def steps(self, client: int, round: int) -> int:
        planned = self.work.count(self.seed, round, self.federation.names[client], self.federation.size(client))
        return self.federated.setup.local_steps(planned, round)

    def row(self, client: int) -> tuple[dict[str, Tensor], int]:
        """(the client's row, the round it was last counted in): a fresh one and -1 where it never took part."""
        kept = self.rows.get(client) if self.fresh else None
        return (self.fresh, -1) if kept is None else (kept, self.rows.last_round(client))

    def _kept(self, client: int) -> tuple[row.Row, int]:
        named, last_round = self.row(client)
        return (self.first if named is self.fresh else self.read(named)), last_round

    # --- the run's side of it: checkpoints ----------------------------------------------------------------------------
    def sync(self) -> None:
        """Return when every counted row is on the disk."""
        self.rows.sync()

    def digest(self) -> str:
        """A word for all rows as they are, written into a checkpoint."""
        return self.rows.digest()

    def checkpointed(self, number: int) -> None:
        """Checkpoint `number` is on the disk."""
        self.rows.checkpoint(number)

    def check(self, number: int, digest: str | None) -> None:
        """Raise UserError unless all rows of that checkpoint are there and whole."""
        if self.fresh:
            self.rows.check(number, digest)

    def restore(self, number: int, digest: str | None) -> None:
        """Make the rows what they were at that checkpoint, for a run that continues in this process."""
        if self.fresh:
            self.rows.restore(number, digest)

    def close(self) -> None:
        self.rows.close()

    # --- what is known of a client ------------------------------------------------------------------------------------
    def touched(self) -> list[int]:
        """The clients that have a row."""
        return self.rows.touched() if self.fresh else []

    def last_round(self, client: int) -> int:
        return self.rows.last_round(client) if self.fresh else -1

    def each(self, client: int, round: int, sent: Tensor | tuple[()] = ()) -> ClientTask:
        """All that one client works on in this round."""
        (kept, last_round), samples = self._kept(client), self.federation.samples(client)
        setup, name = self.federated.setup, self.federation.names[client]
        return local_work(setup, samples, name, client, last_round, kept, self.work, self.seed, round, sent)

    def at_rest(self, client: int) -> ClientTask:
        """What one client has, where it is looked at and takes no step: nothing is drawn for it."""
        (kept, last_round), setup = self._kept(client), self.federated.setup
        samples = self.federation.samples(client)
        nothing: tuple[dict[str, Tensor], ...] = tuple({} for _ in setup.pieces)
        lr = setup.lr_of(self.federation.names[client])
        task = ClientTask((), client, last_round, kept, samples, (), 0, (), nothing, 1.0, lr=lr)
        return to_device(task, setup.initial.device)

    def replies(
        self, operation: str, shared: Shared, own: dict[int, Tensor], working: list[int], round: int
    ) -> Iterator[tuple[int, Reply | BadClient | None, Traffic]]:
        """(client, what it gave back or why that cannot be taken, what crossed) of these clients, in their order; None
        for a client that did not answer.
        """
        count = Count(self.federated.setup, shared)

        def sent(client: int) -> Tensor | tuple[()]:  # as on a wire: the last bit can depend on where a vector lies
            return own[client].clone() if client in own else ()

        tasks = (lambda c=c: self.each(c, round, sent(c)) for c in working)
        replies = self.lift.run(self.operations[operation], shared, tasks)
        for client, reply in zip(working, replies, strict=True):
            yield client, reply, count.down(own.get(client, ()), self.last_round(client)).plus(count.up(reply))

    def unanswered(self, shared: Shared, own: dict[int, Tensor], absent: list[int]) -> Traffic:
        """What is sent to these clients, who will not answer: as much as to those who will."""
        count = Count(self.federated.setup, shared)
        return reduce(Traffic.plus, (count.down(own.get(c, ()), self.last_round(c)) for c in absent), Traffic())


def local_work(
    setup: Setup,
    samples: Samples,
    name: str,
    who: int,
    last_round: int,
    kept: row.Row,
    work: Work,
    seed: int,
    round: int,
    sent: Tensor | tuple[()],
) -> ClientTask:
    """What a client draws for itself: batches, augmentation and the pieces' draws, from streams of its own name."""
    steps = setup.local_steps(work.count(seed, round, name, samples.size), round)
    batches = work.batches(seed, round, name, samples.size, steps) if steps else ()
    augment: Any = ()
    if setup.task.augment is not None and steps:
        size = max(len(rows) for rows in batches)
        drawn = setup.task.augment.draw(generator(seed, "augment", round, name), steps * size)
        augment = map_tree(lambda leaf: leaf.reshape(steps, size, *leaf.shape[1:]), drawn)
    dtype = setup.initial.dtype
    sample = tuple(tree_leaves(samples.pool)[0].shape[1:]) if setup.pieces else ()
    draws = tuple(
        draw(p.draws(setup.task.space), seed, round, name, p.stream, steps, dtype, sample, int(samples.size))
        for p in setup.pieces
    )
    described = work.described(seed, round, name, samples.size) if setup.broadcast.own_batch else ()
    weight = setup.weight(samples.size)
    key = from_array(generator(seed, "model", round, name).integers(2**32, size=2)) if setup.task.draws else ()
    lr = setup.lr_of(name)
    task = ClientTask(sent, who, last_round, kept, samples, batches, steps, augment, draws, weight, described, key, lr)
    return to_device(task, setup.initial.device)


@dataclass(frozen=True)
class Place:
    """A cohort in a round: where operations are mapped."""

    clients: Clients
    cohort: list[int]
    absent: frozenset[int]
    round: int

    def only(self, clients: list[int]) -> Place:
        return Place(self.clients, clients, frozenset(), self.round)

    def map(self, operation: str, shared: Shared, each: dict[int, Tensor] | None = None) -> Answer:
        """Run an operation of the algorithm's value, by name, at every client that answers and, where `each` is given,
        has a row in it. What is sent counts for those, too, that do not answer.
        """
        home, own = self.clients, each or {}
        asked = [c for c in self.cohort if (each is None or c in own) and home.steps(c, self.round)]
        working = [c for c in asked if c not in self.absent]
        mine, silent = home.ranks.share(working), home.ranks.share([c for c in asked if c in self.absent])
        totals, watched, skipped = Totals(), Totals(), list[int]()
        traffic = home.unanswered(shared, own, silent)
        stop: BadClient | None = None
        for client, reply, crossed in home.replies(operation, shared, own, mine, self.round):
            traffic = traffic.plus(crossed)
            if reply is None:
                continue
            if isinstance(reply, BadClient) or not bool(reply.finite):
                if home.on_bad_client != "skip":
                    stop = reply if isinstance(reply, BadClient) else not_finite(home, client, self.round, shared.lr)
                    break
                skipped.append(client)
                continue
            weight = getattr(reply.message, "weight", None)
            totals.add(client, reply.message, 1.0 if weight is None else float(weight.x))
            if reply.diagnostics:
                watched.add(client, reply.diagnostics)
            if home.fresh and reply.row:
                home.rows.stage(self.round, client, home.write(reply.row))
        told: list[tuple[BadClient | None, list[int], Traffic]] = home.ranks.everyone((stop, skipped, traffic))
        if bad := next((stop for stop, _, _ in told if stop is not None), None):
            raise bad
        totals, watched = totals.over(home.ranks), watched.over(home.ranks)
        if totals.answered and not totals.weight:  # nothing has a mean: it is as if nobody had answered
            totals, watched = Totals(), Totals()
            home.rows.unstage()
        skipped, traffic = [c for _, part, _ in told for c in part], reduce(Traffic.plus, (t for _, _, t in told))
        order = {client: place for place, client in enumerate(working)}
        answered = sorted(totals.answered, key=order.__getitem__)
        return Answer(answered, _plain(totals.result()), totals.rows, watched.result(), skipped, traffic)


def _plain(mean: Any) -> Any:  # a message's own vectors without their marks
    return mean._replace(delta=mean.delta.x, buffers=mean.buffers.x) if hasattr(mean, "delta") else mean


def not_finite(home: Clients, client: int, round: int, lr: float) -> BadClient:
    """That a client's answer is not finite, and what the likely causes are."""
    setup, name = home.federated.setup, home.federation.names[client]
    values = f" or a value of {', '.join(map(repr, setup.pieces))}" if setup.pieces else ""
    own = setup.suspects("start", "objective", "correct", "keep", "report", "upload", "client_memory", "remember")
    other = "" if home.on_bad_client == "skip" else ", or leave such clients out with --on-bad-client skip"
    return BadClient(
        f"client {name!r} became non-finite in round {round + 1}: most likely the step size {setup.lr_in(lr, name):g}"
        f"{values} is too large{own}; lower it or clip gradients with --clip 10 in a new run{other}."
    )
