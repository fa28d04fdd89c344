"""A card's cells: each is run once, a search climbs to the best value, results are checked before they are believed."""

from __future__ import annotations

import csv
import json
import math
from dataclasses import replace
from multiprocessing import get_context

import pytest
from scipy.stats import ttest_rel
from support.outer import TINY, cli, sentence
from support.recipes import Stop, stopping

from apiece.engine.clients import NotFinite
from apiece.errors import Busy, UserError
from apiece.reproduce import find, ledger, running
from apiece.reproduce.card import ACCURACY, Card, Claim, Number, Scale, Search
from apiece.reproduce.page import BEGIN, END, write_index, write_page
from apiece.reproduce.running import Place, chosen, reproduce, verify
from apiece.reproduce.standing import HELD, OPEN, REFUTED, listed, standing
from apiece.reproduce.table import Line, Table
from apiece.reproduce.work import federated, writing

CALLS: list[dict] = []
REAL = find.card


def work(settings, folder):
    """An accuracy that has its maximum at lr = 1/8, and a little noise that the seed alone decides."""
    CALLS.append(dict(settings))
    if settings["lr"] > 4:
        raise NotFinite("client 0 became non-finite")
    return {
        "accuracy": 0.9 - 0.01 * (math.log2(settings["lr"]) + 3) ** 2 + 0.001 * settings["seed"] + settings["mu"] / 10,
        "seconds": float(len(CALLS)),
    }


WITH, WITHOUT = ("with mu(0.1, 2)", "digits"), ("plain", "digits")
CARD = Card(
    title="A table",
    setup={"lr": 0.5, "rounds": 3},
    rows={"plain": {"mu": 0.0}, "with mu(0.1, 2)": {"mu": 1.0}},
    columns={"digits": {"data": "digits"}, "mnist": {"data": "mnist"}},
    scales={
        "smoke": Scale("Small.", {"rounds": 1}, (0, 1), columns={"digits": {}}),
        "cpu": Scale("Smaller.", {}, (0,), search=Search("lr", 1.0)),
    },
    work=work,
    numbers={"accuracy": ACCURACY, "seconds": Number("seconds", 1, timed=True)},
    published={"accuracy": {"plain": [(50.0, 0.5), None]}},
    claims=(
        Claim("mu helps", "mu is better.", lambda t: t.above(WITH, WITHOUT), ("smoke",)),
        Claim("mu harms", "mu is worse.", lambda t: t.above(WITHOUT, WITH), ("smoke",)),
        Claim("elsewhere", "mnist too.", lambda t: t.mean(("plain", "mnist")) > 0, ("smoke",)),
    ),
)  # fmt: skip


@pytest.fixture
def place(tmp_path, monkeypatch):
    CALLS.clear()
    monkeypatch.setattr(find, "names", lambda: ["some-table1"])
    monkeypatch.setattr(find, "card", lambda name: CARD)
    return Place(tmp_path / "out", tmp_path / "runs")


def lines(place):
    return ledger.read(place.out / "some" / "table1.jsonl")


def run(place, scale="smoke", only=""):
    return reproduce("some-table1", scale, place, only=only, say=lambda text: None)


def test_a_cell_is_run_once_and_again_where_its_settings_change(place, monkeypatch):
    page = run(place).read_text()
    assert [(x.row, x.seed) for x in lines(place)] == [(r, s) for s in (0, 1) for r in CARD.rows]
    run(place)
    assert len(CALLS) == 4
    changed = replace(CARD, rows={**CARD.rows, "plain": {"mu": 0.5}})
    monkeypatch.setattr(find, "card", lambda name: changed)
    run(place)
    assert len(CALLS) == 6 and {x["mu"] for x in CALLS[4:]} == {0.5}
    assert "86.05 ± 0.07 / 50.00 ± 0.50" in page and "digits |" in page and "| mnist" not in page


