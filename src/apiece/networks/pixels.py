"""What a model of images in the form of `transformers` expects: channels, normalization, size."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from apiece.data.tokens import NO_CODE, library
from apiece.errors import UserError, said


@dataclass(frozen=True)
class Pixels:
    """How a model reads pixels scaled to [0, 1], by its image processor: (x - mean) / std for each channel. `mean` and
    `std` are None where it has no processor. `backwards`: blue comes first. `size` is its (height, width), if it says.
    """

    channels: int | None
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None
    backwards: bool = False
    size: tuple[int, int] | None = None

    def refuse_misfit(self, model: nn.Module, source: str, shape: tuple[int, ...]) -> None:
        """Raise UserError if a model does not take images [C, H, W] of this shape."""
        was = model.training
        model.eval()
        try:
            with torch.no_grad():
                model(torch.zeros(2, *shape))
        except (RuntimeError, ValueError, IndexError, TypeError) as error:
            high, wide = self.size or (None, None)
            resized = f": give --resize {high}x{wide}" if self.size and self.size != shape[1:] else ": --resize helps"
            raise UserError(
                f"hf({source!r}) does not take images of {shape[1]}x{shape[2]} with {shape[0]} channels "
                f"({said(error).rstrip('.')}){resized}."
            ) from None
        model.train(was)


def pixels(source: str) -> Pixels:
    """How the model in a folder, or of a name on the hub, reads pixels; UserError where there is no such model."""
    transformers = library()
    local: dict[str, Any] = NO_CODE if Path(source).is_dir() else {"trust_remote_code": False}
    try:
        config = transformers.AutoConfig.from_pretrained(source, **local)
    except (OSError, ValueError, KeyError) as error:
        raise UserError(f"hf({source!r}) is no model of images: {said(error)}") from None
    channels, size = getattr(config, "num_channels", None), getattr(config, "image_size", None)
    try:
        found = transformers.AutoImageProcessor.from_pretrained(source, **local)
    except (OSError, ValueError, KeyError, TypeError, ImportError):
        return Pixels(channels, size=_size(size))
    has = partial(_attribute, found)
    unit = 255 * (has("rescale_factor") if has("do_rescale") else 1)  # a pixel of [0, 1] as the processor scales it
    mean, std = (has("image_mean"), has("image_std")) if has("do_normalize") else (0.0, 1.0)
    count = channels or (len(mean) if isinstance(mean, (list, tuple)) else 3)
    offset = 1.0 if has("do_rescale") and has("rescale_offset") else 0.0
    center, scale = tuple((float(v) + offset) / unit for v in _each(mean, count)), _each(std, count)
    again = _each(has("image_std") if has("include_top") else 1.0, len(scale))  # EfficientNet divides once more
    scale = tuple(float(v) * float(w) / unit for v, w in zip(scale, again, strict=True))
    read = Pixels(channels, center, scale, bool(has("do_flip_channel_order")), _size(size) or _size(has("size")))
    if count == 3 and not _reads_alike(found, read):
        raise UserError(
            f"hf({source!r}): its image processor, {type(found).__name__}, does more to pixels than to subtract a mean "
            "and to divide by a deviation: normalize the images, and give the model itself to apiece.federate."
        )
    return read


def _reads_alike(found: Any, read: Pixels) -> bool:
    """Whether a processor makes of an image of one color what `read` says: no change of size alters such an image."""
    color = np.array([30, 120, 210], np.uint8)
    try:
        made = found(np.tile(color, (64, 64, 1)), return_tensors="pt")["pixel_values"]
        middle = made[0, :, made.shape[2] // 2, made.shape[3] // 2]
    except Exception:  # a processor of others may raise anything, or give no pixels
        return False
    pixel = (middle.flip(0) if read.backwards else middle) * torch.tensor(read.std) + torch.tensor(read.mean)
    return torch.allclose(pixel, torch.from_numpy(color) / 255, atol=0.01)


def _attribute(found: Any, name: str) -> Any:
    return getattr(found, name, None)


def _each(values: Any, count: int) -> list[float]:
    """A number for each channel, of one for all or of a list."""
    listed = list(values) if isinstance(values, (list, tuple)) else [values]
    return listed * count if len(listed) == 1 else listed


def _size(given: Any) -> tuple[int, int] | None:
    """(height, width) of a number, a pair, or a dictionary of a processor."""
    if isinstance(given, int):
        return given, given
    if isinstance(given, (list, tuple)) and len(given) == 2:
        return int(given[0]), int(given[1])
    found = {name: value for name in ("height", "width", "shortest_edge") if (value := _entry(given, name))}
    high, wide = found.get("height", found.get("shortest_edge")), found.get("width", found.get("shortest_edge"))
    return (int(high), int(wide)) if high and wide else None


def _entry(given: Any, name: str) -> Any:
    return given.get(name) if hasattr(given, "get") else getattr(given, name, None)
