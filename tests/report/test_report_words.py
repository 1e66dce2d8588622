"""Every word of a report is there in every language, and every character has a glyph."""

import ast
import re
import string
from pathlib import Path
from typing import get_args, get_type_hints

import pytest

import trainlab
from trainlab.analysis.cold_start import COUNTS
from trainlab.analysis.finding import CAUSES
from trainlab.analysis.measurement import Instability
from trainlab.instruments.probe_hooks import WhySilent
from trainlab.report.pictures import REGULAR, font_folder
from trainlab.spec.probe import QUANTITIES, REDUCERS
from trainlab.words import LANGUAGES, TABLES, WORDS, Words

SOURCE = Path(trainlab.__file__).parent
BUILT = re.compile(
    r"sample|("
    r"activity|answer|change|cold_more|compared_speed|cost_of|counted|data|differs|effect|"
    r"every|factor_name|failure|file|gate|instrument|interval|lab|level|limit|limits|listed|mark|memory|"
    r"metric|mode|moment|name|near|note|open|open_cost|part|phase|quantity|reason|reducer|remedy|"
    r"script_part|script_step|script_time|seen_order|short|silent|source|start|state|status|step|"
    r"subject|summary|test|title|todo|update|warning|watch"
    r")_"
)
"""Starts of keys that are put together from names in records."""
BUILT_ENDS = ("_caption", "_note", "_mark", "_dots_note")


def used_keys() -> set[str]:
    """Keys that the code and the templates name outright."""
    found = set()
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.add(node.value)
    templates = "".join(path.read_text() for path in SOURCE.rglob("*.j2"))
    return found | {key for key in WORDS if f'words("{key}"' in templates}


def names_in(text: str) -> set[str]:
    return {name for _, name, _, _ in string.Formatter().parse(text) if name is not None}


def test_every_text_is_there_in_every_language_with_the_same_names() -> None:
    for key, texts in WORDS.items():
        assert [bool(text) for text in texts] == [True] * len(LANGUAGES), f"{key}: no translation"
        assert len({frozenset(names_in(text)) for text in texts}) == 1, f"{key}: other names"


def test_a_key_is_in_one_table_only() -> None:
    assert sum(map(len, TABLES.values())) == len(WORDS)


def test_chinese_texts_are_chinese() -> None:
    same = {key for key, (english, chinese) in WORDS.items() if english == chinese}
    optimizers = {key for key in same if key.startswith("name_optimizer_")}
    alike = {"env_cpu", "env_gpu", "interval", "n", "repeat_file", "note_text", "part_dropout"}
    assert same - optimizers <= alike


def test_no_text_is_left_that_nothing_shows() -> None:
    used = used_keys()
    unused = {
        key
        for key in WORDS
        if key not in used and not BUILT.match(key) and not key.endswith(BUILT_ENDS)
    }
    assert not unused


def test_every_code_of_a_record_has_words() -> None:
    assert {f"counted_{name}" for name in COUNTS} <= set(WORDS)
    codes = get_args(get_type_hints(Instability)["reason"])
    assert len(codes) == 4
    for code in codes:
        zh, en = (Words(lang).warning(code, 0.31) for lang in ("zh", "en"))
        assert zh != en
        assert "31%" in en or "0.3 cores" in en
    silent = set(get_args(WhySilent))
    assert {f"silent_{code}" for code in silent} <= set(WORDS)


@pytest.mark.parametrize("lang", LANGUAGES)
def test_every_note_that_is_written_has_words(lang: str) -> None:
    written = set()
    for path in SOURCE.rglob("*.py"):
        written |= set(re.findall(r'\bnote\(\s*"(\w+)"', path.read_text()))
    assert {"graph_failed", "trace_too_large", "engine_too_coarse", "probe_silent"} <= written
    assert {f"note_{code}" for code in written} <= set(WORDS)
    strange = Words(lang).note("from_the_future", {"x": 1})
    assert strange == "from_the_future {'x': 1}"


def test_the_font_has_every_character_of_the_words() -> None:
    fonts = pytest.importorskip("fontTools.ttLib", reason="needs trainlab[report]")
    known = fonts.TTFont(font_folder() / REGULAR).getBestCmap()
    told = {character for texts in WORDS.values() for text in texts for character in text}
    assert {c for c in told if ord(c) not in known} == set(), "run scripts/make_report_fonts.py"


def test_the_fonts_are_small_and_bring_their_licence() -> None:
    folder = font_folder()
    assert sum(path.stat().st_size for path in folder.glob("*.otf")) < 2.5e6
    assert "SIL OPEN FONT LICENSE" in (folder / "LICENSE-OFL").read_text()


@pytest.mark.parametrize("lang", LANGUAGES)
def test_every_probe_has_a_meaning(lang: str) -> None:
    for quantity in QUANTITIES:
        for reducer in (*REDUCERS, "histogram(0,1,2)", "my.py:f"):
            meaning = Words(lang).probe_meaning(quantity, reducer, "7")
            assert meaning.endswith("." if lang == "en" else "。")
            assert meaning[0].isupper() or lang == "zh"


def test_every_cause_of_an_open_comparison_has_words() -> None:
    assert {f"open_{cause}" for cause in CAUSES} <= set(WORDS)
