"""Every word of a report is there in every language, none is our own, and every character has a glyph."""

import ast
import re
import string
from itertools import product
from pathlib import Path
from typing import get_args, get_type_hints

import pytest
from rich_run import rich_study

import trainlab
from fabricate import ENVIRONMENT, usual
from trainlab.analysis.cold_start import COUNTS
from trainlab.analysis.finding import CAUSES
from trainlab.analysis.measurement import Instability
from trainlab.instruments.probe_hooks import WhySilent
from trainlab.plan import plan
from trainlab.report.pictures import REGULAR, font_folder
from trainlab.spec import TrainSpec
from trainlab.spec.probe import QUANTITIES, REDUCERS, Quantity
from trainlab.words import LANGUAGES, TABLES, WORDS, Words

SOURCE = Path(trainlab.__file__).parent
BUILT = re.compile(
    r"sample|("
    r"activity|answer|change|cold_more|cold_one|column|compared_speed|cost_of|counted|data|decided|differs|effect|"
    r"edited|every|factor_name|failure|file|gate|instrument|interval|lab|level|limit|limits|listed|mark|memory|"
    r"metric|mode|moment|name|near|note|open|open_cost|page_column|page_state|part|phase|"
    r"quantity|reason|reducer|remedy|repeats|share_of|"
    r"script_part|script_step|script_time|seen_order|short|silent|source|start|state|status|step|"
    r"subject|summary|test|title|todo|update|warning|watch|comparisons|one_comparison"
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
    return found | {key for key in WORDS if f'"{key}"' in templates}


def test_every_text_that_is_asked_for_by_name_is_there() -> None:
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Call) or not node.args:
                continue
            called, asked = ast.unparse(node.func).rpartition(".")[2], node.args[0]
            if called == "words" and isinstance(asked, ast.Constant):
                assert asked.value in WORDS, f"{path.name}:{node.lineno}"


def names_in(text: str) -> set[str]:
    return {name for _, name, _, _ in string.Formatter().parse(text) if name is not None}


def test_every_text_is_there_once_in_every_language_with_the_same_names() -> None:
    for key, texts in WORDS.items():
        assert [bool(text) for text in texts] == [True] * len(LANGUAGES), f"{key}: no translation"
        assert len({frozenset(names_in(text)) for text in texts}) == 1, f"{key}: other names"
    assert sum(map(len, TABLES.values())) == len(WORDS)


def test_chinese_texts_are_chinese() -> None:
    same = {key for key, (english, chinese) in WORDS.items() if english == chinese}
    optimizers = {key for key in same if key.startswith("name_optimizer_")}
    alike = {"env_cpu", "env_gpu", "interval", "n", "repeat_file", "note_text", "part_dropout"}
    assert same - optimizers <= alike


def test_no_text_is_left_that_nothing_shows() -> None:
    used = used_keys()
    unused = {key for key in WORDS if not BUILT.match(key) and not key.endswith(BUILT_ENDS)} - used
    assert not unused


def test_every_code_of_a_record_has_words() -> None:
    codes = get_args(get_type_hints(Instability)["reason"])
    assert len(codes) == 5
    for code in codes:
        zh, en = (Words(lang).warning(code, 0.31) for lang in ("zh", "en"))
        assert zh != en
        assert "31%" in en or "0.3 cores" in en
    notes: set[str] = set()
    for path in SOURCE.rglob("*.py"):
        notes |= set(re.findall(r'\bnote\(\s*"(\w+)"', path.read_text()))
    assert {"graph_failed", "trace_too_large", "engine_too_coarse", "probe_silent"} <= notes
    assert Words("zh").note("from_the_future", {"x": 1}) == "from_the_future {'x': 1}"
    (trial,) = plan(rich_study())[0].trials
    may_differ = {*TrainSpec.model_fields, *usual(trial), *type(ENVIRONMENT).model_fields}
    may_differ |= {"data.name", "data.num_train", "data.num_test"}
    starts = {"counted": COUNTS, "open": CAUSES, "reducer": REDUCERS, "note": notes}
    starts |= {"silent": get_args(WhySilent), "quantity": get_args(Quantity)}
    for start, names in (starts | {"differs": may_differ - {"format", "git_dirty"}}).items():
        assert {f"{start}_{name}" for name in names} <= WORDS.keys()