def test_a_value_that_is_made_of_finished_cells_is_shown_and_judged_without_running_them_again(place, monkeypatch):
    run(place)
    changed(place, 1, values={"failed": "client 0 became non-finite."})
    more = replace(
        CARD,
        derived={"twice": lambda line: 2 * line.values["accuracy"]},
        numbers={**CARD.numbers, "twice": Number("twice the accuracy")},
        claims=(Claim("twice", "It is twice.", lambda t: t.mean(WITH, "twice") == 2 * t.mean(WITH), ("smoke",)),),
    )
    monkeypatch.setattr(find, "card", lambda name: more)
    page = run(place).read_text()
    assert len(CALLS) == 4 and "**twice the accuracy**" in page and "| 1.92 ± 0.00 |" in page
    assert all(f"\n| {number} | smoke |" in page for number in (1, 2, 3, 4))
    assert "1 of 1 judged hold" in page and all("twice" not in line.values for line in lines(place))
    assert "bit for bit" in verify("some-table1", 2, place)


def test_claims_are_judged_by_the_lines_alone(place):
    run(place)
    now = standing(CARD, ledger.table(CARD, lines(place), "smoke"), "smoke")
    assert [verdict for _, verdict in now.verdicts] == [HELD, REFUTED, OPEN]
    assert (now.held, now.judged, now.done, now.asked) == (1, 2, 4, 4)
    assert now.farthest == pytest.approx((86.05 - 50) / 0.5)
    assert "1 of 2 claims hold" in listed(place.out)
    assert "| – | – | – | – | – |" in write_index(place.out).read_text()  # smoke says nothing, and is no row


def test_what_is_timed_is_not_compared_with_the_paper(place):
    run(place)
    timed = replace(CARD, numbers={name: number._replace(timed=True) for name, number in CARD.numbers.items()})
    now = standing(timed, ledger.table(timed, lines(place), "smoke"), "smoke")
    assert now.farthest is None and now.held == 1


def test_a_claim_is_not_judged_before_its_cells_have_every_seed(place):
    run(place)
    for missing, verdicts in (("plain", [OPEN, OPEN, OPEN]), ("none", [HELD, REFUTED, OPEN])):
        kept = [x for x in lines(place) if (x.row, x.seed) != (missing, 1)]
        now = standing(CARD, ledger.table(CARD, kept, "smoke"), "smoke")
        assert [verdict for _, verdict in now.verdicts] == verdicts
        assert (now.farthest is None) == (missing == "plain")


def test_a_search_climbs_on_held_out_samples_to_the_best_value(place):
    run(place, "cpu", "plain, digits")
    tried = [(x["lr"], x.get("measure_on")) for x in CALLS]
    assert tried == [(lr, "validation") for lr in (1.0, 2.0, 0.5, 0.25, 0.125, 0.0625)] + [(0.125, None)]
    assert ledger.table(CARD, lines(place), "cpu").mean(("plain", "digits")) == pytest.approx(0.9)


def test_a_search_goes_on_from_a_value_that_became_non_finite(place, monkeypatch):
    search = Search("lr", 4.0)
    card = replace(CARD, scales={"cpu": replace(CARD.scales["cpu"], search=search)})
    monkeypatch.setattr(find, "card", lambda name: card)
    run(place, "cpu", "plain, digits")
    assert [x["lr"] for x in CALLS][:2] == [4.0, 8.0] and CALLS[-1]["lr"] == 0.125
    assert any("failed" in x.values for x in lines(place))


def test_a_torn_line_is_run_again_and_a_broken_one_is_refused(place):
    run(place)
    file = place.out / "some" / "table1.jsonl"
    whole = file.read_bytes()
    file.write_bytes(whole[:-30])
    run(place)
    assert len(lines(place)) == 4 and len(CALLS) == 5
    file.write_bytes(b"nothing\n" + whole)
    with pytest.raises(UserError, match="line 1 is no cell's result"):
        run(place)


