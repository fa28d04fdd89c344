"""One run in several processes or on several machines: `torchrun --nproc-per-node 2 -m apiece run ...`.

Every rank runs the same server; each trains its share of a cohort's positions, and the sums of all are one `all_reduce`
in float64. What only one may do (folders, logs, checkpoints) the first rank does. The sums' order depends on the number
of ranks: the same run within rounding.
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
from apiece.system.provenance import packages as _packages

MEETING = timedelta(minutes=1)  # for ranks that are all there to connect
PATIENCE = timedelta(minutes=30)  # for a rank that trains or measures longer than the others


@dataclass(frozen=True)
class Ranks:
    """This process's place among those of the run; one process alone waits for nobody."""

    rank: int = 0
    world: int = 1

    @property
    def leads(self) -> bool:
        """Whether this is the rank that writes."""
        return self.rank == 0

    def share(self, positions: Sequence[int]) -> list[int]:
        """This rank's share."""
        return list(positions[self.rank :: self.world])

    def everyone(self, value: Any) -> list[Any]:
        """What each rank gives here, in the order of ranks; all wait for all."""
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
        """Nobody goes on before all have done what is in here; what goes wrong on one rank is raised on all."""
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
        """What the first rank gets from doing this, and nothing elsewhere; what goes wrong there is raised on all."""
        with self.together():
            return action() if self.leads else None

    def from_first(self, action: Callable[[], Any]) -> Any:
        """What the first rank gets from doing this, told to all."""
        return self.everyone(self.first(action))[0]

    def refuse_others(self, given: Mapping[str, Any]) -> None:
        """Raise UserError on all where one rank was given something else than the first, under some name."""
        first = self.everyone(given)[0]
        with self.together():
            differ = [name for name in {**first, **given} if repr(first.get(name)) != repr(given.get(name))]
            if differ:
                told = (f"{name} is {given.get(name)} here and {first.get(name)} on the first rank" for name in differ)
                raise UserError(
                    f"{'; '.join(told)}: begin all ranks with the same words, on the same data, with the same packages."
                )


def join() -> Ranks:
    """This process's ranks: alone, unless torchrun began it with others."""
    if int(os.environ.get("WORLD_SIZE", "1")) == 1 or not dist.is_available():
        return Ranks()
    if not dist.is_initialized():
        with _told(UNMET):
            store, rank, world = next(rendezvous("env://"))
            # a restart must not read the addresses of those who died
            own = PrefixStore(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"), store)
            network.name_interface(own, rank, world)
            # its functions' defaults keep the group that is there when it is imported, and the group's threads with it
            import_module("torch.distributed.nn.functional")
            with network.watched():
                dist.init_process_group("gloo", store=own, rank=rank, world_size=world, timeout=MEETING)
        _set_pg_timeout(PATIENCE)
        atexit.register(dist.destroy_process_group)  # else its threads may abort the process at its end
        if signal.getsignal(signal.SIGTERM) == signal.SIG_DFL:  # else the command line says it
            signal.signal(signal.SIGTERM, lambda *_: _lost(LOST, "torchrun ended this one"))
            atexit.register(signal.signal, signal.SIGTERM, signal.SIG_DFL)  # nobody hears what is raised at the end
        Ranks(rank, world).refuse_others(_packages())
    return Ranks(dist.get_rank(), dist.get_world_size())


@contextmanager
def alone() -> Iterator[None]:
    """In here this process is alone, as if torchrun had not begun it."""
    world, os.environ["WORLD_SIZE"] = os.environ["WORLD_SIZE"], "1"
    try:
        yield
    finally:
        os.environ["WORLD_SIZE"] = world


def restarted() -> bool:
    """Whether torchrun began this process anew after one was lost."""
    return int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")) > 0


class RankLost(UserError):
    """Another rank ended, or did not answer in time."""


LOST = (
    "another rank of this run ended or cannot be reached ({}): begin again on as many ranks as you like with "
    "`apiece resume` and the run's folder; it goes on from the last checkpoint."
)
UNMET = (
    "this rank does not reach all others ({}): let the machines connect to each other on every port, and where one "
    "has several networks, say by GLOO_SOCKET_IFNAME there which interface is meant."
)


@contextmanager
def _told(sentence: str = LOST) -> Iterator[None]:
    try:
        yield
    except (RuntimeError, dist.DistError) as error:
        said = (str(error).splitlines() or [type(error).__name__])[0]
        _lost(sentence, said.rpartition("] ")[2].partition(". ")[0])  # without gloo's source line and its advice


def _lost(sentence: str, said: str) -> NoReturn:
    raise RankLost(sentence.format(said)) from None
