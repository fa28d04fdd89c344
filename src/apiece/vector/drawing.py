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
        self._root, self._key, self._descents = key, key, 0
        self._keys: Callable[[Any], Tensor] = lambda k: key

    def begin(self, steps: int) -> None:
        """The local steps of another descent follow; their keys are made before all steps, so that these are alike."""
        self._descents += 1
        words = (bits(self._root, -2 * self._descents + word, steps) for word in (0, 1))
        self._keys = by_number(torch.stack([*words], 1))

    def step(self, k: int | Number) -> None:
        """The draws of step k follow."""
        self._key = self._keys(k)

    def leave(self) -> None:
        """No step follows: draws are the round's."""
        self._key = self._root

    def drawing(self) -> Drawing:
        """The context of one forward pass."""
        return Drawing(self._key)

    def within(self, forward: Callable[..., Any]) -> Callable[..., Any]:
        """The forward pass, with its draws from this stream."""

        def drawn(*args: Any) -> Any:
            with self.drawing():
                return forward(*args)

        return drawn


class Still:
    """The stream of a module that draws nothing."""

    def begin(self, steps: int) -> None: ...

    def step(self, k: int | Number) -> None: ...

    def leave(self) -> None: ...

    def within(self, forward: Callable[..., Any]) -> Callable[..., Any]:
        return forward
