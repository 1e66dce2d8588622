"""Batches gathered ahead are the batches that would be gathered in their step."""

import pytest
import torch

from training import MakeSetup, train
from trainlab.train.batches import AHEAD, Stream
from trainlab.train.callbacks import Moments, Progress

CPU = torch.device("cpu")


def stored(count: int) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.arange(4 * count, dtype=torch.float32).view(count, 4), torch.arange(count)


def test_every_batch_comes_once_and_in_order() -> None:
    data, pieces = stored(103), torch.randperm(103).split(10)
    stream = Stream(data, pieces, CPU)
    for rows in pieces:
        assert stream.has(rows)
        inputs, targets = stream.take()
        assert torch.equal(targets, rows)
        assert torch.equal(inputs, data[0][rows])
    assert not stream.has(pieces[0])


def test_no_more_is_gathered_than_is_soon_needed_and_an_epoch_can_be_given_up() -> None:
    stream = Stream(stored(1000), torch.arange(1000).split(10), CPU)
    stream.take()
    assert len(stream._coming) == AHEAD
    stream.close()
    (thread,) = stream._thread._threads
    assert not thread.is_alive()


def test_a_fault_while_gathering_is_raised_where_the_batch_is_waited_for() -> None:
    stream = Stream(stored(5), [torch.tensor([99])], CPU)
    with pytest.raises(IndexError):
        stream.take()


def test_streamed_data_gives_the_same_losses(make_setup: MakeSetup) -> None:
    finals = []
    for resident in (True, False):
        setup = make_setup(epochs=3)
        batches = setup.train_batches
        batches.resident = resident
        progress = Progress()
        train(setup, Moments([]), progress)
        finals.append(progress.final)
        assert (batches._ahead is None) is resident
    assert finals[0] == finals[1]
