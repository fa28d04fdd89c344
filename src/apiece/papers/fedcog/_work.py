"""How FedCOG's cells are run that are no plain runs, and what is read off them."""

from __future__ import annotations

import re
import shutil
import time
from dataclasses import dataclass, fields
from functools import reduce
from operator import add
from pathlib import Path

import numpy as np
import torch

from apiece.algebra.composition import algorithm
from apiece.config.assemble import assemble
from apiece.config.tables import from_table
from apiece.engine.row import own_model
from apiece.experiment.launch import ensure
from apiece.experiment.run import trained
from apiece.language.algorithms import NAMED
from apiece.language.expression import build
from apiece.measure.observed import sheets
from apiece.measure.scoring import score
from apiece.papers.fedcog import _setup as shared
from apiece.pieces.fedcog import FedCOG
from apiece.report import pictures
from apiece.report.results import read_run
from apiece.reproduce.work import federated, held, last, run_folder

ACROSS, SHOWN = 12, 6  # pictures in a row of a run's sheet, of which every sixth is shown


@dataclass(frozen=True)
class Keeping(FedCOG):
    """FedCOG that keeps each client's model whatever its weights are: while they wait, all rows have one state."""

    @property
    def reads(self):
        return frozenset({"model", "fresh"})

    @property
    def stream(self):
        return FedCOG.__name__  # the draws are FedCOG's


@dataclass(frozen=True)
class HardLabels(Keeping):
    """FedCOG whose generated samples are learned with their targets, as cross entropy (Table 5, row 3)."""

    def generate(self, view, steps=None):
        """The generated set, whose teacher is certain of the targets."""
        made = super().generate(view, steps)
        certain = 1e4 * torch.nn.functional.one_hot(made.y, made.outputs.shape[-1]).to(made.outputs.dtype)
        return made._replace(outputs=certain)


def later(settings, folder):
    """A run. Rows of one column and seed that have FedCOG are the same run until it begins: this part is run once,
    and each row goes on from a copy of it. With the setting `hard`, generated samples have hard labels.
    """
    own = dict(settings)
    kind = HardLabels if own.pop("hard", False) else Keeping
    whole = reduce(add, build(own["algorithm"], NAMED))
    cog = next((piece for piece in whole.pieces if isinstance(piece, FedCOG)), None)
    if cog is None:
        return shared.WORK(own, folder)
    name = re.sub(r"fedcog(\([^()]*\))?", f"fedcog after {cog.wait} rounds", own["algorithm"])
    made = lambda piece: algorithm(*(piece if part is cog else part for part in whole.parts), name=name)  # noqa: E731
    if 0 < cog.wait < own["rounds"] and not (folder / "run.toml").is_file():
        common = {**own, "algorithm": name, "rounds": cog.wait}
        base = run_folder(folder.parents[1], common)
        with held(base):  # another row's process may be about to begin it
            federated({**common, "algorithm": made(Keeping(wait=cog.wait))}, base)
        copied(base, folder)
    piece = kind(**{field.name: getattr(cog, field.name) for field in fields(cog)})
    run = federated({**own, "algorithm": made(piece)}, folder)
    return {name: read(run) for name, read in shared.READINGS.items()}


def copied(run, folder):
    """A copy of a run's folder that can go on to more rounds: it has no report, which is written at the end."""
    half = folder.with_name(f"{folder.name}.tmp")
    shutil.rmtree(half, ignore_errors=True)
    shutil.copytree(run, half, ignore=shutil.ignore_patterns("report.html"))
    half.replace(folder)


def several_labels(settings, folder):
    """A run whose samples have several labels (Table 2); the data that are called `made` are made here."""
    own, rng = dict(settings), np.random.default_rng(settings["seed"])
    if own["data"] == "made":
        x = {f"user-{k}": rng.integers(0, 256, (20, 16, 16, 3), dtype=np.uint8) for k in range(own["clients"])}
        own["data"] = {user: (images, (images[:, 0, :3, 0] > 127).astype(np.float32)) for user, images in x.items()}
        del own["split"]
    run = federated(own, folder)
    return {name: last(f"global_{name}")(run) for name in own["metrics"]}


def begun(settings, folder, rounds):
    """The settings with the model after so many rounds of FedAvg, which all rows of a column and seed share."""
    own = {**settings, "algorithm": "fedavg", "rounds": rounds}
    base = run_folder(folder.parents[1], own)
    ensure(from_table(own, str(base)), base)
    return {**settings, "init": str(base / "model.safetensors"), "rounds": 1}


def done(settings, folder):
    """The state of a run that has ended, which is run first if it has not."""
    config = from_table(dict(settings), str(folder))
    ensure(config, Path(folder))
    return trained(assemble(from_table({**settings, "out": str(folder)}, str(folder))), Path(folder))


def local_models(settings, folder):
    """Of each client's model after the last round: its distance from the global model, its accuracies (Figure 2)."""
    own = dict(settings)
    rounds = own.pop("begin", 0)
    own = begun(own, folder, rounds) if rounds else own
    result = done(own, folder)
    setup, place, server = result.experiment.federated.setup, result.experiment.federation, result.server
    everything, found = torch.arange(len(place.test_pool[1])), []
    for client in place.participants:
        theta = own_model(setup, server.params, result.clients.at_rest(client).row)
        predict = lambda x, theta=theta: setup.task.space.outputs(theta, x, server.buffers)  # noqa: E731
        scores = score(setup.task, predict, place.test_pool, everything)
        of = lambda rows, scores=scores: scores.of(setup.task.metrics, rows)["accuracy"]  # noqa: E731
        found.append((float((theta - server.params).norm()), of(everything), of(place.test_rows(client))))
    far, general, personal = map(list, zip(*found, strict=True))
    means = {"far": float(np.mean(far)), "general": float(np.mean(general)), "personal": float(np.mean(personal))}
    curves = {"far": far, "general": general, "personal": personal}.items()
    numbered = {f"{name} by client": [list(range(1, len(far) + 1)), values] for name, values in curves}
    return means | numbered | {"accuracy": last("global_accuracy")(read_run(folder))}


def timed(settings, folder):
    """The seconds of one client's generation, and of one client's local training (Table 11)."""
    result = done(settings, folder)
    began = time.perf_counter()
    sheets(result.clients, result.server, result.experiment.dataset)  # makes the client's set once
    generation = time.perf_counter() - began
    return {"generation": generation, "training": last("seconds")(read_run(folder)) / settings["clients"]}


def pictured(settings, folder):
    """The pictures [0, 255] that a client makes after one more round of FedAvg, in one column (Figure 5)."""
    own = dict(settings)
    own = begun(own, folder, own.pop("begin"))
    ensure(from_table(own, str(folder)), folder)
    steps = own["algorithm"].partition("steps=")[2].rstrip(")")
    sheet = pictures.read(folder)[f"FedCOG, {steps} steps"]
    size = sheet.shape[1] // ACROSS
    column = np.concatenate([sheet[:, size * k : size * (k + 1)] for k in range(0, ACROSS, SHOWN)])
    return {"pictures": (255 * column).round().astype(int).tolist()}
