"""One run in several processes or on several machines: `torchrun --nproc-per-node 2 -m apiece run ...`.

Every rank runs the same server; each trains its share of a cohort, and one `all_reduce` in float64 adds the sums of
all. Only the first rank does what must be done once (folders, logs, checkpoints). The order of summation depends on the
number of ranks: the run is the same within rounding.
"""

from __future__ import annotations

import atexit
import os
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from importlib import import_module
from typing import Any, NoReturn

import torch.distributed as dist
from torch import Tensor
from torch.distributed.distributed_c10d import PrefixStore, _set_pg_timeout
from torch.distributed.rendezvous import rendezvous

from apiece.errors import UserError
from apiece.system import network
from apiece.system.provenance import packages

MEETING = timedelta(minutes=1)  # to connect, once all ranks have started
PATIENCE = timedelta(minutes=30)  # for a rank that trains or measures longer than the others


@dataclass(frozen=True)
class Ranks:
    """This process's place among the run's ranks; a single process waits for no other."""

    rank: int = 0
    world: int = 1

    @property
    def leads(self) -> bool:
        """Whether this is the rank that writes."""
        return self.rank == 0

    def share(self, positions: Sequence[int]) -> list[int]:
        """The positions that this rank trains."""
        return list(positions[self.rank :: self.world])

    def everyone(self, value: Any) -> list[Any]:
        """The values of all ranks, in the order of ranks; every rank waits for all."""
        if self.world == 1:
            return [value]
        found: list[Any] = [None] * self.world
        with _told():
            dist.all_gather_object(found, value)
        return found

    def total(self, sums: Tensor) -> Tensor:
        """The sum of every rank's float64 vector."""
        if self.world > 1 and len(sums):
            with _told():
                dist.all_reduce(sums)
        return sums

    @contextmanager
    def together(self) -> Iterator[None]:
        """No rank leaves this context before all have done its work; an error of one rank is raised on all."""
        mine = None
        try:
            yield
        except (UserError, OSError) as wrong:
            mine = wrong
        for rank, error in enumerate(self.everyone(mine)):
            if error is not None:
                error.met_by = rank
                raise error

    def first(self, action: Callable[[], Any]) -> Any:
        """The first rank's result of this action, None elsewhere; an error there is raised on all."""
        with self.together():
            return action() if self.leads else None

    def from_first(self, action: Callable[[], Any]) -> Any:
        """The first rank's result of this action, on all ranks."""
        return self.everyone(self.first(action))[0]

    def refuse_others(self, given: Mapping[str, Any]) -> None:
        """Raise UserError on all ranks if one was given another value than the first rank under some name."""
        first = self.everyone(given)[0]
        with self.together():
            differ = [name for name in {**first, **given} if repr(first.get(name)) != repr(given.get(name))]
            if differ:
                told = (f"{name} is {given.get(name)} here and {first.get(name)} on the first rank" for name in differ)
                raise UserError(f"{'; '.join(told)}: begin all ranks with the same arguments, data and packages.")


def join() -> Ranks:
    """This process's ranks: alone, unless torchrun began it with others."""
    if int(os.environ.get("WORLD_SIZE", "1")) == 1 or not dist.is_available():
        return Ranks()
    if not dist.is_initialized():
        with _told(UNMET):
            store, rank, world = next(rendezvous("env://"))
            # a restart must not read the addresses of the processes that died
            own = PrefixStore(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"), store)
            network.name_interface(own, rank, world)
            # its functions' defaults hold the group that exists when it is imported, and so the group's threads
            import_module("torch.distributed.nn.functional")
            with network.watched():
                dist.init_process_group("gloo", store=own, rank=rank, world_size=world, timeout=MEETING)
        _set_pg_timeout(PATIENCE)
        atexit.register(dist.destroy_process_group)  # otherwise its threads may abort the process at its end
        if signal.getsignal(signal.SIGTERM) == signal.SIG_DFL:  # otherwise the command line reports it
            signal.signal(signal.SIGTERM, lambda *_: _lost(LOST, "torchrun ended this one"))
            atexit.register(signal.signal, signal.SIGTERM, signal.SIG_DFL)  # an error raised at exit is not shown
        Ranks(rank, world).refuse_others(packages())
    return Ranks(dist.get_rank(), dist.get_world_size())


@contextmanager
def alone() -> Iterator[None]:
    """In this context the process is alone, as if torchrun had not begun it."""
    world, os.environ["WORLD_SIZE"] = os.environ["WORLD_SIZE"], "1"
    try:
        yield
    finally:
        os.environ["WORLD_SIZE"] = world


def restarted() -> bool:
    """Whether torchrun restarted this process after one was lost."""
    return int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")) > 0


class RankLost(UserError):
    """Another rank ended, or did not answer in time."""


LOST = (
    "another rank of this run ended or cannot be reached ({}): begin again on as many ranks as you like with "
    "`apiece resume` and the run's folder; it continues from the last checkpoint."
)
UNMET = (
    "this rank does not reach all others ({}): let the machines connect to each other on every port; if a machine "
    "has several networks, name the right interface there by GLOO_SOCKET_IFNAME."
)


@contextmanager
def _told(sentence: str = LOST) -> Iterator[None]:
    try:
        yield
    except (RuntimeError, dist.DistError) as error:
        said = (str(error).splitlines() or [type(error).__name__])[0]
        _lost(sentence, said.rpartition("] ")[2].partition(". ")[0])  # without gloo's source line and advice


def _lost(sentence: str, said: str) -> NoReturn:
    raise RankLost(sentence.format(said)) from None
