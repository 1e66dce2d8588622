"""Every word of a report is there in every language, and every character has a glyph."""

import ast
import string
from pathlib import Path

import pytest

import trainlab
from trainlab.analyse.cost.cold_start import COUNTS
from trainlab.analyse.cost.summary import _warnings
from trainlab.record.cost import CostRecord, LoadRecord
from trainlab.report.render.fonts import REGULAR, font_folder
from trainlab.words import COUNTED, INSTRUMENTS, LANGUAGES, TABLES, WORDS, Words

SOURCE = Path(trainlab.__file__).parent
BUILT = ("state_", "mode_", "step_", "phase_", "memory_", "near_", "subject_", "mark_", "file_")
"""Starts of keys that are put together from names in records."""
BUILT += ("cost_of_", "update_", "quantity_", "reducer_", "every_", "differs_")
BUILT_ENDS = ("_caption", "_note", "_mark", "_dots_note")


def used_keys() -> set[str]:
    """Keys that the code and the templates name outright."""
    found = set()
    tables = {path for path in SOURCE.glob("words/*.py") if path.name != "__init__.py"}
    for path in set(SOURCE.rglob("*.py")) - tables:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.add(node.value)
    templates = "".join(path.read_text() for path in SOURCE.rglob("*.j2"))
    return found | {key for key in WORDS if f'words("{key}"' in templates}


def names_in(text: str) -> set[str]:
    return {name for _, name, _, _ in string.Formatter().parse(text) if name is not None}


@pytest.mark.parametrize("key", WORDS)
def test_every_text_is_there_in_every_language_with_the_same_names(key: str) -> None:
    texts = WORDS[key]
    assert [bool(text) for text in texts] == [True] * len(LANGUAGES), f"{key} lacks a translation"
    assert len({frozenset(names_in(text)) for text in texts}) == 1, (
        f"{key} fills in different names"
    )


def test_a_key_is_in_one_table_only() -> None:
    assert sum(map(len, TABLES)) == len(WORDS)


def test_chinese_texts_are_chinese() -> None:
    same = {key for key, (english, chinese) in WORDS.items() if english == chinese}
    assert same <= {"env_cpu", "env_gpu", "interval", "n", "repeat_file"}


def test_no_text_is_left_that_nothing_shows() -> None:
    used = used_keys()
    unused = {
        key
        for key in WORDS
        if key not in used and not key.startswith(BUILT) and not key.endswith(BUILT_ENDS)
    }
    assert not unused


def test_every_thing_counted_in_a_cold_step_has_words() -> None:
    assert set(COUNTS) == set(COUNTED)
    assert set(COUNTED.values()) <= set(WORDS)
    assert set(INSTRUMENTS.values()) <= set(WORDS)


def unstable(step_ms: list[float], others: float, stolen: float) -> CostRecord:
    return CostRecord(
        mode="train",
        batch_size=1,
        num_samples=10,
        steps_per_epoch=10,
        warmup_ms=[1.0],
        cold=[],
        settled=[],
        round_steps=3,
        step_ms=step_ms,
        phases_ms={"forward": [1.0]},
        stopped="budget",
        load=LoadRecord(
            load_before=0,
            others_cores=others,
            stolen_cores=stolen,
            cpu_mhz=None,
            governor=None,
            affinity=None,
        ),
    )


def test_every_warning_of_a_measurement_is_told_in_chinese() -> None:
    records = [
        unstable([1.0, 1, 1, 5, 5, 5, 9, 9, 9], 1.5, 0.5),
        unstable([20.0] * 9, 0.0, 0.0),
    ]
    told = _warnings(records, [5.0, 20.0])
    assert len(told) == 5
    for warning in told:
        assert Words("zh").warning(warning) != warning, f"{warning} lacks a translation"
        assert Words("en").warning(warning) == warning.replace("%", " %")


def test_the_font_has_every_character_of_the_words() -> None:
    fonts = pytest.importorskip("fontTools.ttLib", reason="needs trainlab[report]")
    known = fonts.TTFont(font_folder() / REGULAR).getBestCmap()
    told = {character for texts in WORDS.values() for text in texts for character in text}
    assert {c for c in told if ord(c) not in known} == set(), "run scripts/make_report_fonts.py"


def test_the_bold_font_has_every_character_of_the_words() -> None:
    fonts = pytest.importorskip("fontTools.ttLib", reason="needs trainlab[report]")
    known = fonts.TTFont(font_folder() / REGULAR.replace("Regular", "Bold")).getBestCmap()
    told = {character for texts in WORDS.values() for text in texts for character in text}
    assert {c for c in told if ord(c) not in known} == set(), "run scripts/make_report_fonts.py"


def test_the_fonts_are_small_and_bring_their_licence() -> None:
    folder = font_folder()
    assert sum(path.stat().st_size for path in folder.glob("*.otf")) < 2.5e6
    assert "SIL OPEN FONT LICENSE" in (folder / "LICENSE-OFL").read_text()
