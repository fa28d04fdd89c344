"""One typed configuration: the single source of flags, of the TOML file, of defaults and of help."""

from __future__ import annotations

import dataclasses
import inspect
import math
import os
import re
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any, Literal

from apiece.data.catalog import OWN
from apiece.errors import UserError
from apiece.language.grammar import parse

AUTO = "auto"  # a split that the data decide
CLIENTS, BY_DATA = 20, ("natural", "given")  # the number of clients, and the splits whose data say it
NAME, DIGITS = 255, 300  # the longest name of a file, in bytes, and the longest number in text
FILES = ("data", "data_dir", "init", "out")  # settings that name a file or a folder
# whose text is of terms; the name of a program's own algorithm may be any text
EXPRESSIONS = ("split", "model", "adapter", "steps", "schedule", "optimizer", "server", "augment", "track")
# a program may give objects for these
OBJECTS = ("optimizer", "server", "schedule", "augment", "weighting", "steps", "lr", "sampling")
GROUPS = {  # as the help of the command line shows them, the most important first
    "main": "algorithm data task split clients cohort rounds model steps batch lr seed out",
    "data": "data_dir input target_column client_column prepare fit resize unseen validation augment noise_rgb "
    "noise_brightness",
    "algorithm": "plugin adapter init buffers",
    "local_training": "epochs schedule optimizer optimizer_state clip",
    "server": "sampling absent server weighting",
    "measurement": "metrics measure_on eval_every panel panel_of target drift seeds track tensorboard early_stopping "
    "keep_best best_by",
    "execution": "device precision lift workers patience on_bad_client checkpoint_every",
}
TaskName = Literal[
    "auto", "classification", "multilabel", "regression", "segmentation", "forecasting", "language-modeling"
]


