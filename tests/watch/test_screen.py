"""What a script prints passes through as if nobody watched it."""

import signal
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from terminal import PATIENCE_S, Terminal

SHOWN = """
import os, subprocess, sys
from pathlib import Path
from trainlab.watching.screen import Screen

screen = Screen(Path("record"))
given = "from trainlab.watching.screen import own_terminal; own_terminal(); exec(open('script.py').read())"
process = subprocess.Popen(
    [sys.executable, "-u", "-c", given], **screen.streams,
    process_group=None if screen.has_terminal else 0, start_new_session=screen.has_terminal,
)
screen.begin(process)
process.wait()
screen.close()
code = process.returncode
os._exit(128 - code if code < 0 else code)
"""
"""A program that runs script.py in the current folder and shows what it prints."""


def terminal_of(folder: Path, script: str, **size: int) -> "closing[Terminal]":
    """On which that program shows a script."""
    (folder / "script.py").write_text(script)
    return closing(Terminal(folder, sys.executable, "-c", SHOWN, **size))


def in_pipes(
    folder: Path, script: str, *, shown: bool, **given: object
) -> tuple[bytes, bytes, int]:
    """What a script prints, by itself or shown, and its exit code."""
    (folder / "script.py").write_text(script)
    command = [sys.executable, *(["-c", SHOWN] if shown else ["script.py"])]
    done = subprocess.run(command, cwd=folder, capture_output=True, check=False, **given)
    return done.stdout, done.stderr, done.returncode


def test_a_terminal_shows_bars_and_colours_and_knows_its_width(tmp_path: Path) -> None:
    script = (
        "import os, sys\n"
        "from tqdm import tqdm\n"
        "assert all(os.isatty(one) for one in range(3))\n"
        "for _ in tqdm(range(3)): pass\n"
        "print('\\033[31mred\\033[0m', os.get_terminal_size().columns)\n"
    )
    with terminal_of(tmp_path, script, columns=61) as terminal:
        assert terminal.end() == 0
    assert "100%|" in terminal.shown
    assert "\033[31mred\033[0m 61\r\n" in terminal.shown
    # In the record the lines end as the script has ended them.
    assert b"\033[31mred\033[0m 61\n" in (tmp_path / "record").read_bytes()


def test_a_question_is_answered_from_the_keyboard(tmp_path: Path) -> None:
    script = "print('hello', input('who? '))\nimport getpass\nprint(getpass.getpass('key? '))\n"
    with terminal_of(tmp_path, script) as terminal:
        terminal.until("who? ")
        assert (
            not terminal.has_echo()
        )  # each key goes on as it is, and the script's terminal shows it
        terminal.type("Ada\r")
        terminal.until("hello Ada")
        terminal.until("key? ")
        terminal.type("secret\r")
        assert terminal.end() == 0
        assert terminal.has_echo()
    assert terminal.shown.count("Ada") == 2
    assert terminal.shown.count("secret") == 1


def test_ctrl_c_comes_once_and_the_script_decides(tmp_path: Path) -> None:
    script = (
        "import signal, time\n"
        "caught = []\n"
        "def catch(*_): caught.append(1); print('caught', len(caught))\n"
        "signal.signal(signal.SIGINT, catch)\n"
        "print('ready')\n"
        "while len(caught) < 2: time.sleep(0.02)\n"
        "raise SystemExit(7)\n"
    )
    with terminal_of(tmp_path, script) as terminal:
        terminal.until("ready")
        terminal.type("\x03")
        terminal.until("caught 1")
        terminal.type("\x03")
        assert terminal.end() == 7
        assert terminal.has_echo()
    assert terminal.shown.count("caught") == 2


def test_ctrl_z_gives_the_shell_back_and_fg_goes_on(tmp_path: Path) -> None:
    script = "print('ready')\nprint('hello', input('who? '))\n"
    (tmp_path / "script.py").write_text(script)
    (tmp_path / "program.py").write_text(SHOWN)
    with closing(Terminal(tmp_path, "bash", "--norc", "-i")) as terminal:
        terminal.type(f"{sys.executable} program.py\r")
        terminal.until("who? ")
        terminal.type("\x1a")
        terminal.until("Stopped")
        terminal.type("echo $((6 * 7))\r")
        terminal.until("42\r\n")
        terminal.shown = terminal.shown.rpartition("42\r\n")[2]
        terminal.until("bash-")
        terminal.shown = ""
        terminal.type("fg\r")
        terminal.until("program.py\r\n")
        terminal.type("Ada\r")
        terminal.until("hello Ada")
        terminal.until("bash-")
        terminal.type("exit 5\r")
        assert terminal.end() == 5


def test_a_script_learns_that_the_window_has_another_size(tmp_path: Path) -> None:
    script = (
        "import os, signal\n"
        "signal.signal(signal.SIGWINCH, lambda *_: None)\n"
        "print('ready')\n"
        "signal.pause()\n"
        "print('now', os.get_terminal_size().columns)\n"
    )
    with terminal_of(tmp_path, script) as terminal:
        terminal.until("ready")
        terminal.resize(123)
        terminal.until("now 123")
        assert terminal.end() == 0


def test_what_goes_into_pipes_is_the_same_to_the_byte(tmp_path: Path) -> None:
    script = (
        "import os, sys\n"
        "print(os.isatty(1), sys.stdin.read())\n"
        "os.write(1, bytes(range(256)) * 1000)\n"
        "sys.stderr.write('bar\\r'); print('last, and no newline', end='')\n"
        "sys.exit(3)\n"
    )
    alone, shown = (in_pipes(tmp_path, script, shown=one, input=b"asked") for one in (False, True))
    assert shown == alone
    assert alone[2] == 3
    assert len((tmp_path / "record").read_bytes()) == len(alone[0]) + len(alone[1])


def test_one_file_for_both_streams_keeps_their_order(tmp_path: Path) -> None:
    lines = "for n in range(200): print(n, file=(sys.stdout, sys.stderr)[n % 2], flush=True)"
    script = f"import sys\n{lines}\n"
    (tmp_path / "script.py").write_text(script)
    done = subprocess.run(
        [sys.executable, "-c", SHOWN],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=True,
    )
    assert done.stdout.split() == [str(n).encode() for n in range(200)]
    assert (tmp_path / "record").read_bytes() == done.stdout


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGABRT])
def test_a_script_that_a_signal_ends_gives_its_code_and_the_terminal_back(
    tmp_path: Path, number: signal.Signals
) -> None:
    script = f"import os; print('going', flush=True); os.kill(os.getpid(), {int(number)})"
    with terminal_of(tmp_path, script) as terminal:
        assert terminal.end() == 128 + number
        assert terminal.has_echo()
    assert "going" in terminal.shown


def test_a_script_is_told_that_nobody_reads_its_output_any_more(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text("while True: print('more')\n")
    (tmp_path / "program.py").write_text(SHOWN)
    command = f"{sys.executable} program.py 2>errors | head -1"
    done = subprocess.run(
        ["sh", "-c", command], cwd=tmp_path, capture_output=True, check=False, timeout=PATIENCE_S
    )
    assert done.stdout == b"more\n"
    assert "BrokenPipeError" in (tmp_path / "errors").read_text()
