"""The guard: which requests reach the page. Those from its own pages, with its token, and none too large or
too slow."""

import asyncio
import hmac
from collections.abc import Awaitable, Callable, Mapping, MutableMapping, Sequence
from contextlib import suppress
from functools import partial
from ipaddress import ip_address
from typing import Any
from urllib.parse import parse_qsl, quote, urlsplit

MOST_BODY_BYTES = 65_536
BODY_S = 10.0
"""How long a request may take to send its body."""
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

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]


class Guard:
    """An application behind it: what is asked for by a name that was made to lead here, by another site's
    page, or without the token gets no further."""

    def __init__(self, application: Application, host: str, port: int, token: str) -> None:
        self._application, self._token = application, token
        self._host, self._port, self._is_private = host, port, is_loopback(host)
        self._cookie = f"trainlab-{port}"
        """With the port: browsers keep cookies by host alone."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._application(scope, receive, send)
        if scope["type"] != "http":
            return
        query = dict(parse_qsl(scope["query_string"].decode("latin-1")))
        headers = _headers(scope)
        status, reason = self._refusal(scope["method"], headers)
        if status:
            await _answer(send, status, reason)
        elif "token" in query:
            await self._let_in(scope["path"], query["token"], send)
        elif not self._has_token(scope["method"], headers):
            await _answer(send, 403, FORBIDDEN)
        elif (body := await _whole_body(receive, scope["method"])) is None:
            await _answer(send, 413, "too large, or too slow to come")
        else:
            parts = [{"type": "http.request", "body": body, "more_body": False}]

            async def received() -> Message:
                return parts.pop() if parts else await receive()

            await self._application(scope, received, partial(_with_headers, send))

    def _refusal(self, method: str, headers: Mapping[str, Sequence[str]]) -> tuple[int, str]:
        """Status and reason where a request is refused, whoever asks; 0 where it is not."""
        if method not in ("GET", "HEAD", "POST"):
            return 405, "no such method"
        hosts = headers.get("host", [])
        if len(hosts) != 1 or not self._is_own(hosts[0]):
            return 421, "no such host here"
        origins = headers.get("origin", [])
        if any(origin != f"http://{hosts[0]}" for origin in origins) or len(origins) > 1:
            return 403, OTHER_SITE
        sites = headers.get("sec-fetch-site", [])
        if method == "POST" and set(sites) - {"same-origin", "none"}:
            return 403, OTHER_SITE
        return 0, ""

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

    def _has_token(self, method: str, headers: Mapping[str, Sequence[str]]) -> bool:
        """In a cookie; what changes something says it a second time, which no other site can."""
        pairs = (c.partition("=") for text in headers.get("cookie", []) for c in text.split(";"))
        cookies = {name.strip(): value.strip() for name, _, value in pairs}
        said = headers.get("x-token", [""])[0] if method == "POST" else self._token
        return _same(cookies.get(self._cookie, ""), self._token) and _same(said, self._token)

    async def _let_in(self, path: str, given: str, send: Send) -> None:
        """The token of an address becomes a cookie; then the same address without it. Not by a redirect,
        with which a browser that comes from elsewhere sends no such cookie."""
        if not _same(given, self._token):
            await _answer(send, 403, FORBIDDEN)
            return
        facts = "HttpOnly; SameSite=Strict; Path=/; Max-Age=2592000"
        refresh = f'<meta http-equiv="refresh" content="0;url={quote(path)}">'
        text = (
            f'<!doctype html><html lang="en"><meta charset="utf-8"><title>trainlab</title>{refresh}'
        )
        cookie = f"{self._cookie}={self._token}; {facts}"
        await _answer(send, 200, text, "text/html", {"Set-Cookie": cookie})


def is_loopback(host: str) -> bool:
    """Whether an address is this machine's own, which no other reaches."""
    with suppress(ValueError):
        return ip_address(host).is_loopback
    return host == "localhost"


def _same(given: str, wanted: str) -> bool:
    return hmac.compare_digest(given.encode(), wanted.encode())


def _headers(scope: Scope) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for name, value in scope["headers"]:
        found.setdefault(name.decode("latin-1").lower(), []).append(value.decode("latin-1"))
    return found


async def _whole_body(receive: Receive, method: str) -> bytes | None:
    """None where it is too large, or does not come in time."""
    body = b""
    with suppress(TimeoutError):
        async with asyncio.timeout(BODY_S):
            while method == "POST":
                message = await receive()
                body += message.get("body", b"")
                if len(body) > MOST_BODY_BYTES or message["type"] != "http.request":
                    return None
                if not message.get("more_body"):
                    break
            return body
    return None


async def _with_headers(send: Send, message: Message) -> None:
    if message["type"] == "http.response.start":
        known = {name.decode().lower() for name, _ in message["headers"]}
        own = [(n.encode(), v.encode()) for n, v in SECURITY.items() if n.lower() not in known]
        message = {**message, "headers": [*message["headers"], *own]}
    await send(message)


async def _answer(
    send: Send,
    status: int,
    text: str,
    kind: str = "text/plain",
    more: Mapping[str, str] | None = None,
) -> None:
    headers = {"Content-Type": f"{kind}; charset=utf-8", "Connection": "close", **(more or {})}
    pairs = [(name.encode(), value.encode()) for name, value in headers.items()]
    start = {"type": "http.response.start", "status": status, "headers": pairs}
    await _with_headers(send, start)
    await send({"type": "http.response.body", "body": text.encode()})
