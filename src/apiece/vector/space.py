"""One model is one vector: any `nn.Module` as a flat tensor [D], and calls of the module at such a vector.

Convolution weights lie channels-last in the vector. Frozen parameters (`requires_grad=False`) are constants: they are
neither in the vector nor sent, and a copy of the module shares them with it. Those of less than 32 bits keep their
type. Tied parameters are one part of the vector, in the last layer that names them, and a
pattern matches any of their names. Floating-point buffers (BatchNorm's statistics) are a second vector [B], which only
a training forward pass changes. Other buffers are constants, and a run refuses a model that changes them; so are the
statistics of a frozen BatchNorm, which always normalizes as in evaluation mode.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from apiece.errors import UserError, meant, said
from apiece.randomness import generator
from apiece.system.typed import torch_seeded
from apiece.vector.calls import Calls
from apiece.vector.groups import Selector, chooser, is_frozen_batch_norm, names_of, parts_of
from apiece.vector.layout import Entry, channels_last, entries_of, layers_of_owners, owner, views
from apiece.vector.taken import as_taken, is_by_batch, refuse_module
from apiece.vector.watched import alike

BUFFERS = ("average", "local", "drop")


class Space:
    """The vector space of a module's parameters: names, shapes, layers, and where each lies in the vector.

    `buffers` is a policy by name: "average" synchronizes BatchNorm's statistics with their layer, "local" leaves them
    with the client, "drop" normalizes by the batch, at evaluation too. Raises UserError for a module without trainable
    parameters, for one that cannot be copied or called at parameters of ours (scripted, lazy, or with the older
    weight_norm), and for complex parameters, `max_norm` of embeddings and BatchNorm with `momentum=None`.

    Args:
        module: any module; its trainable parameters become the vector [D].
        buffers: the policy.
        dtype: of the vector.
        device: where the vector lies.
        autocast: the type in which the module's passes compute, if another.

    >>> import torch
    >>> space = Space(torch.nn.Linear(2, 3))
    >>> space.ravel().shape, list(space.state_dict(space.ravel()))
    (torch.Size([9]), ['weight', 'bias'])
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
        self.policy, self.dtype, self.device = buffers, dtype, torch.device(device)
        self.module = _copy(module, self.device, dtype)
        whole = dict(self.module.state_dict())
        as_taken(self.module, buffers)
        self._dropped = {name: whole[name] for name in whole.keys() - self.module.state_dict().keys()}
        self.by_batch = any(is_by_batch(part) for _, part in parts_of(self.module))  # outputs differ by what is beside
        self._names = names_of(self.module)
        self.parameters, self.layers, self.last = self._names[:3]
        if not self.parameters:
            raise UserError("the model has no trainable parameter: give one with requires_grad=True.")
        self.at_rest = [name for name, part in parts_of(self.module) if is_frozen_batch_norm(part)]
        stored = [(n, b) for n, b in self.module.named_buffers(remove_duplicate=False) if self._moves(n, b)]
        modules = [name for name, _ in parts_of(self.module)]
        self.buffers = entries_of(stored, layers_of_owners(stored, self.parameters, modules))
        self.size = sum(e.size for e in self.parameters)
        self.buffer_size = sum(e.size for e in self.buffers)
        self._sizes = [e.size for e in self.parameters]
        self._calls = Calls(self.module, self.parameters, self.buffers, self.last, self.at_rest, dtype, autocast)

    def __repr__(self) -> str:
        sizes = f"parameters={self.size}, buffers={self.buffer_size}, layers={len(self.layers)}"
        return f"Space({type(self.module).__name__}, {sizes}, {str(self.dtype).removeprefix('torch.')})"

    def _moves(self, name: str, buffer: Tensor) -> bool:
        """Whether a buffer belongs to the vector: it has the vector's type, and is not a frozen BatchNorm's."""
        return buffer.is_floating_point() and not _is_small(buffer) and owner(name) not in self.at_rest

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
            e.name: view for e, view in zip(self.parameters, views(theta, self.parameters, self._sizes), strict=True)
        }

    def by_tensor(self, function: Callable[..., Tensor], *vectors: Tensor) -> Tensor:
        """A vector [D] made parameter by parameter: `function` of these vectors' parts, in the parameter's shape."""
        parts = zip(*(views(v, self.parameters, self._sizes) for v in vectors), strict=True)
        return torch.cat([channels_last(function(*tensors)).reshape(-1) for tensors in parts])

    def state_dict(self, theta: Tensor, buffers: Tensor | None = None) -> dict[str, Tensor]:
        """The state for the module's own `load_state_dict`: contiguous copies by every name; dropped statistics are
        initial.
        """
        state = {k: v.detach().clone() for k, v in (self._dropped | self.module.state_dict()).items()}
        pairs = [(self.parameters, theta)] + ([] if buffers is None else [(self.buffers, buffers)])
        for entries, vector in pairs:
            for entry, view in zip(entries, views(vector, entries), strict=True):
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
            module.load_state_dict({k: v for k, v in state.items() if k not in self._dropped})
        except RuntimeError as error:
            raise UserError(f"the saved model does not fit this one: {str(error).splitlines()[-1].strip()}") from None
        for name, p in module.named_parameters():
            if not p.requires_grad and not torch.equal(p, self.module.get_parameter(name)):
                raise UserError(
                    f"the saved model's frozen {name!r} is not this module's, and frozen parameters stay as they are: "
                    "load the file into the module first."
                )
        return self.ravel(module), self.ravel_buffers(module)

    # --- calls --------------------------------------------------------------------------------------------------------
    def outputs(self, theta: Tensor, x: Any, buffers: Tensor) -> Any:
        """The module in evaluation mode at the vector theta [D], buffers [B] left as they are. Inputs in a dict are
        named, and those in a tuple are in their order, where the module's `forward` takes them so.

        Raises UserError for a batch of one sample, where the module normalizes by the batch.
        """
        return self._passed("evaluate", theta, x, buffers)[0]

    def training_outputs(self, theta: Tensor, x: Any, buffers: Tensor) -> tuple[Any, Tensor]:
        """The module in training mode at theta [D]: its outputs and the buffers [B] after the pass.

        Raises UserError for a batch of one sample, where the module cannot be trained on that (BatchNorm).
        """
        return self._passed("train", theta, x, buffers)

    def _passed(self, mode: str, theta: Tensor, x: Any, buffers: Tensor) -> tuple[Any, Tensor]:
        try:
            return self._calls.outputs(mode, theta, x, buffers)
        except ValueError as error:
            if len(tree_leaves(x)[0]) != 1 or (mode == "evaluate" and not self.by_batch):
                raise
            raise UserError(
                f"the model cannot be {mode.removesuffix('e')}ed on a batch of one sample ({error}): give batches of "
                "two or more, or another normalization."
            ) from error

    def features(self, theta: Tensor, x: Any, buffers: Tensor) -> Tensor:
        """The input of the last layer with weights, in evaluation mode."""
        self._passed("evaluate", theta, x, buffers)
        return self._calls.features()

    def copying(self) -> Space:
        """The same space, whose calls compute with copies of their inputs, for a module that changes these in place."""
        made = copy.copy(self)
        made._calls = self._calls.copying()
        return made

    def watched(self, theta: Tensor, x: Any) -> AbstractContextManager[None]:
        """A context of calls at theta for x; UserError where one changes theta or a constant of the module, and
        ChangesInputs where it changes x.
        """
        return self._calls.watched(theta, x)

    def alike(self, one: Any, other: Any) -> bool:
        """Whether two passes gave the same outputs, up to the rounding of the type in which they computed."""
        return alike(one, other, self._calls.autocast)

    def head(self, theta: Tensor, z: Tensor) -> Tensor:
        """The last layer with weights, in training mode, applied to features z [B, F]."""
        module = self._calls.placed("train", theta, self.ravel_buffers())
        return module.get_submodule(self.last)(z)

    def __deepcopy__(self, memo: dict[int, Any]) -> Space:
        return self  # immutable once built

    # --- groups of parameters -----------------------------------------------------------------------------------------
    def layer_index(self) -> Tensor:
        """For every parameter, the number of its group of layers. int64 [D]."""
        return self._spread(self.parameters, lambda e: e.layer).to(torch.int64)

    def select(self, which: Selector) -> Tensor:
        """The selected parameters: a bool vector [D].

        `None` or "head" selects the last layer with weights, "body" the rest, "norm" the normalization layers; any
        other string is a pattern (`fc*`, `conv1`, `a|b`) on a parameter's names, and `!` before it selects the rest; a
        number selects the leading groups of layers; a callable is a predicate on names. Raises UserError where nothing
        matches, with all names.
        """
        return self._spread(self.parameters, chooser(which, self._names)).to(torch.bool)

    def select_buffers(self, which: Selector) -> Tensor:
        """The buffers that belong to the layers of the selected parameters. Bool [B]."""
        chosen = chooser(which, self._names)
        layers = {e.layer for e in self.parameters if chosen(e)}
        return self._spread(self.buffers, lambda e: e.layer in layers).to(torch.bool)

    def _spread(self, entries: list[Entry], value: Callable[[Entry], float]) -> Tensor:
        parts = [torch.full((e.size,), float(value(e)), device=self.device) for e in entries]
        return torch.cat(parts) if parts else torch.zeros(0, device=self.device)


