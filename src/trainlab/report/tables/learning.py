"""What was learned, as tables: each cell's means, and every epoch."""

import statistics
from collections.abc import Callable, Mapping
from typing import Any

from trainlab.analysis.document import Entry, Table
from trainlab.analysis.evidence import ENDED_WELL, Evidence
from trainlab.analysis.metrics import in_order, limits_of
from trainlab.analysis.scripts import command_text, seen_texts
from trainlab.analysis.tables import EMPTY, count, mean, name, number, table_of, value
from trainlab.analysis.trial_records import LearnedTrial, Line
from trainlab.record.trial_record import TrialRecord
from trainlab.spec import TrainSpec
from trainlab.stats.means import mean_of
from trainlab.words import Words
from trainlab.words.numbers import metric_value

EpochRow = tuple[TrialRecord, Line]


def learn_table(evidence: Evidence, words: Words) -> Table:
    """Each cell's means over seeds, with the 95% interval of the mean."""

    def seeds(cell: str) -> Entry:
        states = [learned.trial.state for learned in evidence.learned[cell].values()]
        done, total = states.count("done"), len(states)
        text = str(done) if done == total else words("some_of", some=done, all=total)
        return Entry(text, float(done))

    def final_mean(metric: str) -> Callable[[str], Entry]:
        def entry(cell: str) -> Entry:
            values = [*evidence.values(cell, metric).values()]
            return mean(metric, mean_of(values, limits_of(metric, values)), missing(cell))

        return entry

    def missing(cell: str) -> str:
        """Why a cell has no value: all diverged, or none ended well."""
        states = {learned.trial.state for learned in evidence.learned[cell].values()}
        if states & {*ENDED_WELL}:
            return words("none_finite")
        return words.listed(words.named("state", state) for state in sorted(states))

    def ended_well(cell: str) -> list[LearnedTrial]:
        """Those that were cut short have not taken all of the time."""
        return [one for one in evidence.learned[cell].values() if one.trial.state in ENDED_WELL]

    def seconds(cell: str) -> float | None:
        times_s = [one.epoch_s() for one in ended_well(cell)]
        known_s = [time_s for time_s in times_s if time_s is not None]
        return statistics.median(known_s) if known_s else None

    def total(cell: str) -> float | None:
        times_s = [one.trial.total_s for one in ended_well(cell)]
        known_s = [time_s for time_s in times_s if time_s is not None]
        return statistics.median(known_s) if known_s else None

    return table_of(
        words("learn_table"),
        [
            name(words("cell"), str),
            value(words("seeds"), seeds),
            *(
                value(words.metric(metric), final_mean(metric))
                for metric in in_order(evidence.metrics)
            ),
            value(words("epoch_s_training"), seconds),
            value(words("total_s_training"), total),
        ],
        [cell.id for cell in evidence.cells if evidence.learned.get(cell.id)],
        words.sentences(
            words("learn_table_note"),
            _beside_text(evidence, words),
            _best_text(evidence, words),
            words("learn_table_script") if evidence.study.script is not None else "",
            _engine_text(evidence, words),
        ),
        cell=str,
        is_sortable=True,
    )


def _beside_text(evidence: Evidence, words: Words) -> str:
    """Why the seconds are not those of a script or workload that runs alone."""
    if evidence.measured:
        return words("learn_table_beside_cost")
    return words("learn_table_beside") if len(evidence.trials) > 1 else ""


def _best_text(evidence: Evidence, words: Words) -> str:
    """Which epoch the values are of, where that is not the last."""
    keeps = any(cell.settings.keep_best for cell in evidence.cells)
    return words("learn_table_best") if keeps else ""


def epoch_table(evidence: Evidence, words: Words) -> Table | None:
    """Every epoch of every learn trial; None where no trial has ended an epoch."""
    rows: list[EpochRow] = [
        (learned.trial, line)
        for seeds in evidence.learned.values()
        for learned in seeds.values()
        for line in learned.epochs
    ]
    if not rows:
        return None

    keys = dict.fromkeys(key for _, line in rows for key in line if "/" in key)

    def metric(key: str) -> Callable[[EpochRow], Entry]:
        def entry(row: EpochRow) -> Entry:
            if key not in row[1]:
                return EMPTY  # a script tells a metric when it likes
            known = row[1][key]
            if known is None:
                return Entry(words("none_finite"))
            return Entry(metric_value(key, known), known)

        return entry

    def seconds(key: str) -> Callable[[EpochRow], Entry]:
        return lambda row: number(row[1][key], f"{row[1][key]:.2f}")

    return table_of(
        f"{evidence.name}: {_settings(evidence, words)}",
        [
            value(words("seed"), lambda row: count(row[0].seed)),
            value(words("epoch"), lambda row: count(row[1]["epoch"])),
            *(value(words.metric(key), metric(key)) for key in keys),
            value(words("train_s"), seconds("train_s")),
            value(words("test_s"), seconds("test_s")),
        ],
        rows,
        _engine_text(evidence, words),
    )


