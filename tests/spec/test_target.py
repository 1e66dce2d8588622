"""Targets: which way a metric must go, said or by its name."""

import pytest

from trainlab.errors import SpecError
from trainlab.spec import Question, Study, TrainSpec
from trainlab.spec.question import checked_question
from trainlab.spec.study import Target, lower_is_better, target_of

FALL = (
    "loss hinge_loss logloss mae MSE rmse error error_rate top5_error perplexity cross_entropy wer "
    "squarederror FID mean_gap nrmse lpips crps hamming latency_ms"
)


def test_losses_and_errors_fall_and_all_else_rises() -> None:
    for name in FALL.split():
        assert target_of(f"test/{name}", 0.1) == Target(f"test/{name}", "at most", 0.1)
    for metric in (
        "test/accuracy",
        "test/auc",
        "test/f1",
        "test/r2",
        "loss/accuracy",
        "test/place",
    ):
        assert not lower_is_better(metric)
        assert target_of(metric, 0.1) == Target(metric, "at least", 0.1)


def test_what_is_said_counts_whatever_the_name() -> None:
    for text in ("<= 0.1", "<=0.1", " <=  1e-1 "):
        assert target_of("test/accuracy", text) == Target("test/accuracy", "at most", 0.1)
        text = text.replace("<", ">")
        assert target_of("test/loss", text) == Target("test/loss", "at least", 0.1)


def test_a_target_is_kept_as_it_was_written() -> None:
    targets = {"test/accuracy": 0.97, "test/mae": "<= 0.1"}
    assert Question(workload="w", targets=targets).targets == targets
    study = Study(name="s", workload="w", settings=TrainSpec(), targets=targets)
    assert Study.model_validate_json(study.model_dump_json()).targets == targets


def test_a_target_that_is_none_is_one_line() -> None:
    for wrong in ("0.1", "< 0.1", "<= x", "<= nan", "0.1 <=", "", True, None, float("inf"), [1]):
        with pytest.raises(SpecError) as caught:
            checked_question({"workload": "w", "targets": {"test/mae": wrong}}, "s.toml")
        told = f'got {wrong!r}, must be a number, or a text as "<= 0.1" or ">= 0.9"'
        assert list(caught.value.problems) == [f"s.toml: targets.test/mae: {told}"]


def test_the_schema_takes_a_number_or_a_text_for_a_target() -> None:
    kinds = Question.model_json_schema()["properties"]["targets"]["additionalProperties"]["anyOf"]
    assert [kind["type"] for kind in kinds] == ["number", "string"]