def _flatten(tensors: dict[str, Tensor], entries: list[Entry], dtype: torch.dtype, device: torch.device) -> Tensor:
    parts = [channels_last(tensors[e.name].detach()).reshape(-1) for e in entries]
    return torch.cat(parts).to(device=device, dtype=dtype) if parts else torch.zeros(0, dtype=dtype, device=device)


def _copy(module: nn.Module, device: torch.device, dtype: torch.dtype) -> nn.Module:
    """A copy of the module on this device, which shares what is frozen and needs no conversion; UserError where it
    cannot be copied, or cannot be called at other parameters.
    """
    refuse_module(module)
    try:
        given = [*module.parameters(), *module.buffers()]
        based = any(_is_small(t) and isinstance(t, nn.Parameter) and not t.requires_grad for t in given)
        return copy.deepcopy(module, {id(t): _placed(t, device, dtype, based) for t in given})
    except torch.OutOfMemoryError:
        raise
    except RuntimeError as error:  # an attribute that is computed from parameters
        raise UserError(
            f"the model cannot be copied ({str(error).partition('.')[0]}): write weight_norm and spectral_norm as in "
            "torch.nn.utils.parametrizations, and end pruning by torch.nn.utils.prune.remove."
        ) from None


def sharing(module: nn.Module) -> nn.Module:
    """A copy of the module with parameters and buffers of its own, which share their memory with the module's."""
    parameters = {id(p): nn.Parameter(p.detach(), p.requires_grad) for p in module.parameters()}
    return copy.deepcopy(module, {**parameters, **{id(b): b.detach() for b in module.buffers()}})


