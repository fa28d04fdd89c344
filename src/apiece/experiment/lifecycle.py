"""A run's folder from its beginning to its end: made, resumed at a checkpoint, given more rounds, finished."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from apiece.data.tasks import REAL, TOLD, UNLABELED
from apiece.errors import Busy, UserError
from apiece.experiment.folders import MODEL, ended, note, noted, recorded, refuse_existing, write_config, write_rounds
from apiece.experiment.identity import digest, first_rounds
from apiece.experiment.result import measures_of
from apiece.experiment.stopping import forget_best
from apiece.measure.observed import sheets
from apiece.report import pictures
from apiece.report.metrics import ACCURACY, to_toml
from apiece.storage import checkpoint
from apiece.storage.log import NAME as LOG
from apiece.storage.log import Log, logged, without_infinities
from apiece.system import files
from apiece.system.ranks import RankLost, join

if TYPE_CHECKING:
    from apiece.config.assemble import Experiment
    from apiece.experiment.result import Result
NAMED = 12  # up to so many classes have their names in run.toml
LISTED = 100_000  # up to so many clients, each is measured at the end and listed in clients.json
AT_END = (MODEL, "clients.json", pictures.NAME)  # what a run writes at its end, besides its page


def complete(folder: Path) -> bool:
    """Whether nothing is left to do in this folder: its run has ended, has its page, and is the run of its run.toml."""
    made = ended(folder) and (folder / "report.html").is_file()
    return made and noted(folder).get("digest") == digest(recorded(folder), folder)


def leave_behind(folder: Path, number: int, rounds: int) -> None:
    """Give the folder's run this number of rounds, and discard what comes after checkpoint `number`.

    If the number of rounds changes, what the run wrote at its end is removed first, and run.toml changes last: after a
    crash in between, the folder holds either the run as it was, which can end again, or the run as it will be.
    """
    longer = rounds != recorded(folder).rounds
    if longer:
        _remove_end(folder)
    checkpoint.set_aside(folder, number)
    if longer:
        forget_best(folder, rounds)
        if not number:
            Log.rewound(folder, [])  # as a log with more rounds than the run has is one whose checkpoints are lost
        write_rounds(folder, rounds)
        note(folder, f"{folder} continues from round {number}, and has {rounds} rounds now.")


def go_on_after_stop(folder: Path) -> None:
    """Let a run that was stopped go on to its number of rounds; nothing for any other run."""
    if "stopped" in noted(folder):
        _remove_end(folder)
        write_rounds(folder, recorded(folder).rounds)


def _remove_end(folder: Path) -> None:
    """Remove what the run wrote at its end."""
    for path in filter(Path.is_file, (folder / name for name in AT_END)):
        files.remove(path)
    files.sync_folder(folder)


@contextmanager
def unless_begun(folder: Path) -> Iterator[None]:
    """In this context the run begins for which `folder` was just made. If it fails before its first round is done, the
    folder is removed, and the same command, once mended, is not refused. A folder stays if a checkpoint was saved in
    it, if the run was stopped from outside, by a signal, a full disk, a lost rank, and if another process runs in it.
    """
    try:
        yield
    except Exception as error:
        outside = isinstance(error, (RankLost, Busy)) or isinstance(error.__cause__, OSError)
        if not outside and join().leads and not _begun(folder):
            shutil.rmtree(folder, ignore_errors=True)
        raise


def _begun(folder: Path) -> bool:
    """Whether a round of a run is done, or saved to go on from, in this folder or a folder in it."""
    return any(checkpoint.numbers(part) or (part / LOG).is_file() for part in (folder, *folder.glob("*/")))


def begin(folder: Path, experiment: Experiment, lift: Any, why: str) -> None:
    """Make the folder of a new run, which notes its lift and why it has this; raises UserError if it exists and is not
    empty.
    """
    refuse_existing(folder)
    files.make_folder(folder)
    task, setting = experiment.federated.setup.task, experiment.federated.setup.setting
    assert setting is not None, "an experiment is made for a federation"
    space = task.space
    resolved = {
        "parameters": space.size,
        "buffers": space.buffer_size,
        "layers": space.layers,
        "lift": repr(lift),
        "lift_because": why,
        "cohort": experiment.cohort,
        "algorithm": repr(experiment.federated.setup.algorithm),
        "shape": list(setting.shape),
        "digest": digest(experiment.config),
        "classes": experiment.dataset.classes if experiment.dataset and task.name not in REAL else 0,
        "data": experiment.fingerprint,
    }
    known = experiment.dataset.known if experiment.dataset else None
    labels = [] if known is None or len(known) > NAMED else [str(label) for label in known.tolist()]
    resolved |= {"labels": labels} if labels != [str(number) for number in range(len(labels))] else {}
    told = {} if task.name in TOLD else {"task": task.name}
    measures = measures_of(task)
    write_config(folder, experiment.config, resolved | told, () if measures == (ACCURACY,) else to_toml(measures))


def newest(
    folder: Path,
    digest: str,
    tell: Callable[[str], None],
    most: int | None = None,
    agree: Callable[[checkpoint.Checkpoint], None] | None = None,
) -> checkpoint.Checkpoint | None:
    """The run's newest checkpoint that can be used (`checkpoint.latest`), or None if it has no checkpoint. `tell` gets
    the reasons why newer ones were refused; raises UserError if all were.
    """
    found, refused = checkpoint.latest(folder, digest, most, agree)
    if found is None and refused:
        told = "; ".join(dict.fromkeys(reason.rstrip(".") for reason in refused))
        raise UserError(
            f"no checkpoint of {folder} can be used: {told}: put what is lost or damaged back from a copy, or begin "
            "another run with another --out."
        )
    for reason in refused:
        assert found is not None
        tell(f"{reason} The checkpoint of round {found.number} is taken instead.")
    return found


def refuse_lost(folder: Path) -> None:
    """Raise UserError if no checkpoint is there, though the run has saved some: its log is longer than it can be before
    the first one, or the run has ended.
    """
    config = recorded(folder)
    rounds = max(config.rounds, first_rounds(folder))  # it may have begun with more
    first = min(config.checkpoint_every, max(rounds - 1, 1))
    if checkpoint.numbers(folder):
        return
    if ended(folder) or any(info["round"] > first for info in logged(folder / LOG)):
        raise UserError(
            f"the checkpoints of {str(folder)!r} are lost, though rounds were done: put them back from a copy, or "
            "begin another run with another --out."
        )


def finish(folder: Path, result: Result) -> None:
    """Write what a run has at its end: each client's metrics, the global model, pictures, and the report."""
    import safetensors.torch

    from apiece.report.page import write_report

    experiment = result.experiment
    place, dataset, split = experiment.federation, experiment.dataset, experiment.split
    task, counts = experiment.federated.setup.task, None
    if task.name not in UNLABELED and task.name != "multilabel" and split is not None and dataset is not None:
        counts = split.counts(dataset.y_train, dataset.classes)
    if len(place.names) <= LISTED:
        seen = set(place.participants)
        records = [
            {
                "name": name,
                "seen": i in seen,
                "samples": place.size(i),
                "tests": place.test_size(i),
                **{metric.name: result.values.get(i, {}).get(metric.name) for metric in task.metrics},
                "counts": counts[i].tolist() if counts is not None else place.label_counts(i),
            }
            for i, name in enumerate(place.names)
        ]
        files.atomic_write(folder / "clients.json", json.dumps(without_infinities(records), allow_nan=False).encode())
    files.atomic_write(folder / MODEL, safetensors.torch.save(result.model()))
    pictures.save(folder, sheets(result.clients, result.server, dataset))
    write_report([folder], folder, experiment.config.target)
