"""The command for shells: `apiece completion`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tyro.conf import Positional


@dataclass(frozen=True)
class Completion:
    """Print what makes a shell complete the commands, flags and choices: `eval "$(apiece completion bash)"`."""

    shell: Positional[Literal["bash", "zsh"]]
    """The shell that is to complete them."""
