"""What the benchmark says of samples, and a little of it run whole."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from support import ROOT

BENCHMARKS = ROOT / "benchmarks"


@pytest.fixture
def timing(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import timing

    return timing


def rows(timing, work, **walls):
    """Each contender's samples are (seconds, whether its cores were free); CPU seconds are twice the wall's."""
    names = {name.replace("_", " "): of for name, of in walls.items()}
    return timing.summary("w", work, {n: [timing.Sample(s, 2 * s, free) for s, free in of] for n, of in names.items()})


def test_ratios_are_of_clean_samples_to_the_faster_base(timing):
    work = timing.Work({}, "bare", "best", remarks=lambda walls: {"ours": f"seen in {walls['ours']}"})
    bare = [(4.0, True), (90.0, False), (6.0, True)]
    all_of = rows(timing, work, bare=[(9.0, True)], bare_2=bare, best=[(2.0, True)], ours=[(1.0, True), (2.0, True)])
    one, two, best, ours = all_of
    assert (two.wall, two.low, two.high, two.kept, two.discarded, two.ratio) == (5.0, 4.0, 6.0, 2, 1, 1.0)
    assert (one.ratio, best.to_limit, ours.to_limit, ours.remark) == (1.8, 1.0, 0.75, "seen in 1.5")
    assert (ours.ratio, ours.ratio_low, ours.ratio_high) == pytest.approx((0.3, 0.2, 0.4))
    assert two.cpu == 12.0 and two.cpu_ratio == 1.0  # of all that were begun


@pytest.mark.parametrize(("most", "said"), [(0.3, "met"), (0.29, "missed")])
def test_a_goal_is_held_against_the_fastest_of_its_name(timing, most, said):
    work = timing.Work({}, "bare", goals=[timing.Goal("ours", "bare", most), timing.Goal("ours", "nobody", 1.0)])
    found = rows(timing, work, bare=[(10.0, True)], ours_slow=[(5.0, True)], ours_fast=[(3.0, True)])
    (line,) = timing.verdicts(work, found)
    assert "ours fast takes 0.30" in line and line.endswith(said)


def test_what_had_no_core_to_itself_is_not_to_be_trusted(timing):
    work = timing.Work({}, "bare", goals=[timing.Goal("ours", "bare", 1.0)])
    found = rows(timing, work, bare=[(10.0, True)], ours=[(3.0, False)])
    assert found[1].kept == 0 and found[1].discarded == 1 and "do not trust it" in timing.verdicts(work, found)[0]


@pytest.mark.slow
def test_a_little_of_it(tmp_path):
    """Every contender makes the bare loop's model, and has its row."""
    command = [sys.executable, BENCHMARKS, "--only", "softmax regression", "no-op", "--small", "--peers"]
    limits = ["--samples", "1", "--seconds", "1", "--json", tmp_path / "rows.json", "--page", tmp_path / "page.md"]
    ran = subprocess.run([*command, *limits], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    assert "is left out" not in ran.stdout and "softmax regression: apiece" in ran.stdout
    found = [row["contender"].removesuffix(" (auto)") for row in json.loads((tmp_path / "rows.json").read_text())]
    lifts = {f"apiece, {lift}" for lift in ("sequential", "threaded", "processes", "vectorized", "compiled")}
    assert lifts | {"bare", "best effort, 1 thread", "best effort, 2 threads", "1,000 clients"} <= {*found}
    page = (tmp_path / "page.md").read_text()
    goals = page.partition("## Goals\n")[2].partition("\n## ")[0].strip().splitlines()
    assert goals and all(line.startswith("- ") and " allowed: " in line for line in goals)
    headings = [line[3:] for line in page.splitlines() if line.startswith("## ")]
    assert headings == ["Goals", "softmax regression", "no-op"]
    assert sum(line.startswith("| apiece, ") for line in page.splitlines()) == len(lifts)
