"""Who watches a run round by round: the progress bar, and TensorBoard."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from apiece.config.assemble import Experiment
from apiece.errors import UserError, with_extra
from apiece.experiment.result import Info


class Bar:
    """A progress bar over rounds with the current accuracy; before it, how many clients a round asks."""

    def __init__(self, experiment: Experiment):
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[said]}"),
            TimeRemainingColumn(),
        )
        self.progress = Progress(*columns)
        config = experiment.config
        self.task = self.progress.add_task(f"{config.algorithm} seed {config.seed}", total=config.rounds, said="")
        self.accuracy, registered = "", len(experiment.training.seen)
        about = "about " if config.sampling == "bernoulli" else ""
        self.asked = f"{about}{experiment.cohort} of {registered} clients a round"

    def __enter__(self) -> Callable[[Info], None]:
        self.progress.start()
        self.progress.console.print(self.asked, highlight=False)
        return self.show

    def show(self, info: Info) -> None:
        if "global_accuracy" in info:
            self.accuracy = f"accuracy {info['global_accuracy']:.3f}"
        said = self.accuracy if info["answered"] else "nobody answered: nothing changed"
        self.progress.update(self.task, completed=info["round"], said=said)

    def __exit__(self, *error: object) -> None:
        self.progress.stop()


def tensorboard(folder: Path, stack: ExitStack) -> Callable[[Info], None]:
    """What writes a round's numbers for TensorBoard, closed with the stack."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise UserError(
            f"TensorBoard is not installed: {with_extra('tensorboard')}, or leave --tensorboard out."
        ) from None
    writers: list[Any] = []

    def write(info: Info) -> None:
        if not writers:  # made now: the folder is the run's only once the run has begun
            writers.append(SummaryWriter(str(folder / "tensorboard"), purge_step=info["round"]))
            stack.callback(writers[0].close)
        layers = {f"consensus/{layer}": value for layer, value in info.get("consensus", {}).items()}
        for name, value in (info | layers).items():
            if isinstance(value, (int, float)) and name != "round":
                writers[0].add_scalar(name, value, info["round"])

    return write
