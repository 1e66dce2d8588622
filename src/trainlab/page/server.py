"""The server of a folder of runs: its pages, what they stream and what they start."""

import asyncio
import hashlib
import json
import os
import secrets
import shlex
import signal
import socket
import sys
import threading
import webbrowser
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from importlib.resources import files
from logging import LogRecord, getLogger
from pathlib import Path
from signal import SIGINT, SIGTERM
from typing import Any
from urllib.parse import quote

import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import (
    HTMLResponse,
    JSONResponse,
    RedirectResponse,
    Response,
    StreamingResponse,
)
from starlette.routing import Route

from trainlab.cli.help_pages import Texts
from trainlab.cli.options import CHANGED_MOST
from trainlab.errors import RecordError, SpecError, TrainlabError
from trainlab.machine.host import private, private_folder
from trainlab.page import orders, reading
from trainlab.page.feed import Feed
from trainlab.page.folder import ServedFolder
from trainlab.page.guard import MOST_BODY_BYTES, Guard, is_loopback
from trainlab.page.reading import pieces, templates, told
from trainlab.page.runs import ListedRun
from trainlab.record.files import replacing
from trainlab.report.html import charts_json
from trainlab.words import LANGUAGES, Words

PORT, PORTS_TRIED = 8420, 20
TOKEN_LENGTH = 32
MOST_COMPARED = 6
MOST_CONNECTIONS = 400
STATIC = {
    "page.css": ("report/page.css", "text/css"),
    "page.js": ("report/page.js", "text/javascript"),
    "app.css": ("page/app.css", "text/css"),
    "live.js": ("page/live.js", "text/javascript"),
    "font.otf": ("report/font_files/TrainlabSansSC-Regular.otf", "font/otf"),
    "vega.js": ("", "text/javascript"),
}
KEPT = {"font.otf", "vega.js"}
"""What a browser keeps for a day."""
ANSWERED = (TrainlabError, KeyError, OSError, ValueError, 404)
"""What a request may raise and is told in a line."""


