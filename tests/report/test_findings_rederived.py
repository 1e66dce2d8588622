"""Every number of every finding, computed again from the raw files of the run by other code."""

import importlib
import pkgutil
import re
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pytest
import rederived_cost as cost
import rederived_learning as learning
import rederived_probes as probes
from raw_run import Expected, RawRun, Within
from varied_run import RUNS

from trainlab import analysis
from trainlab.analysis.evidence import gather
from trainlab.analysis.finding import Finding, Kind
from trainlab.analysis.overview import findings
from trainlab.spec.study import level_text
from trainlab.words import LANGUAGES, Words

NUMBER = re.compile(r"(?<![\w.])[-+]?\d[\d,]*(?:\.\d+)?(?:e[-+]?\d+)?")
FIXED = (
    *("95% CI", "95% 置信区间", "90% CI", "90% 置信区间", "(95%)", "（95%）", "p < 0.001"),
    *("less than 10%", "不足 10%", "more than 10%", "超过 10%"),
)
"""What a sentence may say by itself: the level of the intervals, and what a small gain is."""
BY_ANOTHER_NAME: dict[str, Callable[[RawRun, Finding], Expected]] = {
    "no_reset": learning.effect,
    "test_set": learning.sampling,
    "vanishing_gradient": probes.gradient,
    "exploding_gradient": probes.gradient,
    "growing_gradient": probes.growing,
    "broken_gradient": probes.broken,
}


def rederived(run: RawRun, found: Finding) -> Expected:
    """Of all kinds but those of scripts: `tests/analysis/test_script_findings.py` has their numbers."""
    functions = vars(probes) | vars(cost) | vars(learning) | BY_ANOTHER_NAME
    expected: Expected = functions[found.kind](run, found)
    return expected


@dataclass(frozen=True)
class Told:
    """A finding beside the run it is about."""

    run: RawRun
    found: Finding
    expected: Expected


@pytest.fixture(scope="module")
def every(tmp_path_factory: pytest.TempPathFactory) -> list[Told]:
    told = []
    for name, write in RUNS.items():
        folder = write(tmp_path_factory.mktemp("varied") / name.replace(" ", "-"))
        run = RawRun(folder.path)
        told += [Told(run, one, rederived(run, one)) for one in findings(gather(folder))]
    return told


def of_kind(kind: str, every: list[Told]) -> list[Told]:
    return [one for one in every if one.found.kind == kind]


def test_every_kind_of_finding_is_computed_again(every: list[Told]) -> None:
    """The kinds there are by the modules of the analysis."""
    names = (
        module.name for module in pkgutil.iter_modules(analysis.__path__, "trainlab.analysis.")
    )
    values = (one for name in names for one in vars(importlib.import_module(name)).values())
    flat = (part for one in values for part in (one.values() if isinstance(one, dict) else (one,)))
    kinds = {one for one in flat if isinstance(one, Kind)}
    # tests/analysis/test_energy_findings.py and tests/lab/test_searching.py have their numbers.
    kinds = {one.name for one in kinds if one.section not in ("script", "search")} - {"energy"}
    assert kinds == {told.found.kind for told in every}, "no run of varied_run shows it"


def test_the_findings_are_of_every_shape(every: list[Told]) -> None:
    """Or a sentence that only some findings use would go unchecked."""
    effects = {
        (t.found.verdict, t.found.numbers["seeds_needed"] is None) for t in of_kind("effect", every)
    }
    assert {("different", True), ("equivalent", True), ("cannot tell", False)} <= effects
    verdicts = {t.found.verdict for t in of_kind("cost", every)}
    assert verdicts == {"different", "equivalent", "cannot tell"}
    needed = {t.found.numbers["processes_needed"] is None for t in of_kind("cost", every)}
    assert needed == {True, False}
    fits = {t.found.numbers["fit"] for t in of_kind("scaling", every)}
    assert fits == {"fits", "does not fit", "cannot tell"}
    tops = {t.found.numbers["first_a"] == t.found.subject for t in of_kind("top_operator", every)}
    assert tops == {True, False}
    reached = {bool(t.found.numbers["num_reached"]) for t in of_kind("time_to_target", every)}
    assert reached == {True, False}
    assert {t.found.numbers["num_identical"] for t in of_kind("best", every)} == {0, 1}
    updates = [t.found.numbers for t in of_kind("update_ratio", every)]
    assert {one["ratio"] > one["healthy_high"] for one in updates} == {True, False}


