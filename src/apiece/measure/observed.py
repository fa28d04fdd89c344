"""What pieces show of a client (`Piece.observe`): sheets of pictures, saved at the end of a run and never read back."""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from apiece.data.archives import archive
from apiece.system import files

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from apiece.experiment.run import Result

NAME, COLUMNS, MOST = "observed.npz", 12, 48  # pictures a row of a sheet, pictures a sheet


def save(folder: Path, result: Result) -> None:
    """Write what pieces show of the first client that trained, as sheets of [0, 1]: nothing of its own samples.

    Nothing is written where no piece shows anything, or samples are no images of one or three channels.
    """
    from apiece.lifts.lift import Loop
    from apiece.measure.global_average import global_model
    from apiece.system.device import to_numpy

    federated, clients, dataset = result.experiment.federated, result.clients, result.experiment.dataset
    trained = [c for c in clients.touched() if result.experiment.federation.size(c)]
    shape = result.experiment.federation.test_pool[0].shape
    if (
        len(shape) != 4
        or shape[1] not in (1, 3)
        or not trained
        or not any(p.fills("observe") for p in federated.pieces)
    ):
        return
    theta, buffers, _ = global_model(federated, result.server, clients)
    each = clients.each(trained[0], result.server.round)
    theta = federated.broadcast.model(theta, result.server.broadcast, each)
    seen = federated.observed(Loop(), theta, buffers, federated.shared(result.server, 0.0), each)
    pictures = {name: x for name, x in seen.items() if x.shape[1:] == shape[1:]}
    mean, std = (dataset.mean, dataset.std) if dataset is not None else (None, None)
    buffer = io.BytesIO()
    np.savez_compressed(
        buffer, allow_pickle=False, **{name: sheet(to_numpy(x.double()), mean, std) for name, x in pictures.items()}
    )
    files.atomic_write(folder / NAME, buffer.getvalue())


def read(folder: Path) -> dict[str, np.ndarray]:
    """The sheets of a run's folder, by name; none where there are none."""
    if not (folder / NAME).is_file():
        return {}
    with archive(folder / NAME) as stored:
        return {name: stored[name] for name in stored.files}


def picture(images: np.ndarray) -> Figure:
    """A sheet as a panel of the report."""
    from apiece.report.drawing import blank

    figure, axes = blank(4.2, 4.2 * images.shape[0] / images.shape[1])
    axes.imshow(images, cmap="gray" if images.ndim == 2 else None, vmin=0, vmax=1, interpolation="none")
    axes.set_axis_off()
    return figure


def sheet(x: np.ndarray, mean: Any = None, std: Any = None) -> np.ndarray:
    """At most MOST of the images [n, C, H, W], evenly spread, in rows; normalisation is undone. [H', W'(, 3)]."""
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
