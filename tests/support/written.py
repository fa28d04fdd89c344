"""Pieces of the library whose random numbers are written down by an oracle."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from oracles import fedcog, fedgen, hypernetwork, pefll, pfedhn, problem, vhl
from oracles.problem import SAMPLES

from apiece.networks.hypernetwork import Hypernetwork
from apiece.pieces.ditto import Ditto
from apiece.pieces.fedcog import FedCOG
from apiece.pieces.fedgen import FedGen
from apiece.pieces.pefll import Bound, Networks, Pefll
from apiece.pieces.per_fedavg import MetaStep
from apiece.pieces.pfedhn import Pfedhn
from apiece.pieces.vhl import VHL
from apiece.vector.space import Space


def of_client(view, drawn):
    """What is drawn for the client of this view: `drawn(i)` are arrays for client i."""
    who = torch.as_tensor(view.who).reshape(1)
    every = zip(*(drawn(i) for i in range(len(SAMPLES))), strict=True)
    return (torch.from_numpy(np.stack(part)).index_select(0, who)[0] for part in every)


def in_written_order(view):
    """The view with the numbers by which the client's samples are ordered in this round."""
    (keys,) = of_client(view, lambda i: (problem.drawn(view.round, i),))
    return view._replace(draws={"order": keys})


class WrittenFedCOG(FedCOG):
    """FedCOG on the noise and in the order of its oracle."""

    def draws(self, space):
        return ()

    def objective(self, view, loss):
        drawn = of_client(view, lambda i: fedcog.draws(view.round, i, self.samples, self.batch))
        draws = dict(zip(("inputs", "order", "shuffles"), drawn, strict=True))
        return super().objective(view._replace(draws=draws), loss)


class WrittenDitto(Ditto):
    """Ditto on batches in the order of its oracle."""

    def draws(self, space):
        return ()

    def remember(self, view):
        return super().remember(in_written_order(view))


class WrittenMetaStep(MetaStep):
    """Per-FedAvg on batches in the order of its oracle."""

    def draws(self, space):
        return ()

    def objective(self, view, loss):
        return super().objective(in_written_order(view), loss)

    def correct(self, view):
        return super().correct(in_written_order(view))


class WrittenVHL(VHL):
    """VHL on the noise and in the order of its oracle."""

    def draws(self, space):
        return ()

    def objective(self, view, loss):
        middles, spread = (torch.from_numpy(part) for part in vhl.virtual(self.samples))
        (order,) = of_client(view, lambda i: (vhl.order(view.round, i, self.samples),))
        draws = {"middles": middles, "spread": spread, "order": order}
        return super().objective(view._replace(draws=draws), loss)


class WrittenFedGen(FedGen):
    """FedGen on the numbers of its oracle, clients' and server's, its generator from the oracle's parameters."""

    def draws(self, space):
        return ()

    def objective(self, view, loss):
        noise, labels = of_client(view, lambda i: fedgen.drawn(view.round, i, self.batch))
        return super().objective(view._replace(draws={"noise": noise, "labels": labels}), loss)

    def server_memory(self, theta):
        learnt = super().server_memory(theta)
        assert learnt.generator.weights.shape == fedgen.PARAMETERS_OF_G.shape
        return learnt._replace(generator=learnt.generator._replace(weights=torch.from_numpy(fedgen.PARAMETERS_OF_G)))

    def drawn(self, training):
        noise, labels = fedgen.drawn_on_server(training, self.batch, self.epochs)
        return {"noise": torch.from_numpy(noise), "labels": torch.from_numpy(labels)}


@dataclass(frozen=True)
class WrittenPefll(Pefll):
    """PeFLL with the small networks of its oracle, at the oracle's parameters."""

    def complete(self, space, setting):
        networks = Networks(Bound(space, setting, "linear", 1, hypernetwork.WIDTH))
        assert networks.initial().shape == pefll.PARAMETERS.shape
        return replace(self.between(networks), parameters=torch.from_numpy(pefll.PARAMETERS))


@dataclass(frozen=True)
class WrittenPfedhn(Pfedhn):
    """pFedHN with the small hypernetwork of its oracle, at the oracle's parameters."""

    def complete(self, space, setting):
        sizes = [entry.size for entry in space.parameters]
        net = Space(Hypernetwork(hypernetwork.DESCRIPTOR, sizes, 1, hypernetwork.WIDTH), dtype=space.dtype)
        table, none = super().complete(space, setting), net.ravel_buffers()
        return replace(
            table,
            generate=lambda eta, v: net.outputs(eta, v, none),
            parameters=lambda: torch.from_numpy(pfedhn.PARAMETERS).clone(),
        )