def test_a_last_line_without_its_newline_is_kept(place):
    run(place, only="plain")
    file = place.out / "some" / "table1.jsonl"
    file.write_bytes(file.read_bytes().rstrip(b"\n"))
    run(place)
    assert len(lines(place)) == 4 == len({(x.row, x.seed) for x in lines(place)}) == len(CALLS)


def test_a_byte_that_is_no_text_is_refused_in_one_sentence(place):
    run(place)
    file = place.out / "some" / "table1.jsonl"
    file.write_bytes(file.read_bytes().replace(b"digits", b"digit\xff", 1))
    with pytest.raises(UserError, match="line 1 is no cell's result"):
        run(place)


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_number_that_is_not_finite_is_told_and_the_card_stays_readable(place, monkeypatch, value):
    broken = lambda settings, folder: {"accuracy": value if settings["seed"] else 0.5, "curve": [[1], [value]]}
    monkeypatch.setattr(find, "card", lambda name: replace(CARD, work=broken))
    assert "- plain, digits, seed 1: accuracy is not finite." in run(place).read_text()
    assert run(place) and "4 of 4 cells" in listed(place.out)


def test_verify_compares_all_that_is_not_timed(place):
    run(place)
    assert "bit for bit" in verify("some-table1", 2, place)
    file = place.out / "some" / "table1.jsonl"
    first, *rest = lines(place)
    values = dict(first.values) | {"accuracy": first.values["accuracy"] * (1 + 1e-6)}

    def keep(made):
        texts = [json.dumps(x._asdict()) for x in (first._replace(values=values, made=made), *rest)]
        file.write_text("\n".join(texts) + "\n")

    keep(first.made)
    with pytest.raises(UserError, match="differs, on the same build, by more than nothing: accuracy by 1.0e-06 of its"):
        verify("some-table1", 1, place)
    keep({**first.made, "versions": {"torch": "another"}})
    assert "with other versions: within rounding: accuracy by 1.0e-06" in verify("some-table1", 1, place)
    keep({**first.made, "commit": "e2ff73e102", "device": "another"})
    assert "from another commit, on another device: within rounding" in verify("some-table1", 1, place)
    values.clear()
    with pytest.raises(UserError, match="accuracy by inf of its value; the page was made from e2ff73e102"):
        keep({**first.made, "commit": "e2ff73e102"})
        verify("some-table1", 1, place)
    with pytest.raises(UserError, match="training amplifies rounding, and the cell was run on another, so verify it"):
        keep({**first.made, "device": "another"})
        verify("some-table1", 1, place)
    with pytest.raises(UserError, match="has no cell 9, but 4 of them, from 1"):
        verify("some-table1", 9, place)


def test_a_processor_of_the_same_name_with_other_instructions_is_another_device(monkeypatch):
    told = []
    for instructions in ("AVX2", "AVX512"):
        monkeypatch.setattr("torch.backends.cpu.get_cpu_capability", lambda instructions=instructions: instructions)
        told.append(ledger.provenance("cpu")["device"])
    assert [device.rpartition(", ")[2] for device in told] == ["AVX2", "AVX512"]
    assert told[0].rpartition(", ")[0] == told[1].rpartition(", ")[0] != ""


def changed(place, number, **parts):
    """The ledger with other parts in one of its lines, as somebody may have edited it."""
    file = place.out / "some" / "table1.jsonl"
    kept = [x._replace(**parts) if i == number else x for i, x in enumerate(lines(place), 1)]
    file.write_text("".join(json.dumps(x._asdict()) + "\n" for x in kept))


@pytest.mark.parametrize(
    "parts",
    [{"values": 5}, {"values": None}, {"made": {}}, {"seconds": "x"}, {"values": {"accuracy": "high"}}, {"row": 5},
     {"values": {"accuracy": math.nan}}, {"seed": "zero"}, {"scale": ["a"]}, {"settings": None}],
    ids=str,
)  # fmt: skip
@pytest.mark.parametrize("number", [1, 4])  # the last is refused too: it is whole, and so not torn
def test_a_line_that_somebody_edited_is_refused(place, parts, number):
    run(place)
    changed(place, number, **parts)
    with pytest.raises(UserError, match=f"line {number} is no cell's result: put the file back, or remove it"):
        run(place)


