"""Sentences in both languages: every number they tell is in the finding."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from told_numbers import NUMBER, all_kinds, without_fixed

from fabricate import DATA, Fabricated, confusion, made_study, operator
from trainlab.analysis.cost import SLOW_TRIAL, UNCOMPARED
from trainlab.analysis.evidence import gather
from trainlab.analysis.factors import EFFECT
from trainlab.analysis.finding import SHARED, Finding
from trainlab.analysis.learning import SPREAD
from trainlab.analysis.overview import RAN_AS, findings
from trainlab.analysis.probes import (
    ACCUMULATION,
    BROKEN,
    DEAD_UNITS,
    EXPLODING,
    GROWING,
    UPDATE_RATIO,
    VANISHING,
)
from trainlab.analysis.scaling import SCALING
from trainlab.analysis.scripts import (
    SCRIPT_MEMORY,
    SCRIPT_ORDER,
    SCRIPT_PART,
    SCRIPT_SAME,
    SCRIPT_SEEDS,
    SCRIPT_TIME,
)
from trainlab.errors import SpecError
from trainlab.plan import Trial
from trainlab.spec import CostSpec
from trainlab.stats.means import Interval
from trainlab.words import LANGUAGES, Words
from trainlab.words.numbers import (
    count,
    figure,
    metric_difference,
    metric_value,
    p_value,
    percent,
)


def numbers_in(text: str) -> set[str]:
    return {match.rstrip(",").lstrip("+") for match in NUMBER.findall(without_fixed(text))}


def changed(found: Finding, **given: Any) -> Finding:
    shared = {name: given.pop(name) for name in SHARED if name in given}
    return replace(found, **shared, numbers={**found.numbers, **given})


def tellable(found: Finding) -> set[str]:
    """Every number of the finding in every form a sentence may give it."""
    values = [*found.numbers.values(), found.n]
    if found.interval is not None:
        values += [found.interval.low, found.interval.high]
    if found.kind == "cost":
        # "3.4 times faster" is the ratio the other way round.
        ends = [] if found.interval is None else [found.interval.low, found.interval.high]
        values += [1 / value for value in (found.ratio, *ends)]
    texts = [
        *found.cells,
        *map(str, found.confounds),
        found.subject,
        *map(Words("en").setting, found.levels),
    ]
    for value in values:
        if isinstance(value, str):
            texts.append(value)
        elif value is not None:
            texts += [str(value), figure(value), figure(value, 2), count(value), percent(value)]
            texts += [f"{100 * value:.0f}", f"{value:.1f}", figure(value, 4)]
            texts += [p_value(value), metric_value(found.subject, value)]
            texts.append(metric_difference(found.subject, value, ""))
    return {number for text in texts for number in numbers_in(text)}


def learned(trial: Trial) -> dict[str, float]:
    own = 0.0017 * ((trial.seed * 7 + len(trial.cell)) % 5)
    better = 0.0623 if trial.cell.startswith("lr=0.01") else 0.0
    return {"test/accuracy": 0.8123 + own + better, "test/loss": 0.5432 - own, "train/loss": 31e7}


def rows(trial: Trial) -> list[Any]:
    return [
        operator("aten::addmm", 12.34 * trial.settings.batch_size),
        operator("aten::relu", 77.7),
    ]


WITHIN = Interval(0.00012, 0.00087)
AT_FC1: dict[str, Any] = {"subject": "fc1", "cells": ("lr=0.1",), "probe": "fc1:grad:norm", "n": 7}
PROBED = [
    VANISHING(**AT_FC1, ratio=0.000345, num_zero=4, compared_with="fc2", interval=WITHIN),
    BROKEN(**AT_FC1, num_not_finite=3, median_step=41.5),
    EXPLODING(**AT_FC1, ratio=2345.6, num_zero=0, compared_with="fc2"),
    GROWING(**AT_FC1, ratio=456.7, num_zero=0, interval=WITHIN),
    ACCUMULATION(
        **AT_FC1,
        exponent=0.7234,
        times=47.12,
        first_step=100.0,
        last_step=9375.0,
        interval=Interval(0.61, 0.83),
    ),
    DEAD_UNITS(**AT_FC1, share=0.3456, every="epoch", epoch=5, first_step=401, last_step=500),
    UPDATE_RATIO(
        **AT_FC1,
        ratio=0.0456,
        num_zero=0,
        side="above",
        healthy_low=1e-4,
        healthy_high=1e-2,
        interval=WITHIN,
    ),
]
SEED_SPREAD = SPREAD(
    subject="test/accuracy",
    factor="seed_parts",
    cells=("seed_parts=weights",),
    part="weights",
    std=0.0123,
    ratio=0.456,
    ratio_low=0.0871,
    ratio_high=2.39,
    interval=Interval(0.0071, 0.0314),
    n=6,
)
RAN = RAN_AS(
    subject="batch_size",
    factor="batch_size",
    cells=("batch_size=5000", "batch_size=960"),
    asked=5000,
    ran=960,
    n=3,
)
SLOW = SLOW_TRIAL(
    subject="train_s",
    cells=("lr=0.1",),
    n=3,
    seed=2,
    epoch_s=95.4,
    faster_s=32.1,
    others_cores=1.27,
    stolen_cores=0.31,
)
UNCOMPARED = UNCOMPARED(
    subject="train/sample_us", cells=("lr=0.1",), n=0, num_timed=6, num_failed=5
)
OF_SCRIPT: dict[str, Any] = {"cells": ("batch-size=64",), "n": 3, "num_cells": 2}
SCRIPTS = (
    *(
        SCRIPT_TIME(
            **OF_SCRIPT,
            subject="script",
            wall_s=28.84,
            low_s=27.65,
            high_s=30.12,
            startup_share=0.2477,
            training_share=0.6891,
            evaluation_share=0.0632,
            step_ms=515.2,
            first_step_ms=688.6,
            overhead_s=0.000812,
            overhead_share=0.0000281,
            instruments_s=0.4,
            num_updates=1_200,
            cut=cut,
        )
        for cut in ("", "interrupted", "failed")
    ),
    *(
        SCRIPT_PART(
            **OF_SCRIPT, subject=part, of=of, share=0.3456, low=0.3123, high=0.3678, time=7.89
        )
        for part, of in (
            *(("evaluation", "run"), ("startup", "run"), ("data", "step"), ("optimizer", "step")),
            *(("other", "step"), ("transfer", "step")),
        )
    ),
    SCRIPT_MEMORY(
        **OF_SCRIPT,
        subject="memory",
        mib_per_update=2.034,
        first_mib=310.4,
        last_mib=381.6,
        num_updates=1035,
    ),
    SCRIPT_SEEDS(**OF_SCRIPT, subject="seeds", num_different=1),
    SCRIPT_SEEDS(**OF_SCRIPT, subject="seeds", num_different=2),
    SCRIPT_ORDER(**OF_SCRIPT, subject="order", num_passes=14, shuffles=False),
    SCRIPT_ORDER(**OF_SCRIPT, subject="order", num_passes=14, shuffles=True),
    SCRIPT_ORDER(**{**OF_SCRIPT, "num_cells": 1}, subject="order", num_passes=1, shuffles=False),
    SCRIPT_SAME(**OF_SCRIPT, subject="script.batch-size", is_whole=True),
    SCRIPT_SAME(**OF_SCRIPT, subject="script.batch-size", is_whole=False),
)
OTHERS = (SEED_SPREAD, SLOW, UNCOMPARED, *SCRIPTS)


def sentence(found: Finding, lang: str = "en") -> str:
    return found.sentence(Words(lang))


@pytest.fixture(scope="module")
def every(tmp_path_factory: pytest.TempPathFactory) -> list[Finding]:
    """Findings of every kind, made from records."""
    home = tmp_path_factory.mktemp("runs")
    learn = made_study(
        design="one-at-a-time",
        vary={"lr": (0.01, 0.1), "zero_grad": (False,), "batch_size": (16,)},
        cells=({"optimizer": "sgd", "lr": 0.5},),
        seeds=9,
        targets={"test/accuracy": 0.8777, "test/loss": 0.1},
        margins={"test/loss": 0.0213},
    )
    cost = made_study(
        vary={"batch_size": (1, 4, 16), "hidden": (3, 5)},
        seeds=3,
        cost=CostSpec(mode="both"),
    )

    def state(trial: Trial) -> str:
        gone = {"lr=0.1": "diverged", "batch_size=16": "failed"}
        return gone.get(trial.cell, "done") if trial.seed > 4 else "done"

    def step_ms(trial: Trial, process: int) -> float:
        own = 1 + 0.013 * ((process * 3 + len(trial.cell) + 2 * trial.again) % 4)
        return own * (1.7 + 0.0345 * trial.settings.batch_size * (1 + 9 * (process == 3)))

    several = made_study(
        vary={"processes": (1, 2, 4)}, learn=False, cost=CostSpec(mode="train"), seeds=1
    )
    subset = DATA.model_copy(update={"num_train": 96})
    runs = [
        Fabricated(final=learned, state=state).write(home / "a", learn),
        Fabricated(
            final=learned,
            rows=rows,
            step_ms=step_ms,
            data=lambda t: subset if t.cell.endswith("hidden=5") else DATA,
            state=lambda t: "pending" if t.seed == 3 and t.kind == "learn" else "done",
        ).write(home / "b", cost),
        Fabricated(step_ms=step_ms).write(home / "c", several),
    ]
    for trial in runs[0].trials():
        counts = [[40 + trial.seed, 3, 2], [5, 30, trial.seed], [0, 1, 20]]
        if trial.kind == "learn" and trial.state == "done":
            runs[0].trial(trial.id).confusion.write(confusion(counts, trial.seed))
    others = [*PROBED, SEED_SPREAD, RAN, *OTHERS]
    return [*(one for run in runs for one in findings(gather(run))), *others]


@pytest.mark.slow
def test_the_findings_held_against_their_sentences_are_of_every_kind(every: list[Finding]) -> None:
    assert {one.kind for one in every} == all_kinds()
    assert {one.verdict for one in every if one.kind == "effect"} == {
        "different",
        "equivalent",
        "identical",
        "cannot tell",
    }


@pytest.mark.parametrize("lang", sorted(LANGUAGES))
def test_every_number_of_a_sentence_comes_from_the_finding(lang: str, every: list[Finding]) -> None:
    for found in every:
        told = sentence(found, lang)
        strange = numbers_in(told) - tellable(found)
        assert not strange, f"{strange} in: {told}"


def test_the_check_above_can_fail(every: list[Finding]) -> None:
    found = next(one for one in every if one.kind == "cost")
    other = changed(found, ratio=123.4)
    assert numbers_in(sentence(other)) - tellable(found) == {"123", "12340.0"}


@pytest.mark.parametrize("lang", sorted(LANGUAGES))
def test_numbers_and_names_are_the_same_in_both_languages(lang: str, every: list[Finding]) -> None:
    for found in every:
        assert numbers_in(sentence(found, lang)) == numbers_in(sentence(found, "en"))


def test_a_confound_is_named_at_the_end(every: list[Finding]) -> None:
    found = next(one for one in every if one.confounds)
    assert list(map(str, found.confounds)) == ["data.num_train: 960 against 96"]
    assert sentence(found).endswith("Beware: these also differ: data.num_train: 960 against 96.")
    assert sentence(found, "zh").endswith(
        "注意：以下各项也不同：训练样本数 data.num_train：960 与 96。"
    )


def effect(**given: Any) -> Finding:
    made = EFFECT(
        subject="test/accuracy",
        factor="lr",
        levels=(0.1, 0.01),
        cells=("lr=0.1", "lr=0.01"),
        mean_a=0.9,
        mean_b=0.95,
        difference=0.05,
        p=0.25,
        confidence=0.95,
        family=1,
        margin=None,
        seeds_needed=None,
        detectable=None,
        std=0.01,
        is_withheld=False,
        num_failed=0,
        num_dropped=0,
        num_diverged=0,
        diverged_a=0,
        diverged_b=0,
        chance=None,
        chance_low=None,
        chance_high=None,
        n=3,
        interval=Interval(-0.02, 0.12),
        verdict="cannot tell",
    )
    return changed(made, **given)


def test_one_seed_is_told_to_be_too_few() -> None:
    assert sentence(effect(n=1, interval=None, p=None)) == (
        "lr 0.1 → 0.01: test accuracy 90.00% → 95.00% (1 seed): cannot tell; the difference is +5.00 "
        "points. One seed cannot show a difference; it takes at least 2."
    )


def test_seeds_that_do_not_settle_it_are_told_with_how_many_would() -> None:
    told = sentence(effect(n=6, seeds_needed=21, detectable=0.0712))
    assert told.endswith(
        "6 seeds find a difference of 7.12 points in four of five studies. About 21 would settle it if "
        "this difference is the true one."
    )


def test_identical_results_and_diverged_seeds_are_told() -> None:
    same = effect(verdict="identical", difference=0.0, interval=None, p=None)
    assert sentence(same).endswith(": identical in all 3 seeds.")
    told = sentence(effect(diverged_b=2))
    assert told.endswith(
        "Diverged: 0 of lr=0.1, 2 of lr=0.01; only seeds that trained in both are compared."
    )


def test_a_difference_within_the_margin_is_told_not_to_matter() -> None:
    small = effect(verdict="different", p=0.01, margin=0.2, interval=Interval(0.02, 0.08))
    assert sentence(small).endswith("but by less than the 20.00 points that would matter.")
    assert "matter" not in sentence(changed(small, margin=0.07))


def test_a_difference_and_an_equivalence_are_told_with_their_evidence() -> None:
    assert (
        ": different, by +5.00 points [95% CI -2.00 points to +12.00 points], p = 0.004."
        in sentence(effect(n=8, verdict="different", p=0.004))
    )
    assert (
        ": equivalent within 0.50 points; the difference is +0.10 points [90% CI -2.00 points"
        in sentence(effect(n=8, verdict="equivalent", margin=0.005, difference=0.001))
    )


def test_cells_without_a_common_seed_are_told_not_to_compare() -> None:
    told = sentence(effect(n=0, interval=None, mean_a=None, difference=None))
    assert (
        told
        == "lr 0.1 → 0.01: test accuracy cannot be compared, no seed ended well in both settings."
    )


def test_the_other_factors_of_a_grid_are_told() -> None:
    cells = ("batch_size=16,lr=0.1", "batch_size=16,lr=0.01")
    assert sentence(effect(cells=cells)).startswith("lr 0.1 → 0.01 (at batch_size=16): ")


def test_another_language_is_refused_with_those_there_are() -> None:
    with pytest.raises(SpecError, match="--lang: got 'de', must be one of en, zh"):
        sentence(effect(), "de")


@pytest.mark.parametrize(
    ("value", "told"),
    [
        (0, "0"),
        (12345.6, "12,346"),
        (123.4, "123"),
        (1.234, "1.23"),
        (0.01234, "0.0123"),
        (1e-5, "1e-05"),
    ],
)
def test_a_figure_has_three_digits(value: float, told: str) -> None:
    assert figure(value) == told


@pytest.mark.parametrize(
    ("metric", "value", "told"),
    [
        ("test/accuracy", 0.97819, "97.82%"),
        ("test/loss", 0.12345, "0.1235"),
        ("test/loss", 0.00012345, "0.000123"),
        ("test/loss", 3.1e30, "3.1e+30"),
        ("test/loss", None, "not finite"),
    ],
)
def test_a_metric_is_told_to_a_useful_place(metric: str, value: float | None, told: str) -> None:
    assert metric_value(metric, value) == told


def test_a_difference_is_never_rounded_to_nothing() -> None:
    assert metric_difference("test/loss", 0.00004, "") == "+4e-05"
    assert metric_difference("test/loss", -0.0123, "") == "-0.0123"
    assert metric_difference("test/loss", 2.5e9, "") == "+2.5e+09"
    assert metric_difference("test/accuracy", 0.0041, "points") == "+0.41 points"


def test_things_are_counted_whole() -> None:
    assert [count(7.0), count(1204), count(7.5)] == ["7", "1,204", "7.50"]


@pytest.mark.parametrize("kind", ["scaling", "top_operator", "operator_growth", "optimizer_share"])
def test_a_row_of_batches_says_which_it_is(kind: str, every: list[Finding]) -> None:
    told = {sentence(one) for one in every if one.kind == kind}
    assert any("(at hidden=3)" in one for one in told)
    assert any("(at hidden=5)" in one for one in told)
    assert any("（hidden=5）" in sentence(one, "zh") for one in every if one.kind == kind)


def test_the_end_of_gains_is_not_told_of_sizes_far_beyond_those_measured() -> None:
    fit = SCALING(
        subject="train/step_ms",
        cells=("a", "b"),
        fixed_ms=0.3,
        per_sample_us=0.06,
        per_sample_us_low=0.05,
        per_sample_us_high=0.07,
        enough=None,
        enough_low=None,
        enough_high=None,
        largest=64,
        worst_error=0.01,
        allowed_error=0.02,
        fit="fits",
        n=3,
    )
    near, far, flat, unsure = (
        sentence(changed(fit, enough=enough, enough_low=low, enough_high=high))
        for enough, low, high in [
            (80.0, 71.5, 92.5),
            (2e4, 1e4, 3e4),
            (None, 90.0, None),
            (80.0, 10.0, 500.0),
        ]
    )
    assert "Beyond batch 80 [95% CI 71.5 to 92.5], doubling gains less than 10%." in near
    for told in (far, flat):
        assert "At batch 64, the largest measured, doubling still gains more than 10%." in told
    assert "cannot be told from these measurements" in unsure
    assert "0.0600 µs [95% CI 0.0500 to 0.0700] per sample" in near


def test_a_line_that_cannot_be_checked_says_why() -> None:
    numbers = {"fixed_ms": 1.0, "per_sample_us": 1.7, "enough": None, "largest": 64}
    ends = ("per_sample_us_low", "per_sample_us_high", "enough_low", "enough_high")
    fit = SCALING(
        subject="train/step_ms",
        cells=("a", "b", "c"),
        **numbers,
        **dict.fromkeys(ends),
        worst_error=0.41,
        allowed_error=0.87,
        fit="cannot tell",
        n=3,
    )
    assert "cannot be told: a size predicted from the others is off by up to 41.0%" in sentence(fit)
    assert "noise explains up to 87.0%" in sentence(fit)
    assert "from one process for each size" in sentence(changed(fit, allowed_error=None))
    misfit = changed(fit, fit="does not fit", allowed_error=0.12)
    assert "the noise of the measurements explains at most 12.0%" in sentence(misfit)


def test_a_small_share_is_not_told_as_none() -> None:
    assert [percent(0.0004), percent(0.123), percent(0.0)] == ["0.04%", "12.3%", "0.0%"]


def test_p_is_never_told_smaller_than_can_be_known() -> None:
    assert [p_value(0.00002), p_value(0.031)] == ["p < 0.001", "p = 0.031"]


def test_sentences_of_a_real_run_are_whole(every: list[Finding], tmp_path: Path) -> None:
    for found in every:
        for lang in LANGUAGES:
            told = sentence(found, lang)
            assert told.endswith((".", "。"))
            assert "None" not in told
            assert "nan" not in told