def test_the_font_has_every_character_of_the_words_is_small_and_brings_its_licence() -> None:
    fonts, folder = pytest.importorskip("fontTools.ttLib"), font_folder()
    told = {character for texts in WORDS.values() for text in texts for character in text}
    told |= set("耗利局讨附撰翀喆堃犇骉赟昳旻玥璟")  # headings, and names that are written today
    for weight in (REGULAR, REGULAR.replace("Regular", "Bold")):
        known = fonts.TTFont(folder / weight).getBestCmap()
        assert {c for c in told if ord(c) not in known} == set(), "run scripts/make_report_fonts.py"
    assert sum(path.stat().st_size for path in folder.glob("*.otf")) < 4.2e6
    assert "SIL OPEN FONT LICENSE" in (folder / "LICENSE-OFL").read_text()


def test_every_probe_has_a_meaning() -> None:
    reducers = (*REDUCERS, "histogram(0,1,2)", "my.py:f")
    for lang, quantity, reducer in product(LANGUAGES, QUANTITIES, reducers):
        meaning = Words(lang).probe_meaning(quantity, reducer, "7")
        assert meaning.endswith("." if lang == "en" else "。")
        assert meaning[0].isupper() or lang == "zh"


# Words of our own that readers had to learn; the field has words for these things.

BANNED = {
    "en": {
        r"\bcells?\b": "setting",
        r"\bbare\b": "unprofiled",
        r"\bwatch(ed|ing)\b": "profiled, profiling",
        r"\bbench(es)?\b": "processes that take turns",
        r"\d %": "per cent without a gap",
        r"\b9[05]% intervals?\b": "CI",
        r"threads of torch|\btorch's": "PyTorch",
        r"results on the way": "temporaries and workspace",
        r"against the hardware's limits": "hardware utilisation",
        r"what cannot be told": "limitations",
        r"cold start": "first steps of a process",
        r"dark or light": "theme",
        r"none finite": "no trial finished, no finite value",
        r"\bfigures? of\b|final figures|one figure\b": "metric; a figure is a chart",
    },
    "zh": {
        r"[各每本另]组|[一两]组|参照组|所有组|这些组|组间|\d ?组(?!成)": "设置",
        r"被观测": "性能分析",
        r"仪器": "测量方式",
        r"\d %": "百分号前不留空",
        r"9[05]% 区间": "置信区间",
        r"与硬件极限的比较": "硬件利用率",
        r"无法判断之处": "局限",
        r"冷启动": "进程启动后的前几步",
        r"一步的各阶段与内存": "单步耗时与内存构成",
        r"(?<!torch_threads )\btorch 线程数(?! torch_threads)": "PyTorch 线程数",
        r"深色或浅色": "主题",
        r"两处都": "在两种批大小下均",
        r"每个样本的时间是": "每样本耗时降至",
    },
}
HOVER = {"chart_hint"}
"""The only text that may speak of a mouse, since it stands in HTML alone."""
GOLDEN = sorted((Path(__file__).parent / "golden").rglob("*.md"))


def banned_in(text: str, lang: str) -> list[str]:
    """What of the list stands in a text, with the word to use instead."""
    plain = re.sub(r"`[^`]*`|\{[^}]*\}", "0", text)  # names of files are no prose
    return [
        f"{found[0]}: say {instead}"
        for pattern, instead in BANNED[lang].items()
        if (found := re.search(pattern, plain, re.IGNORECASE))
    ]


def test_no_text_and_no_report_has_a_word_of_our_own() -> None:
    for key, (english, chinese) in WORDS.items():
        assert banned_in(english, "en") + banned_in(chinese, "zh") == [], key
        if key not in HOVER:
            assert not re.search(r"\bhover", english, re.IGNORECASE)
            assert "悬停" not in chinese
    for path in GOLDEN:
        lang = "zh" if path.name.endswith("zh.md") else "en"
        lines = path.read_text().splitlines()
        assert {line: banned for line in lines if (banned := banned_in(line, lang))} == {}
    # The list finds what it is there for.
    assert banned_in("95 % of cells", "en")
    assert banned_in("各组的开销", "zh")
    assert not banned_in("{cell}: 6.6× faster per sample [95% CI 6.2 to 7.0]", "en")