def test_seeds_that_became_non_finite_are_told_and_judge_no_claim(place):
    run(place)
    changed(place, 1, values={"failed": "client 0 became non-finite."})
    page = run(place).read_text()
    assert "86.10 (1 of 2 seeds non-finite) / 50.00 ± 0.50" in page
    assert "- plain, digits, seed 0: client 0 became non-finite." in page and "No claim can be judged yet." in page
    changed(place, 3, values={"failed": "client 0 became non-finite."})
    assert "| plain | non-finite / 50.00 ± 0.50 |" in run(place).read_text()


def test_files_and_figures_tell_of_seeds_that_became_non_finite(place, monkeypatch):
    """A row of the CSV counts them, and a figure draws no mean over the others, which are the lucky ones."""
    drawn: list[set[str]] = []
    figure = lambda table, figure: drawn.append({line.row for line in table.lines})
    monkeypatch.setattr(find, "card", lambda name: replace(CARD, figure=figure))
    left_out = "The figure leaves out the cells of which a seed became non-finite."
    assert left_out not in run(place).read_text() and drawn[-1] == {"plain", "with mu(0.1, 2)"}
    changed(place, 1, values={"failed": "client 0 became non-finite."})
    assert left_out in run(place).read_text() and drawn[-1] == {"with mu(0.1, 2)"}
    with (place.out / "some" / "table1.csv").open() as file:
        accuracy = {row["row"]: (row["seeds"], row["failed"]) for row in csv.DictReader(file) if row["sd"] != ""}
    assert accuracy == {"plain": ("1", "1"), "with mu(0.1, 2)": ("2", "0")}


def test_other_seeds_are_no_part_of_what_is_asked(place):
    reproduce("some-table1", "smoke", place, (0, 5, 6), "plain", say=lambda text: None)
    assert "1 of 4 cells and 2 with other seeds" in listed(place.out)


def test_a_finished_run_keeps_who_made_it(place, monkeypatch):
    """A line that was lost is made again of the run folder: with the commit, the device and the seconds of that run."""
    made = {**ledger.provenance("cpu"), "commit": "old", "device": "a processor"}
    monkeypatch.setattr(ledger, "provenance", lambda device: dict(made))
    run(place, only="plain")
    before = lines(place)[0]
    (place.out / "some" / "table1.jsonl").unlink()
    made["commit"] = "new"
    run(place, only="plain")
    after = lines(place)[0]
    assert (after.made["commit"], after.made["device"]) == ("old to new", "a processor")
    assert after.seconds >= before.seconds
    (place.out / "some" / "table1.jsonl").unlink()
    made["device"] = "a card"
    run(place, only="plain")
    assert (lines(place)[0].made["commit"], lines(place)[0].made["device"]) == ("old to new", "a processor to a card")


def test_cells_that_share_a_run_count_its_hours_once_and_keep_who_made_it(place, monkeypatch):
    made = {**ledger.provenance("cpu"), "commit": "old"}
    monkeypatch.setattr(ledger, "provenance", lambda device: dict(made))
    card = replace(CARD, rows={"plain": {"mu": 0.0}, "the same": {"mu": 0.0}, "other": {"mu": 1.0}}, work=ended)
    monkeypatch.setattr(find, "card", lambda name: card)
    run(place, only="plain")
    made["commit"] = "new"
    run(place)
    commits = {(line.row, line.made["commit"]) for line in lines(place)}
    assert commits == {("plain", "old"), ("the same", "old"), ("other", "new")}
    for number, line in enumerate(lines(place), 1):
        changed(place, number, seconds={"plain": 3600.0, "the same": 3610.0, "other": 1800.0}[line.row])
    assert "3.01 hours" in listed(place.out)  # of two seeds


