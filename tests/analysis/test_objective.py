"""Which metric the answer goes by, and which way of it is better."""

import re
from pathlib import Path
from typing import Any

import pytest
from analysed import EN, evidence, of_kind

from fabricate import Fabricated, made_study
from trainlab.analysis.answer import Answer, answer
from trainlab.analysis.evidence import Evidence, gather
from trainlab.analysis.gate import gate_of
from trainlab.analysis.metrics import compared_metrics, in_order
from trainlab.analysis.overview import findings
from trainlab.errors import SpecError
from trainlab.resolve import resolve
from trainlab.spec import Question, Study, TrainSpec
from trainlab.spec.facts import WorkloadFacts
from trainlab.spec.script import ScriptSpec

SCRIPT: dict[str, Any] = {"name": "s", "workload": "t.py", "settings": TrainSpec()}


def script_study(objective: str | None = None, **told: Any) -> Study:
    return Study(**SCRIPT, objective=objective, script=ScriptSpec(path="t.py", **told))


def answered(run: Evidence) -> Answer:
    return answer(run, findings(run), EN)


def of_study(path: Path, objective: str | None = None, **final: float) -> Evidence:
    """Two settings whose metrics differ from seed to seed; the second has the lower ones."""
    study = made_study(vary={"lr": (0.1, 0.01)}, seeds=5, objective=objective)

    def values(trial: Any) -> dict[str, float]:
        part = 0.01 * (trial.seed % 3) - 0.3 * (trial.cell == "lr=0.01")
        return {name.replace("_", "/", 1): one + part for name, one in final.items()}

    return evidence(path, study, final=values)


def test_what_the_user_named_comes_before_the_losses_that_are_seen_anyway() -> None:
    printed = {"metrics": {"perplexity": "p ([0-9.]+)"}}
    for names, told, first in (
        (["train/loss", "test/perplexity"], printed, "test/perplexity"),
        (["train/loss", "test/perplexity", "test/accuracy"], printed, "test/perplexity"),
        (["train/loss", "train/reward", "train/lr"], {}, "train/reward"),
        (["train/loss", "train/loss_logged", "val/loss", "val/acc"], {}, "val/acc"),
        (["train/loss", "test/loss", "test/runtime"], {}, "test/loss"),
        (["train/loss", "train/loss_2", "train/lr", "test/lr"], {}, "train/loss"),
        (["train/loss", "train/accuracy", "val/accuracy", "test/f1"], {}, "test/f1"),
        (["train/losses_explained_variance", "train/losses_kl", "train/loss"], {}, "train/loss"),
        (["train/losses_value_loss", "train/mae", "train/loss"], {}, "train/mae"),
        (["train/loss", "test/loss_step", "test/loss_epoch"], {}, "test/loss_epoch"),
        (["train/loss", "val/acc_step", "val/loss_epoch"], {}, "val/acc_step"),
    ):
        assert in_order(names, script_study(**told))[0] == first, names
    for names, first in (
        (["train/loss", "test/loss", "train/accuracy", "test/accuracy"], "test/accuracy"),
        (["train/loss", "train/generator", "test/loss", "test/off_circle"], "test/off_circle"),
        (["train/loss", "train/norm", "test/loss"], "test/loss"),
        (["train/loss", "test/loss", "test/mae", "test/miou"], "test/miou"),
    ):
        assert in_order(names, made_study())[0] == first, names


def test_an_objective_is_found_with_and_without_its_part() -> None:
    names = ["train/loss", "train/f1", "val/f1", "test/accuracy_percent"]
    for objective, first in (
        ("f1", "val/f1"),
        ("train/f1:min", "train/f1"),
        ("accuracy", "test/accuracy_percent"),
        ("loss", "train/loss"),
        ("unknown", "test/accuracy_percent"),
    ):
        assert in_order(names, script_study(objective))[0] == first
    assert script_study("f1:min").is_better_lower("test/f1") is True
    assert script_study("test/steps:max").is_better_lower("train/steps") is False
    assert script_study("steps").is_better_lower("train/steps") is None
    for wrong in ("", "f1:up", ":min"):
        with pytest.raises(
            ValueError, match="must be a metric, as accuracy, val/miou or reward:max"
        ):
            script_study(wrong)


