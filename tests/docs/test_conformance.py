"""The committed page says of every algorithm and composition there is, and of no other."""

from __future__ import annotations

import re

import conformance
import pytest
from conformance import PAGE, followed, line, models
from oracles import ORACLES
from support.costs import CLAIMS, SIZE
from support.subjects import algorithms, commands, decomposed, key, names_of, reference, subjects

from apiece.algebra.composition import algorithm
from apiece.language import algorithms as named
from apiece.language.names import Names

STALE = "docs/conformance.md is stale: `make conformance` makes it anew"


def page(*titles: str) -> list[list[str]]:
    """The rows of the tables under these headings."""
    sections = re.split(r"^## (.*)$", PAGE.read_text(), flags=re.M)[1:]
    lines = [
        line for t, text in zip(sections[::2], sections[1::2], strict=True) if t in titles for line in text.splitlines()
    ]
    rows = [re.split(r"(?<!\\)\|", line)[1:-1] for line in lines if line.startswith("| `")]
    cells = [[cell.strip().replace("\\|", "|") for cell in row] for row in rows]
    return [[name.strip("`"), *rest] for name, *rest in cells]


@pytest.mark.slow
def test_every_algorithm_and_composition_is_on_the_page():
    single = {text for names, text in subjects().items() if len(names) == 1}
    for title, there in (("Algorithms", single), ("Compositions", set(subjects().values()) - single)):
        assert {row[0] for row in page(title)} == {row[0] for row in page(f"{title}: what they cost")} == there, STALE
    assert {names_of(row[0])[0] for row in page("Algorithms")} == set(algorithms()), STALE


def test_every_oracle_wrong_reading_and_claim_is_on_the_page():
    readings = {(oracle, reading) for oracle, module in ORACLES.items() for reading in module.MUTATIONS.values()}
    assert {tuple(row[:2]) for row in page("Wrong readings that the oracles catch")} == readings, STALE
    assert {key(decomposed(oracle)) for oracle in ORACLES} - {()} <= {key(names) for names in subjects()}
    claims = {(claim.algorithm, claim.where, claim.what) for claim in CLAIMS}
    assert {tuple(row[:3]) for row in page("What the papers say of cost")} == claims, STALE


def test_nothing_on_the_page_is_left_open():
    for name, _, oracle, caught, *rest in page("Algorithms"):
        assert float(oracle.split()[0]) < 1e-10 and caught[0].isdigit() and len(rest) == 4, name
    for *_, identity, threads, vectorized, wired in page("Algorithms", "Compositions"):
        assert identity and (threads, wired) == ("bitwise", "bitwise") and float(vectorized) < 1e-10


@pytest.mark.slow
def test_a_new_algorithm_appears_by_itself(monkeypatch):
    def newcomer(strength: float = 1.0, steps: int = 50):
        """Something new, added to anything (Somebody et al. 2031)."""
        return algorithm(*named.scaffold().pieces, name="newcomer")

    monkeypatch.setattr(named, "NAMED", Names(named.NAMED.places, {"newcomer": lambda: newcomer}))
    monkeypatch.setitem(ORACLES, "newcomer_fedinit", ORACLES["scaffold_fedinit"])
    assert subjects()["newcomer",] == "newcomer(steps=3)" and reference("newcomer") == "Somebody et al. 2031"
    assert subjects()["newcomer", "relaxed_init"] == "newcomer(steps=3) + relaxed_init"
    like = followed(("newcomer",), newcomer())
    assert like is not None and like.oracle == "scaffold" and like.gap < 1e-10


@pytest.mark.slow
def test_a_row_is_measured(monkeypatch):
    """Of an algorithm whose parts all have something to say."""
    right, costs = line(("fedavg_p",), "fedavg_p", reasons := [])
    assert right[:2] == ["`fedavg_p`", "Chen et al. 2023"] and right[4] == "`Period(which='head', every=1)`: fedavg"
    assert costs[1:6] == [models(90), "1", models(520), models(520), "yes"] and not reasons
    right, costs = line(("pfedhn",), "pfedhn", reasons)
    assert right[4] == "none (1)" and "generator" in reasons[0]
    assert costs[3:6] == ["1", "1", "no: `train.delta`, `train.weight`"] and "a new descriptor" in costs[6]
    monkeypatch.setattr(conformance, "same", lambda *_: False)
    with pytest.raises(AssertionError, match="wired is not sequential"):
        line(("fedavg",), "fedavg", reasons)


@pytest.mark.parametrize(
    "numbers, said",
    [(0, "0"), (2 * SIZE, "2"), (SIZE + 1, "1 + 1 number"), (SIZE + 2, "1 + 2 numbers"), (SIZE / 2, "0.5")],
)
def test_numbers_in_sizes_of_the_model(numbers, said):
    assert models(numbers) == said


def test_the_docs_have_both_papers_tables():
    tables = [(words[words.index("--rows") + 1], words[words.index("--columns") + 1]) for words in commands()]
    columns = "nothing, relaxed_init(0.1), relaxed_init(0.1, aggregate=delta)"
    assert ("fedavg, fedadam, fedsam, scaffold, feddyn, fedcm", columns) in tables
    assert any(rows.startswith("fedavg, fedavgm") and "fedcog" in columns for rows, columns in tables)
