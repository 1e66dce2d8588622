"""What is followed while somebody looks at it: the list of runs, a run, a command that was started."""

import asyncio
import time
from collections.abc import Callable, Iterable
from typing import Any

from trainlab.page import reading
from trainlab.page.feed import Feed
from trainlab.page.orders import Command
from trainlab.page.reading import Look, Reader, pieces, told
from trainlab.page.runs import ListedRun, mark_of
from trainlab.report.html import Part
from trainlab.words import Words

POLL_S, QUIET_POLL_S = 2.0, 10.0
"""Between two looks; between two at what measures costs, and two reports of what runs: a browser that draws
is not nice to anybody."""
LONGEST_PAUSE_S = 20.0
"""On a busy machine looks take long and are rare, but not rarer."""
LOOK_SHARE, TIMING_SHARE = 0.1, 0.01
"""Of the time, spent on a run that is looked at; of one that is measuring what it costs."""
FRAME = ("header", "cells", "contents", "footer")
"""Pieces of a report around its sections."""
LINGER_S = 10.0
"""How long a run is followed after the last page of it has been closed."""


class RunList(Feed):
    """All runs of a folder, the newest first."""

    def __init__(self, lang: str) -> None:
        super().__init__()
        self._words = Words(lang)
        self._rows: dict[str, tuple[ListedRun, Part]] = {}

    def refresh(self, runs: Iterable[ListedRun]) -> None:
        """Shows the runs that there are by now."""
        words, row = self._words, pieces(self._words).row
        ordered = sorted(runs, key=lambda one: (one.begun_s, one.label), reverse=True)
        self._rows = {
            one.id: known
            if (known := self._rows.get(one.id)) and known[0] is one
            else (one, Part(f"run-{one.id}", row(one, words.builtin(one.title))))
            for one in ordered
        }
        parts = [part for _, part in self._rows.values()]
        count = Part("count", words.counted("page_one_run", "page_some_runs", len(parts)))
        self.show([count, *parts], ["count", *(part.id for part in parts)])


class Followed(Feed):
    """What is looked at again and again, by one task, while somebody listens."""

    def __init__(self) -> None:
        super().__init__()
        self._task: asyncio.Task[None] | None = None

    def begin(self) -> None:
        """Follows it, if that is not done already."""
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._follow())

    async def _follow(self) -> None:
        raise NotImplementedError


class LiveRun(Followed):
    """One run in one language: how far it is, and its report so far."""

    def __init__(self, reader: Reader, run: ListedRun, lang: str, *, is_read_only: bool) -> None:
        super().__init__()
        self._reader, self._lang, self._path = reader, lang, run.path
        self._asked = str(run.path), run.id, lang, is_read_only
        self._mark: tuple[Any, ...] | None = None
        self._next_report_s = 0.0

    async def _follow(self) -> None:
        left_at, found = time.monotonic(), None
        mark: tuple[int, ...] = ()
        while self.num_listeners or time.monotonic() - left_at < LINGER_S:
            begun = time.monotonic()
            left_at = begun if self.num_listeners else left_at
            before, mark = mark, mark_of(self._path)
            share, took_s = LOOK_SHARE, 0.0
            try:
                # What nobody drives is read again once something has changed.
                if found is None or found.is_driven or mark != before:
                    found = await self._reader.call(reading.look, *self._asked)
                    self.show(found.parts)
                    if before:  # the first also loads what reads
                        share = TIMING_SHARE if found.is_timing else share
                        took_s = time.monotonic() - begun
                    if found.mark != self._mark and not self._can_wait(found):
                        await self._read(found)
            except Exception as error:  # noqa: BLE001  told in its place; the next look may succeed
                self._mark = found = None
                failure = pieces(Words(self._lang)).failure(told(error, self._lang))
                self.show([Part("status", failure)])
            least_s = QUIET_POLL_S if found is not None and found.is_timing else POLL_S
            await asyncio.sleep(min(max(least_s, took_s / share), LONGEST_PAUSE_S))

    def _can_wait(self, found: Look) -> bool:
        """What is being timed is left alone; what trains is reported now and then."""
        is_recent = time.monotonic() < self._next_report_s
        return self._mark is not None and (found.is_timing or (found.is_driven and is_recent))

    async def _read(self, found: Look) -> None:
        """The answer comes first, once no trial is left."""
        if self._mark is None:
            self.show([Part("following", f"<p>{Words(self._lang)('page_reading')}</p>")])
        begun = time.monotonic()
        report = await self._reader.call_later(reading.report_parts, *self._asked, found.is_driven)
        frame = [part.id for part in report if part.id in FRAME]
        first, *rest = (part.id for part in report if part.id not in (*FRAME, "following"))
        following = ["following", "trials"]
        sections = [*following, first] if found.is_driven else [first, *following]
        self.show(report, [*frame, "status", *sections, *rest])
        self._mark, now = found.mark, time.monotonic()
        pause_s = min((now - begun) / LOOK_SHARE, LONGEST_PAUSE_S)
        self._next_report_s = now + max(QUIET_POLL_S, pause_s)


class ReadOnce(Followed):
    """What takes long to read, and is shown once it is."""

    def __init__(
        self, reader: Reader, lang: str, read: Callable[..., tuple[Part, ...]], *asked: Any
    ) -> None:
        super().__init__()
        self._reader, self._lang, self._read, self._asked = reader, lang, read, asked

    async def _follow(self) -> None:
        if self.parts:
            return
        try:
            parts = await self._reader.call(self._read, *self._asked, self._lang)
        except Exception as error:  # noqa: BLE001  told in its place
            failure = pieces(Words(self._lang)).failure(told(error, self._lang))
            parts = (Part("status", failure),)
        self.show(parts, [part.id for part in parts])


class StartedCommand(Followed):
    """A command that was started from the page, until its run is there."""

    def __init__(self, order: Command, run_id: str, lang: str) -> None:
        super().__init__()
        self._order, self._run_id, self._words = order, run_id, Words(lang)

    async def _follow(self) -> None:
        order, run_id = self._order, ""
        while not run_id:
            code = order.code
            run_id = self._run_id if order.has_run else ""
            html = pieces(self._words).order(order.command, order.printed(), code, run_id)
            self.show([Part("status", html)])
            if code is not None:
                return
            await asyncio.sleep(POLL_S / 2)
