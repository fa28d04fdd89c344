"""A run's trained models as files: for `load_state_dict`, or for peft."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import safetensors.torch

from apiece.config import names
from apiece.config.assemble import assemble
from apiece.experiment import folders
from apiece.experiment.run import trained
from apiece.networks.adapters import save_adapter
from apiece.report.table import VIRTUAL
from apiece.system import files


def export(folder: Path, client: str | None, out: Path, plugin: Sequence[str] = ()) -> None:
    """Write the trained global model of a run, or one client's by name: a file for `load_state_dict`, or, where the run
    trained adapters and `out` is no .safetensors, a folder for `PeftModel.from_pretrained`. A line says what a client's
    model needs beside the file to predict as the client does, and of a global model whether no server has it.
    `plugin`: the plug-in files that the run was made with.
    """
    folder = folders.only(folder)
    config = folders.read_one(folder, plugin)
    folders.make_place(out)
    result = trained(assemble(replace(config, device="cpu", out=str(folder))), folder)
    setup = result.experiment.federated.setup
    makes = "" if setup.broadcast.common else "what the server makes clients' models of, and predicts nothing itself"
    what = VIRTUAL if setup.periods.personal or setup.buffer_periods.personal else makes
    if client is None and what:
        folders.say(f"this model is {what}: `--client NAME` exports the model of one client.")
    if config.adapter is not None and out.suffix != ".safetensors":
        save_adapter(result.experiment.module, names.one("adapter", config.adapter), result.model(client), out)
    else:
        files.atomic_write(out, safetensors.torch.save(result.model(client)))
