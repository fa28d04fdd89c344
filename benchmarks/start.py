"""The start of `apiece run` on the bundled digits, in CPU seconds on one core, beside the imports it cannot do without.

    python benchmarks/start.py [--times 5]

Every line is the least of several processes, which take turns. "To the first round" ends where the first round of
`apiece run` would begin. Bytecode is cached, as where the package is installed. The goals: the first round begins
within twice the import of torch, and a wrong name is said within 0.3 seconds.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile

from rich.console import Console
from rich.table import Table

TO_THE_FIRST_ROUND = """
import os
import apiece.cli, apiece.commands.runs as runs
train = runs.Run.__call__
def until_the_round(command):
    from apiece.engine.federated import Federated
    Federated.round = lambda *words: os._exit(0)
    train(command)
runs.Run.__call__ = until_the_round
apiece.cli.main(["run", "--rounds", "1"])
raise SystemExit("no round began")
"""
PROGRAMS = {
    "python -c pass": ("-c", "pass"),
    "import tyro": ("-c", "import tyro"),
    "apiece run --algorithm scafold": ("-m", "apiece", "run", "--algorithm", "scafold"),
    "import torch": ("-c", "import os, torch; os._exit(0)"),  # as the next, without the interpreter's end
    "apiece run, to the first round": ("-c", TO_THE_FIRST_ROUND),
}
TWICE, WRONG = 2.0, 0.3


def spent() -> float:
    """CPU seconds of the processes that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def seconds(words: tuple[str, ...], cache: str) -> float:
    """CPU seconds of one process, whose bytecode lies in the folder `cache`."""
    settings = {"OMP_NUM_THREADS": "1", "PYTHONPYCACHEPREFIX": cache, "PYTHONDONTWRITEBYTECODE": ""}
    before = spent()
    ended = subprocess.run([sys.executable, *words], env=os.environ | settings, capture_output=True)
    assert ended.returncode == (2 if words[-1] == "scafold" else 0), ended.stderr.decode()
    return spent() - before


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--times", type=int, default=5)
    times = parser.parse_args().times
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    with tempfile.TemporaryDirectory() as cache:  # the first turn fills it
        taken = [{name: seconds(words, cache) for name, words in PROGRAMS.items()} for _ in range(times + 1)][1:]
    least = {name: min(turn[name] for turn in taken) for name in PROGRAMS}
    torch, begun, wrong = (list(least.values())[place] for place in (3, 4, 2))
    table = Table("process", "CPU seconds, the least", "the most", title=f"{times} turns on one core")
    for name in PROGRAMS:
        table.add_row(name, f"{least[name]:.2f}", f"{max(turn[name] for turn in taken):.2f}")
    console = Console()
    console.print(table)
    console.print(f"to the first round: {begun / torch:.2f} times the import of torch; at most {TWICE:g} allowed")
    console.print(f"a wrong name: {wrong:.2f} seconds; at most {WRONG:g} allowed")


if __name__ == "__main__":
    main()