def test_every_number_of_a_finding_follows_from_the_raw_files(every: list[Told]) -> None:
    for told in every:
        found, expected = told.found, told.expected
        where = f"{found.kind}: {found.subject}, {found.cells}"
        assert found.numbers.keys() == expected.numbers.keys(), where
        wrong = {
            name: (value, expected.numbers[name])
            for name, value in found.numbers.items()
            if not _agree(value, expected.numbers[name])
        }
        assert not wrong, f"{where}: found, expected: {wrong}"
        assert (found.n, found.verdict) == (expected.n, expected.verdict), where
        assert (found.interval is None) == (expected.interval is None), where
        if found.interval is not None:
            ends = (found.interval.low, found.interval.high)
            for end, told_end in zip(ends, expected.interval or (), strict=True):
                assert _agree(end, told_end), f"{where}: {ends}, expected {expected.interval}"


def test_every_number_of_a_sentence_is_one_of_these_rounded(every: list[Told]) -> None:
    for told in every:
        numbers = {}
        for lang in LANGUAGES:
            text = told.found.sentence(Words(lang))
            numbers[lang] = _numbers(text, told)
            strange = [number for number in numbers[lang] if not _is_told(number, told)]
            assert not strange, f"{strange} in: {text}"
            p = told.expected.numbers.get("p")
            least = p.low if isinstance(p, Within) else p
            assert "p < 0.001" not in text or least < 0.001, text
            assert text.endswith((".", "。")), text
            assert not re.search("None|nan", text), text
        assert set(numbers["en"]) == set(numbers["zh"])


def test_a_row_of_batches_says_which_it_is(every: list[Told]) -> None:
    for kind in ("scaling", "top_operator", "operator_growth", "optimizer_share"):
        for lang, names in {
            "en": ("(at hidden=3)", "(at hidden=5)"),
            "zh": ("（hidden=3）", "（hidden=5）"),
        }.items():
            texts = [told.found.sentence(Words(lang)) for told in of_kind(kind, every)]
            assert all(any(name in text for text in texts) for name in names), (kind, lang)


def test_the_check_above_can_fail(every: list[Told]) -> None:
    told = of_kind("memory", every)[0]
    true = told.expected.numbers["mib_a"]
    assert _is_told(f"{true:.2f}", told)
    assert not _is_told(f"{true + 0.01:.2f}", told)
    assert not _is_told(f"{true:.0f}", told), "a number must not be cut too short"


def _agree(value: Any, expected: Any) -> bool:
    if isinstance(expected, Within):
        return value is not None and expected.low <= value <= expected.high
    if expected is None or isinstance(expected, str):
        return bool(value == expected)
    return bool(value == pytest.approx(expected, rel=1e-6, abs=1e-15))


def _numbers(text: str, told: Told) -> list[str]:
    """Those of a sentence, less those in names of cells, layers and levels, and in warnings."""
    found = told.found
    parts = [part for cell in found.cells for part in (cell, *cell.split(","))]
    levels = [level_text(one) for one in found.levels if one is not None]
    texts = [value for value in told.expected.numbers.values() if isinstance(value, str)]
    for name in sorted({*parts, *levels, *texts, found.subject}, key=len, reverse=True):
        text = re.sub(rf"(?<!\w)(?<!\d[.,]){re.escape(name)}(?![\w%]|[.,]\d)", " ", text)
    for phrase in FIXED:
        text = text.replace(phrase, " ")
    warned = {number for one in texts for number in NUMBER.findall(one)}
    return [n for match in NUMBER.findall(text) if (n := match.rstrip(",")) not in warned]


def _is_told(number: str, told: Told) -> bool:
    """Whether it is a value of the raw files, per one or per hundred, rounded and not cut too short."""
    shown = Decimal(number.replace(",", "").lstrip("+"))
    half = Decimal("0.50000001").scaleb(int(shown.as_tuple().exponent))
    interval = told.found.interval
    values = [told.expected.n, *((interval.low, interval.high) if interval else ())]
    for name, value in told.expected.numbers.items():
        # What takes chance to estimate is held against its range elsewhere.
        known = told.found.numbers[name] if isinstance(value, Within) else value
        if known is not None and not isinstance(known, str):
            values.append(known)
    if told.found.kind == "cost":
        # "3.4 times faster" is the ratio the other way round.
        ends = [interval.low, interval.high] if interval else []
        values += [1 / value for value in (told.expected.numbers["ratio"], *ends)]
    wanted = [scale * Decimal(float(value)) for value in values for scale in (1, 100)]
    is_short = len(shown.as_tuple().digits) < 2
    near = [one for one in wanted if abs(shown - one) <= half]
    return any(not is_short or shown == one or abs(one) < 1 for one in near)
