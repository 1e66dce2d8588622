"""Feed: what a page shows by now, piece by piece; who listens gets the pieces that have changed."""

import asyncio
import json
from collections.abc import AsyncIterator, Sequence

from trainlab.report.html import Part

KEEP_ALIVE_S = 15.0
"""Between two signs of life where nothing changes: a browser that has gone is noticed by them."""
RETRY_MS = 1000
"""After which a browser whose connection broke asks again."""


class Feed:
    """The pieces of a page in their order."""

    def __init__(self) -> None:
        self._parts: dict[str, Part] = {}
        self._changed: dict[str, int] = {}
        """By piece, in which version it changed last."""
        self._version = 0
        self._news = asyncio.Event()
        self.num_listeners = 0

    @property
    def parts(self) -> list[Part]:
        """All of them."""
        return [*self._parts.values()]

    def show(self, parts: Sequence[Part], order: Sequence[str] | None = None) -> None:
        """Puts pieces in place of those of the same ids. `order`: of all that there are now; others go."""
        new = [part for part in parts if self._parts.get(part.id) != part]
        all_parts = self._parts | {part.id: part for part in new}
        ordered = {one: all_parts[one] for one in order} if order is not None else all_parts
        if not new and [*ordered] == [*self._parts]:
            return
        self._version += 1
        self._parts = ordered
        self._changed |= {part.id: self._version for part in new}
        self._news.set()
        self._news = asyncio.Event()

    async def stream(self) -> AsyncIterator[bytes]:
        """Server-sent events: first all pieces, then whatever changes."""
        seen, self.num_listeners = 0, self.num_listeners + 1
        try:
            yield f"retry: {RETRY_MS}\n\n".encode()
            while True:
                news = self._news
                if seen < self._version:
                    text, seen = self._event(seen), self._version
                    yield text
                try:
                    await asyncio.wait_for(news.wait(), KEEP_ALIVE_S)
                except TimeoutError:
                    yield b": still here\n\n"
        finally:
            self.num_listeners -= 1

    def _event(self, seen: int) -> bytes:
        changed = [
            {"id": one.id, "html": one.html, "charts": one.charts}
            for one in self._parts.values()
            if self._changed[one.id] > seen
        ]
        value = {"order": [*self._parts], "parts": changed}
        return f"data: {json.dumps(value, ensure_ascii=False)}\n\n".encode(errors="replace")