def ended(settings, folder):
    """A cell whose run has ended."""
    folder.mkdir(exist_ok=True)
    for name in ("model.safetensors", "report.html"):
        (folder / name).touch()
    return work(settings, folder)


def test_a_stopped_run_goes_on_though_somebody_wrote_a_report_of_it(tmp_path):
    with pytest.raises(Stop):
        federated(TINY, tmp_path / "run", on_round=stopping(2))
    (tmp_path / "run" / "report.html").touch()
    assert len(federated(TINY, tmp_path / "run").metrics) == TINY["rounds"]


def test_how_often_a_run_is_saved_changes_no_cell(place, monkeypatch):
    run(place)
    monkeypatch.setattr(find, "card", lambda name: replace(CARD, setup={**CARD.setup, "checkpoint_every": 7}))
    run(place)
    assert len(CALLS) == 4
    monkeypatch.setattr(find, "card", lambda name: replace(CARD, setup={**CARD.setup, "batch": 5}))
    page = write_page("some-table1", place.out).read_text()
    assert "4 lines of its file have other settings than the card has now, and are left out." in page


def test_a_search_counts_in_hours_is_shown_and_can_be_verified(place):
    page = run(place, "cpu", "plain, digits").read_text()
    tried = [number for number, x in enumerate(lines(place), 1) if x.scale == "cpu search"]
    assert "**lr**, as the search found it:" in page and "| plain | 0.125 | – |" in page
    assert len(tried) == 6 and "cpu search" in page
    assert "bit for bit" in verify("some-table1", tried[0], place)


def test_what_cannot_be_run_or_written_is_refused_before_a_cell_runs(place, tmp_path):
    (tmp_path / "file").write_text("")
    for other, seeds, said in (
        (place._replace(out=tmp_path / "file"), (), "file: could not be made: File exists"),
        (place._replace(data_dir=str(tmp_path / "nope")), (), "there is no such folder"),
        (place._replace(device="cuda:99"), (), "cuda"),
        (place, (-1,), "a seed is 0 or more"),
    ):
        with pytest.raises(UserError, match=said):
            reproduce("some-table1", "smoke", other, seeds, say=lambda text: None)
    with pytest.raises(UserError, match="names no row and no column"):
        run(place, only=" , ")
    assert not CALLS


def test_a_cell_that_another_process_runs_is_left_to_it(place, monkeypatch):
    """And all others are run."""

    def held(settings, folder):
        if settings["mu"] == 0.0 and settings["seed"] == 0:
            raise Busy("another process is at work on it.")
        return work(settings, folder)

    monkeypatch.setattr(find, "card", lambda name: replace(CARD, work=held))
    with pytest.raises(UserError, match="^another process runs plain, digits, seed 0: the same command takes"):
        run(place)
    assert len(lines(place)) == 3


def test_two_processes_share_the_cells_of_a_card(place, monkeypatch):
    """The other one comes while this one is at its first cell, leaves that, and runs the rest."""

    def meanwhile(settings, folder):
        if not CALLS:
            CALLS.append({})
            with pytest.raises(UserError, match="^another process runs plain, digits, seed 0: the same command takes"):
                run(place)
        return work(settings, folder)

    monkeypatch.setattr(find, "card", lambda name: replace(CARD, work=meanwhile))
    run(place)
    assert len(CALLS) == 1 + 4 and len({(x.row, x.seed) for x in lines(place)}) == len(lines(place)) == 4


def test_what_another_process_had_and_has_ended_by_then_is_done(place, monkeypatch):
    """Its line is there when this one has run the rest."""
    cells = iter(("another has it", "it", "meanwhile", "last", "last"))

    def held(settings, folder):
        now = next(cells)
        if now == "another has it":
            raise Busy("another process is at work on it.")
        if now == "meanwhile":
            reproduce("some-table1", "smoke", place, (0,), "plain", say=lambda text: None)
        return work(settings, folder)

    monkeypatch.setattr(find, "card", lambda name: replace(CARD, work=held))
    assert run(place).is_file() and len({(x.row, x.seed) for x in lines(place)}) == 4


