"""Pieces of the library whose random numbers are written down by an oracle."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from oracles import fedcog, hypernetwork, pefll, pfedhn
from oracles.problem import SAMPLES

from driftless.pefll import Bound, Hypernetwork, Networks, Pefll
from driftless.pfedhn import Pfedhn
from driftless.pieces.fedcog import FedCOG
from driftless.space import Space


class WrittenFedCOG(FedCOG):
    """FedCOG on the noise and in the order of its oracle."""

    def draws(self, space):
        return ()

    def objective(self, view, loss):
        drawn = [fedcog.draws(view.round, i, self.samples) for i in range(len(SAMPLES))]
        who = torch.as_tensor(view.who).reshape(1)
        noise, order = (torch.from_numpy(np.stack(part)).index_select(0, who)[0] for part in zip(*drawn, strict=True))
        return super().objective(view._replace(draws={"inputs": noise, "order": order}), loss)


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