class Pages:
    """What is answered to whom the guard lets through."""

    def __init__(self, folder: ServedFolder, token: str) -> None:
        self._folder, self._token = folder, token

    def _words_of(self, request: Request) -> Words:
        given = request.query_params.get("lang") or request.cookies.get("trainlab-lang") or ""
        return Words(given if given in LANGUAGES else self._folder.lang)

    def _framed(
        self, request: Request, kind: str, title: str, status: int = 200, **values: Any
    ) -> Response:
        words, served = self._words_of(request), self._folder
        others = [
            (one, Words(one)("language_name"), request.url.include_query_params(lang=one).query)
            for one in LANGUAGES
            if one != words.lang
        ]
        about: dict[str, Any] = {"kind": kind, "title": title, "words": words, "others": others}
        about |= {"folder": served.path, "is_read_only": served.is_read_only}
        about |= {"token": self._token, "feed": "", "charts": charts_json({}), "run": None}
        text = templates().get_template("frame.html.j2").render(**about | values)
        response = HTMLResponse(text, status)
        response.set_cookie("trainlab-lang", words.lang, samesite="strict", httponly=True)
        return response

    def _feed(self, request: Request, *, again: bool = False) -> Feed:
        """What a page with this address shows; KeyError where there is nothing. `again`: read anew."""
        lang, served, place = self._words_of(request).lang, self._folder, request.path_params
        match request.url.path.split("/")[1]:
            case "run":
                return served.run_feed(served.run(place["run"]), lang)
            case "order":
                return served.order_feed(place["number"], lang)
            case "class":
                return served.read_feed(("class", lang), again=again)
            case "compare":
                ids = dict.fromkeys(request.query_params.getlist("run"))
                if not 2 <= len(ids) <= MOST_COMPARED:
                    raise SpecError([Words(lang)("page_tick")])
                return served.read_feed(("compare", lang, *ids), again=again)
        return served.list_feed(lang)

    async def events(self, request: Request) -> Response:
        return StreamingResponse(self._feed(request).stream(), media_type="text/event-stream")

    async def home(self, request: Request) -> Response:
        words = self._words_of(request)
        await asyncio.to_thread(self._folder.find)
        if not self._folder.path.is_dir():
            raise RecordError(f"{self._folder.path}: no such folder")
        if [one.path for one in self._folder.runs.values()] == [self._folder.path]:
            return self._run_page(request, next(iter(self._folder.runs.values())))
        parts = self._feed(request).parts
        return self._framed(request, "list", words("page_runs"), feed="/events", parts=parts)

    async def newest(self, request: Request) -> Response:
        """The page of the next run that begins; until then one that asks again."""
        await asyncio.to_thread(self._folder.find)
        newest = max(self._folder.runs.values(), key=lambda one: one.begun_s, default=None)
        if newest is not None and newest.begun_s >= self._folder.begun_s:
            return RedirectResponse(f"/run/{newest.id}", 303)
        words = self._words_of(request)
        response = self._framed(
            request, "plain", words("page_starting"), html=words("page_is_starting")
        )
        response.headers["Refresh"] = "1"
        return response

    def _run_page(self, request: Request, one: ListedRun) -> Response:
        self._folder.run_feed(one, self._words_of(request).lang)
        return self._framed(request, "run", one.name, feed=f"/run/{one.id}/events", run=one)

    async def run(self, request: Request) -> Response:
        return self._run_page(request, self._folder.run(request.path_params["run"]))

    async def report(self, request: Request) -> Response:
        one = self._folder.run(request.path_params["run"])
        asked = (str(one.path), self._words_of(request).lang)
        name = quote(f"{one.path.name}.html")
        headers = {"Content-Disposition": f"attachment; filename*=UTF-8''{name}"}
        text = await self._folder.reader.call_later(reading.report_file, *asked)
        return HTMLResponse(text, headers=headers)

    async def trial(self, request: Request) -> Response:
        one, name = self._folder.run(request.path_params["run"]), request.path_params["trial"]
        asked = (str(one.path), one.id, name, self._words_of(request).lang)
        html, is_over = await self._folder.reader.call(reading.trial_page, *asked)
        response = self._framed(request, "plain", name, run=one, html=html)
        response.headers.update({} if is_over else {"Refresh": "5"})
        return response

    async def compare(self, request: Request) -> Response:
        self._feed(request, again=True)
        title = self._words_of(request)("page_compare")
        return self._framed(request, "compare", title, feed="/compare/events")

    async def hand_ins(self, request: Request) -> Response:
        self._feed(request, again=True)
        title = self._words_of(request)("page_class")
        return self._framed(request, "class", title, feed="/class/events")

    async def new(self, request: Request) -> Response:
        words = self._words_of(request)
        if self._folder.is_read_only:
            raise SpecError([words("page_read_only")])
        fields, names, texts = orders.settings(), orders.workload_names(), Texts(words.lang)
        about: dict[str, Any] = {"fields": fields, "workloads": names, "texts": texts}
        return self._framed(request, "new", words("page_new"), basic=CHANGED_MOST, **about)

    async def order(self, request: Request) -> Response:
        self._feed(request)
        title, feed = self._words_of(request)("page_starting"), f"{request.url.path}/events"
        return self._framed(request, "order", title, feed=feed)

    async def static(self, request: Request) -> Response:
        name = request.path_params["name"]
        path, kind = STATIC[name]
        content = (files("trainlab") / path).read_bytes() if path else await self._folder.vega()
        headers = {"Cache-Control": "max-age=86400"} if name in KEPT else None
        return Response(content, media_type=kind, headers=headers)

    async def _form_of(self, request: Request) -> dict[str, Any]:
        """What a page sends; SpecError where nothing may be changed."""
        if self._folder.is_read_only:
            raise SpecError([self._words_of(request)("page_read_only")])
        form: Any = None
        with suppress(ValueError):
            form = json.loads(await request.body() or b"{}")
        if not isinstance(form, dict):
            raise SpecError(["request: must hold a JSON object"])
        return form

    async def plan(self, request: Request) -> Response:
        words = orders.words_of(await self._form_of(request))
        asked = [*words, "--dry-run", f"--lang={self._words_of(request).lang}"]
        text = await asyncio.to_thread(orders.finished, asked)
        return JSONResponse({"text": f"{shlex.join(['trainlab', *words])}\n\n{text}"})

    async def start(self, request: Request) -> Response:
        words = orders.words_of(await self._form_of(request))
        number = self._folder.start(*orders.in_folder(words, self._folder.path))
        return JSONResponse({"go": f"/order/{number}"})

    async def act(self, request: Request) -> Response:
        form, one = await self._form_of(request), self._folder.run(request.path_params["run"])
        match request.path_params["action"]:
            case "cancel":
                words = ["cancel", str(one.path), f"--lang={self._words_of(request).lang}"]
                return JSONResponse({"text": await asyncio.to_thread(orders.finished, words)})
            case "resume":
                number = self._folder.start(["resume", str(one.path)], one.path)
                await asyncio.to_thread(self._folder.orders[number].begun)
                return JSONResponse({"text": self._words_of(request)("page_resumed")})
            case "again":
                asked = form.get("number")
                which = asked if isinstance(asked, int) else -1
                asked_for = str(one.path), which
                found = await self._folder.reader.call_later(reading.settling_command, *asked_for)
                number = self._folder.start(*orders.in_folder(found, self._folder.path))
                return JSONResponse({"go": f"/order/{number}"})
        raise KeyError(request.path_params["action"])

    async def failed(self, request: Request, error: Exception) -> Response:
        words, is_missing = self._words_of(request), isinstance(error, KeyError | HTTPException)
        text = words("page_nothing_here") if is_missing else told(error, words.lang)
        status = 404 if is_missing else 400
        if request.method == "POST":
            return JSONResponse({"error": text}, status)
        html = pieces(words).failure(text)
        return self._framed(request, "plain", words("page_failed"), status, html=html)

    @asynccontextmanager
    async def _living(self, _: Starlette) -> AsyncIterator[None]:
        await asyncio.to_thread(self._folder.load)
        works = self._folder.read_all(), self._folder.vega()
        tasks = [asyncio.ensure_future(one) for one in works]
        yield
        for task in tasks:
            task.cancel()
        self._folder.reader.close()

    def application(self) -> Starlette:
        """All of them, by their addresses."""
        pages = {
            "/": self.home,
            "/newest": self.newest,
            "/run/{run}": self.run,
            "/run/{run}/report.html": self.report,
            "/run/{run}/trial/{trial}": self.trial,
            "/compare": self.compare,
            "/class": self.hand_ins,
            "/new": self.new,
            "/order/{number:int}": self.order,
            "/static/{name}": self.static,
        }
        streams = ("", "/run/{run}", "/compare", "/class", "/order/{number:int}")
        pages |= {f"{place}/events": self.events for place in streams}
        actions = {"/run/{run}/{action}": self.act, "/plan": self.plan, "/start": self.start}
        routes = [Route(place, page) for place, page in pages.items()]
        routes += [Route(place, action, methods=["POST"]) for place, action in actions.items()]
        handlers: dict[Any, Any] = dict.fromkeys(ANSWERED, self.failed)
        return Starlette(routes=routes, exception_handlers=handlers, lifespan=self._living)


