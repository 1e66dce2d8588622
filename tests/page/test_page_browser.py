"""The page in a real browser: a study started from its form, watched to its end, compared, stopped."""

import os
import shutil
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from serving import Served, serving

from fabricate import Fabricated, made_study

playwright = pytest.importorskip("playwright.sync_api", reason="needs pip install playwright")

FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"]
SLOW = """
import time
import torch
import torch.nn.functional as F
from torch import nn
from trainlab import Dataset, Split, Workload

def loss(logits, labels):
    time.sleep(0.004)
    return F.cross_entropy(logits, labels)

points = torch.randn(400, 2, generator=torch.Generator().manual_seed(1))
split = Split(points, (points[:, 0] * points[:, 1] > 0).long())
workload = Workload(
    name="slow",
    model=lambda: nn.Sequential(nn.Linear(2, 16), nn.ReLU(), nn.Linear(16, 2)),
    data=lambda choice: Dataset("points", train=split, test=split),
    loss=loss,
    defaults={"epochs": 60, "batch_size": 20, "optimizer": "adam", "lr": 0.01, "engine": "eager"},
)
"""
LONG_MS = 90_000


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    found = shutil.which("chromium") or shutil.which("chromium-browser")
    if found is None:
        pytest.skip("needs a browser (Debian: apt install chromium)")
    with playwright.sync_playwright() as tool:
        opened = tool.chromium.launch(executable_path=found, args=FLAGS)
        yield opened
        opened.close()


class Visitor:
    """A browser of its own, let in by the address that was printed."""

    def __init__(self, browser: Any, served: Served, **options: Any) -> None:
        self.context = browser.new_context(**options)
        self.page = self.context.new_page()
        self.page.set_default_timeout(LONG_MS)
        self.faults: list[str] = []
        self.asked: set[str] = set()
        self.page.on("pageerror", lambda error: self.faults.append(str(error)))
        self.page.on("request", lambda request: self.asked.add(request.url.split("/")[2]))
        self.page.on("dialog", lambda dialog: dialog.accept())
        self.home = served.address.partition("/?")[0]
        self.page.goto(served.address)
        self.page.wait_for_selector("h1")

    def __enter__(self) -> "Visitor":
        return self

    def __exit__(self, *args: object) -> None:
        self.context.close()

    def heading(self) -> str:
        text: str = self.page.inner_text("#answer h2")
        return text

    def wait_for(self, text: str, where: str = "#status") -> None:
        self.page.wait_for_function(
            "([where, text]) => document.querySelector(where)?.textContent.includes(text)",
            arg=[where, text],
        )


