"""The folder that is served: its runs, what came of them, what is followed of it and what was started."""

import asyncio
import hashlib
import json
import os
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from functools import partial
from importlib.metadata import version
from pathlib import Path

from trainlab.analysis.charts import VEGA_LITE
from trainlab.errors import TrainlabError
from trainlab.machine.host import cache_folder, private_folder
from trainlab.page import orders, reading
from trainlab.page.feed import Feed
from trainlab.page.live import (
    LOOK_SHARE,
    POLL_S,
    Followed,
    LiveRun,
    ReadOnce,
    RunList,
    StartedCommand,
)
from trainlab.page.reading import Outcome, Reader
from trainlab.page.runs import ListedRun, find_runs, listed, mark_of, run_id
from trainlab.record.files import make_folder, replacing

LIST_POLL_S, RUNNING_POLL_S = 2.0, 30.0
"""Between two looks at which runs there are; between two readings of one that runs."""
LIST_SHARE = 0.02
"""Of the time, the most that looks at which runs there are take."""


class ServedFolder:
    """What is served of one folder."""

    def __init__(self, path: Path, *, lang: str, runs: Path | None, is_read_only: bool) -> None:
        self.path, self.lang, self.is_read_only = path.resolve(), lang, is_read_only
        self.runs_of_hand_ins = runs or self.path
        self.reader = Reader()
        self.runs: dict[str, ListedRun] = {}
        self.orders: list[orders.Command] = []
        self._feeds: dict[tuple[object, ...], Feed] = {}
        self._unread: set[str] = set()
        self._not_before: dict[str, float] = {}
        self.begun_s = float(int(time.time()))
        self._vega: asyncio.Task[str] | None = None
        self._logs = private_folder("page")
        name = hashlib.sha256(os.fsencode(self.path)).hexdigest()[:16]
        self._cache = cache_folder() / "page" / f"{name}.json"

    # Which runs there are, and what came of them.

    def find(self) -> None:
        """Learns which runs there are by now; what was read of them is kept until it is read again."""
        found: dict[str, ListedRun] = {}
        for path in find_runs(self.path):
            one = self.runs.get(run_id(self.path, path))
            if one is None or one.mark != mark_of(path):
                now = listed(self.path, path)
                one = now if one is None else replace(now, summary=one.summary)
                self._unread.add(one.id)
            found[one.id] = one
        self.runs = found

    def load(self) -> None:
        """What was read of them when they were served before."""
        self.find()
        with suppress(OSError, ValueError, TypeError, AttributeError):
            kept = json.loads(self._cache.read_text(encoding="utf-8"))
            for one in [*self.runs.values()]:
                mark, summary = kept.get(one.id, ([], None))
                if one.mark == tuple(mark) and summary is not None:
                    self.runs[one.id] = replace(one, summary=Outcome(**summary))
                    self._unread.discard(one.id)

    def _keep(self) -> None:
        read = [one for one in self.runs.values() if one.summary and one.summary.state != "running"]
        kept = {one.id: (one.mark, asdict(one.summary)) for one in read if one.summary}
        with suppress(TrainlabError):
            make_folder(self._cache.parent)
            with replacing(self._cache, synced=False) as part:
                part.write_text(json.dumps(kept), encoding="utf-8")

    async def read_all(self) -> None:
        """Reads what has changed, the newest first, while somebody looks at the list."""
        while True:
            took_s = 0.0
            if any(isinstance(one, RunList) and one.num_listeners for one in self._feeds.values()):
                begun = time.monotonic()
                with suppress(
                    Exception
                ):  # one folder that makes no sense keeps no other from being seen
                    await asyncio.to_thread(self.find)
                    self.refresh()
                    took_s = time.monotonic() - begun
                    if await self._read_unread():
                        await asyncio.to_thread(self._keep)
            for order in self.orders:
                order.process.poll()  # one that has ended is no zombie
            await asyncio.sleep(max(LIST_POLL_S, took_s / LIST_SHARE))

    async def _read_unread(self) -> bool:
        refreshed = time.monotonic()
        # What is said to run may have died without a word.
        running = {
            one.id for one in self.runs.values() if one.summary and one.summary.state == "running"
        }
        found = [self.runs[one] for one in self._unread | running if one in self.runs]
        waiting = [one for one in found if refreshed > self._not_before.get(one.id, 0.0)]
        newest = sorted(waiting, key=lambda run: run.begun_s, reverse=True)
        for one in sorted(newest, key=lambda run: reading.is_large(str(run.path))):
            self._unread.discard(one.id)
            begun = time.monotonic()
            try:
                summary = await self.reader.call_later(reading.summary_of, str(one.path))
            except Exception as error:  # noqa: BLE001  told in its place
                summary = reading.damaged(error)
            self.runs[one.id] = replace(one, summary=summary)
            if summary.state == "running":
                now = time.monotonic()
                self._not_before[one.id] = now + max(RUNNING_POLL_S, (now - begun) / LOOK_SHARE)
            if reading.is_large(str(one.path)):
                break  # the next after a look at which runs there are
            if time.monotonic() - refreshed > POLL_S:
                self.refresh()
                refreshed = time.monotonic()
        self.refresh()
        return bool(waiting)

    def refresh(self) -> None:
        """Shows the list as it is by now."""
        for feed in self._feeds.values():
            if isinstance(feed, RunList):
                feed.refresh(self.runs.values())

    def run(self, name: str) -> ListedRun:
        """KeyError where there is no such run."""
        if name not in self.runs:
            self.find()
        return self.runs[name]

    # What is followed.

    def feed(self, key: tuple[object, ...], make: Callable[[], Feed]) -> Feed:
        """The one of this key, followed from now on."""
        if (feed := self._feeds.get(key)) is None:
            feed = self._feeds[key] = make()
        if isinstance(feed, Followed):
            feed.begin()
        return feed

    def list_feed(self, lang: str) -> Feed:
        """The list of runs."""
        feed = self.feed(("list", lang), lambda: RunList(lang))
        self.refresh()
        return feed

    def run_feed(self, run: ListedRun, lang: str) -> Feed:
        """One run."""
        make = partial(LiveRun, self.reader, run, lang, is_read_only=self.is_read_only)
        return self.feed(("run", run.id, lang), make)

    def order_feed(self, number: int, lang: str) -> Feed:
        """A command that was started; KeyError where there was none."""
        if not 0 <= number < len(self.orders):
            raise KeyError(number)
        order = self.orders[number]
        run = run_id(self.path, order.run)
        return self.feed(("order", number, lang), lambda: StartedCommand(order, run, lang))

    def read_feed(self, key: tuple[object, ...], *, again: bool = False) -> Feed:
        """`("class", lang)`, or `("compare", lang, run, run, …)`; KeyError where there is no such run.
        `again`: read anew."""
        kind, lang, *ids = map(str, key)
        if again:
            self._feeds.pop(key, None)
        if kind == "class":
            runs = str(self.runs_of_hand_ins)
            make = partial(ReadOnce, self.reader, lang, reading.class_parts, str(self.path), runs)
        else:
            # Oldest first: what has changed since is what is asked.
            ordered = sorted(map(self.run, ids), key=lambda one: one.begun_s)
            paths = [str(one.path) for one in ordered]
            make = partial(ReadOnce, self.reader, lang, reading.compared, paths)
        return self.feed(key, make)

    async def vega(self) -> str:
        """What draws charts, made once for each version of what makes it."""

        def kept() -> str:
            path = self._logs / f"vega-{VEGA_LITE}-{version('vl-convert-python')}.js"
            with suppress(OSError):
                return path.read_text(encoding="utf-8")
            text = reading.vega()
            with suppress(TrainlabError), replacing(path) as part:  # a full disk may not keep it
                part.write_text(text, encoding="utf-8")
            return text

        if self._vega is None or (self._vega.done() and self._vega.exception()):
            self._vega = asyncio.create_task(asyncio.to_thread(kept))
        return await asyncio.shield(self._vega)

    def start(self, words: Sequence[str], run: Path) -> int:
        """Starts a command; its number among those that were."""
        self.orders.append(orders.started(words, self._logs, run))
        return len(self.orders) - 1
