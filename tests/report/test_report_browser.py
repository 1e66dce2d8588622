"""The page in a real browser, offline: charts, hiding, sorting, theme, keyboard."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from rich_run import rich_data, row

from trainlab.report.contents import report_of
from trainlab.report.html import html_of

pytest.importorskip("vl_convert", reason="needs trainlab[report]")
playwright = pytest.importorskip("playwright.sync_api", reason="needs pip install playwright")

FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"]
FLAGS += ["--disable-background-networking", "--disable-component-update", "--disable-sync"]
SCRIPT = "<script>window.hacked = 1</script>"
DRAWN = "html[data-charts=drawn]"
UNFOLD = "document.querySelectorAll('details').forEach((one) => { one.open = true; })"
ALL_DRAWN = "[...document.querySelectorAll('.chart')].every((one) => one.querySelector('svg'))"
SCREEN = 900


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    found = shutil.which("chromium") or shutil.which("chromium-browser")
    if found is None:
        pytest.skip("needs a browser (Debian: apt install chromium)")
    with playwright.sync_playwright() as tool:
        opened = tool.chromium.launch(executable_path=found, args=FLAGS)
        yield opened
        opened.close()


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The report of a run with a nasty layer, in both languages."""
    home = tmp_path_factory.mktemp("pages")
    layers = [row("fc1", [-1]), row(SCRIPT, [0], type=SCRIPT)]
    classes = [SCRIPT, "T-shirt/top", *map(str, range(8))]
    data = rich_data(home / "run", layers=lambda trial: layers, classes=classes)
    made = {}
    for lang in ("en", "zh"):
        made[lang] = home / f"{lang}.html"
        made[lang].write_text(html_of(report_of(data, lang)), encoding="utf-8")
    return made


class Visit:
    """A page with all that it said and asked for."""

    def __init__(self, browser: Any, path: Path, **options: Any) -> None:
        self.context = browser.new_context(offline=True, **options)
        self.page = self.context.new_page()
        self.said: list[str] = []
        self.asked: list[str] = []
        self.page.on("console", lambda told: self.said.append(told.text))
        self.page.on("pageerror", lambda error: self.said.append(str(error)))
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.page.goto(path.as_uri())
        self.page.wait_for_selector(DRAWN, state="attached", timeout=30_000)

    def __enter__(self) -> "Visit":
        return self

    def __exit__(self, *args: object) -> None:
        self.context.close()


@pytest.mark.parametrize("lang", ["en", "zh"])
@pytest.mark.slow
def test_charts_are_drawn_and_nothing_is_asked_for_or_complained_about(
    browser: Any, pages: dict[str, Path], lang: str
) -> None:
    with Visit(browser, pages[lang]) as visit:
        assert visit.said == []
        assert [url for url in visit.asked if not url.startswith(("file:", "data:"))] == []
        # What is folded is drawn once it is opened.
        assert visit.page.locator("#chart-memory-train svg").count() == 0
        visit.page.evaluate(UNFOLD)
        visit.page.wait_for_function(ALL_DRAWN)
        assert visit.said == []
        charts = visit.page.query_selector_all(".chart")
        assert len(charts) > 10
        for chart in charts:
            assert chart.query_selector("svg path") is not None, chart.get_attribute("id")
        assert visit.page.evaluate("window.hacked") is None


def test_a_click_hides_a_setting_and_sorts_a_table(browser: Any, pages: dict[str, Path]) -> None:
    with Visit(browser, pages["en"]) as visit:
        page = visit.page
        assert page.evaluate("document.documentElement.scrollHeight") < 7 * SCREEN
        page.evaluate(UNFOLD)
        page.wait_for_function(ALL_DRAWN)
        marks = page.locator("#chart-cost-sample-us svg .mark-rect path")
        before, hidden = marks.count(), page.locator("tr[data-cell='batch_size=16']")
        assert hidden.first.is_visible()
        page.uncheck("input[data-cell='batch_size=16']")
        playwright.expect(marks).to_have_count(before - 2)
        assert not any(row.is_visible() for row in hidden.all())
        page.click("button[data-all=yes]")
        playwright.expect(marks).to_have_count(before)
        assert hidden.first.is_visible()
        table = page.locator("#operators table.sortable").first
        heading = table.locator("thead th").nth(5)
        assert heading.get_attribute("aria-sort") == "none"
        for told, sign in (("descending", -1), ("ascending", 1)):
            heading.locator("button").click()
            assert heading.get_attribute("aria-sort") == told
            shown = table.locator("tbody tr td:nth-child(6)").evaluate_all(
                "cells => cells.map(cell => Number(cell.dataset.value))"
            )
            assert shown == sorted(shown, key=lambda value: sign * value)
        assert table.locator("tbody tr:visible").count() == 10


