"""Turns that count all that happens in them: what happens now and then counts by how often it does."""

from itertools import product
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch

from trainlab.watching import script_cost
from trainlab.watching.script_cost import MeanTurns
from trainlab.watching.tracer import Tracer

STEP_MS, TEST_MS = 70.0, 175.0
NUM_TURNS = 40


def mean_ms(monkeypatch: pytest.MonkeyPatch, *, every: int, begun: int, workers: int) -> float:
    """Over turns of a script that tests itself after every so many updates, of which it has made some
    before the first turn."""
    now_s, steps = 0.0, begun
    monkeypatch.setattr(script_cost, "time", SimpleNamespace(perf_counter=lambda: now_s))
    monkeypatch.setattr(script_cost, "warm_ms", lambda _: STEP_MS)
    loader = SimpleNamespace(num_workers=workers)
    tracer: Any = SimpleNamespace(
        see=lambda level: None,
        was_restarted=False,
        device=torch.device("cpu"),
        log=SimpleNamespace(trained_loader=loader),
        num_updates=1,
    )
    turns = MeanTurns(cast(Tracer, tracer), 1, list, lambda **answer: None)
    means: list[float] = []
    for number in range(1, NUM_TURNS + 1):
        turn = turns._turn(number)
        while True:
            try:
                next(turn)
            except StopIteration as end:
                means.append(end.value[0])
                break
            now_s += (STEP_MS + (TEST_MS if steps % every == 0 else 0.0)) / 1e3
            steps += 1
    return sum(means) / len(means)


def test_a_test_counts_by_how_often_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    for every, (workers, within) in product((5, 20), ((0, 0.02), (1, 0.25))):
        for begun in range(every):
            found_ms = mean_ms(monkeypatch, every=every, begun=begun, workers=workers)
            assert found_ms - STEP_MS == pytest.approx(TEST_MS / every, rel=within)
