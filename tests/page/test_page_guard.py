"""Who the page answers: nobody without its token, from elsewhere, or too large; and only runs."""

import signal
import socket
import time
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from urllib.parse import quote

import pytest
from serving import Served, serving

from fabricate import Fabricated, made_study
from trainlab.page.runs import find_runs, run_id

HIDDEN = "what nobody may read"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    home = tmp_path_factory.mktemp("served")
    Fabricated().write(home / "runs" / "one", made_study())
    (home / "secret.txt").write_text(HIDDEN)
    (home / "runs" / "notes.txt").write_text(HIDDEN)
    (home / "runs" / "out").symlink_to(home)
    with serving(home / "runs") as server:
        yield server


def test_hostile_requests_get_nothing(served: Served) -> None:
    own = served.own
    host, cookie = own["Host"], own["Cookie"]
    places = ["/", "/events", "/new", "/compare", "/class", "/static/page.js", "/run/x/report.html"]
    refused = [
        *({"Host": other, "Cookie": cookie} for other in HOSTS),
        *({"Host": host, "Cookie": cookie, "Origin": origin} for origin in ORIGINS),
        *({"Host": host, "Cookie": other} for other in COOKIES),
    ]
    number = 0
    for headers, place in product(refused, places):
        status, text, _ = served.ask(place, **headers)
        assert status in (400, 403, 421), (headers, place, status)
        assert "run-" not in text
        number += 1
    for action, headers in product(("/plan", "/start", "/run/x/cancel"), refused):
        assert served.ask(action, "POST", b"{}", **headers)[0] in (400, 403, 421)
        number += 1
    for token in ("", "x", served.token[:-1], served.token.upper(), served.token + "0", "é"):
        status, _, told = served.ask(f"/?token={quote(token)}", Host=host)
        assert status == 403
        assert "Set-Cookie" not in told
        # What changes something says the token twice: a cookie alone may be sent by mistake.
        bare = {"Host": host, "Cookie": cookie} | ({"X-Token": token} if token.isascii() else {})
        assert served.ask("/start", "POST", b"{}", **bare)[0] == 403
        number += 2
    for path in PATHS:
        status, text, _ = served.ask(path)
        assert status in (400, 404, 405), path
        assert HIDDEN not in text
        number += 1
    for method in ("PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "CONNECT", "BREW"):
        assert served.ask("/", method)[0] in (400, 405)
        number += 1
    for body in (b"", b"[]", b"\x00" * 100, b"{" * 1000, b'{"what": 1}', b'{"what": "--yes"}'):
        assert served.ask("/plan", "POST", body)[0] == 400
        number += 1
    assert served.ask("/plan", "POST", b"x" * 100_000)[0] == 413
    assert number >= 500
    assert served.ask("/")[0] == 200


HOSTS = [
    *("evil.example", "127.0.0.1", "127.0.0.1:1", "localhost", "localhost.evil.example:80", ""),
    *("127.0.0.1:80@evil.example", "evil.example:8420", "[::1", "127.0.0.1:x", "0x7f.1:8420"),
    *("10.0.0.1:8420", "169.254.169.254", "a" * 300, "127.0.0.1:99999", "user@localhost:8420"),
    *("trainlab.localhost:8420", "::1", "%31%32%37.0.0.1", "127.0.0.1:8420/x", "*", "null"),
]
ORIGINS = [
    *("null", "http://evil.example", "https://evil.example", "http://localhost", "file://", ""),
    *(
        "http://127.0.0.1:1",
        "http://127.0.0.1.evil.example",
        "chrome-extension://x",
        "http://[::1]",
    ),
]
COOKIES = [
    *("", "x=y", "trainlab=1", "trainlab-8420=", "trainlab-0=x", "=" * 50, ";;;;", "trainlab-8420"),
    *("Token=x; trainlab-1=x", "\t", "trainlab-8420=%00", "a" * 3000),
]
_OUT = ["../secret.txt", "../../etc/passwd", "one/../../secret.txt", "out/secret.txt", "notes.txt"]
PATHS = [
    f"/{place}/{way}"
    for place, way in product(
        ("run", "static", "run/x/trial", "order", "class"),
        [
            *_OUT,
            *(quote(way, safe="") for way in _OUT),
            *(
                "..%2f..%2fsecret.txt",
                "%2e%2e/secret.txt",
                "..%5csecret.txt",
                "%00",
                "one",
                "x" * 500,
            ),
            *(
                ".env",
                "study.json",
                "one%2fstudy.json",
                "%252e%252e%252fsecret.txt",
                "-1",
                "99999999",
            ),
        ],
    )
]


def test_the_token_of_the_address_becomes_a_cookie_of_this_site_alone(served: Served) -> None:
    host = served.own["Host"]
    status, text, headers = served.ask(f"/?token={served.token}", Host=host)
    assert status == 200
    assert served.token not in text
    assert {"HttpOnly", "SameSite=strict"} <= {*headers["Set-Cookie"].split("; ")}
    _, _, headers = served.ask("/")
    policy = headers["Content-Security-Policy"]
    assert "script-src 'self';" in policy
    assert "unsafe-eval" not in policy
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert not any(name.lower().startswith("access-control") for name in headers)


def test_slow_clients_keep_nobody_waiting(served: Served) -> None:
    slow = []
    for number in range(30):
        one = socket.create_connection(("127.0.0.1", served.port))
        one.sendall(b"POST /plan HTTP/1.1\r\nHost: x\r\n" if number % 2 else b"GET")
        slow.append(one)
    begun = time.monotonic()
    assert served.ask("/")[0] == 200
    assert time.monotonic() - begun < 5
    for one in slow:
        one.close()


def test_only_runs_inside_the_folder_are_found(tmp_path: Path) -> None:
    Fabricated().write(tmp_path / "elsewhere", made_study())
    Fabricated().write(tmp_path / "runs" / "a" / "b", made_study())
    Fabricated().write(tmp_path / "runs" / ".hidden", made_study())
    (tmp_path / "runs" / "link").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "runs" / "c").mkdir()
    (tmp_path / "runs" / "c" / "study.json").symlink_to(tmp_path / "elsewhere" / "study.json")
    assert [*find_runs(tmp_path / "runs")] == [tmp_path / "runs" / "a" / "b"]
    assert len(run_id(tmp_path, tmp_path / "runs")) == 16


def test_the_page_ends_without_a_word_while_somebody_looks_at_it(tmp_path: Path) -> None:
    Fabricated().write(tmp_path / "runs" / "one", made_study())
    with (
        serving(tmp_path / "runs") as server,
        socket.create_connection(("127.0.0.1", server.port)) as looking,
    ):
        own = "".join(f"{name}: {value}\r\n" for name, value in server.own.items())
        looking.sendall(f"GET /events HTTP/1.1\r\n{own}\r\n".encode())
        assert b"event-stream" in looking.recv(2000)
        server.process.send_signal(signal.SIGINT)
        assert server.process.wait(20) == 0
