"""What a command line changed of a study, in words: the report tells what was really used."""

from typing import Any

from trainlab.record.study import StudyRecord
from trainlab.spec import Study, TrainSpec
from trainlab.words import Words


def overridden_text(record: StudyRecord, study: Study, words: Words) -> str | None:
    """What was asked for otherwise than the study says, beside what it says; None where nothing was."""
    parts = [
        words(
            "overridden_part",
            name=name,
            now=_text(_used(study, name), words),
            said=_text(said, words),
        )
        for name, said in record.overridden.items()
    ]
    return words("overridden", changes=words.listed(parts)) if parts else None


def _used(study: Study, name: str) -> Any:
    """The levels of a factor, a setting, or a field of the study or of its measurement of cost."""
    for factor in (name, f"model.{name}"):
        levels = [cell.levels[factor] for cell in study.cells if factor in cell.levels]
        if levels:
            return list(dict.fromkeys(levels))
    outer, _, inner = name.partition(".")
    if outer == "cost":
        return None if study.cost is None else getattr(study.cost, inner)
    if name in TrainSpec.model_fields:
        return getattr(study.settings, name)
    return study.settings.model.get(name, getattr(study, name, None))


def _text(value: Any, words: Words) -> str:
    if value is None or isinstance(value, bool | int | float | str):
        return words.setting(value)
    if isinstance(value, dict):
        return ", ".join(f"{name}={_text(inner, words)}" for name, inner in value.items())
    return words.listed(_text(item, words) for item in value)
