"""Batches gathered ahead are the batches that would be gathered in their step."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from training import MakeSetup, train
from trainlab.train.batches.blocks import MOST_BYTES, Blocks, batches_of_block
from trainlab.train.batches.streaming import AHEAD, Stream
from trainlab.train.moments import Moments, Progress

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


def test_an_epoch_that_is_given_up_leaves_no_thread_behind() -> None:
    pieces = torch.arange(1000).split(10)
    stream = Stream(stored(1000), pieces, CPU)
    stream.take()
    stream.close()
    assert not stream._thread.is_alive()


def test_no_more_is_gathered_than_is_soon_needed() -> None:
    stream = Stream(stored(1000), torch.arange(1000).split(10), CPU)
    stream.take()
    assert stream._ready.maxsize == AHEAD
    stream.close()


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


def test_rows_that_were_not_announced_are_gathered_on_the_spot(make_setup: MakeSetup) -> None:
    batches = make_setup().split_batches
    batches.resident = False
    announced = batches.rows(torch.arange(batches.num_samples))
    other = torch.tensor([5, 3])
    assert torch.equal(batches.gather(other)[1], batches.gather(torch.tensor([5, 3]))[1])
    assert len(batches.gather(announced[0])[0]) == len(announced[0])


def test_small_batches_of_a_training_that_is_recorded_are_gathered_in_blocks(
    make_setup: MakeSetup,
) -> None:
    batches = make_setup(batch_size=3).split_batches
    alone = [batches.gather(rows) for rows in batches.epoch(1, 2)]
    pieces = batches.epoch(1, 2)
    first = batches.gather(pieces[0])
    batches.gather_in_blocks(True)  # amid an epoch
    together = [first, *[batches.gather(rows) for rows in pieces[1:]]]
    assert isinstance(batches._ahead, Blocks)
    assert len(alone) == len(together) == len(batches)
    assert all(all(map(torch.equal, *both)) for both in zip(alone, together, strict=True))
    places = {one.data_ptr() for batch in together for one in batch}
    assert len(places) == 2 * len(together)  # nothing is given twice
    for one in together[5]:
        assert not one._is_view()
    before = together[6][0]._version
    together[5][0].add_(torch.ones((), requires_grad=True))  # as a model may that learns an offset
    assert together[6][0]._version == before
    # Rows that come out of turn are gathered by themselves, and the next epoch anew.
    assert torch.equal(batches.gather(pieces[0])[0], alone[0][0])
    again = batches.epoch(1, 3)
    batches.gather(again[0])
    assert batches._ahead.has(again[1])
    assert torch.equal(batches.gather(torch.tensor([4]))[1], batches._targets[4:5])
    batches.gather_in_blocks(False)
    batches.gather(again[1])
    assert batches._ahead is None


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 300), st.integers(1, 70), st.integers(1, 3000))
def test_a_block_is_small_and_the_last_batch_too(num_rows: int, size: int, width: int) -> None:
    kept = torch.arange(num_rows * width).view(num_rows, width), torch.arange(num_rows)
    pieces = torch.randperm(num_rows).split(size)
    blocks = Blocks(kept, pieces)
    num_batches = batches_of_block(kept, pieces)
    assert num_batches == 1 or num_batches * min(size, num_rows) * (width + 1) * 8 <= MOST_BYTES
    for rows in pieces:
        assert blocks.has(rows)
        assert all(map(torch.equal, blocks.take(), (one[rows] for one in kept)))
    assert not blocks.has(pieces[0])
