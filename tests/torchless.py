"""Command lines in one process without torch: quick, and it shows when one of them imports it."""

import json
import os
import re
import subprocess
import sys
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

    def refusal(self, words: list[str], told: str, folder: Path) -> None:
        """Asserts that a command line is refused without torch in one line with this text, and in Chinese:
        a line of which a part has no translation stays English as a whole."""
        answer = self.ask(words, folder)
        assert (answer.code, answer.stdout, answer.imported_torch) == (2, "", False), (
            words,
            answer,
        )
        assert len(answer.stderr.splitlines()) == 1, (words, answer.stderr)
        assert answer.stderr.startswith("trainlab: "), words
        assert told in answer.stderr, (words, answer.stderr)
        chinese = self.ask(words, folder, TRAINLAB_LANG="zh")
        assert (chinese.code, len(chinese.stderr.splitlines())) == (2, 1), (words, chinese)
        assert re.search(r"[\u4e00-\u9fff]", chinese.stderr), (words, chinese.stderr)
        assert not re.search(r"\bgot |\bmust |did you mean|; ", chinese.stderr), chinese.stderr

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


def main() -> None:
    """Answers the command lines that come on standard input, a line of JSON for each."""
    from command import called
    from trainlab.cli import VERBS, verb_called

    for verb in VERBS:
        verb_called(verb)
    assert "torch" not in sys.modules
    own = dict(os.environ)
    # A script that is watched has our standard streams.
    asked, answered = os.fdopen(os.dup(0)), os.fdopen(os.dup(1), "w")
    with Path(os.devnull).open() as nothing:
        os.dup2(nothing.fileno(), 0)
    os.dup2(2, 1)
    for line in asked:
        words, folder, variables = json.loads(line)
        os.chdir(folder)
        os.environ.clear()
        os.environ.update(own | variables)
        done = called(*words)
        os.chdir("/")  # the folder may be removed
        answer = {"code": done.code or 0, "stdout": done.stdout, "stderr": done.stderr}
        answered.write(json.dumps({**answer, "imported_torch": "torch" in sys.modules}) + "\n")
        answered.flush()


if __name__ == "__main__":
    main()
