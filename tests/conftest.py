"""One thread a process: the tensors here are small, and two threads for them only wait for each other."""

from __future__ import annotations

import torch

torch.set_num_threads(1)
