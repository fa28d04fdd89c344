"""Sheets of pictures that pieces show of a client: written at the end of a run, and shown in its report."""

from __future__ import annotations

import io
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from apiece.data.archives import archive
from apiece.system import files

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NAME = "observed.npz"


def save(folder: Path, sheets: Mapping[str, np.ndarray]) -> None:
    """Write sheets of [0, 1] into a run's folder, if there are any."""
    if not sheets:
        return
    buffer = io.BytesIO()
    np.savez_compressed(buffer, allow_pickle=False, **sheets)
    files.atomic_write(folder / NAME, buffer.getvalue())


def read(folder: Path) -> dict[str, np.ndarray]:
    """The sheets of a run's folder, by name; empty if there are none."""
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
