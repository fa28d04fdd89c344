"""The page in a real browser: what its script adds, by pointer and by keyboard, and that nothing of a folder runs."""

from __future__ import annotations

import csv
import io
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.folders import write

from apiece.report.page import write_report

api = pytest.importorskip("playwright.sync_api")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
pytestmark = [pytest.mark.slow, pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium")]
EVIL = "</script><script>document.title='evil'</script><img src=x onerror=\"document.title='evil'\">"


@pytest.fixture(scope="module")
def context() -> Iterator[Any]:
    with api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser.new_context(viewport={"width": 1400, "height": 900}, accept_downloads=True)
        browser.close()


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("report")
    named = (("a", "fedavg"), ("b", "scaffold"), ("c", f"evil {EVIL}"))
    rows = [write(folder / n / f"seed-{seed}", seed=seed, algorithm=name) for n, name in named for seed in (0, 1)]
    for row in rows:
        text = (row / "clients.json").read_text()
        (row / "clients.json").write_text(text.replace('"c1"', '"</script><script>document.title=1</script>"'))
    return write_report(rows, folder / "report.html")


@pytest.fixture
def page(context: Any, report: Path) -> Iterator[Any]:
    page, said = context.new_page(), []
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.goto(report.as_uri())
    page.evaluate("localStorage.clear()")
    page.reload()
    yield page
    page.close()
    assert not said  # no error, and nothing that the page's policy had to refuse


def saved(page: Any, button: Any) -> str:
    with page.expect_download() as download:
        button.click()
    return Path(download.value.path()).read_text(encoding="utf-8")


def test_the_pointer_and_the_keys_read_values(page: Any) -> None:
    chart = page.locator("#accuracy-figure-1 .chart")
    chart.hover()
    tip = page.locator("#accuracy-figure-1 .tip")
    assert tip.is_visible() and "fedavg" in tip.inner_text() and "%" in tip.inner_text() and "round" in tip.inner_text()
    chart.focus()
    page.keyboard.press("Home")
    assert chart.get_attribute("aria-valuetext").startswith("round 1: ") and chart.get_attribute("role") == "slider"
    page.keyboard.press("ArrowRight")
    assert chart.get_attribute("aria-valuetext").startswith("round 2: ")
    assert "fedavg 67.17 ± 0.71 %" in chart.get_attribute("aria-valuetext")  # 2/3 + 0.00, 0.01
    page.keyboard.press("+")
    assert page.locator("#accuracy-figure-1 .tools").get_by_text("whole axis").is_visible()
    page.keyboard.press("0")
    assert not page.locator("#accuracy-figure-1 .tools").get_by_text("whole axis").is_visible()


def test_dragging_zooms_and_a_double_click_ends_it(page: Any) -> None:
    chart, whole = page.locator("#accuracy-figure-1 .chart"), page.locator("#accuracy-figure-1 .tools button").first
    chart.scroll_into_view_if_needed()
    box = chart.bounding_box()
    page.mouse.move(box["x"] + 100, box["y"] + 80)
    page.mouse.down()
    page.mouse.move(box["x"] + 220, box["y"] + 90)
    page.mouse.up()
    assert whole.is_visible()
    chart.dblclick()
    assert not whole.is_visible()


def test_a_legend_switches_lines_off_and_remembers(page: Any) -> None:
    button = page.locator(".legend button", has_text="scaffold").first
    page.locator("#accuracy-figure-1 .chart").hover()
    assert "scaffold" in page.locator("#accuracy-figure-1 .tip").inner_text()
    button.click()
    page.reload()
    assert page.locator(".legend button", has_text="scaffold").first.get_attribute("aria-pressed") == "false"
    page.locator("#accuracy-figure-1 .chart").hover()
    assert "scaffold" not in page.locator("#accuracy-figure-1 .tip").inner_text()
    button.focus()
    page.keyboard.press("Enter")
    assert button.get_attribute("aria-pressed") == "true"


def test_one_choice_changes_all_axes_and_another_shows_single_seeds(page: Any) -> None:
    assert "round" in page.locator("#accuracy-figure-1 .chart").inner_text()
    page.get_by_role("radio", name="bytes").check()
    for name in ("#accuracy-figure-1", "#loss-figure-1", "#consensus-by-layer-figure-1"):
        assert "bytes sent" in page.locator(f"{name} .chart").inner_text()
    page.get_by_role("radio", name="single seeds").check()
    page.locator("#accuracy-figure-1 .chart").hover()
    assert "fedavg, seed 1" in page.locator("#accuracy-figure-1 .tip").inner_text()
    page.reload()
    assert (
        page.get_by_role("radio", name="bytes").is_checked()
        and page.get_by_role("radio", name="single seeds").is_checked()
    )


def test_a_table_sorts_by_numbers_and_by_names(page: Any) -> None:
    table = page.locator("#results ~ .scroll table")
    global_, names = table.locator("th", has_text="Global"), table.locator("tbody th")
    table.locator("th button", has_text="Algorithm").click()
    assert names.all_inner_texts()[-1] == "scaffold"
    global_.get_by_role("button").click()
    assert global_.get_attribute("aria-sort") == "descending"
    global_.get_by_role("button").press("Enter")
    assert global_.get_attribute("aria-sort") == "ascending"


def test_figures_and_tables_become_files(page: Any) -> None:
    tools = page.locator("#accuracy-figure-1 .tools")
    rows = list(csv.reader(io.StringIO(saved(page, tools.get_by_text("CSV")))))
    assert rows[0] == ["line", "seed", "round", "bytes", "seconds", "Global accuracy (%)"]
    assert rows[1] == ["fedavg", "seed 0", "1", "150", "0.5", "50"] and len(rows) == 1 + 3 * 2 * 12
    picture = saved(page, tools.get_by_text("SVG"))
    assert picture.startswith("<svg") and "var(--" not in picture and "Global accuracy" in picture
    table = page.locator("#results ~ .tools").first
    head, *body = csv.reader(io.StringIO(saved(page, table.get_by_text("CSV"))))
    assert head[:2] == ["Algorithm", "Global %"] and [row[0] for row in body][:2] == ["fedavg", "scaffold"]
    assert saved(page, table.get_by_text("SVG")).startswith("<svg")


def test_what_a_folder_says_stays_text(page: Any) -> None:
    page.locator("#fairness-figure-1 .chart").hover()
    page.locator("#split-figure-1 .chart").hover(position={"x": 80, "y": 40})
    assert page.title() == "3 algorithms on digits" and page.locator("main img, main script").count() == 0
    assert EVIL in page.locator("#results ~ .scroll table").inner_text()


# a phone catches what is too wide; dark and print catch colors that are the light screen's
@pytest.mark.parametrize("kind", ["phone", "dark", "print"])
def test_other_screens(page: Any, kind: str) -> None:
    if kind == "phone":
        page.set_viewport_size({"width": 390, "height": 800})
    else:
        page.emulate_media(
            **({"color_scheme": "dark"} if kind == "dark" else {"media": "print", "color_scheme": "dark"})
        )
    page.wait_for_timeout(100)
    assert kind == "print" or page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    paper = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert paper == ("rgb(20, 23, 26)" if kind == "dark" else "rgb(255, 255, 255)")
    assert page.locator("#accuracy-figure-1 .chart path").first.is_visible()
    assert page.locator(".tools").first.is_visible() == (kind != "print")


def test_without_a_script_it_is_whole(context: Any, report: Path) -> None:
    still = context.browser.new_context(java_script_enabled=False)
    page = still.new_page()
    page.goto(f"{report.as_uri()}#fairness")
    assert page.locator("#accuracy-figure-1 > svg").is_visible() and not page.locator(".controls").is_visible()
    still.close()


def test_a_deviation_does_not_reach_into_the_names(context: Any, tmp_path: Path) -> None:
    rows = [write(tmp_path / f"seed-{seed}", rounds=1, seed=seed) for seed in (0, 1)]
    page = context.new_page()
    page.goto(write_report(rows, tmp_path / "report.html").as_uri())
    read = "([at, of]) => [...document.querySelectorAll(at)].map((e) => +e.getAttribute(of))"
    at = "#accuracy-figure-1 .chart g >"
    bars, names = (page.evaluate(read, what) for what in ([f"{at} line", "x1"], [f"{at} text", "x"]))
    page.close()
    assert bars and min(bars) > min(names)
