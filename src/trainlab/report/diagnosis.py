"""A diagnosis in words: what limits the script, the proof, what to do; then all that was tried."""

from collections.abc import Iterator

from trainlab import __version__
from trainlab.analysis.document import (
    Block,
    Column,
    Document,
    Entry,
    Mark,
    Paragraph,
    Row,
    Section,
    Statement,
    Statements,
    Table,
)
from trainlab.analysis.finding import RunData
from trainlab.record.script_record import DiagnosisRecord, LimitRow, TriedRow
from trainlab.spec.script import change_parts
from trainlab.words import Words

COMPUTING = ("forward", "loss", "backward")
BUSY_CORES = 0.3
VERDICTS: dict[str, tuple[str, Mark]] = {
    "confirmed": ("limit_confirmed", "different"),
    "refuted": ("limit_refuted", "equivalent"),
    "cannot tell": ("limit_open", "cannot tell"),
    "not tried": ("limit_not_tried", "cannot tell"),
}


def diagnosis_document(record: DiagnosisRecord, words: Words) -> Document:
    """The diagnosis as a report of its own."""
    title = words("diagnosis_title", script=record.script)
    return Document(
        title=title,
        subtitle=diagnosis_subtitle(record, words),
        lang=words.lang,
        made_by=words("made_by", version=__version__),
        notices=(),
        sections=(Section("answer", words("answer"), tuple(diagnosis_blocks(record, words))),),
    )


def diagnosis_section(data: RunData, words: Words) -> Section | None:
    """What a report of the run begins with."""
    record = data.evidence.diagnosis
    if record is None:
        return None
    watched = Paragraph(
        words.tidy((diagnosis_subtitle(record, words) + words("full_stop")).rstrip())
    )
    return Section("answer", words("answer"), (watched, *diagnosis_blocks(record, words)))


def diagnosis_subtitle(record: DiagnosisRecord, words: Words) -> str:
    """What was watched."""
    return words(
        "diagnosis_subtitle",
        updates=record.num_updates,
        device=record.device,
        time=record.update_ms,
    )


def diagnosis_blocks(record: DiagnosisRecord, words: Words) -> Iterator[Block]:
    """The answer first."""
    yield Statements(tuple(map(Statement, answer_lines(record, words))), is_lead=True)
    if left := tuple(open_lines(record, words)):
        yield Statements(tuple(map(Statement, left)))
    yield parts_table(record, words)
    if record.limits:
        yield tried_table(record, words)
    if record.others_cores > BUSY_CORES:
        yield Paragraph(words("busy_then", others=record.others_cores))


def answer_lines(record: DiagnosisRecord, words: Words) -> Iterator[str]:
    """Each thing that limits the script, its proof and what to do; where nothing does, that."""
    confirmed = [row for row in record.limits if row.verdict == "confirmed"]
    for row in confirmed:
        best = min(row.proofs, key=lambda one: 1.0 if one.ratio is None else one.ratio)
        yield _limit_text(row, record, words)
        yield _proof_text(best, words)
        yield _remedy_text(row, best, words)
    if not confirmed:
        share = sum(record.parts_ms.get(name, 0.0) for name in COMPUTING) / record.update_ms
        is_open = any(row.verdict == "cannot tell" for row in record.limits)
        yield words("limits_nothing_shown" if is_open else "limits_compute", share=share)
        if any(row.verdict == "refuted" for row in record.limits) and not is_open:
            yield words("tried_nothing", gain=record.min_gain)


def open_lines(record: DiagnosisRecord, words: Words) -> Iterator[str]:
    """What could not be told, and what would tell it; what could not be tried, and why."""
    for row in record.limits:
        name, gap = words(f"limit_name_{row.limit}"), words.language.sentence_gap
        one = next((one for one in row.tried if not one.is_remedy), None)
        if one is None:
            continue
        if row.verdict == "not tried":
            reason = _reason_text(one.reason, words)
            yield words("not_tried_limit", limit=name, reason=reason)
        elif row.verdict == "cannot tell" and one.ratio and one.low and one.high:
            said = words(
                "open_limit",
                limit=name,
                change=words.capital(_change_text(one.change, words)),
                ratio=one.ratio,
                low=one.low,
                high=one.high,
            )
            needed = one.processes_needed
            then = words("open_quiet")
            if needed is not None and needed <= MOST_ADVISED:
                then = words("open_needed", processes=needed)
            yield said + gap + then
        elif row.verdict == "cannot tell" and one.growth_bytes is not None:
            before, after = one.growth_bytes
            change = words.capital(_change_text(one.change, words))
            yield words("open_memory", limit=name, change=change, before=before, after=after)