def _is_small(tensor: Tensor) -> bool:
    return tensor.is_floating_point() and tensor.itemsize < 4


def _placed(tensor: Tensor, device: torch.device, dtype: torch.dtype, based: bool) -> Tensor:
    """The module's tensor as the copy has it: floats have this type, but what is not trained and has less than 32 bits
    keeps its own where the model is `based` on such parameters, as adapters are.
    """
    frozen = isinstance(tensor, nn.Parameter) and not tensor.requires_grad
    kept = not tensor.is_floating_point() or (based and _is_small(tensor) and not tensor.requires_grad)
    made = tensor.detach().to(device, tensor.dtype if kept else dtype)
    if made.data_ptr() == tensor.data_ptr():
        if frozen:
            return tensor
        made = made.clone()
    return nn.Parameter(made, tensor.requires_grad) if isinstance(tensor, nn.Parameter) else made


def seeded(module: Any, seed: int, purpose: str, like: Space) -> Space:
    """The vector space of the module that `module()` makes, with weights from the stream (seed, purpose)."""
    with torch_seeded(int(generator(seed, purpose).integers(2**62))):
        return Space(module(), dtype=like.dtype, device=like.device)


def read_model(path: str, space: Space) -> tuple[Tensor, Tensor]:
    """The vectors (parameters [D], buffers [B]) of a file; raises UserError where it is no saved model."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file  # pyright: ignore[reportUnknownVariableType]

    try:
        state: dict[str, Tensor] = load_file(path)  # pyright: ignore[reportUnknownVariableType]
        return space.from_state_dict(state)
    except (OSError, SafetensorError) as error:
        do = f"{meant(path)}give a model.safetensors"
        raise UserError(f"init={path!r} cannot be read as a model.safetensors ({said(error)}): {do}.") from None
