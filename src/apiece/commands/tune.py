"""The command that searches for good settings: `apiece tune`."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Annotated

from apiece.commands.arguments import Json
from apiece.commands.runs import METRIC, Settings
from apiece.config.names import refuse_unknown
from apiece.config.settings import Config, check
from apiece.errors import UserError


@dataclass(frozen=True)
class Tune:
    """Search for the settings with which an algorithm is best on samples held out from training; the test set is not
    used, whatever --measure-on says. The settings are those of `run`, each of --seeds is run in every trial, and the
    same command again continues.
    """

    over: str
    """What is searched, and where: "lr=loguniform(1e-3, 1), beta=0..0.2, optimizer=choice(sgd, adam)". A name is a
    setting or an argument of the algorithm; write fedprox.mu or run.lr where it could be several.
    """
    trials: int = 20
    """How many combinations are tried, for each algorithm."""
    metric: Annotated[str, METRIC] = "global"
    algorithms: str = ""
    """Several algorithms with commas between them, each searched alike (default: --algorithm)."""
    reduction: int = 3
    """Of the trials, one in so many goes on at each rung; 1 runs all of them to the end."""
    budget: str = ""
    """What one run may send, as 20MB, in place of --rounds, which is then an upper limit."""
    json: Json = False
    config: Settings = field(default_factory=Config)

    def check(self) -> None:
        """Raise UserError for what can be refused before anything heavy is loaded."""
        check(self.config)
        refuse_unknown(self.config)
        if int(os.environ.get("WORLD_SIZE", "1")) > 1:
            raise UserError("apiece tune is for one process: begin it without torchrun.")

    def __call__(self) -> None:
        from rich.console import Console

        from apiece.report.for_programs import as_text
        from apiece.search.tuning import tune_config

        self.check()
        tuned = tune_config(
            self.config, self.over, self.trials, self.metric, self.algorithms, self.reduction, self.budget
        )
        if self.json:
            return print(as_text(tuned.for_programs()))
        Console().print(tuned.table())
        for path in [tuned.unspent, *tuned.files()] if tuned.unspent else tuned.files():
            print(path)