def write_often(out, name):
    for _ in range(40):
        with writing(out):
            write_page(name, out)


def test_two_processes_write_the_pages_of_a_card_in_turn(tmp_path):
    """Their half-written files have the same name."""
    (tmp_path / "fedinit").mkdir()
    both = [get_context("fork").Process(target=write_often, args=(tmp_path, "fedinit-table9")) for _ in range(2)]
    for one in both:
        one.start()
    for one in both:
        one.join()
    assert [one.exitcode for one in both] == [0, 0] and {x.name for x in tmp_path.rglob("*.*")} == {"table9.md"}


def test_a_cell_that_another_process_ends_meanwhile_is_not_run_twice(place, monkeypatch):
    """The other one writes all lines after this one has read them and before it holds its first cell."""
    real = running.held

    def late(folder):
        monkeypatch.setattr(running, "held", real)
        run(place)
        return real(folder)

    monkeypatch.setattr(running, "held", late)
    run(place)
    assert len(CALLS) == len(lines(place)) == 4


def test_the_index_keeps_what_stands_around_its_table(place):
    place.out.mkdir()
    page, marked = place.out / "README.md", f"above\n{BEGIN}\nold\n{END}\nbelow\n"
    for known in (marked, marked + marked, "above\n"):
        page.write_text(known)
        told = write_index(place.out).read_text()
        assert told.startswith("above\n") and told.count("| card |") == 1 and "old" not in told.partition(END)[0]
        assert told.partition(END)[2].strip() == known.partition(END)[2].strip()
        assert write_index(place.out).read_text() == told
    page.write_text(torn := marked.replace(END, ""))
    with pytest.raises(UserError, match="README.md: '<!-- cards -->' has no '<!-- end of cards -->' below it"):
        write_index(place.out)
    assert page.read_text() == torn


def test_of_several_cards_names_are_checked_first_and_each_is_run(place, monkeypatch):
    known = {"some-table1": replace(CARD, work=refused), "some-table2": CARD}
    monkeypatch.setattr(find, "names", lambda: [*known])
    monkeypatch.setattr(find, "card", lambda name: known[name] if name in known else REAL(name))
    words = ("--scale", "smoke", "--out", place.out, "--runs", place.runs)
    sentence(cli("reproduce", "some-table2", "some-table3", *words), "there is no card 'some-table3'")
    assert not CALLS
    ended = cli("reproduce", *known, *words)
    sentence(ended, "some-table1: column digits was left out: digits: no such file.")
    assert len(CALLS) == 4 and str(place.out / "some" / "table2.md") in ended.out


def refused(settings, folder):
    raise UserError("digits: no such file.")


def test_only_names_rows_and_columns(place):
    assert chosen(CARD, "cpu", "With mu(0.1,2), MNIST") == [("with mu(0.1, 2)", "mnist")]
    assert chosen(CARD, "cpu", "mnist") == [("plain", "mnist"), ("with mu(0.1, 2)", "mnist")]
    assert len(chosen(CARD, "cpu", " ")) == 4
    commas = replace(CARD, columns={"mnist, sorted": {"data": "mnist"}, "mnist": {"data": "mnist"}})
    assert chosen(commas, "cpu", "plain, MNIST, sorted") == [("plain", "mnist, sorted")]
    assert chosen(commas, "cpu", "mnist,plain") == [("plain", "mnist")]
    with pytest.raises(UserError, match="no row or column is 'plane'; did you mean 'plain'"):
        chosen(CARD, "cpu", "plane")
    with pytest.raises(UserError, match="has no scale 'paper'"):
        run(place, "paper")


