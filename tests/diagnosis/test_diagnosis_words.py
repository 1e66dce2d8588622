"""A diagnosis in words, from its record alone."""

from typing import Any

from diagnosed_runs import record_of
from trainlab.analysis.diagnosis import answer_lines, diagnosis_document, open_lines
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


def test_the_models_arithmetic_is_the_limit_where_all_is_refuted_and_nothing_is_open() -> None:
    lines = told(row("data", tried("same_batch", 0.99, "refuted")))
    assert "forward pass, loss and backward pass take 38.0%" in lines[0]
    assert lines[1] == "Nothing that was tried saves 10.0% of the time."
    open_row = row("data", tried("same_batch", 0.85, "cannot tell", processes_needed=9))
    assert told(open_row)[0].startswith("Nothing was shown to limit it")
    (line,) = open_lines(record_of(open_row), Words("en"))
    assert line.startswith("Cannot tell: waiting for data. With the same batch")
    assert line.endswith("--processes 9.")


def test_what_could_not_be_tried_says_why() -> None:
    not_tried = tried("", None, "not tried", reason="no_argument")
    (line,) = open_lines(record_of(row("batch_size", not_tried)), Words("en"))
    why = "Reason: the script has no argument for it, as --batch-size."
    assert line == f"Could not be tried: the batch size. {why}"


CHANGES: dict[LimitName, str] = {
    "data": "same_batch",
    "transfer": "pin_memory",
    "optimizer": "fused",
    "evaluation": "evaluation=1",
    "logging": "no_logging",
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
