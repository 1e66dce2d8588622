"""A script that was watched, as tables: its time by part, its median step, and what it was seen to use."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from trainlab.analysis.document import Entry, Table
from trainlab.analysis.finding import level_name
from trainlab.analysis.scripts import ScriptTimes
from trainlab.analysis.tables import EMPTY, Field, name, table_of, value
from trainlab.record.script_record import LoaderRow, ModelRow, OptimizerRow, WatchedRecord
from trainlab.spec.study import level_text
from trainlab.words import Words
from trainlab.words.numbers import figure, percent

MOST_COLUMNS = 4
"""Settings side by side; of more, each has a row of its own."""


@dataclass(frozen=True)
class Parts:
    """The parts of one setting, in seconds or milliseconds, and the whole that their shares are of."""

    cell: str
    values: Mapping[str, float]
    whole: float

    def entry(self, part: str) -> Entry:
        """`0.62 (2.1%)`."""
        if part not in self.values:
            return EMPTY
        own = self.values[part]
        share = own / self.whole if self.whole else 0.0
        return Entry(f"{figure(own)} ({percent(share)})", own)


def time_table(all_times: Sequence[ScriptTimes], words: Words) -> Table:
    """All time of the script by part; the parts add up."""
    rows = [Parts(t.cell, t.parts_s, sum(t.parts_s.values())) for t in all_times]
    several = any(len(times.runs) > 1 for times in all_times)
    cut = [words("script_cut_note") if any(times.cut for times in all_times) else ""]
    notes = [*cut, words("script_means") if several else "", words("script_table_note")]
    notes += [words("script_host_note")] if not all(t.is_on_cpu for t in all_times) else []
    notes.append(_first_process(all_times, words))
    return _part_table(words("script_table"), rows, "script_s", words, words.sentences(*notes))


def step_parts_table(all_times: Sequence[ScriptTimes], words: Words) -> Table | None:
    """A typical step by part; None where no script made two updates."""
    found = ((times.cell, times.step_parts_ms) for times in all_times)
    rows = [Parts(cell, parts, sum(parts.values())) for cell, parts in found if parts]
    if not rows:
        return None
    note = words("script_step_note")
    return _part_table(words("script_step_table"), rows, "script_ms", words, note)


def _part_table(caption: str, rows: Sequence[Parts], unit: str, words: Words, note: str) -> Table:
    parts = list(dict.fromkeys(part for row in rows for part in row.values))
    if len(rows) > MOST_COLUMNS:
        fields: list[Field[Parts]] = [name(words("cell"), lambda row: row.cell)]
        fields += [value(words.phase(part), partial(_of_row, part)) for part in parts]
        fields.append(value(words(unit), lambda row: row.whole))
        return table_of(caption, fields, rows, note, cell=lambda row: row.cell)
    by_part: list[Field[str | None]] = [name(words("script_part_heading"), partial(_part, words))]
    for row in rows:
        heading = words(unit) if len(rows) == 1 else f"{row.cell}{words('list_comma')}{words(unit)}"
        by_part.append(value(heading, partial(_of_part, row)))
    return table_of(caption, by_part, [*parts, None], note)


def _of_row(part: str, row: Parts) -> Entry:
    return row.entry(part)


def _part(words: Words, part: str | None) -> str:
    return words("script_whole") if part is None else words.phase(part)


def _of_part(row: Parts, part: str | None) -> Entry:
    return Entry(figure(row.whole), row.whole) if part is None else row.entry(part)


Seen = tuple[str, str, str]
"""What it is, what was seen of it, and in which settings."""


def seen_table(all_times: Sequence[ScriptTimes], words: Words) -> Table:
    """Loaders, models and optimizers; settings in which the same was seen stand together."""
    cells: dict[tuple[str, str], list[str]] = {}
    for times in all_times:
        for what in dict.fromkeys(row for run in times.runs for row in _counted(run, words)):
            cells.setdefault(what, []).append(times.cell)
    kinds = list(dict.fromkeys(kind for kind, _ in cells))
    rows: list[Seen] = [(kind, told, words.listed(of)) for (kind, told), of in cells.items()]
    rows.sort(key=lambda row: kinds.index(row[0]))
    fields: list[Field[Seen]] = [
        name(words("what"), lambda row: row[0]),
        name(words("seen"), lambda row: row[1]),
    ]
    if len(all_times) > 1:
        fields.append(name(words("seen_in"), lambda row: row[2]))
    note = words.sentences(words("seen_note"), _first_process(all_times, words))
    return table_of(words("seen_table"), fields, rows, note)


def _first_process(all_times: Sequence[ScriptTimes], words: Words) -> str:
    """Whose records they are, where torchrun started several processes."""
    number = max(times.num_processes for times in all_times)
    return words("script_first_process", number=number) if number > 1 else ""


def _counted(run: WatchedRecord, words: Words) -> Iterator[tuple[str, str]]:
    """Each once; with how many there were, where several are alike."""
    for (kind, told), number in Counter(seen_rows(run, words)).items():
        yield kind, told if number == 1 else words("seen_alike", number=number, told=told)


def seen_rows(run: WatchedRecord, words: Words) -> Iterator[tuple[str, str]]:
    """Each thing and what was seen of it."""
    for loader in run.loaders:
        key = "seen_training_loader" if loader.is_trained_on else "seen_other_loader"
        yield words(key), words.listed(_loader(loader, words))
    for model in run.models:
        yield words("seen_model"), words.listed(_model(model, words))
    for optimizer in run.optimizers:
        yield words("seen_optimizer"), words.listed(_optimizer(optimizer, words))
    updates = words("seen_updates", number=f"{run.num_steps:,}")
    threads = words.counted("one_thread", "num_threads", run.threads)
    yield words("seen_process"), words.listed([updates, threads])


def _loader(loader: LoaderRow, words: Words) -> Iterator[str]:
    if loader.batch_size is not None:
        yield words("batch_of", size=loader.batch_size)
    if loader.num_samples is not None:
        yield words("seen_samples", number=f"{loader.num_samples:,}")
    yield words.named("seen_order", loader.order.replace(" ", "_"))
    yield words.counted("one_worker", "num_workers", loader.num_workers)
    if loader.pin_memory:
        yield words("seen_pinned")
    if loader.drop_last:
        yield words("seen_drop_last")
    yield words.counted("one_pass", "num_passes", loader.num_passes)


def _model(model: ModelRow, words: Words) -> Iterator[str]:
    yield model.name
    yield words("seen_parameters", number=f"{model.num_parameters:,}")
    yield from model.dtypes
    yield from (level_name("device", device, words) for device in model.devices)
    if model.is_compiled:
        yield words("seen_compiled")


def _optimizer(optimizer: OptimizerRow, words: Words) -> Iterator[str]:
    yield optimizer.name
    if optimizer.lr is not None:
        yield words("seen_lr", lr=level_text(optimizer.lr))
    if optimizer.code != "auto":
        yield words("seen_code", code=optimizer.code)
    yield words("seen_updates", number=f"{optimizer.num_steps:,}")
