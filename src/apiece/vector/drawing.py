"""The draws of a module that trains come from named streams, in place of torch's hidden generator."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from apiece.errors import UserError
from apiece.system.numbered import Number, by_number
from apiece.vector.drawn import OPENED, WRITTEN
from apiece.vector.draws import Draws, bits

Keys = Callable[[int | Number], Any]  # the number of a local step -> the key of its draws


class Drawing(TorchFunctionMode):
    """Within it, in this thread, the functions in `drawn.py` replace torch's and draw from the stream of a key.

    Raises UserError for a draw from a generator that the module holds.
    """

    def __init__(self, key: Tensor):
        super().__init__()
        self.draws = Draws(key)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if kwargs.pop("generator", None) is not None:
            raise UserError("the model draws from a generator of its own, which is hidden: let it draw without one.")
        if func in OPENED:
            with self:
                return OPENED[func](*args, **kwargs)
        return WRITTEN[func](self.draws, *args, **kwargs) if func in WRITTEN else func(*args, **kwargs)


class Stream:
    """The draws of one client's module in one round. Every forward pass of a local step has the same draws, as one
    function of the model: gradients at two models on one batch differ by the models alone.
    """

    def __init__(self, key: Tensor):
        self._root, self._descents = key, 0
        self.key = key  # of the draws that follow: the round's, but within a step that step's

    def steps(self, number: int) -> Keys:
        """The keys of another descent's local steps; they are made before all steps, so that these are alike."""
        self._descents += 1
        words = (bits(self._root, -2 * self._descents + word, number) for word in (0, 1))
        return by_number(torch.stack([*words], 1))

    def drawing(self) -> Drawing:
        """The context of one forward pass."""
        return Drawing(self.key)

    def within(self, forward: Callable[..., Any]) -> Callable[..., Any]:
        """The forward pass, with its draws from this stream."""

        def drawn(*args: Any) -> Any:
            with self.drawing():
                return forward(*args)

        return drawn


class Still:
    """The stream of a module that draws nothing."""

    key: Any = None

    def steps(self, number: int) -> Keys:
        return lambda k: None

    def within(self, forward: Callable[..., Any]) -> Callable[..., Any]:
        return forward
