"""Words of our own that readers had to learn; the field has words for these things."""

import re
from pathlib import Path

from trainlab.words import WORDS

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
    plain = re.sub(r"\{[^}]*\}", "0", text)
    return [
        f"{found[0]}: say {instead}"
        for pattern, instead in BANNED[lang].items()
        if (found := re.search(pattern, plain, re.IGNORECASE))
    ]


def test_no_text_has_a_word_of_our_own() -> None:
    for key, (english, chinese) in WORDS.items():
        assert banned_in(english, "en") + banned_in(chinese, "zh") == [], key
        if key not in HOVER:
            assert not re.search(r"\bhover", english, re.IGNORECASE)
            assert "悬停" not in chinese


def test_no_report_has_a_word_of_our_own() -> None:
    for path in GOLDEN:
        lang = "zh" if path.name.endswith("zh.md") else "en"
        lines = path.read_text().splitlines()
        assert {line: banned for line in lines if (banned := banned_in(line, lang))} == {}


def test_the_list_finds_what_it_is_there_for() -> None:
    assert banned_in("Time per batch: median bare step of {cell}", "en")
    assert banned_in("95 % of cells", "en")
    assert banned_in("各组的开销", "zh")
    assert not banned_in("{cell}: 6.6× faster per sample [95% CI 6.2 to 7.0]", "en")