def test_the_objective_is_that_of_the_study_or_else_of_the_workload() -> None:
    facts = WorkloadFacts("tiny", {}, (), ("f1", "heat"), objective="heat:min")
    assert resolve(Question(workload="tiny"), facts).objective == "heat:min"
    assert resolve(Question(workload="tiny", objective="val/f1"), facts).objective == "val/f1"
    with pytest.raises(
        SpecError, match=r"objective\.heta: tiny has no such metric; it has .*; did you mean heat"
    ):
        resolve(Question(workload="tiny", objective="heta"), facts)
    logs = WorkloadFacts("tiny", {}, (), (), logs_more=True)
    assert (
        resolve(Question(workload="tiny", objective="off_circle"), logs).objective == "off_circle"
    )


def test_a_bare_number_is_no_target_where_nothing_says_which_way_is_better() -> None:
    facts = WorkloadFacts("tiny", {}, (), ("heat",))
    asked: dict[str, Any] = {"workload": "tiny", "targets": {"test/heat": 0.9}}
    told = re.escape(
        'targets.test/heat: got 0.9, but nothing says which way is better; write ">= 0.9"'
    )
    with pytest.raises(SpecError, match=told):
        resolve(Question(**asked), facts)
    for objective, bound in (("heat:max", "at least"), ("heat:min", "at most")):
        study = resolve(Question(**asked, objective=objective), facts)
        assert study.target("test/heat").bound == bound


def test_where_nothing_says_which_way_is_better_nothing_is_called_best(tmp_path: Path) -> None:
    for objective, told in (
        (None, "Learning rate 0.1 gives the highest test steps: 1."),
        ("steps:max", "Learning rate 0.1 gives the best test steps: 1."),
        ("steps:min", "Learning rate 0.01 gives the best test steps: 0.7"),
    ):
        run = of_study(tmp_path / str(objective), objective, test_steps=1.0)
        (best,) = of_kind("best", run)
        assert best.is_known == (objective is not None)
        found = answered(run)
        said = [one.text for one in found.sentences]
        assert said[0].startswith(told)
        if objective is None:
            sentences = " ".join([*said, *(one.sentence(EN) for one in findings(run))])
            assert not re.search(r"\b(best|better|worse)\b", sentences)
            assert "the other is lower beyond the noise" in sentences
            assert (
                "Nothing says whether a higher or a lower test steps is better" in found.objective
            )


def test_the_answer_says_which_metric_it_took_where_there_was_a_choice(tmp_path: Path) -> None:
    usual = {"train_loss": 0.5, "test_loss": 0.5, "test_accuracy": 0.6}
    for name, objective, more, note in (
        ("usual", None, {}, ""),
        (
            "choice",
            None,
            {"test_miou": 0.5},
            "The answer goes by test accuracy; `--objective miou` would",
        ),
        ("asked", "miou", {"test_miou": 0.5}, "The answer goes by test miou, the objective."),
        (
            "wrong",
            "f2",
            {},
            "The objective f2 is none of the metrics that were recorded (train/loss, ",
        ),
    ):
        run = of_study(tmp_path / name, objective, **usual, **more)
        assert answered(run).objective.startswith(note)
        assert bool(answered(run).objective) == bool(note)
        assert compared_metrics(run)[0] == ("test/miou" if name == "asked" else "test/accuracy")
        effects = [one for one in of_kind("effect", run) if one.is_objective]
        assert {one.subject for one in effects} == {compared_metrics(run)[0]}


def test_the_gate_needs_to_know_which_way_is_better(tmp_path: Path) -> None:
    runs = []
    for heat, objective in ((0.5, None), (0.8, None), (0.8, "heat:min"), (0.8, "heat:max")):
        made = Fabricated(final=lambda t, heat=heat: {"test/heat": heat + 0.001 * t.seed})  # type: ignore[misc]
        study = made_study(seeds=4, objective=objective)
        runs.append(gather(made.write(tmp_path / str(len(runs)), study)))
    before, after, *known = runs
    with pytest.raises(
        SpecError, match="but nothing says which way is better; run with --objective"
    ):
        gate_of(after, before, worse={"test/heat": 0.1})
    verdicts = [gate_of(one, before, worse={"test/heat": 0.1}).verdict for one in known]
    assert verdicts == ["fail", "pass"]
