"""Study files: what is wrong is told, all of it, each in one line with its place."""

import tomllib
from pathlib import Path
from typing import Any

import pytest

from trainlab.errors import SpecError
from trainlab.spec import Cell, Question, Study, TrainSpec
from trainlab.spec.question import checked_question, layout_of, looks_of, read_question, seeds_of
from trainlab.spec.study import Target, lower_is_better, target_of
from trainlab.studies import study_file, study_names

PARAMETERS = ("hidden",)


def cells(text: str, **defaults: Any) -> tuple[Cell, ...]:
    return layout_of(checked_question(tomllib.loads(text)), defaults, PARAMETERS)[0]


def problems(text: str) -> list[str]:
    with pytest.raises(SpecError) as caught:
        cells(f'workload = "w"\n{text}')
    assert not [line for line in caught.value.problems if "\n" in line]
    return list(caught.value.problems)


def test_all_problems_of_settings_and_levels_are_told_together() -> None:
    text = 'sedes = 3\n[settings]\nepochs = 0\n[vary]\nlr = [0.1, "y"]\nhidden = []'
    told = problems(text)
    assert told[0] == "sedes: unknown setting; did you mean seeds?"
    assert [line.partition(":")[0] for line in told[1:]] == ["epochs", "vary.hidden", "vary.lr[1]"]


def test_what_is_no_toml_is_told_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "s.toml"
    with pytest.raises(SpecError, match=r"s\.toml: cannot be read: No such file"):
        read_question(path)
    for content, told in ((b'workload == "w"', ".*line 1"), (b"\xff\xfe", "")):
        path.write_bytes(content)
        with pytest.raises(SpecError, match=rf"s\.toml: is not TOML: {told}"):
            read_question(path)


def test_a_level_that_the_base_has_is_the_base_also_by_default() -> None:
    for vary, defaults, model, ids, same in (
        ("batch_size = [16, 32]", {"batch_size": 32}, {}, "batch_size=16", "batch_size=32"),
        ("lr = [0.001, 0.01]", {"optimizer": "adam"}, {}, "lr=0.01", "lr=0.001"),
        ("hidden = [8, 128]", {}, {"hidden": 128}, "hidden=8", "hidden=128"),
    ):
        text = f'workload = "w"\ndesign = "one-at-a-time"\n[vary]\n{vary}'
        question = checked_question(tomllib.loads(text))
        found, same_as_base = layout_of(question, defaults, PARAMETERS, model)
        assert [cell.id for cell in found] == ["base", ids]
        assert same_as_base == (same,)
    listed = cells('workload = "w"\n[[cells]]\noptimizer = "sgd"\nlr = 0.5')
    assert [cell.id for cell in listed] == ["base", "optimizer=sgd,lr=0.5"]


def test_another_optimizer_drops_the_defaults_tuned_for_the_workloads_own() -> None:
    text = 'workload = "w"\n[vary]\noptimizer = ["adadelta", "adam"]'
    first, second = cells(text, optimizer="adadelta", lr=1.0)
    assert (first.settings.start_lr, second.settings.start_lr) == (1.0, 0.001)


def test_a_name_that_is_no_setting_is_a_parameter_of_the_model() -> None:
    (small, large) = cells('workload = "w"\n[vary]\nhidden = [4, 8]')
    assert small.levels == {"model.hidden": 4}
    assert large.settings.model == {"hidden": 8}
    assert cells('workload = "w"\n[vary]\n"model.hidden" = [4, 8]') == (small, large)


def test_the_schema_accepts_the_built_in_studies_and_refuses_mistakes() -> None:
    jsonschema = pytest.importorskip("jsonschema")
    schema = jsonschema.Draft202012Validator(Question.model_json_schema())
    for name in study_names():
        values = tomllib.loads(study_file(name).read_text())
        assert schema.is_valid(values), name
        for wrong in (
            *({"sedes": 3}, {"vary": {"lr": 0.1}}, {"seeds": "x"}, {"design": "gird"}),
            *({"cost": {"processes": 0}}, {"margins": {"test/loss": 0}}),
        ):
            assert not schema.is_valid({**values, **wrong}), wrong
    assert not schema.is_valid({"seeds": 3})


def test_the_schema_describes_every_field_for_editors() -> None:
    schema = Question.model_json_schema()
    fields = {**schema["properties"], **schema["$defs"]["CostSpec"]["properties"]}
    assert all(field.get("description") for field in fields.values())
    kinds = fields["targets"]["additionalProperties"]["anyOf"]
    assert [kind["type"] for kind in kinds] == ["number", "string"]


def test_seeds_are_a_number_or_themselves_and_more_are_added_only_to_a_number() -> None:
    assert seeds_of(Question(workload="w", seeds=3)) == (1, 2, 3)
    assert seeds_of(Question(workload="w", seeds=(4, 9))) == (4, 9)
    for fields, told in (
        ({"seeds": (1, 2)}, "give a number of seeds, not a list"),
        ({"seeds": 30}, "max_seeds: got 20, must be 30 or more"),
    ):
        with pytest.raises(SpecError, match=told):
            looks_of(Question(workload="w", until_decided=True, **fields))


# Targets: which way a metric must go, said or by its name.

FALL = (
    "loss hinge_loss logloss mae MSE rmse error error_rate top5_error perplexity cross_entropy wer "
    "squarederror FID mean_gap nrmse lpips crps hamming latency_ms"
)


def test_losses_and_errors_fall_accuracies_rise_and_of_others_the_name_does_not_tell() -> None:
    for name in FALL.split():
        assert lower_is_better(f"test/{name}")
        assert target_of(f"test/{name}", 0.1, is_lower=True) == Target(
            f"test/{name}", "at most", 0.1
        )
    for metric in (
        "test/accuracy",
        "test/auc",
        "test/f1",
        "test/r2",
        "loss/accuracy",
        "train/mean_reward",
        "val/mIoU",
        "test/mAP50",
    ):
        assert lower_is_better(metric) is False
        assert target_of(metric, 0.1) == Target(metric, "at least", 0.1)

    for metric in ("test/place", "train/steps", "test/temperature", "train/lr", "test/lossless"):
        assert lower_is_better(metric) is None

    # What is said counts, whatever the name.
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
