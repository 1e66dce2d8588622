"""What is guessed from the record of a watched script."""

from typing import Any

import pytest

from trainlab.analysis.diagnosis import (
    Hypothesis,
    asked_for,
    chosen,
    hypotheses_of,
    is_rare,
    left_out,
    update_parts_ms,
)
from trainlab.errors import SpecError
from trainlab.record.script_record import GrowingRow, OptimizerRow, StatementRow, WatchedRecord
from watched_runs import loader, watched

NUM_STEPS = 100
SOURCE = 'parser.add_argument("--batch-size", type=int, default=64)\n'


def seen(parts_ms: dict[str, float], evaluation_s: float = 0.0, **changes: Any) -> WatchedRecord:
    """Steps that take so long in each part, after slow first ones."""
    steps_ms = {n: [*[100.0] * 5, *[ms] * (NUM_STEPS - 5)] for n, ms in parts_ms.items()}
    fused = OptimizerRow(name="Adam", lr=0.1, code="fused", num_steps=NUM_STEPS)
    usual = {"threads": 2, "loaders": [loader(num_samples=6400)], "optimizers": [fused]}
    usual |= {"memory": [], "steps_ms": steps_ms, "evaluation_s": evaluation_s}
    return watched(**{**usual, **changes})


def first(record: WatchedRecord, cores: int = 2, source: str = SOURCE) -> Hypothesis:
    return hypotheses_of(record, cores=cores, source=source)[0]


def limits(record: WatchedRecord) -> dict[str, Hypothesis]:
    return {one.limit: one for one in hypotheses_of(record, cores=2, source=SOURCE)}


COMPUTE = {"forward": 2.0, "backward": 4.0, "optimizer": 0.5, "other": 0.1}


def test_parts_leave_out_the_first_steps_and_count_tests() -> None:
    record = seen(COMPUTE, evaluation_s=0.2)
    parts = update_parts_ms(record)
    assert parts["forward"] == pytest.approx(2.0)
    assert parts["evaluation"] == pytest.approx(2.0)
    assert parts["between"] == pytest.approx(0.1)

    # A record with too few updates gives nothing.
    record = seen(COMPUTE, steps_ms={"forward": [1.0, 1.0]})
    assert hypotheses_of(record, cores=2, source="") == ()


def test_a_search_for_anomalies_that_was_left_on_is_switched_off_to_show_it() -> None:
    found = first(seen(COMPUTE, checks_anomalies=True))
    assert (found.limit, found.changes) == ("anomaly_checks", ("no_anomaly_checks",))


def test_waiting_for_data_is_shown_by_the_same_batch_and_workers_are_the_remedy() -> None:
    found = first(seen(COMPUTE | {"data": 10.0}))
    assert (found.limit, found.changes, found.remedies) == ("data", ("same_batch",), ("workers=2",))
    assert found.share == pytest.approx(10 / 16.6)
    assert first(seen(COMPUTE | {"data": 10.0}), cores=1).remedies == ()


def test_an_optimizer_is_changed_where_it_is_not_fused_and_named_where_it_takes_much() -> None:
    slow = [OptimizerRow(name="AdamW", lr=0.1, code="loop", num_steps=1)]
    found = first(seen(COMPUTE | {"optimizer": 9.0}, optimizers=slow))
    assert (found.limit, found.changes, found.text) == ("optimizer", ("fused",), "AdamW")
    assert "optimizer" not in limits(seen(COMPUTE | {"optimizer": 1.0}))
    other = [OptimizerRow(name="Adadelta", lr=0.1, code="auto", num_steps=1)]
    found = first(seen(COMPUTE | {"optimizer": 9.0}, optimizers=other))
    assert found.changes == ()
    assert found.reason == "no_fused_code"
    found = first(seen(COMPUTE | {"optimizer": 5.0}))
    assert (found.limit, found.changes, found.reason) == ("optimizer", (), "is_fused")


def test_tests_are_cut_to_a_batch_or_their_statement_is_left_out() -> None:
    tested = loader(is_trained_on=False, num_batches=6)
    found = first(seen(COMPUTE, evaluation_s=2.0, loaders=[loader(), tested]))
    assert (found.limit, found.changes) == ("evaluation", ("evaluation=1",))
    rows = [
        StatementRow(line=9, text="main()", samples={"forward": 50, "evaluation": 50}),
        StatementRow(line=7, text="accuracy = test(model)", samples={"evaluation": 50}),
    ]
    found = first(seen(COMPUTE, evaluation_s=2.0, statements=rows))
    assert found.changes == ("without=7",)