@dataclass(frozen=True)
class Config:
    """A federated run: what `federate` takes by keyword, the command line as flags, and run.toml records.

    >>> Config(algorithm="scaffold", split="classes(2)").rounds
    50
    """

    algorithm: str = "fedavg"
    """A sum of named algorithms: "scaffold + relaxed_init(beta=0.1)"; `apiece algorithms` lists them."""
    plugin: tuple[str, ...] = ()
    """Python files of your own whose public functions are algorithms too (docs/adding-a-piece.md)."""
    data: str = "digits"
    """A named data set (`apiece data` lists them), or the path of an .npz, .parquet, .csv or .jsonl file, of a folder
    of such files, one for each client, or of a folder of images.
    """
    task: TaskName = "auto"
    """What is learned, which decides the usual loss and metrics; auto reads it off the targets."""
    data_dir: str | None = None
    """The folder of NAME.npz; otherwise the folder that APIECE_DATA names, or a download."""
    input: tuple[str, ...] = ()
    """Columns of a table that the model reads (default: all but the target, the client and `split`)."""
    target_column: str | None = None
    """The column of a table that is predicted (default: label)."""
    client_column: str | None = None
    """The column of a table that names each sample's owner (default: client, for the split natural)."""
    prepare: Literal["onehot", "ordinal", "plain"] | None = None
    """How a table becomes numbers: text one-hot or as ordinal numbers, gaps filled, columns of numbers standardized;
    plain takes numbers alone, as they are. By default it is onehot where there is text or a gap, and otherwise plain.
    """
    fit: Literal["pooled", "client"] | None = None
    """What that preparation is fitted on: all training samples together (the default), or each client's own."""
    resize: str | None = None
    """The size to which images are resized, as 32 or as height x width, 32x24."""
    split: str = "auto"
    """How samples are divided over clients: iid, dirichlet(0.1), classes(2), natural, ... (`apiece data`); auto is
    natural where --client-column names the owners, and otherwise dirichlet(0.1)."""
    clients: int | None = None
    """How many clients (default: 20, and all that there are with the splits natural and given)."""
    unseen: float = 0.0
    """Clients that never train: a number, or a share below 1."""
    validation: float = 0.0
    """The share of each client's samples that is held out from training."""
    model: str = "auto"
    """softmax_regression, mlp, cnn, cnn_fedcog, cnn_fedcog_cifar100, lenet, resnet20, resnet18_gn, vgg11; for text opt
    or opt_lm(length=128, folder=...); auto fits the data.
    """
    adapter: str | None = None
    """What is trained in place of the model's own parameters: lora(r=8, alpha=16, targets="q_proj,v_proj")."""
    init: str | None = None
    """A model.safetensors to start from."""
    cohort: int | float = 1.0
    """Clients per round, a number or a share: 10 is ten clients and 1 is one; 1.0 and 100% are all, 0.1 and 10% a
    tenth.
    """
    sampling: Literal["fixed", "bernoulli"] = "fixed"
    """A cohort of fixed size, or each client independently with the cohort's share as probability."""
    absent: float = 0.0
    """The probability with which an asked client does not answer."""
    rounds: int = 50
    """Rounds."""
    steps: str = "50"
    """Local steps per round: a number, or "uniform(10,50)" for stragglers."""
    epochs: int | None = None
    """Local epochs per round, instead of steps."""
    batch: int = 32
    """Samples per step."""
    lr: float = 0.1
    """The clients' step size."""
    schedule: str = "constant"
    """The step size over rounds: constant, exponential(0.998), cosine, warm_restarts(10), drop(every=50,
    factor=0.1).
    """
    optimizer: str = "sgd"
    """The clients' optimizer: sgd(momentum=0.9, weight_decay=1e-4), adam or adamw(...)."""
    optimizer_state: Literal["fresh", "kept"] = "fresh"
    """The clients' optimizer state: fresh each round, or kept by the client."""
    clip: float | None = None
    """The largest norm of a task gradient."""
    server: str = "average"
    """The server's optimizer: average(lr=1), momentum(0.9), adam(lr=0.1), yogi, adagrad."""
    weighting: Literal["samples", "uniform"] = "samples"
    """The weights of clients in the mean."""
    buffers: Literal["average", "local", "drop"] = "average"
    """BatchNorm's statistics: averaged with their layer, left with the client, or dropped."""
    augment: str = "none"
    """Augmentation of training images: none, flip, crop(4), or flip + crop(4)."""
    noise_rgb: float = 0.0
    """Strength of each client's own factors on the color channels."""
    noise_brightness: float = 0.0
    """Strength of each class's own brightness, on training images."""
    seed: int = 0
    """The source of all randomness."""
    seeds: tuple[int, ...] = ()
    """Several seeds, one run each: 0,1,2."""
    metrics: tuple[str, ...] = ()
    """What is measured, the first shown first: accuracy, f1, auroc, mae, mse, rmse, r2, iou or perplexity, and
    class_f1, class_precision or class_recall of several labels, as the task has them (default: the task's own).
    """
    measure_on: Literal["test", "validation"] = "test"
    """The samples on which models are measured: the test set, or those that `validation` holds out, for choosing
    settings.
    """
    eval_every: int = 1
    """Rounds between two evaluations; the last round always has one."""
    panel: int | None = None
    """How many clients are measured for personal metrics before the end, where all are (default: up to 100), and how
    many train once more at the end, for `adapted` (default: as many as cost a quarter of the training).
    """
    panel_of: Literal["same", "turns"] = "same"
    """The panel has the same clients at every evaluation, or the next ones in turn, until all were measured."""
    target: float | None = None
    """A global value of the first metric: tables say after how many rounds, bytes and seconds it was reached."""
    drift: Literal["none", "selected", "all"] = "all"
    """Measure drift over the cohort, or over all clients too (their models are then stored)."""
    device: str = "cpu"
    """cpu, cuda or cuda:1: where clients train, and where their data and the server's state lie."""
    precision: Literal["float32", "tf32", "bfloat16", "float64"] = "float32"
    """The number format of the vectors. bfloat16 and tf32 keep them in float32: bfloat16 computes the model's passes in
    bfloat16, and tf32 lets a GPU (not the CPU) round the factors of its products to ten bits.
    """
    lift: Literal["auto", "vectorized", "compiled", "threaded", "processes", "sequential", "wired"] = "auto"
    """How one client's work runs for many. auto takes vectorized on a GPU and for small models without convolutions,
    else threaded (in runs of more than a minute, the fastest of threaded, processes and sequential), and compiled where
    its compiler's minutes pay. compiled is vectorized with compiled local steps. A GPU records the calls of vectorized
    as CUDA graphs, and has no lift beside it but sequential.
    """
    workers: int = 0
    """How many threads run clients, or calls of many clients, or how many worker processes do (0: one per core)."""
    patience: float = 300.0
    """Seconds beyond the slowest answer so far that a worker process, or a wired client's, may be silent. Then it is
    ended and a new one asked; if that one is silent too, the run stops, and can be resumed.
    """
    on_bad_client: Literal["stop", "skip"] = "stop"
    """What happens to a client that becomes non-finite: it stops the run, or is left out and counted."""
    checkpoint_every: int = 1
    """Rounds between two checkpoints."""
    track: str = "none"
    """Where rounds are written too: csv, tensorboard, mlflow, wandb, trackio, or several: csv + mlflow."""
    tensorboard: bool = False
    """The same as --track tensorboard."""
    early_stopping: int | None = None
    """End the run once so many measurements in a row brought nothing better."""
    keep_best: bool = False
    """Keep the best model so far as best.safetensors in the run folder."""
    best_by: str | None = None
    """The number of metrics.jsonl by which these two judge (default: the first metric of the global model or, if there
    is none, of the clients').
    """
    out: str | None = None
    """The run folder; without one, nothing is written."""


def about() -> dict[str, str]:
    """The description of each setting: the docstring below its field."""
    found = re.findall(r'^    (\w+): [^\n]+\n    """(.+?)"""', inspect.getsource(Config), re.MULTILINE | re.DOTALL)
    return {name: " ".join(text.split()) for name, text in found}


