"""The global model: the server's, and for groups that were not synchronized lately, the mean of the clients' models.

The mean of a group has the weights of its synchronization: it is what the server would have if the group closed now.
Personal parameters are never synchronized: their mean is uniform.
"""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor

from apiece.algebra.periods import NEVER, Cycle, Schedule
from apiece.engine.clients import Clients
from apiece.engine.federated import Federated
from apiece.engine.state import Server
from apiece.lifts.lift import Parallel
from apiece.system.device import to_device, to_host

HELD, SUMMED = 1 << 22, 32  # parameters of clients' models that are in memory at once; rows that a thread adds up


def global_model(
    federated: Federated, server: Server, clients: Clients, threads: Parallel | None = None
) -> tuple[Tensor, Tensor, bool]:
    """(parameters, buffers, whether virtual): the server's vector, or what pieces make of it (`Piece.evaluate`). Open
    groups are replaced by their weighted mean over the clients that trained since the last synchronization, personal
    parameters by their uniform mean over all clients that ever trained. If clients are sent models of their own, the
    parameters are no model, but the input from which the broadcast makes the clients' models.

    >>> from apiece import federate
    >>> run = federate(algorithm="fedper", clients=5, rounds=1, steps=5)  # each client keeps a head of its own
    >>> theta, buffers, virtual = global_model(run.experiment.federated, run.server, run.clients)
    >>> virtual  # the mean of those heads stands in it, which no client was sent
    True
    """
    mean = partial(_average_open, round=server.round, clients=clients, threads=threads)
    theta, virtual = mean(federated.setup.periods, evaluated(federated, server), "model", federated.setup.kept)
    buffers, also = mean(federated.setup.buffer_periods, server.buffers, "buffers", federated.setup.buffer_periods.own)
    return theta, buffers, virtual or also


def evaluated(federated: Federated, server: Server) -> Tensor:
    """What pieces make of the server's vector [D], to be measured and saved."""
    theta = server.params
    for piece in federated.setup.pieces:
        theta = piece.evaluate(server.memory[piece.stream], theta)
    return theta


def _average_open(
    periods: Schedule, vector: Tensor, field: str, kept: Tensor, round: int, clients: Clients, threads: Parallel | None
) -> tuple[Tensor, bool]:
    if periods.plain or field not in clients.fresh:
        return vector, False
    touched, group = clients.touched(), periods.group[kept]
    place = to_host(group)  # where the rows are

    def summed(rows: list[tuple[dict, int, float]]) -> tuple[Tensor, Tensor]:
        """(the weighted sum of clients' rows over the groups that they trained [K], the sum of their weights [G])."""
        total, weights = (torch.zeros(size, dtype=torch.float64) for size in (len(kept), len(periods.cycles)))
        for row, seen, weight in rows:
            own = [_weight(cycle, seen, round, weight) for cycle in periods.cycles]
            if len(set(own)) == 1:
                total.add_(row[field], alpha=own[0])  # computed in float64
            else:
                total.addcmul_(row[field].double(), torch.tensor(own, dtype=torch.float64)[place])
            weights += torch.tensor(own, dtype=torch.float64)
        return total, weights

    def read(client: int) -> tuple[dict, int, float]:
        return *clients.row(client), clients.federated.setup.weight(clients.federation.size(client))

    some = max(1, min(SUMMED, HELD // len(kept)))
    parts = (touched[first : first + some] for first in range(0, len(touched), some))
    jobs = (partial(summed, [read(client) for client in part]) for part in parts)
    total, weights = summed([])
    for part, many in threads.in_order(jobs) if threads else (job() for job in jobs):
        total += part
        weights += many
    if not weights.any():
        return vector, False
    total, weights = to_device((total, weights[place]), vector.device)
    mean = total / torch.where(weights > 0, weights, 1.0)
    return vector.index_copy(0, kept, torch.where(weights > 0, mean.to(vector.dtype), vector[kept])), True


def _weight(cycle: Cycle, seen: int, round: int, weight: float) -> float:
    """The weight of a client last seen in round `seen` in the mean of a group; 0 if it did not train it since."""
    if cycle.every == NEVER:
        return 1.0
    return weight if cycle.every > 1 and cycle.interval(seen) == cycle.interval(round) else 0.0
