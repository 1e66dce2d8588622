"""What was learned, as tables: each cell's means, and every epoch."""

from collections.abc import Callable

from trainlab.analyse.evidence import Evidence, Line
from trainlab.analyse.findings.learning import compared_metrics
from trainlab.record.trial import TrialRecord
from trainlab.report.document import Entry, Table
from trainlab.report.tables.columns import MANY_ROWS, count, mean, name, number, table_of, value
from trainlab.stats.means import mean_of
from trainlab.words import Words
from trainlab.words.numbers import metric_value

EpochLine = tuple[TrialRecord, Line]


def learn_table(evidence: Evidence, words: Words) -> Table:
    """Each cell's means over seeds, with the 95 % interval of the mean."""

    def seeds(cell: str) -> Entry:
        states = [one.trial.state for one in evidence.learned[cell].values()]
        done = states.count("done")
        is_all = done == len(states)
        reads = str(done) if is_all else words("some_of", some=done, all=len(states))
        return Entry(reads, float(done))

    def mean_at_the_end(metric: str) -> Callable[[str], Entry]:
        return lambda cell: mean(metric, mean_of([*evidence.values(cell, metric).values()]), words)

    def seconds(cell: str) -> float | None:
        lines = [line for one in evidence.learned[cell].values() for line in one.epochs]
        return sum(float(line["train_s"]) for line in lines) / len(lines) if lines else None

    return table_of(
        words("learn_table"),
        [
            name(words("cell"), str),
            value(words("seeds"), seeds),
            *(value(metric, mean_at_the_end(metric)) for metric in compared_metrics(evidence)),
            value(words("epoch_s_training"), seconds),
        ],
        [cell.id for cell in evidence.cells if evidence.learned.get(cell.id)],
        words("learn_table_note"),
        cell=str,
        num_shown=MANY_ROWS,
        is_sortable=True,
    )


def epoch_table(evidence: Evidence, words: Words) -> Table | None:
    """Every epoch of every learn trial; None where none has come so far."""
    learned = [one for seeds in evidence.learned.values() for one in seeds.values()]
    lines: list[EpochLine] = [(one.trial, line) for one in learned for line in one.epochs]
    if not lines:
        return None

    def metric(key: str) -> Callable[[EpochLine], Entry]:
        return lambda at: Entry(metric_value(key, at[1][key]), at[1][key])

    def seconds(key: str) -> Callable[[EpochLine], Entry]:
        return lambda at: number(at[1][key], f"{at[1][key]:.2f}")

    return table_of(
        f"{evidence.name}: {_settings(evidence, words)}",
        [
            value(words("seed"), lambda at: count(at[0].seed)),
            value(words("epoch"), lambda at: count(at[1]["epoch"])),
            *(value(key.replace("/", " "), metric(key)) for key in lines[0][1] if "/" in key),
            value(words("train_s"), seconds("train_s")),
            value(words("test_s"), seconds("test_s")),
        ],
        lines,
    )


def _settings(evidence: Evidence, words: Words) -> str:
    """What a lone cell was trained with, in short."""
    trial = next(trial for trial in evidence.trials if trial.kind == "learn")
    used, asked = trial.resolved, trial.settings
    parts = [
        str(used.get("device_name", asked["device"])),
        words("batch_of", size=asked["batch_size"]),
        f"{asked['optimizer']} lr {used.get('lr', asked['lr'])}",
        asked["precision"],
        *(f"{key}={given}" for key, given in asked["model"].items()),
        *([] if asked["zero_grad"] else [words("never_reset")]),
    ]
    return words.listed(parts)
