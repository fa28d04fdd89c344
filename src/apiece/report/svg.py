"""A figure as inline SVG in the page's colors."""

from __future__ import annotations

import io
import re
from typing import TYPE_CHECKING

from apiece.report.drawing import fit, style, variable

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def inline(figure: Figure, alt: str, name: str) -> str:
    """The figure with its own identifiers and a title for a screen reader."""
    import matplotlib
    from markupsafe import escape

    buffer = io.StringIO()
    with style():
        matplotlib.rcParams["svg.hashsalt"] = name
        if figure.get_layout_engine() is None:
            fit(figure.axes[0])
        figure.savefig(buffer, format="svg", metadata=dict.fromkeys(("Date", "Creator", "Format", "Type")))
    text = buffer.getvalue()
    text = re.sub(r"<[^>]*>", lambda tag: _short(tag[0]), text[text.index("<svg") :])
    text = re.sub(r">\s+<", "><", text)
    text = re.sub(r' (width|height)="[\d.]+pt"', "", text, count=2)
    opening = f'<svg role="img" aria-labelledby="{name}-alt"'
    title = f'<title id="{name}-alt">{escape(alt)}</title>'
    return re.sub(r"<svg([^>]*)>", lambda match: f"{opening}{match[1]}>{title}", text, count=1)


def _short(tag: str) -> str:
    """A tag in the page's colors, without what says nothing: names, the typeface, a turn by 0, digits."""
    if "base64," in tag:  # an image: its numbers are no coordinates
        return tag
    tag = re.sub(r' id="[\w.]+_\d+"| transform="rotate\(-0 [^"]*"', "", tag)
    tag = re.sub(r"font-family: [^;\"]*; ", "", tag)
    tag = re.sub(r"#[0-9a-f]{6}(?![0-9a-f])", lambda color: variable(color[0]), tag)
    tag = re.sub(r"(\d\.\d)\d{2,}", r"\1", tag) if ' d="' in tag else re.sub(r"(\d\.\d\d)\d+", r"\1", tag)
    return re.sub(r"\s*\n\s*", " ", tag)