def test_a_column_without_data_is_left_out_and_the_others_are_run(place, monkeypatch):
    def refusing(settings, folder):
        if settings["data"] == "digits":
            CALLS.append(settings)
            raise UserError("digits: no such file.")
        return {"accuracy": 0.5}

    card = replace(CARD, work=refusing, scales={"cpu": Scale("Smaller.", {}, (0, 1))})
    monkeypatch.setattr(find, "card", lambda name: card)
    with pytest.raises(UserError, match="^column digits was left out: digits: no such file.$"):
        run(place, "cpu")
    assert len(CALLS) == 1 and {x.column for x in lines(place)} == {"mnist"} and len(lines(place)) == 4


VALUES = {  # of three seeds; "d" is "a" and a little more with each of them
    "a": (0.50, 0.60, 0.70), "b": (0.55, 0.60, 0.70), "c": (0.90, 0.91, 0.92), "d": (0.51, 0.61, 0.711),
    "e": (0.52, 0.59, 0.72),
}  # fmt: skip


@pytest.mark.parametrize("one", VALUES)
@pytest.mark.parametrize("other", VALUES)
def test_above_is_a_test_of_the_differences_seed_by_seed(one, other):
    made = [Line("cpu", row, "c", seed, {}, {"accuracy": value}, 0.0, {})
            for row, values in VALUES.items() for seed, value in enumerate(values)]  # fmt: skip
    table = Table(tuple(reversed(made)), tuple(VALUES), ("c",))
    expected = one != other and ttest_rel(VALUES[one], VALUES[other], alternative="greater").pvalue < 0.05
    assert table.above((one, "c"), (other, "c")) == expected
    assert not expected or {one, other} in ({"a", "c"}, {"b", "c"}, {"c", "d"}, {"c", "e"}, {"a", "d"})


def test_a_claim_may_ask_whether_a_cell_becomes_non_finite():
    """It is told once all seeds of the cell are done; numbers of such a cell are not compared."""
    of = lambda row, seed, values: Line("cpu", row, "c", seed, {}, values, 0.0, {})
    fine, bad = {"accuracy": 0.5}, {"failed": "client 0 became non-finite."}
    lines = (of("a", 0, fine), of("a", 1, fine), of("b", 0, fine), of("b", 1, bad), of("d", 0, bad))
    whole = Table(lines, ("a", "b", "d"), ("c",)).whole((0, 1))
    assert whole.diverged == {("b", "c")} and {line.row for line in whole.lines} == {"a"}


def test_a_claim_is_not_judged_by_other_seeds_or_by_a_number_that_some_seeds_lack(place):
    run(place)
    changed(place, 3, seed=5)
    told = standing(CARD, ledger.table(CARD, lines(place), "smoke"), "smoke")
    assert [verdict for _, verdict in told.verdicts] == [OPEN, OPEN, OPEN] and told.others == 1
    changed(place, 3, seed=1, values={})
    told = standing(CARD, ledger.table(CARD, lines(place), "smoke"), "smoke")
    assert [verdict for _, verdict in told.verdicts] == [OPEN, OPEN, OPEN] and told.farthest is None
    assert "86.00 (1 of 2 seeds) / 50.00" in write_page("some-table1", place.out).read_text()


def test_of_a_single_seed_in_common_the_larger_value_is_above():
    made = [Line("cpu", row, "c", seed, {}, {"accuracy": value}, 0.0, {})
            for row, seed, value in (("a", 0, 0.5), ("a", 1, 0.9), ("b", 1, 0.8), ("b", 2, 0.1))]  # fmt: skip
    table = Table(tuple(made), ("a", "b"), ("c",))
    assert table.above(("a", "c"), ("b", "c")) and not table.above(("b", "c"), ("a", "c"))


def test_a_run_folder_is_named_by_the_settings(place):
    paths = []
    card = replace(CARD, work=lambda settings, folder: paths.append(folder) or {})
    one = running.Asked("smoke", ("plain", "digits"), 0, {"lr": 0.5})
    for asked in (one, one._replace(settings={"lr": 0.25}), one):
        with running.held(folder := running.run_folder(place.runs / "some", asked.settings | {"seed": 0})):
            running.run_cell(card, asked, place, folder)
    assert paths[0] == paths[2] != paths[1]