# From the command line.


def token_file_of(folder: Path) -> Path:
    """Where the token of a folder is while it is served."""
    name = hashlib.sha256(os.fsencode(folder.resolve())).hexdigest()[:16]
    return private_folder("page") / f"{name}.token"


def token_in(path: Path) -> str:
    """A new one; that of a server that was killed, so that pages that are still open go on."""
    with suppress(OSError):
        if len(kept := private(path).read_text(encoding="ascii")) == TOKEN_LENGTH:
            return kept
    token = secrets.token_hex(TOKEN_LENGTH // 2)
    with replacing(path) as part:
        part.chmod(0o600)
        part.write_text(token, encoding="ascii")
    return token


def listening(host: str, asked: int | None) -> socket.socket:
    """A socket that listens; SpecError where none is to be had."""
    ports = [asked] if asked is not None else [*range(PORT, PORT + PORTS_TRIED), 0]
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    reason = ""
    for port in ports:
        try:
            return socket.create_server((host, port), family=family, backlog=128)
        except OSError as error:
            reason = (error.strerror or str(error)).partition(" (while")[0]
    option = "--host" if asked is None else "--port"
    rule = f"cannot listen at {host}:{ports[0]}: {reason}; choose another"
    raise SpecError([f"{option}: {rule}"])


def serve(
    served: ServedFolder,
    host: str,
    asked: int | None,
    place: str,
    warn: Callable[[str], None],
    *,
    is_opened: bool,
) -> None:
    """Serves until Ctrl-C, after a line with the address of a place; `warn` is given a key of the words
    where others can reach it."""
    # A module in the folder must not stand in for an installed one, for what reads or what is started.
    os.environ["PYTHONSAFEPATH"] = "1"
    token_file = token_file_of(served.path)
    own, token = listening(host, asked), token_in(token_file)
    port, is_private = own.getsockname()[1], is_loopback(host)
    host = {"0.0.0.0": socket.gethostname(), "::": socket.gethostname()}.get(host, host)  # noqa: S104
    shown = f"[{host}]" if ":" in host else host
    address = f"http://{shown}:{port}/{place}?token={token}"
    config = uvicorn.Config(
        Guard(Pages(served, token).application(), host, port, token),
        log_level="error",
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=1,
        limit_concurrency=MOST_CONNECTIONS,
        h11_max_incomplete_event_size=MOST_BODY_BYTES,
        http="h11",
        ws="none",
    )
    getLogger("uvicorn.error").addFilter(_is_fault)
    server = _Server(config)
    with server.capture_signals():  # from before the address is there to its end
        sys.stdout.write(f"{address}\n")
        sys.stdout.flush()
        if not is_private:
            warn("page_open_to_others")
        if is_opened:
            threading.Thread(target=_open_browser, args=(address, token_file), daemon=True).start()
        server.run(sockets=[own])
    # Whoever listens here next learns nothing from a page that is still open.
    token_file.unlink(missing_ok=True)


def _is_fault(record: LogRecord) -> bool:
    """That pages are still open as it ends, and what they stream is broken off, is none."""
    _, error, _ = record.exc_info or (None, None, None)
    is_broken_off = isinstance(error, asyncio.CancelledError)
    return not is_broken_off and "graceful shutdown exceeded" not in str(record.msg)


class _Server(uvicorn.Server):
    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Ctrl-C is how a page is ended: nothing is raised again once it has."""
        before = {one: signal.signal(one, self.handle_exit) for one in (SIGINT, SIGTERM)}
        try:
            yield
        finally:
            for one, handler in before.items():
                signal.signal(one, handler)


def _open_browser(address: str, token_file: Path) -> None:
    """By a file that only this user can read: others see the words of a browser's command."""
    page = token_file.with_suffix(".html")
    text = f'<meta charset="utf-8"><meta http-equiv="refresh" content="0;url={address}">'
    with suppress(OSError, TrainlabError, webbrowser.Error):
        with replacing(page) as part:
            part.chmod(0o600)
            part.write_text(text, encoding="utf-8")
        webbrowser.open(page.as_uri())
