"""What `trainlab page` costs: first paint, memory, and what an open page takes from a trial that runs.

    python -m benchmarks.page [--turns 12] [--only train]

In Chromium, over made-up records: 100 and 1,000 runs of 12 trials with curves, and a run of 10,000 trials.
First paint at most 0.5 s for 100 runs, 2 s for the others, as the server starts with nothing kept (cold)
and when the page is loaded again (warm, the median of five); server and readers at most 300 MB once all is
shown. Beside a run whose trial trains, and one whose trial measures costs: the CPU time of the server and
of the browser, and how many times as long products of matrices on all cores take with the page open, in
turns with it closed: at most 1 % more. Needs playwright and a Chromium.
"""

import argparse
import math
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import torch
from playwright.sync_api import sync_playwright
from tests.fabricate import Fabricated, made_study

from benchmarks.pairs import verdict
from trainlab.execute.lease import leased
from trainlab.record.files import LineWriter
from trainlab.spec import CostSpec

FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"]
PAINTED = "() => (performance.getEntriesByName('first-contentful-paint')[0] || {}).startTime"
LISTED = "() => document.querySelectorAll('#rows .badge').length === {}"
ANSWERED = "() => Boolean(document.querySelector('#report #answer'))"
MOST_MB, MOST_ADDED = 300.0, 0.01
BLOCK_S, LINGER_S = 8.0, 12.0
"""A turn; and the time after which a page that was closed is no longer followed."""
RUNNING = {"train": "learn-batch_size=64-seed3", "measure": "cost-train-batch_size=16-process1"}

Figures = dict[str, tuple[float, float | None]]
"""A figure and the most that it may be; None where there is no bound."""


def made(path: Path, seeds: int, **vary: tuple[float, ...]) -> None:
    """A run whose trials have curves of 42 points, and digests as trials have that have ended."""
    run = Fabricated(step_points=20).write(path, made_study(vary=vary, seeds=seeds))
    for record in run.trials():
        run.trial(record.id).end(record)


def cpu_s(processes: list[psutil.Process]) -> float:
    """Of all of them, and of what the first has ended."""
    total = 0.0
    for number, one in enumerate(processes):
        with suppress(psutil.NoSuchProcess):
            times = one.cpu_times()
            total += times.user + times.system
            total += 0.0 if number else times.children_user + times.children_system
    return total


class Page:
    """A server as a user starts it, with nothing kept from before, and a tab that shows it."""

    def __init__(self, folder: Path, tab: Any) -> None:
        names = ("TRAINLAB_CACHE", "XDG_STATE_HOME")
        own = os.environ | {name: tempfile.mkdtemp(dir=folder.parent) for name in names}
        own.pop("PYTHONDONTWRITEBYTECODE", None)
        command = [sys.executable, "-m", "trainlab", "page", str(folder), "--no-open", "--port=0"]
        # In a session of its own, as in a terminal of its own: systems may share the time by session.
        given = {"stdout": subprocess.PIPE, "text": True, "env": own, "start_new_session": True}
        self._process: Any = subprocess.Popen(command, **given)
        self.address, self.tab = self._process.stdout.readline().strip(), tab
        self.most_mb = 0.0

    @property
    def processes(self) -> list[psutil.Process]:
        server = psutil.Process(self._process.pid)
        return [server, *server.children(recursive=True)]

    def memory_mb(self) -> tuple[float, float]:
        """What they have in memory (RSS), and with what they share counted once (PSS)."""
        found = []
        for one in self.processes:
            with suppress(psutil.NoSuchProcess):
                found.append(one.memory_full_info())
        rss, pss = sum(one.rss for one in found) / 1e6, sum(one.pss for one in found) / 1e6
        self.most_mb = max(self.most_mb, rss)
        return rss, pss

    def painted_s(self, address: str = "") -> float:
        """Until the tab paints the first of what it loads."""
        self.tab.goto(address or self.address, wait_until="domcontentloaded", timeout=120_000)
        return float(self.tab.wait_for_function(PAINTED, timeout=120_000).json_value()) / 1000

    def wait_for(self, condition: str, most_s: float = 600.0) -> float:
        """Seconds until it holds in the tab; nan where it does not."""
        begun_s = time.monotonic()
        while not self.tab.evaluate(condition):
            self.memory_mb()
            if time.monotonic() - begun_s > most_s:
                return math.nan
            time.sleep(0.3)
        return time.monotonic() - begun_s

    def close(self) -> None:
        self.tab.goto("about:blank")
        self._process.terminate()
        self._process.wait(20)
        self._process.stdout.close()


def shown(name: str, folder: Path, tab: Any, most_s: float, is_read: str) -> Figures:
    """First paint, cold and warm, and memory once all is shown."""
    page = Page(folder, tab)
    cold_s, read_s = page.painted_s(), page.wait_for(is_read)
    warm_s = statistics.median(page.painted_s(tab.url) for _ in range(5))
    again_s = page.wait_for(is_read)
    time.sleep(5)
    rss_mb, pss_mb = page.memory_mb()
    page.close()
    return {
        f"{name}: first paint, cold (s)": (cold_s, most_s),
        f"{name}: first paint, warm (s)": (warm_s, most_s),
        f"{name}: all read, cold (s)": (read_s, None),
        f"{name}: all shown, warm (s)": (again_s, None),
        f"{name}: memory after it (RSS, MB)": (rss_mb, MOST_MB),
        f"{name}: memory after it (PSS, MB)": (pss_mb, None),
        f"{name}: most memory meanwhile (RSS, MB)": (page.most_mb, None),
    }


