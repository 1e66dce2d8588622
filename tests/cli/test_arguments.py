"""A command line and a study file say the same thing."""

from pathlib import Path
from typing import Any

from asking import study_for
from trainlab.cli.parsing import question_of
from trainlab.cli.run_verbs import RunVerb, requested_seeds
from trainlab.spec import Question
from trainlab.studies import builtin_study

FILE = """
workload = "OWN"
seeds = 3
design = "one-at-a-time"
tensorboard = false
settings = { epochs = 1, device = "cpu", model = { hidden = 6 } }

[vary]
batch_size = [5, 20]
lr = [0.1, 1e-3]
optimizer = ["sgd"]
hidden = [4]
zero_grad = [false]
"""


def asked(what: str, settings: dict[str, Any] | None = None, *vary: str, **given: Any) -> Question:
    return question_of(what, settings or {}, vary, **given).question


def test_a_file_and_flags_resolve_to_the_same_study(tiny_file: Path, tmp_path: Path) -> None:
    own = f"{tiny_file}:tiny"
    (tmp_path / "s.toml").write_text(FILE.replace("OWN", own))
    from_file = question_of(str(tmp_path / "s.toml"), {})
    assert from_file.where == str(tmp_path / "s.toml")
    flags = {"epochs": "1", "batch_size": "5,20", "lr": "0.1, 1e-3", "device": "cpu"}
    # One level needs --vary: `--optimizer sgd` is a setting.
    vary = ("optimizer=sgd", "hidden=4", "zero-grad=false")
    of_run = {"seeds": 3, "design": "one-at-a-time", "tensorboard": False, "save_model": None}
    from_flags = asked(own, flags | {"model": "hidden=6"}, *vary, **of_run)
    study = study_for(from_file.question)
    assert [cell.id for cell in study.cells] == [
        *("base", "batch_size=5", "batch_size=20", "lr=0.1", "lr=0.001", "optimizer=sgd"),
        *("hidden=4", "zero_grad=false"),
    ]
    assert study_for(from_flags) == study


def test_flags_override_a_study() -> None:
    plain = builtin_study("mnist-lab")
    assert asked("mnist-lab") == plain
    changed = asked("mnist-lab", {"batch_size": "8,32", "device": "cpu", "epochs": "2"}, seeds=5)
    assert changed.vary == {"batch_size": (8, 32)}
    assert changed.settings == {"epochs": "2", "device": "cpu"}
    assert (changed.seeds, changed.cost, changed.title) == (5, plain.cost, plain.title)
    assert asked("fashion-lab", None, "lr=0.5").vary["lr"] == (0.5,)


def test_levels_are_numbers_words_or_truths_and_commas_inside_a_value_are_none() -> None:
    for text, levels in (
        ("lr=0.01,1e-3", (0.01, 0.001)),
        ("optimizer=adam, sgd", ("adam", "sgd")),
        ("zero-grad=true,false", (True, False)),
        ("hidden=64", (64,)),
    ):
        assert list(asked("fashion-mlp", None, text).vary.values()) == [levels]
    question = asked("fashion-mlp", {"model": "hidden=64,bias=true", "data": "a,b"})
    assert (question.vary, question.settings["data"]) == ({}, "a,b")


def test_a_budget_is_a_time() -> None:
    for text, seconds in (("90s", 90), ("10m", 600), ("1.5h", 5400), (" 2m ", 120)):
        assert RunVerb.of({"what": "x", "budget": text}).budget == seconds


def test_seeds_are_given_by_number_or_by_name_but_not_both() -> None:
    assert requested_seeds(None, None) is None
    assert requested_seeds(None, 3) == 3
    assert requested_seeds("4,2", None) == (4, 2)
