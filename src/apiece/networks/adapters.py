"""Adapters by name: low-rank updates of a model whose own parameters are frozen, by the package `peft`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from warnings import catch_warnings

from torch import Tensor, nn

from apiece.errors import UserError, said, with_extra
from apiece.system import files
from apiece.vector.space import sharing

PREFIX = "base_model.model."  # before every name in a file that peft reads
DEFAULT, LOCAL = "default", "local"  # the adapters' names


@dataclass(frozen=True)
class Lora:
    """W x + (alpha / r) B A x in place of W x, where only A [r, in] and B [out, r] are trained, and B starts at zero.

    `targets` are the layers' names, "q_proj,v_proj", or all-linear; without them peft takes those that are usual for
    the architecture. `train` are modules that are trained whole, such as a new head. `local` is the rank of a second
    adapter of the same layers, peft's adapter `local` with the same alpha, which the model adds to the first:
    W x + (alpha / r) B A x + (alpha / local) B' A' x. Hu et al., "LoRA: Low-Rank Adaptation of Large Language Models",
    ICLR 2022, equation 3. Raises UserError for a rank below 1 and for a dropout outside [0, 1).
    """

    r: int = 8
    alpha: float = 16.0
    targets: str | None = None
    dropout: float = 0.0
    train: str | None = None
    local: int | None = None

    def __post_init__(self) -> None:
        if self.r < 1 or not 0 <= self.dropout < 1:
            raise UserError(f"{self}: r is 1 or more, and dropout lies in [0, 1).")
        if self.local is not None and self.local < 1:
            raise UserError(f"{self}: local, the rank of the second adapter, is 1 or more; leave it out for none.")

    @property
    def second(self) -> Lora | None:
        """The local adapter alone, if there is one."""
        return None if self.local is None else replace(self, r=self.local, train=None, local=None)

    def config(self) -> Any:
        """The same as peft says it."""
        names = None if self.targets is None else [name.strip() for name in self.targets.split(",")]
        return library().LoraConfig(
            r=self.r,
            lora_alpha=self.alpha,
            lora_dropout=self.dropout,
            target_modules="all-linear" if names == ["all-linear"] else names,
            modules_to_save=None if self.train is None else [name.strip() for name in self.train.split(",")],
        )

    def into(self, module: nn.Module) -> nn.Module:
        """The module with adapters; it shares what it had with the module given, which stays as it is."""
        made = sharing(module)
        inside: Any = getattr(made, "whole", made)
        if not hasattr(inside, "config"):
            inside.config = {"model_type": "custom"}  # peft asks for it
        linear = [name for name, part in inside.named_modules() if isinstance(part, nn.Linear)]
        try:
            with catch_warnings(action="ignore", category=UserWarning):  # that a Conv1D's weight is transposed
                library().inject_adapter_in_model(self.config(), inside)
                if self.second is not None:
                    _add(self.second, inside)
        except (ValueError, TypeError, KeyError) as error:
            raise UserError(
                f"{self} finds no layer to adapt: {said(error)}; the model's linear layers are {', '.join(linear)}."
            ) from None
        return made


def lora(
    r: int = Lora.r,
    alpha: float = Lora.alpha,
    targets: str | None = None,
    dropout: float = Lora.dropout,
    train: str | None = None,
    local: int | None = None,
) -> Lora:
    """Low-rank adapters of the layers `targets`, beside modules that are trained whole; `local` is the rank of a second
    adapter of the same layers, for fed_dpa (Hu et al. 2022).
    """
    return Lora(r, alpha, targets, dropout, train, local)


def _add(second: Lora, inside: nn.Module) -> None:
    """Put the local adapter beside the one that is there, into the same layers."""
    kind = library().tuners.lora.LoraLayer
    layers: dict[str, Any] = {name: part for name, part in inside.named_modules() if isinstance(part, kind)}
    config = second.config()
    config.target_modules = set(layers)
    library().inject_adapter_in_model(config, inside, LOCAL)
    for part in layers.values():
        part.set_adapter([DEFAULT, LOCAL])


def save_adapter(module: nn.Module, adapter: Lora, state: Mapping[str, Tensor], folder: Path) -> None:
    """Write a folder that `PeftModel.from_pretrained(base, folder)` loads: the trained parameters of `state`, the
    module's state dict, and the adapter's configuration. A local adapter goes into its folder `local`, as peft has it.
    """
    _save(module, adapter, DEFAULT, state, folder)
    if adapter.second is not None:
        _save(module, adapter.second, LOCAL, state, folder / LOCAL)


def _save(module: nn.Module, adapter: Lora, name: str, state: Mapping[str, Tensor], folder: Path) -> None:
    from safetensors.torch import save

    inside: Any = getattr(module, "whole", module)
    prefix = "" if inside is module else "whole."
    own = {key.removeprefix(prefix): tensor for key, tensor in state.items()}
    found = library().get_peft_model_state_dict(inside, state_dict=own, adapter_name=name)
    config = adapter.config()
    config.base_model_name_or_path = getattr(inside.config, "_name_or_path", None)
    with TemporaryDirectory() as written:
        config.save_pretrained(written)
        (text,) = (path.read_bytes() for path in Path(written).iterdir())
    files.make_folder(folder)
    files.atomic_write(folder / "adapter_config.json", text)
    files.atomic_write(folder / "adapter_model.safetensors", save({PREFIX + key: t for key, t in found.items()}))


def library() -> Any:
    """The package `peft`; UserError where it is not installed."""
    try:
        import peft
    except ImportError as error:
        raise UserError(f"{error.name} is needed for adapters: {with_extra('adapters')}.") from None
    return peft
