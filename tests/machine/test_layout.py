"""A timed process begins with memory that lies where chance has put it, and nothing else of it changes."""

import random
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
import torch

import trainlab
from trainlab.lab.driving import drive
from trainlab.lab.script_study import script_study
from trainlab.machine.process_state import MOST_BLOCKS, SIZES_LOG2, random_layout
from trainlab.spec import CostSpec

PAGE = 4096
BLOCKS = """
import gc, os, torch
def note_blocks():
    found = [one.nbytes() for one in gc.get_objects() if type(one) is torch.UntypedStorage]
    bytes_ = [one for one in found if type(one) is int]  # others are what torch's compiler keeps
    open({path!r}, "a").write(f"{{os.getpid()}} {{sum(bytes_)}}\\n")
"""
SCRIPT = """
note_blocks()
model = torch.nn.Linear(3, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(10_000):
    model(torch.ones(2, 3)).sum().backward()
    optimizer.step()
"""
OF_MODEL = """
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


@pytest.mark.parametrize("kind", ["workload", "script"])
@pytest.mark.slow
def test_each_timed_process_has_a_layout_of_its_own(
    kind: str, tiny_file: Path, tmp_path: Path
) -> None:
    noted = tmp_path / "noted"
    blocks = BLOCKS.format(path=str(noted))
    cost = CostSpec(processes=2, budget_s=0.2, warmup_steps=1, extra_s=0.0)
    ways: dict[str, Callable[[], object]] = {
        "script": lambda: drive(
            script_study(tmp_path / "train.py", (), cost=cost, learn=False), out=tmp_path / "run"
        ),
        "workload": lambda: trainlab.profile(
            f"{tiny_file}:tiny",
            out=tmp_path / "run",
            device="cpu",
            **cost.model_dump(exclude_unset=True),
        ),
    }
    (tmp_path / "train.py").write_text(blocks + SCRIPT)
    tiny_file.write_text(tiny_file.read_text() + blocks + OF_MODEL)
    ways[kind]()
    sums = [int(line.split()[1]) for line in noted.read_text().splitlines()]
    assert len({one for one in sums if one}) >= 2
