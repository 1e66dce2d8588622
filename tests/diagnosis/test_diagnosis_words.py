"""A diagnosis in words, from its record alone."""

from itertools import product
from typing import Any

from diagnosed_runs import record_of
from trainlab.analysis.diagnosis import (
    answer_lines,
    decided_text,
    diagnosis_document,
    open_lines,
)
from trainlab.record.script_record import LimitName, LimitRow, TriedRow
from trainlab.report.markdown import markdown_of
from trainlab.spec.script import CHANGE_NAMES, WITH_VALUE
from trainlab.words import LANGUAGES, Words


def tried(
    change: str, ratio: float | None = 0.4, verdict: Any = "confirmed", **more: Any
) -> TriedRow:
    low, high = (None, None) if ratio is None else (0.95 * ratio, 1.05 * ratio)
    values = {"is_remedy": False, "ratio": ratio, "low": low, "high": high, "processes": 3}
    return TriedRow(change=change, verdict=verdict, **(values | more))


def row(limit: LimitName, *rows: TriedRow, **more: Any) -> LimitRow:
    values = {"share": 0.62, "potential": 0.62, "verdict": rows[0].verdict, "tried": list(rows)}
    return LimitRow(limit=limit, **(values | more))


def told(*rows: LimitRow) -> list[str]:
    return list(answer_lines(record_of(*rows), Words("en")))


def test_the_answer_names_the_limit_its_proof_and_the_remedy_that_worked() -> None:
    workers = tried("workers=2", 0.55, is_remedy=True)
    lines = told(row("data", tried("same_batch", 0.39), workers))
    assert lines[0] == "Waiting for data takes 62.0% of each update."
    assert lines[1].startswith("Proof: with the same batch again in place of the loader's next, an")
    assert "takes 0.390 times as long (95% CI 0.370 to 0.410; 3 processes each" in lines[1]
    assert lines[2].startswith("What to do: num_workers=2")
    assert "1.82 times as fast" in lines[2]
    # A remedy that did not work is not advised.
    workers = tried("workers=2", 1.2, "refuted", is_remedy=True)
    lines = told(row("data", tried("same_batch"), workers))
    assert lines[2].startswith("What to do: do less work per sample")
    assert lines[2].endswith("; num_workers=2 saved too little.")


DATA: dict[str, LimitRow] = {
    "confirmed": row("data", tried("same_batch")),
    "cannot tell": row("data", tried("same_batch", 0.9, "cannot tell")),
    "not tried": row("data", tried("same_batch", None, "not tried", reason="no_time")),
    "refuted": row("data", tried("same_batch", 0.99, "refuted")),
}
THREADS: dict[str, LimitRow] = {
    verdict: row("threads", tried("threads=1", ratio, verdict, reason=reason), share=0.0)
    for verdict, ratio, reason in [
        ("confirmed", 0.4, ""),
        ("cannot tell", 0.9, ""),
        ("not tried", None, "not_chosen"),
        ("refuted", 0.8, ""),
    ]
}
LEAKS: list[LimitRow] = [
    row("memory", tried("drop=kept", None, "refuted", growth_bytes=(2e6, 2e6))),
    row("memory", tried("", None, "not tried", reason="no_container")),
]


def test_the_models_computation_is_the_limit_only_where_all_was_tried_and_saves_too_little() -> (
    None
):
    """Every pair of verdicts, with memory that grows and without, in each language; parts of which most are
    the model's, and others."""
    mostly = {"forward": 6.0, "backward": 3.0, "data": 1.0}
    elsewhere = {"forward": 2.0, "data": 1.0, "optimizer": 7.0}
    for first, second in product(DATA, THREADS):
        for leak, parts in product(([], *([one] for one in LEAKS)), (mostly, elsewhere)):
            limits = [DATA[first], THREADS[second], *leak]
            record = record_of(*limits).model_copy(update={"parts_ms": parts})
            is_found, is_open = "confirmed" in (first, second), {first, second} != {"refuted"}
            surely, nothing, healthy, may = (
                any(text in line for line in answer_lines(record, Words("en")))
                for text in (
                    *("own computation limits it", "Nothing is shown to limit it"),
                    *("Nothing found that costs 10.0% or more", "may be:"),
                )
            )
            is_computing = parts is mostly and not is_open
            assert surely == (is_computing and not is_found)
            assert nothing == may == (is_open and not is_found)
            assert healthy == (not is_open and not is_found)
            chinese = "".join(answer_lines(record, Words("zh")))
            assert ("限制来自模型本身的计算" in chinese) == surely
            assert ("可能是：" in chinese) == may
    for limits in ([], LEAKS, [row("data", tried("", None, "not tried"), potential=0.0)]):
        (line,) = answer_lines(record_of(*limits), Words("en"))
        why = "It may be: the model's own computation (38.0% of the time)."
        assert line == f"Nothing is shown to limit it. {why}"


