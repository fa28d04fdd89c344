"""How the samples of each class are divided among clients, and what pieces show of a client."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from apiece.report.drawing import COLORS, blank, whole_numbers
from apiece.report.panels import MOST, Panel, several
from apiece.report.pictures import picture, read
from apiece.report.records import Runs

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

AREA = "One column per client, one row per class; a disc's area is the number of training samples."
SHADE = "One column per client, one row per class; a stronger color is a larger share of the client's data."
NAMED, LONG = 12, 14  # so many clients or classes have their names at the axis; so many letters of a name are shown
CELLS = 20_000  # of a split that the page's script gets


def splits(rows: list[Runs]) -> Iterator[Panel]:
    """One figure for each split; rows with the same split share it."""
    pictures: dict[str, tuple[list[str], list[dict[str, Any]], list[str], np.ndarray]] = {}
    for row in rows:
        clients = row.runs[0].clients
        counts = [c.get("counts") for c in clients]
        if not clients or any(not isinstance(c, list) or len(c) != len(counts[0] or ()) or not c for c in counts):
            continue
        table = np.array(counts, dtype=float)
        known = row.runs[0].resolved.get("labels")
        classes = [str(name) for name in known] if isinstance(known, list) and len(known) == table.shape[1] else []
        pictures.setdefault(table.tobytes().hex(), ([], clients, classes, table))[0].append(row.name)
    for names, clients, classes, counts in list(pictures.values())[:MOST]:
        unseen = np.array([not c.get("seen", True) for c in clients])
        few = counts.size <= 400
        chart = _chart(clients, classes, counts, unseen)
        figure = _bubbles(counts, unseen) if few else _shades(counts, unseen)
        _name(figure.axes[0], _names(clients), classes)
        held = (counts > 0).sum(axis=1)
        sizes = counts.sum(axis=1)
        caption = AREA if few else SHADE
        caption += " Orange: unseen clients." if unseen.any() else ""
        caption += " First seed." if several(rows) else ""
        alt = (
            f"Split of {counts.shape[1]} classes over {len(counts)} clients: {held.min():.0f} to {held.max():.0f} "
            f"classes and {sizes.min():.0f} to {sizes.max():.0f} samples per client."
        )
        title = "Samples by client and class" if len(pictures) == 1 else ", ".join(names)
        yield Panel(title, caption, alt, figure, chart)


def observed(rows: list[Runs]) -> Iterator[Panel]:
    """What pieces show of a client at the end, as sheets of pictures."""
    for row in rows[:MOST]:
        for name, images in read(row.runs[0].path).items():
            title = name if len(rows) == 1 else f"{row.name}: {name}"
            caption = "Made for one client at the end, sorted by label." + (" First seed." if several(rows) else "")
            yield Panel(title, caption, f"{title}: a sheet of small pictures.", picture(images))


def _chart(
    clients: list[dict[str, Any]], classes: list[str], counts: np.ndarray, unseen: np.ndarray
) -> dict[str, Any] | None:
    if counts.size > CELLS:
        return None
    names = [str(c.get("name", place)) for place, c in enumerate(clients)]
    found = {"names": names, "ticks": [*map(_short, _names(clients))], "classes": classes}
    found |= {"rungs": [*map(_short, classes)] if len(classes) <= NAMED else []}
    return {"kind": "split", **found, "counts": counts.astype(int).tolist(), "unseen": unseen.tolist()}


def _names(clients: list[dict[str, Any]]) -> list[str]:
    """The names of few clients; none if they only count the clients."""
    names = [str(c.get("name", place)) for place, c in enumerate(clients)]
    counted = all(name in (f"client-{place}", str(place)) for place, name in enumerate(names))
    return [] if counted or len(names) > NAMED else names


def _short(name: str) -> str:
    """A name for an axis: of a long one the beginning and the end, since names often differ at their ends."""
    return name if len(name) <= LONG else f"{name[: LONG // 2].rstrip()}…{name[1 - LONG // 2 :]}"


def _name(axes: Axes, clients: list[str], classes: list[str]) -> None:
    """Names instead of numbers at the axes, where there are any."""
    if clients:
        turned: dict[str, Any] = {"rotation": 30, "ha": "right", "rotation_mode": "anchor"}
        axes.set_xticks(range(len(clients)), [*map(_short, clients)], **turned)
    if classes and len(classes) <= NAMED:
        axes.set_yticks(range(len(classes)), [*map(_short, classes)])


def _bubbles(counts: np.ndarray, unseen: np.ndarray) -> Figure:
    clients, classes = counts.shape
    figure, axes = blank(max(4.2, 0.24 * clients + 0.8), max(2.2, 0.24 * classes + 0.8))
    x, y = np.nonzero(counts)
    area = 150 * counts[x, y] / max(counts.max(), 1)
    axes.scatter(x, y, s=area, c=[COLORS[1] if unseen[i] else COLORS[0] for i in x], linewidths=0, alpha=0.85)
    axes.set(xlabel="client", ylabel="class", xlim=(-0.8, clients - 0.2), ylim=(-0.8, classes - 0.2))
    whole_numbers(axes)
    return figure


def _shades(counts: np.ndarray, unseen: np.ndarray) -> Figure:
    from matplotlib.colors import to_rgb

    clients, classes = counts.shape
    figure, axes = blank(9.2, min(5.5, max(2.4, 0.2 * classes + 0.8)))
    pixels = np.zeros((classes, clients, 4))  # transparency is the shade, for light and dark pages
    pixels[..., :3] = np.where(unseen[None, :, None], to_rgb(COLORS[1]), to_rgb(COLORS[0]))
    pixels[..., 3] = (counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)).T ** 0.6
    axes.imshow(pixels, aspect="auto", origin="lower", interpolation="none")
    axes.set(xlabel="client", ylabel="class")
    axes.grid(False)
    whole_numbers(axes)
    return figure