MOST_ADVISED = 30
"""More processes than this nobody will wait for."""


def _limit_text(row: LimitRow, record: DiagnosisRecord, words: Words) -> str:
    key = f"limits_{row.limit}"
    if row.limit in ("logging", "between", "memory") and not row.text:
        key += "_unknown"
    number = 0.0 if row.number is None else row.number
    return words(
        key, share=row.share, text=row.text, line=row.line, number=number, cores=record.cores
    )


def _proof_text(one: TriedRow, words: Words) -> str:
    change = _change_text(one.change, words)
    if one.growth_bytes is not None:
        before, after = one.growth_bytes
        return words(
            "proof_memory", change=change, before=before, after=after, processes=one.processes
        )
    key = "proof_sample" if one.change.startswith("batch_size") else "proof_update"
    return words(
        key, change=change, ratio=one.ratio, low=one.low, high=one.high, processes=one.processes
    )


def _remedy_text(row: LimitRow, best: TriedRow, words: Words) -> str:
    for one in row.tried:
        if one.is_remedy and one.verdict == "confirmed" and one.ratio and one.low and one.high:
            name, value = change_parts(one.change)
            speed, low, high = 1 / one.ratio, 1 / one.high, 1 / one.low
            return words(f"remedy_{name}", value=value, speed=speed, low=low, high=high)
    _, value = change_parts(best.change)
    return words(f"todo_{row.limit}", text=row.text, value=value)


REASONS = (
    *("no_time", "not_chosen", "few_looks", "no_difference", "no_fused_code", "no_statement"),
    *("no_argument", "few_samples", "no_container", "not_seen"),
)


def _reason_text(reason: str, words: Words) -> str:
    """In words; what a script raised is as it was."""
    return words(f"reason_{reason}") if reason in REASONS else reason.rstrip(".")


def _change_text(change: str, words: Words) -> str:
    name, value = change_parts(change)
    return words(f"change_{name}", value=value)


def parts_table(record: DiagnosisRecord, words: Words) -> Table:
    """The parts of an update, the largest first."""
    parts = sorted(record.parts_ms.items(), key=lambda part: -part[1])
    return Table(
        caption=words("parts_table"),
        columns=(
            Column(words("column_part")),
            Column(words("script_ms"), is_number=True),
            Column(words("column_share"), is_number=True),
        ),
        rows=tuple(
            Row(
                (
                    Entry(part_name(name, words)),
                    Entry(f"{ms:.3g}", ms),
                    Entry(f"{100 * ms / record.update_ms:.1f}%", ms / record.update_ms),
                )
            )
            for name, ms in parts
        ),
    )


def part_name(part: str, words: Words) -> str:
    """As the table of limits calls it, or as a part of a step."""
    named = ("data", "transfer", "optimizer", "evaluation", "logging", "between")
    return words(f"limit_name_{part}") if part in named else words.phase(part)


def tried_table(record: DiagnosisRecord, words: Words) -> Table:
    """A row per change."""
    headings = ("column_limit", "column_share", "column_change", "column_ratio")
    return Table(
        caption=words("tried_table"),
        columns=(
            *(Column(words(key), is_number=key == "column_ratio") for key in headings),
            Column(words("interval"), is_number=True),
            Column(words("column_verdict")),
        ),
        rows=tuple(_tried_row(row, one, words) for row in record.limits for one in row.tried),
        note=words("tried_note", gain=record.min_gain),
    )


def _tried_row(row: LimitRow, one: TriedRow, words: Words) -> Row:
    key, mark = VERDICTS[one.verdict]
    if one.is_remedy and one.verdict in ("confirmed", "refuted"):
        key = key.replace("limit", "remedy", 1)
    ratio, interval = "", ""
    if one.ratio is not None:
        ratio = f"{one.ratio:.2f}"
    if one.low is not None and one.high is not None:
        interval = f"{one.low:.2f} … {one.high:.2f}"
    if one.growth_bytes is not None:
        before, after = one.growth_bytes
        ratio = f"{after / 2**20:.2f} / {before / 2**20:.2f} MiB"
    return Row(
        (
            Entry(words(f"limit_name_{row.limit}")),
            Entry(f"{100 * row.share:.0f}%" if row.share else "", row.share),
            Entry(one.change),
            Entry(ratio, one.ratio),
            Entry(interval, one.low),
            Entry(words(key), mark=mark),
        )
    )