def test_what_lies_between_steps_is_blamed_on_the_statement_seen_there_and_only_there() -> None:
    rows = [
        StatementRow(line=90, text="main()", samples={"forward": 40, "other": 60}),
        StatementRow(line=89, text="train()", samples={"backward": 2, "other": 60}),
        StatementRow(line=30, text="track(metrics)", samples={"other": 58}),
        StatementRow(line=12, text="count += 1", samples={"other": 20}),
        StatementRow(line=31, text="loss = f(x)", samples={"loss": 59}),
    ]
    samples = {"forward": 40, "other": 60}
    found = first(seen(COMPUTE | {"other": 8.0}, statements=rows, samples=samples))
    assert (found.limit, found.changes, found.line) == ("between", ("without=30",), 30)


def test_what_is_written_between_steps_is_logging_and_counts_by_the_mean_where_it_is_rare() -> None:
    always = seen(COMPUTE | {"other": 8.0}, samples={"logging": 95, "other": 5})
    found = first(always)
    assert (found.limit, found.changes) == ("logging", ("no_logging",))
    assert found.share == pytest.approx(0.95 * 8 / 14.5)
    assert not is_rare(always, "logging")
    # What is written between a model and its backward pass is no part of the loss.
    before = seen(COMPUTE | {"loss": 8.0}, samples={"logging_in_loss": 75, "loss": 25, "other": 9})
    parts = update_parts_ms(before)
    assert parts["logging"] == pytest.approx(6.0)
    assert parts["loss"] == pytest.approx(2.0)
    assert parts["between"] == pytest.approx(0.1)
    other = [800.0 if step % 100 == 50 else 0.1 for step in range(1, NUM_STEPS + 1)]
    steps_ms = always.steps_ms | {"other": other}
    assert is_rare(always.model_copy(update={"steps_ms": steps_ms}), "logging")


def test_a_small_batch_is_made_larger_by_the_scripts_own_argument() -> None:
    found = first(seen(COMPUTE, batch_size=2))
    assert (found.limit, found.changes) == ("batch_size", ("batch_size=16",))
    found = first(seen(COMPUTE, batch_size=2), source="")
    assert found.changes == ()
    assert found.reason == "no_argument"
    assert "batch_size" not in limits(seen(COMPUTE))


def test_threads_are_doubted_where_they_do_not_fit_the_cores() -> None:
    for threads, cores, changes in (
        (8, 2, ("threads=2", "threads=1")),
        (8, 1, ("threads=1",)),
        (1, 4, ("threads=4",)),
    ):
        found = first(seen(COMPUTE, threads=threads), cores=cores)
        assert (found.limit, found.changes) == ("threads", changes)
    assert "threads" not in limits(seen(COMPUTE, threads=2))


def test_memory_that_grows_is_blamed_on_the_container_with_the_largest_tensors() -> None:
    memory = [(step, 10**8 + 10**6 * step) for step in range(1, 100, 5)]
    growing = [
        GrowingRow(name="losses", tensor_bytes=4),
        GrowingRow(name="history", tensor_bytes=900_000),
    ]
    leak = limits(seen(COMPUTE, memory=memory, growing=growing))["memory"]
    assert (leak.changes, leak.text) == (("drop=history",), "history")
    assert leak.number == pytest.approx(1e6)
    assert limits(seen(COMPUTE, memory=memory))["memory"].reason


def test_the_most_promising_are_chosen_and_one_where_none_promises_anything() -> None:
    record = seen(COMPUTE | {"data": 10.0, "other": 5.0}, samples={"logging": 1}, batch_size=2)
    found = hypotheses_of(record, cores=2, source=SOURCE)
    assert [one.limit for one in chosen(found, 2)] == [one.limit for one in found[:2]]
    assert {one.limit for one in left_out(found, found[:1])} == {one.limit for one in found[1:]}
    # Another change than its own leaves a hypothesis as open as it was.
    for text, is_left in (("same_batch", False), ("workers=2", True)):
        limits_left = {one.limit for one in left_out(found, asked_for(found, [text]))}
        assert ("data" in limits_left) == is_left
    calm = hypotheses_of(seen(COMPUTE | {"data": 0.01}), cores=2, source=SOURCE)
    assert len(chosen(calm, 4)) == 1


def test_what_is_asked_for_by_name_is_tried() -> None:
    found = hypotheses_of(seen(COMPUTE | {"data": 10.0}), cores=2, source=SOURCE)
    (data,) = asked_for(found, ["data"])
    assert data.changes == ("same_batch",)
    (threads,) = asked_for(found, ["threads=1", "threads=2"])
    assert threads.changes == ("threads=1", "threads=2")
    (none,) = asked_for(found, ["memory"])
    assert none.reason
    for text, told in (
        ("speed", r"--try: got 'speed', must be one of data, .*same_batch"),
        ("dta", r"; did you mean data\?"),
        ("without=abc", "got 'without=abc', must have a whole number"),
        ("workers", "must have a value, as workers=1"),
    ):
        with pytest.raises(SpecError, match=told):
            asked_for(found, [text])
