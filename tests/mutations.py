"""Damage to a run folder, drawn at random: by accident, or by somebody who knows how records are sealed."""

import hashlib
import json
import os
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from trainlab.record.files import write_json

ESCAPE = "\x1b[31mred\x9b2J\x07"
HOSTILE: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1, 2**31, 2**62, -(2**62), 0.0, -1.5, 1e-320, 1e308, -1e308),
    *("", " ", "x", "NaN", "1", "train", "running", "done", "pending", "cost", "learn"),
    *(ESCAPE, "[/b][bold]", "<script>alert(1)</script>", "](x) ![", "../../outside", "/outside/x"),
    *(
        "\ud800",
        "\u202egnp.exe",
        "\ufffe",
        "a\nb\rc\td",
        "=@SUM(A1)",
        "{x}",
        "%s",
        "好",
        "x" * 3000,
    ),
    *([], {}, [[]], [None], {"": None}, [1, "x", None], {"x": {"y": []}}, [0.5] * 50),
)
RAW = (
    "NaN",
    "-Infinity",
    "1e999",
    "9" * 400,
    "9" * 5000,
    "[" * 200 + "]" * 200,
    "[" * 100_000,
    "tru",
)
"""Not what JSON is, or more of it than anybody writes."""


class Mutations:
    """A run folder, damaged in one way after the other and put back in between."""

    def __init__(self, folder: Path, outside: Path, seed: int, names: str = "*.json*") -> None:
        self._folder, self._whole, self._outside = folder, folder.with_name("whole"), outside
        self._draw = random.Random(seed)
        shutil.copytree(folder, self._whole)
        self._files = sorted(path.relative_to(folder) for path in folder.rglob(names))
        self._ways: tuple[Callable[[Path], str], ...] = (
            *(self._flip_bits, self._cut, self._change_lines, self._replace, self._insert_raw),
            *([self._change_value] * 5),
        )

    def __iter__(self) -> Iterator[str]:
        """Says what was done; the folder is whole again with the next."""
        while True:
            path = self._folder / self._draw.choice(self._files)
            yield f"{path.relative_to(self._folder)}: {self._draw.choice(self._ways)(path)}"
            for damaged in {path, *path.parent.glob("trial.json")}:
                self._put_back(damaged)

    def _put_back(self, path: Path) -> None:
        if path.is_dir() and not path.is_symlink():
            path.rmdir()
        path.unlink(missing_ok=True)
        shutil.copyfile(self._whole / path.relative_to(self._folder), path)

    def _flip_bits(self, path: Path) -> str:
        content = bytearray(path.read_bytes())
        for _ in range(self._draw.choice((1, 1, 2, 20))):
            content[self._draw.randrange(len(content))] ^= 1 << self._draw.randrange(8)
        path.write_bytes(content)
        return "bits flipped"

    def _cut(self, path: Path) -> str:
        content = path.read_bytes()
        end = self._draw.choice((0, 1, len(content) - 1, self._draw.randrange(len(content))))
        path.write_bytes(content[:end])
        return f"cut at {end}"

    def _change_lines(self, path: Path) -> str:
        lines = path.read_bytes().splitlines(keepends=True)
        first, second = (self._draw.randrange(len(lines)) for _ in range(2))
        way = self._draw.choice(("removed", "doubled", "swapped"))
        if way == "removed":
            del lines[first]
        elif way == "doubled":
            lines.insert(second, lines[first])
        else:
            lines[first], lines[second] = lines[second], lines[first]
        path.write_bytes(b"".join(lines))
        return f"line {first} {way}"

    def _replace(self, path: Path) -> str:
        path.unlink()
        way = self._draw.choice(("removed", "folder", "pipe", "link", "loop", "link to zeros"))
        if way == "folder":
            path.mkdir()
        elif way == "pipe":
            os.mkfifo(path)
        elif way in ("link", "loop", "link to zeros"):
            target = {"link": self._outside / "secret", "loop": path}.get(way, Path("/dev/zero"))
            path.symlink_to(target)
        return way

    def _insert_raw(self, path: Path) -> str:
        text, raw = path.read_text(), self._draw.choice(RAW)
        places = [place for place, letter in enumerate(text) if letter == ":"]
        place = self._draw.choice(places) + 1
        path.write_text(f"{text[:place]} {raw}, {text[place:]}")
        return f"{raw[:20]} at {place}"

    def _change_value(self, path: Path) -> str:
        """With every digest as it should be, half of the time."""
        if path.suffix == ".jsonl":
            lines = path.read_text().splitlines()
            number = self._draw.randrange(len(lines))
            value = json.loads(lines[number])
            done = self._changed(value)
            lines[number] = json.dumps(value)
            path.write_text("\n".join(lines) + "\n")
        else:
            value = json.loads(path.read_text())
            done = self._changed(value)
            if self._draw.random() < 0.8:
                value.pop("sha256", None)
                write_json(path, value)
            else:
                path.write_text(json.dumps(value, indent=2))
        if path.name != "trial.json" and path.parent.parent.name == "trials":
            self._vouch_for(path)
        return done

    def _vouch_for(self, path: Path) -> None:
        record = json.loads((path.parent / "trial.json").read_text())
        record.pop("sha256", None)
        if path.name in record.get("files", {}):
            record["files"][path.name] = hashlib.sha256(path.read_bytes()).hexdigest()
            write_json(path.parent / "trial.json", record)

    def _changed(self, value: Any) -> str:
        """Changes something in it, however deep."""
        places = list(_places(value))
        inner, name = self._draw.choice(places)
        way = self._draw.random()
        hostile = self._draw.choice(HOSTILE)
        if way < 0.1:
            del inner[name]
            return f"{name} removed"
        if way < 0.2 and isinstance(inner, dict):
            inner[str(hostile)] = inner.pop(name)
            return f"{name} renamed to {hostile!r:.40}"
        inner[name] = hostile
        return f"{name} = {hostile!r:.40}"


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    names = list(value) if isinstance(value, dict) else range(len(value))
    for name in names:
        yield value, name
        if isinstance(value[name], dict | list):
            yield from _places(value[name])
