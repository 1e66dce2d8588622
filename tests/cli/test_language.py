"""The terminal speaks the language asked for, or that of the locale."""

import re
from itertools import product
from pathlib import Path

from rich.cells import cell_len

from command import Verb
from fabricate import Fabricated, made_study
from trainlab.cli.run_summary import data_text
from trainlab.language import environment_language, split_language
from trainlab.record.trial_record import DataRecord
from trainlab.spec import CostSpec
from trainlab.studies import builtin_study, study_names
from trainlab.words import Words
from trainlab.words.tables import BUILTIN_KEYS
from trainlab.workloads.reference import BUILTIN

HAN = re.compile(r"[\u4e00-\u9fff]")


def test_without_lang_the_environment_decides() -> None:
    for environment, lang in (
        ({}, "en"),
        ({"LANG": "zh_CN.UTF-8"}, "zh"),
        ({"LANG": "zh_CN.UTF-8", "LC_ALL": ""}, "zh"),
        ({"LANG": "zh_CN.UTF-8", "LC_MESSAGES": "en_GB.UTF-8"}, "en"),
        ({"LANG": "en_GB.UTF-8", "LC_MESSAGES": "zh_TW"}, "zh"),
        ({"LC_ALL": "C", "LC_MESSAGES": "zh_CN", "LANG": "zh_CN"}, "en"),
        ({"LANG": "de_DE.UTF-8", "TRAINLAB_LANG": "zh"}, "zh"),
        ({"LC_ALL": "zh_CN.UTF-8", "TRAINLAB_LANG": "en"}, "en"),
    ):
        assert environment_language(environment) == lang, environment


def test_lang_is_found_in_a_command_line_that_is_wrong() -> None:
    lines = {"run x --lang zh": "zh", "--lang=zh --no": "zh", "run --lang": "", "run x": None}
    for line, lang in lines.items():
        assert split_language(line.split())[0] == lang, line


def test_an_option_overrides_the_locale_and_a_wrong_variable_is_told(trainlab: Verb) -> None:
    chinese = {"TRAINLAB_LANG": "", "LC_ALL": "", "LC_MESSAGES": "", "LANG": "zh_CN.UTF-8"}
    assert "内置的研究" in trainlab("studies", **chinese).stdout
    assert not HAN.search(trainlab("studies", "--lang", "en").stdout)
    told = trainlab("studies", code=2, TRAINLAB_LANG="fr").stderr
    assert told == "trainlab: TRAINLAB_LANG: got 'fr', must be one of en, zh\n"


def test_titles_and_summaries_that_come_with_trainlab_are_translated() -> None:
    texts = {builtin_study(name).title for name in study_names()}
    texts |= {entry.summary for entry in BUILTIN.values()}
    assert texts == set(BUILTIN_KEYS)
    assert Words("zh").builtin("My own title") == "My own title"


PRINTED = {
    "studies": ["内置的研究", "张量运算的开销", "自己的研究："],
    "workloads": ["内置的工作负载", "单隐层", "自己的工作负载："],
    "data list": ["数据集", "尚未下载"],
    "env": ["本机", "操作系统"],
    "show r": ["峰值 MiB", "运行文件夹：r"],
    "show r --all": ["各设置的开销"],
    "compare r s": ["A 与 B", "训练微秒/样本"],
    "run mnist-lab --dry-run": [
        *("张量运算的开销如何随批大小和硬件变化？", "3 种设置：batch_size=1"),
        *("学习试验 9 次（3 个种子：每种设置训练 3 次", "性能分析", "能发现的差异"),
    ],
}


def test_what_a_verb_prints_fits_the_terminal_in_both_languages(
    trainlab: Verb, tmp_path: Path
) -> None:
    for name in ("r", "s"):
        study = made_study(vary={"lr": (0.1, 0.2)}, cost=CostSpec(processes=3))
        Fabricated().write(tmp_path / name, study)
    for line, columns in product(PRINTED, (80, 120)):
        variables = {"COLUMNS": str(columns), "TRAINLAB_CACHE": str(tmp_path / "none")}
        english = trainlab(*line.split(), TRAINLAB_LANG="en", **variables).stdout
        chinese = trainlab(*line.split(), TRAINLAB_LANG="zh", **variables).stdout
        for shown in (english, chinese):
            long = [one for one in shown.splitlines() if cell_len(one.rstrip()) > columns]
            # Sentences are left to the terminal to wrap; tables are not.
            assert not [one for one in long if re.search(r"  \S+  ", one.strip())], long
        assert not HAN.search(english)
        for told in PRINTED[line]:
            assert re.sub(r"\s", "", told) in re.sub(r"\s", "", chinese), chinese


def test_where_data_came_from_is_said_in_the_language() -> None:
    data = DataRecord(name="own", source="given", is_subset=False, num_train=20, num_test=10)
    assert "given" not in data_text(data, Words("zh"))
    assert "自备" in data_text(data, Words("zh"))
