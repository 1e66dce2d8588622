"""Command lines, each in a fork of one process without torch: quick, and it shows who imports it."""

import contextlib
import json
import os
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Answer:
    """What came of a command line."""

    code: int
    stdout: str
    stderr: str
    imported_torch: bool


class Torchless:
    """The process; `ask` runs a command line in a folder."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "COLUMNS": "120", "TRAINLAB_OFFLINE": "1", "TRAINLAB_LANG": "en"},
        )

    def ask(self, words: list[str], folder: Path, **variables: str) -> Answer:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps([words, str(folder), variables]) + "\n")
        self._process.stdin.flush()
        return Answer(**json.loads(self._process.stdout.readline()))

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


def assert_told(answer: Answer, told: str) -> None:
    """One line with this text, exit code 2, nothing on standard output, and no torch."""
    lines = answer.stderr.splitlines()
    assert answer.code == 2, answer
    assert len(lines) == 1, answer.stderr
    assert lines[0].startswith("trainlab: ")
    assert told in lines[0], lines[0]
    assert answer.stdout == ""
    assert not answer.imported_torch


def assert_told_in_chinese(answer: Answer) -> None:
    """The same line in Chinese: one without a translation stays English as a whole."""
    lines = answer.stderr.splitlines()
    assert answer.code == 2, answer
    assert len(lines) == 1, answer.stderr
    assert re.search(r"[\u4e00-\u9fff]", lines[0]), lines[0]
    assert not re.search(r"\bgot |\bmust |did you mean|; ", lines[0]), lines[0]


def main() -> None:
    """Answers the command lines that come on standard input, a line of JSON for each."""
    import importlib

    from trainlab.cli import HOMES

    for home in HOMES.values():
        importlib.import_module(f"trainlab.cli.{home}")
    assert "torch" not in sys.modules
    for line in sys.stdin:
        words, folder, variables = json.loads(line)
        with tempfile.TemporaryFile("w+") as answer:
            child = os.fork()
            if not child:
                os.environ.update(variables)
                _answer(words, folder, answer.fileno())
            _, status = os.waitpid(child, 0)
            answer.seek(0)
            text = answer.read()
        died = {"code": -status, "stdout": "", "stderr": "", "imported_torch": True}
        sys.stdout.write((text or json.dumps(died)) + "\n")
        sys.stdout.flush()


def _answer(words: list[str], folder: str, answer: int) -> None:
    """In the child, which ends here."""
    from trainlab.cli import build

    os.chdir(folder)
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        os.dup2(out.fileno(), 1)
        os.dup2(err.fileno(), 2)
        code: object = None
        with contextlib.suppress(BaseException):
            try:
                build(words)(words)
            except SystemExit as ended:
                code = ended.code
        sys.stdout.flush()
        sys.stderr.flush()
        out.seek(0)
        err.seek(0)
        told = {
            "stdout": out.read(),
            "stderr": err.read(),
            "imported_torch": "torch" in sys.modules,
        }
    code = code if isinstance(code, int) else -1
    os.write(answer, json.dumps({"code": code, **told}).encode())
    os._exit(0)


if __name__ == "__main__":
    main()
