"""The global model: what the server has, and where it has nothing of the last rounds, the mean of what clients keep."""

from __future__ import annotations

from functools import partial
from operator import add

import torch
from torch import Tensor

from driftless.clients import Clients
from driftless.device import to_device, to_host
from driftless.federated import Federated
from driftless.lift import Parallel
from driftless.state import Server
from driftless.synchronise import NEVER, Schedule

HELD, SUMMED = 1 << 22, 32  # parameters of clients' models that are held at once; rows that a thread adds up


def global_model(
    federated: Federated, server: Server, clients: Clients, threads: Parallel | None = None
) -> tuple[Tensor, Tensor, bool]:
    """(parameters, buffers, whether virtual): the server's vector; where groups are open, their mean over the clients
    that trained since their last synchronisation; where parameters are personal, the mean over all clients that ever
    trained. Where clients are sent models of their own, the parameters are not a model but what the broadcast makes
    these of.
    """
    mean = partial(_average_open, round=server.round, clients=clients, threads=threads)
    theta, virtual = mean(federated.periods, server.params, "model", federated.kept)
    buffers, also = mean(federated.buffer_periods, server.buffers, "buffers", federated.buffer_periods.own)
    return theta, buffers, virtual or also


def _average_open(
    periods: Schedule, vector: Tensor, field: str, kept: Tensor, round: int, clients: Clients, threads: Parallel | None
) -> tuple[Tensor, bool]:
    if periods.plain or field not in clients.fresh:
        return vector, False
    touched, group = clients.touched(), periods.group[kept]
    place = to_host(group)  # where the rows are

    def summed(rows: list[tuple[dict, int]]) -> tuple[Tensor, Tensor]:
        """(the sum of clients' rows over the groups that they trained [K], how many did [G])."""
        total, counts = torch.zeros(len(kept), dtype=torch.float64), [0] * len(periods.lengths)
        for row, seen in rows:
            trained = [p != 1 and (p == NEVER or seen // p == round // p) for p in periods.lengths]
            total += row[field] if all(trained) else torch.where(torch.tensor(trained)[place], row[field], 0.0)
            counts = list(map(add, counts, trained))
        return total, torch.tensor(counts)

    some = max(1, min(SUMMED, HELD // len(kept)))
    parts = (touched[first : first + some] for first in range(0, len(touched), some))
    jobs = (partial(summed, [clients.row(client) for client in part]) for part in parts)
    total, counts = summed([])
    for part, many in threads.in_order(jobs) if threads else (job() for job in jobs):
        total += part
        counts += many
    if not counts.any():
        return vector, False
    total, counts = to_device((total, counts), vector.device)
    mean = total / counts[group].clamp(min=1)
    return vector.index_copy(0, kept, torch.where(counts[group] > 0, mean.to(vector.dtype), vector[kept])), True