def check(config: Config) -> None:
    """Raise UserError, with all problems at once, if numbers are out of range."""
    c = config if str(config.lr) != OWN else dataclasses.replace(config, lr=0.0)  # a program's, as its folder says it
    told = [problem for f in dataclasses.fields(c) if (problem := _unwritable(f.name, getattr(c, f.name)))]
    if told:
        raise UserError("; ".join(told) + ".")
    numbers = {f.name: getattr(c, f.name) for f in dataclasses.fields(c)}
    endless = [f"{k}={v} must be finite" for k, v in numbers.items() if isinstance(v, float) and not math.isfinite(v)]
    if endless:
        raise UserError("; ".join(endless) + ".")
    rules = (
        (c.clients is None or c.clients >= 1, f"clients={c.clients} must be 1 or more"),
        (c.rounds >= 1, f"rounds={c.rounds} must be 1 or more"),
        (c.batch >= 1, f"batch={c.batch} must be 1 or more"),
        (c.epochs is None or c.epochs >= 1, f"epochs={c.epochs} must be 1 or more"),
        (c.cohort > 0, f"cohort={c.cohort:g} must be a number of clients, or a share in (0, 1]"),
        (
            c.cohort <= 1 or c.cohort == int(c.cohort),
            f"cohort={c.cohort:g} above 1 must be a whole number of clients",
        ),
        (0 <= c.absent <= 1, f"absent={c.absent:g} must lie in [0, 1]"),
        (c.lr >= 0, f"lr={c.lr:g} must not be negative"),
        (c.clip is None or c.clip > 0, f"clip={c.clip} must be positive"),
        (c.eval_every >= 1, f"eval_every={c.eval_every} must be 1 or more"),
        (
            c.measure_on == "test" or c.validation > 0,
            f"measure_on=validation needs validation, the share that is held out: it is {c.validation:g}",
        ),
        (c.panel is None or c.panel >= 1, f"panel={c.panel} must be 1 or more"),
        (c.checkpoint_every >= 1, f"checkpoint_every={c.checkpoint_every} must be 1 or more"),
        (c.early_stopping is None or c.early_stopping >= 1, f"early_stopping={c.early_stopping} must be 1 or more"),
        (not c.keep_best or c.out is not None, "keep_best needs out, the folder that the model goes to"),
        (not c.tensorboard or c.out is not None, "tensorboard needs out, the folder that its events go to"),
        (
            c.lift in ("auto", "vectorized", "sequential") or c.device == "cpu",
            f"lift={c.lift} is for the cpu, and device={c.device} takes auto, vectorized or sequential",
        ),
        (c.workers >= 0, f"workers={c.workers} must not be negative"),
        (0 < c.patience <= 1e9, f"patience={c.patience:g} must lie in (0, 1e9] seconds"),
        (c.noise_rgb >= 0, f"noise_rgb={c.noise_rgb:g} must not be negative"),
        (c.noise_brightness >= 0, f"noise_brightness={c.noise_brightness:g} must not be negative"),
        (len(set(c.seeds)) == len(c.seeds), f"seeds={','.join(map(str, c.seeds))} must all differ"),
    )
    problems = [text for holds, text in rules if not holds]
    if problems:
        raise UserError("; ".join(problems) + ".")


def _unwritable(name: str, value: Any) -> str:
    """Why a setting's value cannot stand in a run.toml, names no file or cannot be read; "" if it is fine."""
    if isinstance(value, tuple):
        return next((problem for item in value if (problem := _unwritable(name, item))), "")
    if isinstance(value, int) and abs(value) >= 2**63:
        return f"{name}={shown(value)} must be a number of 64 bits"
    if not isinstance(value, str):
        return ""
    if not value and name in FILES:
        return f"{name} is empty: give a path, or leave it out"
    if name in FILES and value.startswith("~"):
        return f"{name}={shown(value)} begins with ~, which only a shell knows: write the whole path"
    if "\0" in value or not value.isascii() and value.encode(errors="replace").decode() != value:
        return f"{name}={shown(value)} has a character that no file can hold: give text without it"
    if name in FILES and any(len(os.fsencode(part)) > NAME for part in PurePath(value).parts):
        return f"{name}={shown(value)} has a name of more than {NAME} bytes, which no file can have: give a shorter one"
    if name not in FILES and re.search(rf"\d{{{DIGITS + 1}}}", value):
        return f"{name}={shown(value)} has a number of more than {DIGITS} digits: give a smaller one"
    if name in EXPRESSIONS and value != OWN and (name != "steps" or value.strip()[:1].isalpha()):
        try:
            parse(value)
        except UserError as error:
            return f"{name}={shown(value)}: {error}"
    return ""


def shown(value: Any) -> str:
    """A value as it is written, on one line, cut if it is long."""
    if isinstance(value, int) and value.bit_length() > 200:
        return f"a number of {value.bit_length()} bits"
    text = repr(value).replace("\n", " ")
    return text if len(text) <= 80 else f"{text[:76]}..."
