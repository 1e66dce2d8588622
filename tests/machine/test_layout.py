"""A timed process begins with memory that lies where chance has put it, and nothing else of it changes."""

import random
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch

import trainlab
from trainlab.machine.process_state import MOST_BLOCKS, SIZES_LOG2, random_layout

PAGE = 4096
BLOCKS = """
import gc, os, torch
def note_blocks():
    found = [one.nbytes() for one in gc.get_objects() if type(one) is torch.UntypedStorage]
    bytes_ = [one for one in found if type(one) is int]  # others are what torch's compiler keeps
    open({path!r}, "a").write(f"{{os.getpid()}} {{sum(bytes_)}}\\n")
_make = tiny.model
def noted(**options):
    note_blocks()
    return _make(**options)
import dataclasses
tiny = dataclasses.replace(tiny, model=noted)
"""


def test_what_is_made_inside_lies_elsewhere_each_time() -> None:
    places = set()
    for number in range(20):
        with random_layout(random.Random(number)):
            places.add(torch.empty(300).data_ptr() % PAGE)
    assert len(places) > 1


def test_random_numbers_are_those_without_it_and_no_memory_is_used() -> None:
    random.seed(1)
    torch.manual_seed(1)
    expected = random.random(), torch.rand(3).tolist()
    random.seed(1)
    torch.manual_seed(1)
    before = psutil.Process().memory_info().rss
    for number in range(20):
        with random_layout(random.Random(number)):
            assert (
                psutil.Process().memory_info().rss - before < 2 ** SIZES_LOG2[1] * MOST_BLOCKS / 3
            )
    assert (random.random(), torch.rand(3).tolist()) == expected


@pytest.mark.slow
def test_each_timed_process_has_a_layout_of_its_own(tiny_file: Path, tmp_path: Path) -> None:
    noted = tmp_path / "noted"
    tiny_file.write_text(tiny_file.read_text() + BLOCKS.format(path=str(noted)))
    asked: dict[str, Any] = {"processes": 2, "budget_s": 0.2, "warmup_steps": 1}
    trainlab.profile(f"{tiny_file}:tiny", out=tmp_path / "run", device="cpu", **asked)
    sums = [int(line.split()[1]) for line in noted.read_text().splitlines()]
    assert len({one for one in sums if one}) >= 2