def listed(number: int, most_s: float, home: Path, tab: Any) -> Figures:
    """As many runs of 12 trials."""
    made(home / "0", 3, batch_size=(16, 32, 64, 128))
    for name in range(1, number):
        shutil.copytree(home / "0", home / str(name))
    return shown(f"{number:,} runs", home, tab, most_s, LISTED.format(number))


def large(home: Path, tab: Any) -> Figures:
    """One run of 20 settings and 500 seeds."""
    made(home / "large", 500, batch_size=(16, 32, 64, 128), lr=(0.1, 0.2, 0.3, 0.4, 0.5))
    return shown("10,000 trials", home / "large", tab, 2.0, ANSWERED)


@contextmanager
def growing(path: Path, kind: str) -> Iterator[Callable[[int], None]]:
    """A run that this process drives, and what writes how far its trial is, and a point of its curve."""
    states = {"learn": "done", "cost": "pending"}
    state = lambda one: "running" if one.id == RUNNING[kind] else states[one.kind]  # noqa: E731
    study = made_study(vary={"batch_size": (16, 64)}, seeds=3, cost=CostSpec(processes=4))
    run = Fabricated(step_points=20, state=state).write(path, study)
    with leased(run):
        run.events_folder.mkdir()
        events = LineWriter(run.events_folder / "1.jsonl")
        curve = LineWriter(run.trial(RUNNING[kind]).curve_file, append=True)

        def tell(name: str, **values: float) -> None:
            about = {"at": datetime.now(UTC).isoformat(), "trials": [RUNNING[kind]]}
            events.write({"kind": name, **about, **values})

        def grow(step: int) -> None:
            tell("progress", share=0.5)
            if kind == "train":
                place = {"epoch": 3, "step": 20 + step, "samples": 200 + step, "time_s": 2.0 + step}
                curve.write({"kind": "step", **place, "train/loss": 1 / (1 + step)})

        tell("group_begins")
        yield grow
        events.close()
        curve.close()


def block_ms(grow: Callable[[int], None], seconds: float, size: int = 700) -> tuple[float, float]:
    """The median and the mean of products of matrices, some 10 ms each; the run grows 10 times a second."""
    one, times_ms, begun_s = torch.randn(size, size), list[float](), time.monotonic()
    step = int(10 * begun_s)
    while time.monotonic() < begun_s + seconds:
        begun = time.perf_counter()
        torch.mm(one, one)
        times_ms.append((time.perf_counter() - begun) * 1000)
        if (now := int(10 * time.monotonic())) > step:
            grow(step := now)
    return statistics.median(times_ms), statistics.fmean(times_ms)


def beside(kind: str, turns: int, home: Path, tab: Any) -> Figures:
    """What a page of a run takes from its trial."""
    ratios: tuple[list[float], list[float]] = ([], [])
    served, browsed = list[float](), list[float]()
    with growing(home / "growing", kind) as grow:
        page = Page(home / "growing", tab)
        page.painted_s()
        page.wait_for(ANSWERED, 120)
        address, browser = tab.url, psutil.Process()
        for turn in range(turns):
            found = {}
            for is_open in (True, False) if turn % 2 else (False, True):
                tab.goto(address if is_open else "about:blank", timeout=120_000)
                block_ms(grow, LINGER_S)  # until the page is as it stays
                server = page.processes
                others = [one for one in browser.children(recursive=True) if one not in server]
                before = cpu_s(server), cpu_s(others)
                found[is_open] = block_ms(grow, BLOCK_S)
                if is_open:
                    served.append(100 * (cpu_s(server) - before[0]) / BLOCK_S)
                    browsed.append(100 * (cpu_s(others) - before[1]) / BLOCK_S)
            for own, opened, closed in zip(ratios, found[True], found[False], strict=True):
                own.append(opened / closed)
        page.close()
    figures: Figures = {
        f"{kind}: server and readers (% of a core)": (statistics.fmean(served), None),
        f"{kind}: browser (% of a core)": (statistics.fmean(browsed), None),
    }
    for which, values in zip(("median", "mean"), ratios, strict=True):
        said, holds = verdict(values, -1.0, MOST_ADDED)
        print(f"{kind}: an open page adds to the {which} block {said}", flush=True)
        if not holds:
            figures[f"{kind}: adds to the {which} block"] = (
                statistics.median(values) - 1,
                MOST_ADDED,
            )
    return figures


def main() -> None:
    """Prints each figure with its bound and exits 1 if one does not hold."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.page")
    parser.add_argument("--turns", type=int, default=12, help="turns of an open page")
    parser.add_argument("--only", default="", help="one part alone")
    asked = parser.parse_args()
    os.fsync = lambda descriptor: None  # records that are gone in minutes need outlive no power cut
    parts: dict[str, Callable[[Path, Any], Figures]] = {
        "100": partial(listed, 100, 0.5),
        "1000": partial(listed, 1000, 2.0),
        "10000": large,
        "train": partial(beside, "train", asked.turns),
        "measure": partial(beside, "measure", asked.turns),
    }
    is_met, found = True, shutil.which("chromium") or shutil.which("chromium-browser")
    for name in [asked.only] if asked.only else parts:
        with tempfile.TemporaryDirectory() as folder, sync_playwright() as tool:
            (home := Path(folder) / "runs").mkdir()
            browser = tool.chromium.launch(executable_path=found, args=FLAGS)
            for figure, (value, most) in parts[name](home, browser.new_page()).items():
                holds = most is None or value <= most
                bound = (
                    "" if most is None else f"at most {most:6.2f}   {'ok' if holds else 'NOT MET'}"
                )
                print(f"{figure:46} {value:8.3f}   {bound}".rstrip(), flush=True)
                is_met = is_met and holds
            browser.close()
    raise SystemExit(0 if is_met else 1)


if __name__ == "__main__":
    main()