def epochs_by_cell(evidence: Evidence, words: Words) -> Table | None:
    """Every epoch of every cell, means over the seeds that reached it; None below two epochs."""
    rows: list[tuple[str, int, list[Line]]] = []
    for cell in evidence.cells:
        by_epoch: dict[int, list[Line]] = {}
        for learned in evidence.learned.get(cell.id, {}).values():
            for line in learned.epochs:
                by_epoch.setdefault(int(line["epoch"]), []).append(line)
        rows += [(cell.id, epoch, lines) for epoch, lines in sorted(by_epoch.items())]
    if max((epoch for _, epoch, _ in rows), default=0) < 2:
        return None
    found = (key for _, _, lines in rows for line in lines for key in line)
    metrics = dict.fromkeys(key for key in found if "/" in key)

    def average(key: str) -> Callable[[tuple[str, int, list[Line]]], Entry]:
        def read(row: tuple[str, int, list[Line]]) -> Entry:
            known = [float(line[key]) for line in row[2] if line.get(key) is not None]
            if not known:
                return Entry("")
            return Entry(metric_value(key, statistics.fmean(known)), statistics.fmean(known))

        return read

    def seconds(row: tuple[str, int, list[Line]]) -> float:
        return statistics.fmean(float(line["train_s"]) + float(line["test_s"]) for line in row[2])

    return table_of(
        words("epochs_table"),
        [
            name(words("cell"), lambda row: row[0]),
            value(words("epoch"), lambda row: count(row[1])),
            value(words("seeds"), lambda row: count(len(row[2]))),
            *(value(words.metric(key), average(key)) for key in metrics),
            value(words("epoch_total_s"), seconds),
        ],
        rows,
        words("epochs_table_note"),
        cell=lambda row: row[0],
        is_sortable=True,
    )


def _engine_text(evidence: Evidence, words: Words) -> str:
    """Which engines trained, and how many trials at once; nothing where that was eager, one by one."""
    learned = [trial.resolved for trial in evidence.trials if trial.kind == "learn"]
    engines = list(dict.fromkeys(str(one["engine"]) for one in learned if "engine" in one))
    if not engines or engines == ["eager"]:
        return ""
    text = words("trained_by", engines=words.listed(engines))
    most = max(int(one.get("trials_together", 1)) for one in learned)
    return words.sentences(text, words("their_share", number=most)) if most > 1 else text


OF_UPDATES = (
    *("accumulate", "clip_grad_norm", "warmup_steps", "max_steps", "ema"),
    *("val_fraction", "patience", "keep_best"),
)
"""Settings that are named where they are asked for."""


def _is_set(settings: Mapping[str, Any], name: str) -> bool:
    default = TrainSpec.model_fields[name].default
    return bool(settings.get(name, default) != default)


def _settings(evidence: Evidence, words: Words) -> str:
    """The main settings of the study's only cell, in short."""
    trial = next(trial for trial in evidence.trials if trial.kind == "learn")
    settings, resolved = trial.settings, trial.resolved
    if evidence.study.script is not None:
        return words.listed([command_text(evidence.study.script), *seen_texts(resolved, words)])
    parts = [
        str(resolved.get("device_name", settings["device"])),
        words("batch_of", size=settings["batch_size"]),
        f"{settings['optimizer']} lr {resolved.get('lr', settings['lr'])}",
        settings["precision"],
        *(f"{key}={setting}" for key, setting in settings["model"].items()),
        *([] if settings["zero_grad"] else [words("never_reset")]),
        *(
            f"{name}={words.setting(settings[name])}"
            for name in OF_UPDATES
            if _is_set(settings, name)
        ),
    ]
    return words.listed(parts)