def test_what_may_limit_it_is_named_by_what_it_takes_and_with_what_would_tell() -> None:
    limits = THREADS["not tried"], DATA["not tried"]
    (line,) = told(*limits)
    data, own = "waiting for data (62.0%", "the model's own computation (38.0%"
    assert line.endswith(f"It may be: {data} of the time), {own} of the time), threads.")
    lines = list(open_lines(record_of(*limits), Words("en")))
    assert lines[0].startswith("Not tried: threads (threads=1). Reason: others were tried first;")
    assert lines[1].startswith(
        "Not tried: waiting for data (same_batch). Reason: it would have taken longer"
    )
    # What takes next to nothing limits nothing, nor what looks slower with the change.
    little = DATA["not tried"].model_copy(update={"potential": 0.003, "share": 0.003})
    slower = row("threads", tried("threads=2", 14.7, "cannot tell", low=None, high=None))
    for one in (little, slower):
        assert told(one)[0].endswith(f"It may be: {own} of the time).")
    # Less than counts for threads may be more than does for others.
    lines = told(THREADS["refuted"], DATA["refuted"])
    assert lines[0].endswith("saves less than that (batches 40%, threads 15%).")


def test_what_is_open_says_which_change_left_it_open_and_what_would_settle_it() -> None:
    def opened(*limits: LimitRow) -> str:
        (line,) = open_lines(record_of(*limits), Words("en"))
        return line

    both = tried("threads=2", 0.99, "refuted"), tried("threads=1", 0.9, "cannot tell")
    line = opened(row("threads", *both, verdict="cannot tell"))
    assert line.startswith(
        "Cannot tell: threads. With threads set to 1, an update takes 0.900 times"
    )
    assert line.endswith("more --processes may settle it.")
    line = opened(row("batch_size", tried("batch_size=16", 0.7, "cannot tell", processes_needed=9)))
    assert "With batches of 16, a sample takes" in line
    assert line.endswith(
        "about 9 processes of each would settle it: --processes 9, and a longer --budget."
    )
    lone = tried("same_batch", 0.3, "cannot tell", low=None, high=None, processes=1)
    assert "in a single process of each." in opened(row("data", lone))
    assert opened(LEAKS[0]).endswith("something else holds most of it.")
    not_tried = tried("", None, "not tried", reason="no_argument")
    why = "Reason: the script has no argument for it, as --batch-size."
    assert opened(row("batch_size", not_tried)) == f"Not tried: the batch size. {why}"


def test_a_change_that_was_asked_for_by_name_is_told_by_what_it_changed() -> None:
    """Without a hypothesis of its own, or beside that of another statement."""
    nowhere = {"share": 0.0, "potential": 0.0}
    assert told(row("logging", tried("no_logging"), **nowhere))[0].endswith(
        "without writing anything."
    )
    other = row("between", tried("without=7"), line=3, text="track()")
    assert told(other)[0] == "Much time is saved without line 7."
    assert told(row("threads", tried("threads=1")))[0].startswith("2 threads are the wrong number")
    lines = told(row("memory", LEAK, text="other"))
    assert lines[0] == "Memory grows by 1.91 MiB with every update: history keeps what it is given."


CHANGES: dict[LimitName, str] = {
    "data": "same_batch",
    "transfer": "pin_memory",
    "optimizer": "fused",
    "evaluation": "evaluation=1",
    "logging": "no_logging",
    "anomaly_checks": "no_anomaly_checks",
    "between": "without=3",
    "batch_size": "batch_size=16",
    "threads": "threads=1",
}
LEAK = tried("drop=history", None, growth_bytes=(2e6, 1e3))


def test_every_limit_and_every_change_has_its_words_in_every_language() -> None:
    for words in map(Words, LANGUAGES):
        rows: dict[LimitName, TriedRow] = {limit: tried(one) for limit, one in CHANGES.items()}
        for limit, one in {**rows, "memory": LEAK}.items():
            limits = record_of(row(limit, one, text="track()", line=3, number=2e6))
            assert len(list(answer_lines(limits, words))) == 3
            assert "train.py" in markdown_of(diagnosis_document(limits, words))
        for name in CHANGE_NAMES:
            assert words(f"change_{name}", value="7" if name in WITH_VALUE else "")


def test_what_is_decided_is_told_by_how_much_faster_it_is_and_how_well_that_is_known() -> None:
    wide = tried("same_batch", 0.5, low=0.25, high=0.8)
    told = decided_text("data", wide, Words("en"))
    assert told.endswith("it is 2.00 times as fast (95% CI 1.25 to 4.00).")
    assert "已证实" in decided_text("memory", LEAK, Words("zh"))
