"""Sentences: what each says of its finding, and numbers as they are shown, in units that fit."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import hypothesis
import pytest
from hypothesis import strategies as st

from fabricate import Fabricated, made_study
from trainlab.analysis.evidence import gather
from trainlab.analysis.factors import EFFECT
from trainlab.analysis.finding import SHARED, Finding
from trainlab.analysis.learning import learn_table
from trainlab.analysis.scaling import SCALING
from trainlab.analysis.scripts import SCRIPT_TIME
from trainlab.errors import SpecError
from trainlab.plan import Trial
from trainlab.stats.means import Interval
from trainlab.words import Words
from trainlab.words.numbers import count, figure, memory, p_value, percent
from trainlab.words.numbers import metric_difference as difference
from trainlab.words.numbers import metric_value as value_of

EN = Words("en")


def changed(found: Finding, **given: Any) -> Finding:
    shared = {name: given.pop(name) for name in SHARED if name in given}
    return replace(found, **shared, numbers={**found.numbers, **given})


def effect(**given: Any) -> Finding:
    values = {"mean_a": 0.9, "mean_b": 0.95, "difference": 0.05, "p": 0.25}
    unknown = dict.fromkeys(("margin", "seeds_needed", "detectable"))
    counts = dict.fromkeys(("num_failed", "diverged_a", "diverged_b", "is_withheld"), 0)
    about = {"subject": "test/accuracy", "n": 3, "verdict": "cannot tell"}
    compared = {"factor": "lr", "levels": (0.1, 0.01), "cells": ("lr=0.1", "lr=0.01")}
    interval = Interval(-0.02, 0.12)
    made = EFFECT(**about, **compared, interval=interval, **values, **unknown, **counts)
    return changed(made, **given)


def test_an_effect_is_told_with_its_verdict_and_the_evidence_for_it() -> None:
    small = {"verdict": "different", "p": 0.01, "interval": Interval(0.02, 0.08)}
    of_grid = ("batch_size=16,lr=0.1", "batch_size=16,lr=0.01")
    without_seed = {"n": 0, "interval": None, "mean_a": None, "difference": None}
    for given, told in (
        (
            {"n": 1, "interval": None, "p": None},
            "lr 0.1 → 0.01: test accuracy 90.00% → 95.00% (1 seed): cannot tell; the difference is "
            "+5.00 points. One seed cannot show a difference; it takes at least 2.",
        ),
        (
            {"n": 6, "seeds_needed": 21, "detectable": 0.0712},
            "6 seeds find a difference of 7.12 points in four of five studies. About 21 would settle "
            "it if this difference is the true one.",
        ),
        (
            {"verdict": "identical", "difference": 0.0, "interval": None, "p": None},
            ": identical in all 3 seeds.",
        ),
        (
            {"diverged_b": 2},
            "Without a finite value: 0 of lr=0.1, 2 of lr=0.01; only seeds that have one in both are "
            "compared.",
        ),
        ({**small, "margin": 0.2}, "but by less than the 20.00 points that would matter."),
        ({**small, "margin": 0.07}, "[95% CI +2.00 points to +8.00 points], p = 0.01."),
        (
            {"n": 8, "verdict": "different", "p": 0.004},
            ": different, by +5.00 points [95% CI -2.00 points to +12.00 points], p = 0.004.",
        ),
        (
            {"n": 8, "verdict": "equivalent", "margin": 0.005, "difference": 0.001},
            ": equivalent within 0.50 points; the difference is +0.10 points [90% CI -2.00 points",
        ),
        (
            without_seed,
            "lr 0.1 → 0.01: test accuracy cannot be compared, no seed ended well in both settings.",
        ),
        ({"cells": of_grid}, "lr 0.1 → 0.01 (at batch_size=16): "),
    ):
        assert told in effect(**given).sentence(EN)
    with pytest.raises(SpecError, match="--lang: got 'de', must be one of en, zh"):
        effect().sentence(Words("de"))


@hypothesis.settings(deadline=None)
@hypothesis.given(st.floats(0.01, 60), st.floats(0, 10), st.floats(0, 10))
def test_the_batch_that_is_said_to_be_enough_lies_within_its_interval(
    enough: float, below: float, above: float
) -> None:
    about = {"subject": "train/step_ms", "cells": ("a", "b"), "n": 3, "fixed_ms": 0.3}
    times = {"per_sample_us": 0.06, "per_sample_us_low": 0.05, "per_sample_us_high": 0.07}
    ends = {"enough_low": max(0.0, enough - below), "enough_high": enough + above}
    unknown = dict.fromkeys(("worst_error", "allowed_error"))
    fit = SCALING(**about, **times, **ends, **unknown, enough=enough, largest=64, fit="fits")
    said = re.search(r"Beyond batch (\d+) \[95% CI (\d+) to (\d+)\]", fit.sentence(EN))
    assert said is not None
    shown, low, high = map(int, said.groups())
    assert low <= shown <= high


def test_the_end_of_gains_is_not_told_of_sizes_far_beyond_those_measured() -> None:
    times = {"per_sample_us": 0.06, "per_sample_us_low": 0.05, "per_sample_us_high": 0.07}
    errors = {"worst_error": 0.01, "allowed_error": 0.02}
    about = {"subject": "train/step_ms", "cells": ("a", "b"), "n": 3}
    fit = SCALING(**about, **times, **errors, fixed_ms=0.3, largest=64, fit="fits")
    sizes = ((80.0, 71.5, 92.5), (2e4, 1e4, 3e4), (None, 90.0, None), (80.0, 10.0, 500.0))
    near, far, flat, unsure = (
        changed(fit, enough=enough, enough_low=low, enough_high=high).sentence(EN)
        for enough, low, high in sizes
    )
    assert "Beyond batch 80 [95% CI 72 to 92], doubling gains less than 10%." in near
    for told in (far, flat):
        assert "At batch 64, the largest measured, doubling still gains more than 10%." in told
    assert "cannot be told from these measurements" in unsure
    assert "0.0600 µs [95% CI 0.0500 to 0.0700] per sample" in near
    ends = dict.fromkeys(("per_sample_us_low", "per_sample_us_high", "enough_low", "enough_high"))
    unchecked = {"fit": "cannot tell", "worst_error": 0.41, **ends}
    unfit = {**unchecked, "fit": "does not fit"}
    for given, told in (
        ({**unchecked, "allowed_error": 0.87}, "predicted from the others is off by up to 41.0%"),
        ({**unchecked, "allowed_error": 0.87}, "noise explains up to 87.0%"),
        ({**unchecked, "allowed_error": None}, "from one process for each size"),
        ({**unfit, "allowed_error": 0.12}, "noise of the measurements explains at most 12.0%"),
    ):
        assert told in changed(fit, **given).sentence(EN)


def test_a_script_that_was_cut_short_is_told_to_be_one() -> None:
    about = {"subject": "script", "cells": ("batch-size=64",), "n": 3, "num_cells": 2, "cut": ""}
    times = {"wall_s": 28.84, "low_s": 27.65, "high_s": 30.12, "num_updates": 1_200}
    steps = {"step_ms": 515.2, "first_step_ms": 688.6, "instruments_s": 0.4, "is_of_others": False}
    shares = {
        "startup_share": 0.2477,
        "training_share": 0.6891,
        "evaluation_share": 0.0632,
        "other_share": 0.0,
    }
    overhead = {"overhead_s": 0.000812, "overhead_share": 0.0000281}
    made = SCRIPT_TIME(**about, **times, **steps, **shares, **overhead)
    for cut, start in {
        "": "The script ran for 28.8 s",
        "interrupted": "The script was interrupted after 1,200 updates and 28.8 s",
        "failed": "The script failed after 1,200 updates and 28.8 s",
    }.items():
        assert changed(made, cut=cut).sentence(EN).startswith(start)
    one = changed(made, cut="failed", num_updates=1)
    assert one.sentence(EN).startswith("The script failed after 1 update and 28.8 s")


def test_numbers_are_shown_to_a_useful_place_and_never_rounded_to_nothing() -> None:
    assert [figure(value) for value in (0, 12345.6, 123.4, 1.234, 0.01234, 1e-5)] == [
        *("0", "12,346", "123", "1.23", "0.0123", "1e-05")
    ]
    assert value_of("test/accuracy", 0.97819) == "97.82%"
    losses = [value_of("test/loss", one) for one in (0.12345, 0.00012345, 3.1e30, None)]
    assert losses == ["0.1235", "0.000123", "3.1e+30", "not finite"]
    differences = [difference("test/loss", one, "") for one in (0.00004, -0.0123, 2.5e9)]
    assert differences == ["+4e-05", "-0.0123", "+2.5e+09"]
    assert difference("test/accuracy", 0.0041, "points") == "+0.41 points"
    assert difference("test/loss", 0.00004, "", beside=0.02) == "+0.0000"
    assert [count(7.0), count(1204), count(7.5)] == ["7", "1,204", "7.50"]
    assert [percent(0.0004), percent(0.123), percent(0.0)] == ["0.04%", "12.3%", "0.0%"]
    assert [p_value(0.00002), p_value(0.031)] == ["p < 0.001", "p = 0.031"]
    assert memory(0.05, 0.025) == "51.2 → 25.6 KiB"
    assert memory(0.05, 2.0) == "0.0500 → 2.00 MiB"
    # Both ends of an interval are written to the same place.
    found = effect(subject="test/loss", interval=Interval(-0.0004, 0.0213))
    assert "[95% CI -0.0004 to +0.0213]" in found.sentence(EN)


def test_a_loss_that_is_never_negative_has_no_negative_interval(tmp_path: Path) -> None:
    def final(trial: Trial) -> dict[str, float]:
        value = 0.01 + 0.3 * (trial.seed % 3 == 1) + 0.001 * len(trial.cell)
        return {"train/loss": value, "test/loss": value, "test/r2": value}

    study = made_study(vary={"lr": (0.1, 0.2)}, seeds=3)
    table = learn_table(gather(Fabricated(final=final).write(tmp_path / "r", study)), EN)
    headings = [column.heading for column in table.columns]
    for row in table.rows:
        shown = dict(zip(headings, (entry.text for entry in row.entries), strict=True))
        assert "[0.0000, " in shown["test loss"]
        assert "[0.0000, " in shown["training loss"]
        assert "[-" in shown["test r2"], "one that can be negative keeps its interval"
