"""The guard: which requests reach the page. Those of its own pages, with its token, none too large."""

import hmac
from contextlib import suppress
from functools import partial
from ipaddress import ip_address
from urllib.parse import quote, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

MOST_BODY_BYTES = 65_536
FORBIDDEN = "open the address that `trainlab page` has printed"
OTHER_SITE = "asked for by another site"
SECURITY = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data:; font-src 'self' data:; connect-src 'self'; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
"""Headers of every answer that has none of its own by these names."""


class Guard:
    """An application behind it: what is asked for by a name that was made to lead here, by another site's
    page, or without the token gets no further."""

    def __init__(self, application: ASGIApp, host: str, port: int, token: str) -> None:
        self._application, self._token = application, token
        self._host, self._port, self._is_private = host, port, is_loopback(host)
        self._cookie = f"trainlab-{port}"
        """With the port: browsers keep cookies by host alone."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        answered = self._application
        if scope["type"] == "http":
            request, send = Request(scope), partial(_with_headers, send)
            status, reason = self._refusal(request)
            if status:
                answered = PlainTextResponse(reason, status, {"Connection": "close"})
            elif "token" in request.query_params:
                answered = self._let_in(request)
        await answered(scope, receive, send)

    def _refusal(self, request: Request) -> tuple[int, str]:
        """Status and reason where a request is refused; 0 where it is not."""
        headers, is_post = request.headers, request.method == "POST"
        hosts, origins = headers.getlist("host"), headers.getlist("origin")
        if request.method not in ("GET", "HEAD", "POST"):
            return 405, "no such method"
        if len(hosts) != 1 or not self._is_own(hosts[0]):
            return 421, "no such host here"
        is_elsewhere = any(origin != f"http://{hosts[0]}" for origin in origins)
        sites = {*headers.getlist("sec-fetch-site")} - {"same-origin", "none"}
        if is_elsewhere or (is_post and sites):
            return 403, OTHER_SITE
        given = request.query_params.get("token")
        given = request.cookies.get(self._cookie, "") if given is None else given
        # What changes something says it a second time, which no other site can.
        said = headers.get("x-token", "") if is_post else given
        if not (_same(given, self._token) and _same(said, self._token)):
            return 403, FORBIDDEN
        return _size_refusal(headers) if is_post else (0, "")

    def _is_own(self, host: str) -> bool:
        """Our own name or number, with our port. A number cannot be made to lead here by whoever owns a
        name."""
        try:
            parts = urlsplit(f"//{host}")
            name, port = parts.hostname or "", parts.port
        except ValueError:
            return False
        if port != self._port or parts.username is not None or parts.path or parts.query:
            return False
        if name in ("localhost", self._host):
            return True
        with suppress(ValueError):
            return ip_address(name).is_loopback or not self._is_private
        return False

    def _let_in(self, request: Request) -> Response:
        """The token of an address becomes a cookie; then the same address without it. Not by a redirect,
        with which a browser that comes from elsewhere sends no such cookie."""
        refresh = f'<meta http-equiv="refresh" content="0;url={quote(request.url.path)}">'
        head = '<meta charset="utf-8"><link rel="icon" href="data:,"><title>trainlab</title>'
        response = HTMLResponse(f'<!doctype html><html lang="en">{head}{refresh}')
        a_month_s = 30 * 86_400
        response.set_cookie(self._cookie, self._token, a_month_s, httponly=True, samesite="strict")
        return response


def is_loopback(host: str) -> bool:
    """Whether an address is this machine's own, which no other reaches."""
    with suppress(ValueError):
        return ip_address(host).is_loopback
    return host == "localhost"


def _same(given: str, wanted: str) -> bool:
    return hmac.compare_digest(given.encode(), wanted.encode())


def _size_refusal(headers: Headers) -> tuple[int, str]:
    size = headers.get("content-length", "")
    is_small = size.isdecimal() and int(size) <= MOST_BODY_BYTES
    return (0, "") if is_small else (413, "too large, or of no known size")


async def _with_headers(send: Send, message: Message) -> None:
    if message["type"] == "http.response.start":
        headers = MutableHeaders(scope=message)
        for name, value in SECURITY.items():
            headers.setdefault(name, value)
    await send(message)
