"""One model is one vector: any `nn.Module` as a flat tensor [D], and calls of it at such a vector.

Convolution weights lie channels-last in the vector. Frozen parameters (`requires_grad=False`) are constants: neither
in the vector nor sent. Tied parameters are one stretch of the vector, in the last layer that has a name of theirs, and
a pattern matches any of their names.
Floating-point buffers (BatchNorm's statistics) are a second vector [B], moved only by a training forward pass; integer
counters are constants.
"""

from __future__ import annotations

import copy
import fnmatch
import threading
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from driftless.errors import UserError

Selector = str | int | Callable[[str], bool] | None
BUFFERS = ("average", "local", "drop")
NORMS = (nn.modules.batchnorm._NormBase, nn.GroupNorm, nn.LayerNorm, nn.RMSNorm)  # InstanceNorm is one of the first


class Entry(NamedTuple):
    """Where one parameter or buffer lies in its vector, and every name it goes by."""

    name: str
    aliases: tuple[str, ...]
    shape: torch.Size
    offset: int
    layer: int  # which group of layers it belongs to

    @property
    def size(self) -> int:
        return self.shape.numel()


class Space:
    """The vector space of a module's parameters: names, shapes, layers, and where each lies in the vector.

    `buffers` is a policy by name: "average" synchronises BatchNorm's statistics with their layer, "local" leaves them
    with the client, "drop" normalises by the batch, at evaluation too. Raises UserError for active dropout (it would
    draw from a hidden generator) and for a module without trainable parameters.
    """

    def __init__(
        self,
        module: nn.Module,
        buffers: str = "average",
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
        autocast: torch.dtype | None = None,
    ):
        if buffers not in BUFFERS:
            raise UserError(
                f"buffers={buffers!r} is no policy for BatchNorm's statistics: use one of {', '.join(BUFFERS)}."
            )
        self.policy, self.dtype, self.device, self.autocast = buffers, dtype, torch.device(device), autocast
        self.module = copy.deepcopy(module).to(device=self.device, dtype=dtype)
        _refuse_dropout(self.module)
        if buffers == "drop":
            _drop_statistics(self.module)
        trained = [(n, p) for n, p in self.module.named_parameters(remove_duplicate=False) if p.requires_grad]
        if not trained:
            raise UserError("the model has no trainable parameter: give one with requires_grad=True.")
        stored = [(n, b) for n, b in self.module.named_buffers(remove_duplicate=False) if b.is_floating_point()]
        self.parameters = _entries(trained, _layers(trained, getattr(self.module, "layer_starts", None)))
        self.buffers = _entries(stored, _layers_of_owners(stored, self.parameters))
        self.size = sum(e.size for e in self.parameters)
        self.buffer_size = sum(e.size for e in self.buffers)
        self.last = _owner(([n for n, p in trained if p.dim() > 1] or [n for n, _ in trained])[-1])
        self._sizes = [e.size for e in self.parameters]
        self._local = threading.local()
        self._copies()  # now, for a copy cannot be made inside a transform

    # --- vectors ----------------------------------------------------------------------------------------------------
    def ravel(self, module: nn.Module | None = None) -> Tensor:
        """The module's parameters as one new vector [D]."""
        return _flatten(
            dict((module or self.module).named_parameters(remove_duplicate=False)),
            self.parameters,
            self.dtype,
            self.device,
        )

    def ravel_buffers(self, module: nn.Module | None = None) -> Tensor:
        """The module's floating-point buffers as one new vector [B]."""
        return _flatten(
            dict((module or self.module).named_buffers(remove_duplicate=False)), self.buffers, self.dtype, self.device
        )

    def unravel(self, theta: Tensor) -> dict[str, Tensor]:
        """Views of a vector [D] in the parameters' shapes, by name."""
        return {
            e.name: view for e, view in zip(self.parameters, _views(theta, self.parameters, self._sizes), strict=True)
        }

    def state_dict(self, theta: Tensor, buffers: Tensor | None = None) -> dict[str, Tensor]:
        """What the module's own `load_state_dict` takes: every name, copies, contiguous."""
        state = {k: v.detach().clone() for k, v in self.module.state_dict().items()}
        pairs = [(self.parameters, theta)] + ([] if buffers is None else [(self.buffers, buffers)])
        for entries, vector in pairs:
            for entry, view in zip(entries, _views(vector, entries), strict=True):
                for name in entry.aliases:
                    if name in state:
                        state[name] = view.detach().clone(memory_format=torch.contiguous_format)
        return {k: v.contiguous() for k, v in state.items()}

    def from_state_dict(self, state: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        """The vectors (parameters [D], buffers [B]) of a state dict; raises UserError where names or shapes do not
        fit.
        """
        module = copy.deepcopy(self.module)
        try:
            module.load_state_dict(state)
        except RuntimeError as error:
            raise UserError(f"the saved model does not fit this one: {str(error).splitlines()[-1].strip()}") from None
        return self.ravel(module), self.ravel_buffers(module)

    # --- calls --------------------------------------------------------------------------------------------------------
    def outputs(self, theta: Tensor, x: Any, buffers: Tensor) -> Tensor:
        """The module in evaluation mode at the vector theta [D], buffers [B] left as they are."""
        return self._call("evaluate", theta, x, buffers)[0]

    def training_outputs(self, theta: Tensor, x: Any, buffers: Tensor) -> tuple[Tensor, Tensor]:
        """The module in training mode at theta [D]: its outputs and the buffers [B] after the pass."""
        return self._call("train", theta, x, buffers)

    def features(self, theta: Tensor, x: Any, buffers: Tensor) -> Tensor:
        """The input of the last layer with weights, in evaluation mode."""
        self._call("evaluate", theta, x, buffers)
        return self._copies()["features"].pop()

    def head(self, theta: Tensor, z: Tensor) -> Tensor:
        """The last layer with weights applied to features z [B, F]."""
        module = self._place("evaluate", theta, self.ravel_buffers())
        return module.get_submodule(self.last)(z)

    def _call(self, mode: str, theta: Tensor, x: Any, buffers: Tensor) -> tuple[Tensor, Tensor]:
        self._copies()["features"].clear()
        module = self._place(mode, theta, buffers)
        if self.autocast is None:
            out = module(x)
        else:
            with torch.autocast(self.device.type, self.autocast):
                out = module(x).to(self.dtype)
        if not self.buffers:
            return out, buffers
        owners = self._copies()["buffers", mode]
        return out, torch.cat([owner._buffers[key].reshape(-1) for slots in owners for owner, key in slots[:1]])

    def _place(self, mode: str, theta: Tensor, buffers: Tensor) -> nn.Module:
        """This thread's copy of the module with its parameters and buffers replaced by pieces of the vectors."""
        copies = self._copies()
        for slots, view in zip(copies["parameters", mode], _views(theta, self.parameters, self._sizes), strict=True):
            for owner, key in slots:
                owner._parameters[key] = view
        if self.buffers:
            for slots, view in zip(copies["buffers", mode], _views(buffers, self.buffers), strict=True):
                fresh = view.clone()
                for owner, key in slots:
                    owner._buffers[key] = fresh
        return copies[mode]

    def _copies(self) -> dict[Any, Any]:
        """One copy of the module a thread and mode: parameters are swapped inside a copy while it runs."""
        if not hasattr(self._local, "copies"):
            copies: dict[Any, Any] = {"features": []}
            for mode, training in (("train", True), ("evaluate", False)):
                module = copy.deepcopy(self.module).train(training).requires_grad_(False)
                _stop_counting(module)
                copies[mode] = module
                for kind, entries in (("parameters", self.parameters), ("buffers", self.buffers)):
                    copies[kind, mode] = [[_slot(module, name) for name in e.aliases] for e in entries]
            keep = copies["features"]
            copies["evaluate"].get_submodule(self.last).register_forward_pre_hook(lambda m, args: keep.append(args[0]))
            self._local.copies = copies
        return self._local.copies

    def __getstate__(self) -> dict[str, Any]:
        return {k: v for k, v in self.__dict__.items() if k != "_local"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._local = threading.local()
        self._copies()

    def __deepcopy__(self, memo: dict[int, Any]) -> Space:
        return self  # immutable once built

    # --- groups of parameters -----------------------------------------------------------------------------------------
    @property
    def layers(self) -> list[str]:
        """The names of the groups of layers, in order: each starts at a weight matrix or kernel (FedALS's groups), or
        where a name matches one of the patterns in the module's own `layer_starts`.
        """
        names: dict[int, str] = {}
        for e in self.parameters:
            names.setdefault(e.layer, _owner(e.aliases[-1]) or e.name)
        return [names[layer] for layer in sorted(names)]

    def layer_index(self) -> Tensor:
        """For every parameter, the number of its group of layers. int64 [D]."""
        return self._spread(self.parameters, lambda e: e.layer).to(torch.int64)

    def select(self, which: Selector) -> Tensor:
        """Which parameters are meant: a bool vector [D].

        `None` or "head" is the last layer with weights, "body" the rest, "norm" what belongs to normalisation layers;
        a string is a pattern (`fc*`, `conv1`, `a|b`) on any of a parameter's names, `!` before it the rest; a number
        the leading groups of layers; a callable a predicate on names. Raises UserError where nothing matches, with the
        names there are.
        """
        return self._spread(self.parameters, self._chooser(which)).to(torch.bool)

    def select_buffers(self, which: Selector) -> Tensor:
        """The buffers that belong to the layers of the selected parameters. Bool [B]."""
        chosen = self._chooser(which)
        layers = {e.layer for e in self.parameters if chosen(e)}
        return self._spread(self.buffers, lambda e: e.layer in layers).to(torch.bool)

    def _spread(self, entries: list[Entry], value: Callable[[Entry], float]) -> Tensor:
        parts = [torch.full((e.size,), float(value(e))) for e in entries]
        return torch.cat(parts) if parts else torch.zeros(0)

    def _chooser(self, which: Selector) -> Callable[[Entry], bool]:
        if which is None or which == "head":
            return lambda e: any(_owner(name) == self.last for name in e.aliases)
        if which == "body":
            return lambda e: all(_owner(name) != self.last for name in e.aliases)
        if which == "norm":
            return self._choose(lambda name: isinstance(self.module.get_submodule(_owner(name)), NORMS), "norm")
        if isinstance(which, int):
            count = len(self.layers)
            if not 0 <= which <= count:
                raise UserError(
                    f"{which} leading layers were asked for, but the model has {count}: {', '.join(self.layers)}."
                )
            return lambda e: e.layer < which
        if isinstance(which, str) and which.startswith("!"):
            inside = self._chooser(which[1:])
            return lambda e: not inside(e)
        return self._choose(which if callable(which) else lambda name: _matches(name, str(which)), which)

    def _choose(self, matches: Callable[[str], bool], which: Selector) -> Callable[[Entry], bool]:
        if not any(matches(name) for e in self.parameters for name in e.aliases):
            raise UserError(
                f"the pattern {which!r} matches no parameter; there are "
                f"{', '.join(name for e in self.parameters for name in e.aliases)}."
            )
        return lambda e: any(matches(name) for name in e.aliases)


def _matches(name: str, pattern: str) -> bool:
    return any(fnmatch.fnmatchcase(name, p) or name.startswith(p + ".") for p in pattern.split("|"))


def _owner(name: str) -> str:
    return name.rpartition(".")[0]


def _slot(module: nn.Module, name: str) -> tuple[nn.Module, str]:
    path, _, key = name.rpartition(".")
    return module.get_submodule(path), key


def _layers(named: Sequence[tuple[str, Tensor]], starts: Any) -> dict[int, int]:
    """The number of each tensor's layer, by its id: that of the last of its names."""

    def begins(name: str, tensor: Tensor) -> bool:
        if starts is not None:
            return any(fnmatch.fnmatchcase(name, pattern) for pattern in starts)
        return tensor.dim() > 1 and not {"shortcut", "downsample"} & set(name.split("."))

    layer, last = -1, {}
    for name, tensor in named:
        layer = max(layer + begins(name, tensor), 0)
        last[id(tensor)] = layer
    numbers = {layer: i for i, layer in enumerate(sorted(set(last.values())))}  # one whose only tensor is tied is gone
    return {key: numbers[layer] for key, layer in last.items()}


def _layers_of_owners(named: Sequence[tuple[str, Tensor]], parameters: list[Entry]) -> dict[int, int]:
    """A buffer's layer is that of the last parameter of its owner."""
    last = {_owner(name): e.layer for e in parameters for name in e.aliases}
    return {id(tensor): last.get(_owner(name), 0) for name, tensor in reversed(named)}


def _entries(named: Sequence[tuple[str, Tensor]], layers: dict[int, int]) -> list[Entry]:
    """Unique tensors in order, with all their names."""
    aliases: dict[int, list[str]] = {}
    tensors: dict[int, Tensor] = {}
    for name, tensor in named:
        aliases.setdefault(id(tensor), []).append(name)
        tensors[id(tensor)] = tensor
    entries, offset = [], 0
    for key, names in aliases.items():
        shape = tensors[key].shape
        entries.append(Entry(names[0], tuple(names), shape, offset, layers[key]))
        offset += shape.numel()
    return entries


def _flatten(tensors: dict[str, Tensor], entries: list[Entry], dtype: torch.dtype, device: torch.device) -> Tensor:
    parts = [_rows(tensors[e.name].detach()).reshape(-1) for e in entries]
    return (torch.cat(parts) if parts else torch.zeros(0)).to(device=device, dtype=dtype)


def _views(vector: Tensor, entries: list[Entry], sizes: list[int] | None = None) -> list[Tensor]:
    parts = vector.split_with_sizes(sizes or [e.size for e in entries]) if entries else ()
    return [_shaped(part, e.shape) for part, e in zip(parts, entries, strict=True)]


def _rows(p: Tensor) -> Tensor:  # oneDNN and cuDNN want channels-last kernels: no copy at each step
    return p.permute(0, 2, 3, 1) if p.dim() == 4 else p


def _shaped(v: Tensor, s: torch.Size) -> Tensor:
    if len(s) == 1:
        return v  # a bias is in shape already: every step counts
    return v.view(s[0], s[2], s[3], s[1]).permute(0, 3, 1, 2) if len(s) == 4 else v.view(s)


def _refuse_dropout(module: nn.Module) -> None:
    for name, part in module.named_modules():
        if isinstance(part, nn.modules.dropout._DropoutNd) and part.p > 0:
            raise UserError(
                f"the layer {name!r} is dropout with p={part.p}, which would draw from a hidden generator: "
                f"set its p to 0 or leave it out."
            )


def _stop_counting(module: nn.Module) -> None:
    """BatchNorm's count of batches stays as it is: it would be moved in place, and nothing reads it."""
    for part in module.modules():
        if isinstance(part, nn.modules.batchnorm._NormBase):
            part.num_batches_tracked = None


def _drop_statistics(module: nn.Module) -> None:
    for part in module.modules():
        if isinstance(part, nn.modules.batchnorm._NormBase):
            part.track_running_stats = False
            part.running_mean = part.running_var = part.num_batches_tracked = None
