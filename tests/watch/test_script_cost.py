"""What a timed script's record says of its updates and epochs: samples are those that were trained on."""

import statistics
import time
from collections.abc import Iterator

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, RandomSampler, TensorDataset

from trainlab.analysis.measurement import epoch_s_of
from trainlab.record.cost_record import CostRecord
from trainlab.watching.script_cost import Turns
from trainlab.watching.tracer import EndOfWatch, Tracer
from trainlab.watching.watched_run import facts_of

DATA = TensorDataset(torch.rand(50, 3), torch.rand(50, 1))


def timed(
    loader: "DataLoader[tuple[torch.Tensor, ...]]", per_update: int = 1, first_s: float = 0.0
) -> tuple[CostRecord, dict[str, object]]:
    """The record of a loop that makes an update of so many batches, the first of which takes longer, and
    its facts."""
    commands: Iterator[list[str]] = iter([["turn", "1"], ["finish", "bench"]])
    tracer = Tracer()
    turns = Turns(tracer, 1, lambda: next(commands), lambda **answer: None)
    protocol, records = turns.protocol(), list[CostRecord]()

    def step_ended(step: int) -> None:
        try:
            next(protocol)
        except StopIteration as end:
            records.append(end.value)
            raise EndOfWatch from None

    tracer.on_step = step_ended
    model = nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    try:
        while True:
            for number, (inputs, targets) in enumerate(loader, 1):
                time.sleep(first_s)
                first_s = 0.0
                nn.functional.mse_loss(model(inputs), targets).backward()
                if number % per_update == 0:
                    optimizer.step()
                    optimizer.zero_grad()
    except EndOfWatch:
        tracer.close()
    return records[0], facts_of(tracer)


def test_samples_are_those_that_an_update_and_an_epoch_train_on() -> None:
    few = RandomSampler(DATA, replacement=True, num_samples=16)
    for loader, accumulate, told in (
        (DataLoader(DATA, batch_size=8), None, (8, 50, 7)),
        (DataLoader(DATA, batch_size=5), 2, (10, 50, 5)),
        (DataLoader(DATA, batch_size=8, drop_last=True), None, (8, 48, 6)),
        (DataLoader(DATA, batch_size=8, sampler=few), None, (8, 16, 2)),
    ):
        record, facts = timed(loader, accumulate or 1)
        assert (record.batch_size, record.num_samples, record.steps_per_epoch) == told
        assert epoch_s_of(record, 7.0) == pytest.approx(told[1] / told[0] * 0.007)
        assert facts["batch_size"] == loader.batch_size
        assert facts.get("accumulate") == accumulate


def test_the_first_step_of_the_process_is_the_first_of_the_warm_up() -> None:
    record, _ = timed(DataLoader(DATA, batch_size=8), first_s=0.2)
    assert record.warmup_ms[0] > 200 > statistics.median(record.step_ms)
