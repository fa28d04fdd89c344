"""The commands of the command line, one dataclass each: its fields are the flags, and a call executes it.

Importing this package and making a command load neither torch nor numpy.
"""

from __future__ import annotations

from apiece.commands.checking import Check
from apiece.commands.deploy import Join, Rehearse, Serve
from apiece.commands.deploying import Deploy
from apiece.commands.lists import Algorithms, Data
from apiece.commands.new import New
from apiece.commands.papers import Reproduce, Verify
from apiece.commands.results import Compare, Export, Figure, Personalize, Report, Watch
from apiece.commands.runs import Grid, Resume, Run
from apiece.commands.shells import Completion
from apiece.commands.tune import Tune

BY_RANKS = (Run, Grid, Resume, Compare)  # executed by all ranks together; the first alone executes the rest

COMMANDS = {
    "new": New,
    "check": Check,
    "run": Run,
    "grid": Grid,
    "tune": Tune,
    "resume": Resume,
    "compare": Compare,
    "report": Report,
    "watch": Watch,
    "figure": Figure,
    "export": Export,
    "personalize": Personalize,
    "reproduce": Reproduce,
    "verify": Verify,
    "deploy": Deploy,
    "serve": Serve,
    "join": Join,
    "rehearse": Rehearse,
    "algorithms": Algorithms,
    "data": Data,
    "completion": Completion,
}