@pytest.mark.slow
def test_a_study_is_started_watched_and_stays_as_its_report(browser: Any, tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    runs.mkdir()
    (tmp_path / "slow.py").write_text(SLOW)
    with ExitStack() as stack:
        served = stack.enter_context(serving(runs))
        visitor = stack.enter_context(Visitor(browser, served))
        page = visitor.page
        assert "No run is here yet" in page.inner_text("main")
        page.click("text=New study")
        page.fill("#own", f"{tmp_path / 'slow.py'}:workload")
        page.fill("#f--lr", "0.01,0.001")
        page.fill("#seeds", "3")
        visitor.wait_for("6 learn trials", "#plan")
        page.click("button.main")
        page.wait_for_url("**/run/*")
        visitor.wait_for("running")
        # It grows: first a trial that ended, then an answer so far, with what is still to come.
        page.wait_for_selector("#learning .chart svg")
        visitor.wait_for("so far", "#answer h2")
        assert "under way" in page.inner_text("#header")
        assert "Not finished" in page.inner_text("#answer")
        counted = page.inner_text("#status")
        page.wait_for_function(
            "(was) => document.querySelector('#status').innerText !== was", arg=counted
        )
        with Visitor(browser, served) as second:
            second.page.goto(page.url)
            second.page.wait_for_selector("#learning .chart svg")
            second.page.reload()
            second.page.wait_for_selector("#learning .chart svg")
            assert "so far" in second.heading()
            assert second.faults == []
        # The server's end is no end of the run, nor of the page.
        (driver,) = {one.name for one in (next(runs.iterdir()) / "drivers").iterdir()}
        served.process.kill()
        visitor.wait_for("No connection", "#lost")
        address = page.url
        stack.enter_context(serving(runs, port=served.port))
        page.wait_for_selector("#lost", state="hidden")
        visitor.wait_for("done")
        page.wait_for_function(
            "() => !document.querySelector('#answer h2').innerText.includes('far')"
        )
        page.wait_for_selector("#repeat")
        assert page.url == address
        assert driver == "1.json"
        # The page is the report that the run has written: the same text, in the same order.
        # It writes that once its trials have ended.
        begun = time.monotonic()
        while not [*runs.glob("*/report/report.html")] and time.monotonic() - begun < 60:
            page.wait_for_timeout(200)
        (file,) = runs.glob("*/report/report.html")
        own = visitor.context.new_page()
        own.goto(file.as_uri())
        own.wait_for_selector("html[data-charts=drawn]", state="attached")
        page.wait_for_selector("#learning .chart svg")
        page.wait_for_timeout(500)
        assert shown(page) == shown(own)
        with page.expect_download() as download:
            page.click("text=Save the report")
        saved = Path(download.value.path()).read_bytes()
        assert saved == file.read_bytes()
        assert visitor.faults == []
        assert visitor.asked - {""} == {visitor.home.removeprefix("http://")}


def shown(page: Any) -> list[str]:
    """What a reader sees of a report, line by line."""
    pieces = ["#header", *(f"#{one}" for one in page.evaluate(SECTIONS)), "#footer"]
    return [
        line for piece in pieces for line in page.inner_text(piece).splitlines() if line.strip()
    ]


SECTIONS = "Array.from(document.querySelectorAll('#report > section.part')).map((one) => one.id)"


@pytest.mark.slow
def test_a_run_is_stopped_and_goes_on(browser: Any, tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    runs.mkdir()
    (tmp_path / "slow.py").write_text(SLOW.replace('"epochs": 60', '"epochs": 2000'))
    with serving(runs) as served, Visitor(browser, served) as visitor:
        page = visitor.page
        go = served.post("/start", own=f"{tmp_path / 'slow.py'}:workload")["go"]
        page.goto(visitor.home + go)
        page.wait_for_url("**/run/*")
        visitor.wait_for("running")
        page.wait_for_selector("a.square.running")
        page.click("button:has-text('Stop')")
        page.wait_for_selector("#status .badge.interrupted")
        visitor.wait_for("trainlab resume", "#answer")
        page.click("button:has-text('Go on')")
        page.wait_for_selector("#status .badge.running")
        # What was said of the state before is said no more.
        page.wait_for_selector("#lost", state="hidden")
        page.click("button:has-text('Stop')")
        page.wait_for_selector("#status .badge.interrupted")
        page.click("a.square")
        assert "seed 1" in page.inner_text("main")
        assert visitor.faults == []


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs that can be compared, one that cannot be read, one with a nasty name."""
    runs = tmp_path_factory.mktemp("made") / "runs"
    nasty = "<script>window.hacked = 1</script>"
    study = made_study(vary={"lr": (0.1, 0.01)}, title=nasty)
    for number, name in enumerate(("first", nasty.replace("/", "-")), 1):
        final = {"test/accuracy": 0.9 + number / 100, "test/loss": 0.3}
        Fabricated(final=lambda trial, f=final: f, step_points=5).write(runs / name, study)
    Fabricated().write(runs / "damaged", study)
    (runs / "damaged" / "study.json").write_text('{"name": [1], "study": {"cells": 3}}')
    Fabricated().write(runs / "linked", study)
    (next((runs / "linked" / "trials").iterdir()) / "output.txt").symlink_to("/etc/passwd")
    return runs


def test_runs_are_listed_filtered_and_compared(browser: Any, made: Path) -> None:
    with serving(made) as served, Visitor(browser, served) as visitor:
        page = visitor.page
        page.wait_for_function("() => document.querySelectorAll('#rows .badge').length === 4")
        rows = page.inner_text("#rows")
        assert "cannot be read" in rows
        assert "is a link" in rows
        assert page.evaluate("window.hacked") is None
        page.fill("input[type=search]", "first")
        page.wait_for_function(
            "() => document.querySelectorAll('#rows tr:not(.filtered)').length === 1"
        )
        page.fill("input[type=search]", "")
        page.click("th.best button")
        assert page.get_attribute("th.best", "aria-sort") == "descending"
        assert page.is_disabled("#compare")
        for box in page.query_selector_all("#rows tr:has(.badge.done) input[name=run]"):
            box.check()
        page.click("#compare")
        page.wait_for_selector("#curves .chart svg")
        told = page.inner_text("main")
        assert "(A) against" in told
        assert "What else differs" in told
        # What else differs comes before the tables.
        assert told.index("What else differs") < told.index("What it learns")
        assert visitor.faults == []


@pytest.mark.slow
@pytest.mark.parametrize(("lang", "scheme", "width"), [("en", "light", 1400), ("zh", "dark", 390)])
def test_its_pages_are_accessible_and_fit_a_phone(
    browser: Any, made: Path, lang: str, scheme: str, width: int
) -> None:
    code = Path(os.environ.get("TRAINLAB_AXE", "axe.min.js"))
    with serving(made, f"--lang={lang}") as served:
        size = {"width": width, "height": 900}
        with Visitor(browser, served, color_scheme=scheme, viewport=size, bypass_csp=True) as one:
            page = one.page
            page.wait_for_selector("#rows tr:has(.badge.done) ~ tr:has(.badge.done)")
            ids = page.evaluate(
                "Array.from(document.querySelectorAll('tr:has(.done) [name=run]')).map((o) => o.value)"
            )
            pair = f"/compare?run={ids[0]}&run={ids[1]}"
            for place in ("/", f"/run/{ids[0]}", pair, "/new", "/x"):
                page.goto(one.home + place)
                if "run" in place:
                    page.wait_for_selector(".chart svg")
                wide = page.evaluate("document.documentElement.scrollWidth")
                assert wide <= width, (place, wide)
                if code.is_file():
                    page.evaluate(code.read_text())
                    found = page.evaluate("axe.run()")["violations"]
                    told = [f"{v['id']}: {v['nodes'][0]['html'][:200]}" for v in found]
                    assert told == [], place
            assert one.faults == []


def test_a_page_for_showing_changes_nothing(made: Path) -> None:
    with serving(made, "--read-only") as served:
        for place in ("/start", "/plan", "/run/x/cancel"):
            assert "--read-only" in served.post(place, what="mnist-lab")["error"]
        assert 'href="/new"' not in served.ask("/")[1]
        begun = time.monotonic()
        assert served.process.poll() is None
        served.process.terminate()
        served.process.wait(10)
        assert time.monotonic() - begun < 10
    # Whoever listens there next learns nothing from a page that is still open.
    with serving(made) as again:
        assert again.token != served.token
