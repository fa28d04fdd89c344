"""A complete comparison on scikit-learn's bundled digits: six algorithms and the two reference rows, a table and a report.

20 clients, Dirichlet(0.1), everyone takes part in half of the rounds. `make demo` runs it; it takes about a minute on two cores.
"""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from driftless.config import Config
from driftless.federate import compare, run_config

ROWS = {
    "fedavg": "fedavg",
    "fedinit": "fedinit(beta=0.1)",
    "scaffold": "scaffold",
    "fedals": "fedals(alpha=5)",
    "scaffold_p": "scaffold_p",
    "scaffold+relaxed_init": "scaffold + relaxed_init(beta=0.1)",
    "centralised": "centralised",
    "local": "local",
}
OUT = Path("runs/demo")

if __name__ == "__main__":
    shutil.rmtree(OUT, ignore_errors=True)
    base = Config(data="digits", split="dirichlet(0.1)", clients=20, cohort=0.5, rounds=30, steps="10", batch=32, lr=0.1,
                  clip=10.0, eval_every=2)
    for name, algorithm in ROWS.items():
        Console().rule(algorithm)
        run_config(replace(base, algorithm=algorithm, out=str(OUT / name)), progress=False)
    compare([OUT / name for name in ROWS], references=False, out=OUT / "report.html")