@pytest.mark.slow
def test_a_table_unfolds_the_theme_changes_and_the_keyboard_works_everything(
    browser: Any, pages: dict[str, Path]
) -> None:
    back = "getComputedStyle(document.body).backgroundColor"
    with Visit(browser, pages["en"], color_scheme="dark") as visit:
        page = visit.page
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.className") == "skip"
        page.focus("input[data-cell='batch_size=16']")
        page.keyboard.press("Space")
        assert page.evaluate("document.activeElement.checked") is False
        page.keyboard.press("Space")
        page.focus("#operators thead button")
        page.keyboard.press("Enter")
        told = page.locator("#operators thead th").first.get_attribute("aria-sort")
        assert told == "ascending"
        box = page.locator("#operators .tablebox").first
        rows, search = box.locator("tbody tr:visible"), box.locator("input[type=search]")
        assert rows.count() == 10
        box.locator("button.unfold").click()
        assert rows.count() == 14
        search.fill("SMALL1")
        assert rows.count() == 3
        search.fill("")
        assert rows.count() == 10
        dark = page.evaluate(back)
        page.click("#theme")
        assert page.evaluate(back) != dark
        assert page.get_attribute("html", "data-theme") == "light"


@pytest.mark.parametrize("lang", ["en", "zh"])
@pytest.mark.slow
def test_a_phone_shows_the_answer_first_and_needs_no_sideways_scrolling(
    browser: Any, pages: dict[str, Path], lang: str
) -> None:
    size = {"width": 390, "height": 844}
    with Visit(browser, pages[lang], viewport=size, reduced_motion="reduce") as visit:
        assert visit.page.evaluate("document.documentElement.scrollWidth") <= 390
        lead = visit.page.locator("ul.answer.lead li").first.bounding_box()
        assert lead["y"] + lead["height"] < 844
        assert visit.page.evaluate("document.documentElement.scrollHeight") < 14 * SCREEN
        # A link to what is folded opens it.
        link = visit.page.locator("ul.answer a.evidence[href^='#row-']").first
        verdict = visit.page.locator(f"{link.get_attribute('href')} td.verdict")
        assert not verdict.is_visible()
        link.click()
        verdict.scroll_into_view_if_needed()
        box = verdict.bounding_box()
        assert 0 <= box["x"] <= box["x"] + box["width"] <= 390
        # Nothing covers a heading that one jumps to.
        for place in ("comparison", "factor-batch-size"):
            visit.page.evaluate(f"location.hash = '{place}'")
            visit.page.wait_for_timeout(200)
            top, bar = visit.page.locator(f"#{place}"), visit.page.locator(".bar")
            bottom = bar.evaluate("one => one.getBoundingClientRect().bottom")
            assert max(0, bottom) <= top.bounding_box()["y"] < 200


@pytest.mark.parametrize("lang", ["en", "zh"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_an_accessibility_check_finds_no_serious_fault(
    browser: Any, pages: dict[str, Path], lang: str, scheme: str
) -> None:
    code = Path(os.environ.get("TRAINLAB_AXE", "axe.min.js"))
    if not code.is_file():
        pytest.skip("needs axe-core: npm install axe-core, then TRAINLAB_AXE=…/axe.min.js")
    with Visit(browser, pages[lang], color_scheme=scheme) as visit:
        visit.page.evaluate(code.read_text())
        found = visit.page.evaluate("axe.run()")
        faults = [
            f"{one['id']}: {one['nodes'][0]['html'][:160]}"
            for one in found["violations"]
            if one["impact"] in ("serious", "critical")
        ]
        assert faults == []
