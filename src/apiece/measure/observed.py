"""What pieces show of a client (`Piece.observe`), as sheets of pictures. A run never reads them back."""

from __future__ import annotations

from typing import Any

import numpy as np
from torch.utils._pytree import tree_leaves

from apiece.data.arrays import Dataset
from apiece.engine.clients import Clients
from apiece.engine.predicting import observed
from apiece.engine.state import Server
from apiece.engine.stepping import Loop
from apiece.measure.global_average import global_model
from apiece.system.device import to_numpy

COLUMNS, MOST = 12, 48  # pictures per row of a sheet, pictures per sheet


def sheets(clients: Clients, server: Server, dataset: Dataset | None) -> dict[str, np.ndarray]:
    """Sheets of [0, 1], by name, of what pieces show of the first client that trained, without its own samples.

    Empty if no piece shows anything, or if samples are not images of one or three channels.
    """
    federated, federation = clients.federated, clients.federation
    trained = [c for c in clients.touched() if federation.size(c)]
    shape = tree_leaves(federation.test_pool[0])[0].shape
    shown = any(piece.fills("observe") for piece in federated.setup.pieces)
    if len(shape) != 4 or shape[1] not in (1, 3) or not trained or not shown:
        return {}
    theta, buffers, _ = global_model(federated, server, clients)
    each = clients.each(trained[0], server.round)
    theta = federated.setup.broadcast.model(theta, server.broadcast, each)
    seen = observed(federated.setup, Loop(), theta, buffers, federated.shared(server, 0.0), each)
    mean, std = (dataset.mean, dataset.std) if dataset is not None else (None, None)
    return {name: sheet(to_numpy(x.double()), mean, std) for name, x in seen.items() if x.shape[1:] == shape[1:]}


def sheet(x: np.ndarray, mean: Any = None, std: Any = None) -> np.ndarray:
    """At most MOST of the images [n, C, H, W], evenly spread, in rows, without normalization. [H', W'(, 3)]."""
    x = x[np.linspace(0, len(x) - 1, min(MOST, len(x))).round().astype(int)]
    if mean and std:
        x = x * np.array(std)[:, None, None] + np.array(mean)[:, None, None]
    n, channels, height, width = x.shape
    rows, columns = -(-n // COLUMNS), min(COLUMNS, n)
    out = np.ones((rows * columns, channels, height + 1, width + 1), dtype=np.float32)
    out[:n, :, :-1, :-1] = x.clip(0, 1)
    out = out.reshape(rows, columns, channels, height + 1, width + 1).transpose(0, 3, 1, 4, 2)
    page = out.reshape(rows * (height + 1), columns * (width + 1), channels)
    return page[..., 0] if channels == 1 else page
