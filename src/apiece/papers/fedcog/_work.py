"""How FedCOG's cells are run that are no plain runs, and what is read off them."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from apiece.algebra.composition import algorithm
from apiece.config.assemble import assemble
from apiece.config.tables import from_table
from apiece.engine.row import own_model
from apiece.experiment.identity import digest
from apiece.experiment.launch import ensure
from apiece.experiment.run import trained
from apiece.measure.observed import sheets
from apiece.measure.scoring import score
from apiece.pieces.fedcog import FedCOG
from apiece.report import pictures
from apiece.report.results import read_run
from apiece.reproduce.work import federated, last

ACROSS, SHOWN = 12, 6  # pictures in a row of a run's sheet, of which every sixth is shown


@dataclass(frozen=True)
class HardLabels(FedCOG):
    """FedCOG whose generated samples are learned with their targets, as cross entropy (Table 5, row 3)."""

    def generate(self, view, steps=None):
        """The generated set, whose teacher is certain of the targets."""
        made = super().generate(view, steps)
        certain = 1e4 * torch.nn.functional.one_hot(made.y, made.outputs.shape[-1]).to(made.outputs.dtype)
        return made._replace(outputs=certain)


def hard(settings, folder):
    """A run of FedCOG with hard labels; the setting `hard` has its values."""
    own = dict(settings)
    own["algorithm"] = algorithm(HardLabels(**own.pop("hard")), name="fedcog(hard)")  # the row's text has none
    return {"accuracy": last("global_accuracy")(federated(own, folder))}


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
    named = digest(from_table({**own, "seed": 0}, "FedAvg"))[:8]
    base = folder.parents[1] / f"FedAvg-{named}" / f"seed-{settings['seed']}"
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
