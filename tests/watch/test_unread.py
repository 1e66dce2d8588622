"""Numbers on a device are read together, and are what they were when they were told.

The tensors here are on the CPU: what is read and what is copied does not depend on the device.
"""

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from trainlab.watching.seeing.unread import TRUSTED_AFTER, Unread


def numbers(count: int, first: int = 0) -> list[Tensor]:
    return [torch.tensor(float(first + place)) for place in range(count)]


def told(unread: Unread, values: list[Tensor]) -> None:
    for place, value in enumerate(values):
        unread.add(place, value)


def trusting() -> Unread:
    """One that has seen a script leave its losses alone."""
    unread = Unread()
    told(unread, numbers(TRUSTED_AFTER))
    unread.read()
    return unread


def test_values_come_back_with_their_places() -> None:
    unread = Unread()
    told(unread, numbers(3, 5))
    assert len(unread.waiting) == 3
    assert unread.read() == [(0, 5.0), (1, 6.0), (2, 7.0)]
    assert unread.read() == []


def test_numbers_of_several_kinds_are_read() -> None:
    unread = Unread()
    told(unread, [torch.tensor(0.5), torch.tensor([2.0]), torch.tensor(0.1, dtype=torch.float64)])
    assert dict(unread.read()) == {0: 0.5, 1: 2.0, 2: 0.1}


def test_at_first_what_a_script_writes_to_its_loss_later_changes_nothing() -> None:
    unread, values = Unread(), numbers(TRUSTED_AFTER)
    told(unread, values)
    for value in values:
        value.mul_(100)
    assert dict(unread.read()) == {place: float(place) for place in range(TRUSTED_AFTER)}
    # Such a script is never trusted.
    for _ in range(5):
        values = numbers(TRUSTED_AFTER)
        told(unread, values)
        values[0].mul_(100)
        values[-1].fill_(7)
        assert dict(unread.read())[TRUSTED_AFTER - 1] == TRUSTED_AFTER - 1


def test_a_script_that_leaves_its_losses_alone_makes_no_copies() -> None:
    unread, values = trusting(), numbers(3)
    told(unread, values)
    held = [value for _, value, _, _ in unread.waiting]
    assert [one.data_ptr() for one in held] == [one.data_ptr() for one in values]
    assert dict(unread.read()) == {0: 0.0, 1: 1.0, 2: 2.0}


def test_what_is_written_to_after_all_is_unknown_once_and_copied_from_then_on() -> None:
    unread, values = trusting(), numbers(3, 10)
    told(unread, values)
    values[1].mul_(100)
    found = dict(unread.read())
    assert math.isnan(found.pop(1))
    assert found == {0: 10.0, 2: 12.0}
    values = numbers(3, 10)
    told(unread, values)
    values[1].mul_(100)
    assert dict(unread.read()) == {0: 10.0, 1: 11.0, 2: 12.0}


def test_one_place_that_every_step_writes_to_is_copied() -> None:
    """As a captured graph does: the memory is the same, and no version tells of it."""
    unread, place = Unread(), torch.zeros(())
    for step in range(3 * TRUSTED_AFTER):
        place.data.fill_(step)
        unread.add(step, place.data)
        if step % 7 == 6:
            assert [value for _, value in unread.read()] == [*range(step - 6, step + 1)]


def test_a_part_of_something_larger_is_copied_and_not_held_on_to() -> None:
    unread, larger = trusting(), torch.arange(1000.0)
    unread.add(0, larger[3])
    assert unread.waiting[0][1].untyped_storage().nbytes() == 4
    larger.zero_()
    assert unread.read() == [(0, 3.0)]


def test_numbers_of_several_kinds_and_shapes_are_read_at_once_or_one_by_one() -> None:
    unread = trusting()
    alike = torch.tensor(0.1), torch.tensor(0.1, dtype=torch.float64), torch.tensor(0.5).bfloat16()
    told(unread, alike)
    assert [value for _, value in unread.read()] == [one.item() for one in alike]
    others = torch.tensor([0.25]), torch.tensor(1j), torch.tensor(3.0), torch.tensor([[7.0]]).half()
    told(unread, others)
    values = [value for _, value in unread.read()]
    assert math.isnan(values.pop(1))
    assert values == [0.25, 3.0, 7.0]


@pytest.mark.parametrize("write", [lambda one: one.data.mul_(5), lambda one: one.numpy().fill(7)])
def test_a_script_whose_writes_no_version_tells_of_is_never_trusted(
    write: Callable[[Tensor], object],
) -> None:
    unread = Unread()
    for step in range(3 * TRUSTED_AFTER):
        one = torch.tensor(2.0) * 1
        unread.add(step, one)
        write(one)
        if step % 9 == 8:
            assert {value for _, value in unread.read()} == {2.0}


def test_where_processes_train_together_losses_are_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.distributed.is_initialized", lambda: True)
    unread = Unread()
    for step in range(3 * TRUSTED_AFTER):
        one = torch.tensor(2.0) * 1
        unread.add(step, one)
        if step > 2 * TRUSTED_AFTER:
            one.data.mul_(3)  # as `all_reduce(loss.detach())`, now and then
        if step % 9 == 8:
            assert {value for _, value in unread.read()} == {2.0}


def test_what_has_no_memory_has_no_value_and_nothing_else_is_lost() -> None:
    unread = trusting()
    told(unread, [torch.tensor(1.0), torch.tensor(2.0, device="meta"), torch.tensor(3.0)])
    first, second, third = (value for _, value in unread.read())
    assert (first, third) == (1.0, 3.0)
    assert math.isnan(second)
