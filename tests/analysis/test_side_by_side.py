"""Two runs side by side, and runs put together where that is allowed."""

import re
from pathlib import Path
from typing import Any

import pytest

from fabricate import DATA, ENVIRONMENT, Fabricated, made_study
from trainlab.analysis.comparison import compared_sentences, comparison_of, pooled, side_by_side
from trainlab.analysis.evidence import Evidence, gather
from trainlab.analysis.metrics import limits_of
from trainlab.analysis.overview import data_of, findings
from trainlab.errors import RecordError
from trainlab.spec import CostSpec
from trainlab.stats.means import SHARES
from trainlab.words import Words

EN = Words("en")


def changed(**update: Any) -> dict[str, Any]:
    return {"environment": ENVIRONMENT.model_copy(update=update)}


OTHER_TORCH = changed(packages={**ENVIRONMENT.packages, "torch": "2.10.0"})


def run(path: Path, name: str, told: dict[str, Any] | None = None, **question: Any) -> Evidence:
    asked = {"vary": {"lr": (0.1, 0.01)}, "name": name, **question}
    return gather(Fabricated(**(told or {})).write(path / name, made_study(**asked)))


def test_the_same_cells_are_compared_and_the_others_listed(tmp_path: Path) -> None:
    a = run(tmp_path, "a", vary={"lr": (0.1, 0.01, 0.5)}, seeds=6)
    final = {"final": lambda t: {"test/accuracy": 0.8 + 0.001 * t.seed}}
    b = run(tmp_path, "b", final, vary={"lr": (0.01, 0.1, 0.7)}, seeds=6)
    found = side_by_side(a, b)
    assert (found.only_a, found.only_b) == (("lr=0.5",), ("lr=0.7",))
    told = [(one.cell, one.subject, one.verdict) for one in found.learned]
    assert told == [(cell, "test/accuracy", "different") for cell in ("lr=0.1", "lr=0.01")]
    assert (found.learned[0].a, found.learned[0].b) == pytest.approx((0.9, 0.8035))


def test_another_torch_other_data_and_other_settings_are_named(tmp_path: Path) -> None:
    subset = DATA.model_copy(update={"is_subset": True})
    a = run(tmp_path, "a")
    told = {"data": lambda t: subset, "resolved": lambda t: {"threads": 4}}
    b = run(tmp_path, "b", OTHER_TORCH | told, settings={"epochs": 5})
    assert [str(one) for one in side_by_side(a, b).confounds] == [
        "threads: 1 against 4",
        "epochs: 2 against 5",
        "data.is_subset: False against True",
        "packages.torch: 2.9.0+cpu against 2.10.0",
    ]
    assert side_by_side(a, run(tmp_path, "same")).confounds == ()


def test_runs_of_different_workloads_or_without_a_common_cell_are_refused(tmp_path: Path) -> None:
    a = run(tmp_path, "a")
    with pytest.raises(RecordError, match="a is about tiny, b about other; compare runs of one"):
        side_by_side(a, run(tmp_path, "b", workload="other"))
    with pytest.raises(RecordError, match=r"no setting in common: lr=0.1, lr=0.01 against lr=0.5"):
        side_by_side(a, run(tmp_path, "c", vary={"lr": (0.5,)}))


def cells_beside(a: Evidence, b: Evidence) -> list[str]:
    return [one.cell for one in side_by_side(a, b).learned if one.subject == "test/loss"]


def test_cells_are_compared_with_those_of_each_device(tmp_path: Path) -> None:
    sizes = {"batch_size": (1, 4)}
    laptop = run(tmp_path, "a", vary=sizes, settings={"device": "cpu"}, seeds=1)
    server, other = (
        run(tmp_path, name, vary=sizes | {"device": ("cpu", "cuda")}, seeds=1) for name in "bc"
    )
    told = [f"batch_size={size},device={device}" for size in (1, 4) for device in ("cpu", "cuda")]
    for a, b in ((server, other), (laptop, server), (server, laptop)):
        assert cells_beside(a, b) == told
    assert "device: cpu against cuda" in map(str, side_by_side(laptop, server).confounds)


def test_a_machine_twice_as_fast_is_told_by_cell_and_mode(tmp_path: Path) -> None:
    def timed(name: str, ms: float) -> Evidence:
        told = {"step_ms": lambda trial, process: ms * (1 + 0.005 * process)}
        return run(tmp_path, name, told, cost=CostSpec(mode="both"), learn=False)

    found = side_by_side(timed("a", 2.0), timed("b", 1.0)).costs
    assert [(one.cell, one.subject) for one in found] == [
        (cell, f"{mode}/sample_us")
        for mode in ("train", "inference")
        for cell in ("lr=0.1", "lr=0.01")
    ]
    assert {one.verdict for one in found} == {"different"}
    assert found[0].change == pytest.approx(0.5, rel=0.01)


def test_runs_whose_times_are_flagged_are_compared_by_a_range_and_its_reason(
    tmp_path: Path,
) -> None:
    def timed(name: str, ms: float, noise: float) -> Evidence:
        told = {"step_ms": lambda trial, process: ms * (1 + noise * (process % 3))}
        return run(tmp_path, name, told, cost=CostSpec(processes=6), learn=False)

    def said(b: Evidence) -> str:
        return next(compared_sentences(side_by_side(timed(f"a{b.name}", 4.0, 0.0), b), EN)).text

    assert said(timed("b", 1.0, 0.001)) == "B trains 4 times as fast per sample as A."
    text = said(timed("c", 1.0, 0.3))
    low, high = re.findall(r"B trains ([\d.]+) to ([\d.]+) times as fast", text)[0]
    assert float(low) < 4 / 1.3 < float(high)
    assert "Only a range is known, since processes differ by 60%" in text


def test_runs_of_one_study_with_other_seeds_are_pooled(tmp_path: Path) -> None:
    final = {"final": lambda t: {"test/loss": 0.5 + 0.2 * (t.cell == "lr=0.1") + 0.001 * t.seed}}
    parts = {"a": (1, 2, 3), "b": (4, 5, 6)}
    both = pooled([run(tmp_path, name, final, seeds=seeds) for name, seeds in parts.items()])
    assert sorted(both.values("lr=0.1", "test/loss")) == [1, 2, 3, 4, 5, 6]
    (effect,) = [one for one in findings(both) if one.kind == "effect"]
    assert (effect.n, effect.verdict) == (6, "different")
    assert all(one.kind != "undecided" for one in findings(both))


def test_what_was_learned_with_other_seeds_is_said_not_to_be_compared(tmp_path: Path) -> None:
    def learned(other_seeds: tuple[int, ...]) -> str:
        a = run(tmp_path / str(other_seeds), "a", seeds=(1, 2))
        b = run(tmp_path / str(other_seeds), "b", seeds=other_seeds)
        beside = comparison_of(data_of(a), data_of(b), side_by_side(a, b), "en")
        return str(next(one.blocks for one in beside.sections if one.id == "learning"))

    assert "no seed in common" in learned((3, 4))
    assert "no seed in common" not in (told := learned((2, 3)))
    assert "B less A" in told


OTHER_FOLDER = changed(git_commit="def", git_dirty=True)


def test_a_builtin_workload_is_pooled_over_git_folders_of_the_same_code(tmp_path: Path) -> None:
    def in_folder(name: str, code: str | None, seeds: tuple[int, ...], workload: str) -> Evidence:
        told = {**({} if name == "a" else OTHER_FOLDER), "resolved": lambda trial: {"code": code}}
        return run(tmp_path / workload / str(code), name, told, seeds=seeds, workload=workload)

    first = in_folder("a", "one", (1, 2), "fashion-mlp")
    both = pooled([first, in_folder("b", "one", (3, 4), "fashion-mlp")])
    assert sorted(both.values("lr=0.1", "test/loss")) == [1, 2, 3, 4]
    with pytest.raises(RecordError, match="code: one against two"):
        pooled([first, in_folder("b", "two", (3, 4), "fashion-mlp")])
    with pytest.raises(RecordError, match="other code: git commit abc against git commit def"):
        pooled([in_folder(n, None, s, "mnist-cnn") for n, s in (("a", (1, 2)), ("b", (3, 4)))])
    # A user's own file may import others from its folder, whose code is not in the fingerprint.
    with pytest.raises(RecordError, match="other code: git commit abc against git commit def"):
        pooled([in_folder(n, "one", s, "w.py:w") for n, s in (("a", (1, 2)), ("b", (3, 4)))])


def test_runs_that_must_not_be_pooled_are_refused_with_the_reason(tmp_path: Path) -> None:
    fewer = DATA.model_copy(update={"num_train": 96})
    refused: list[tuple[dict[str, Any], dict[str, Any], str]] = [
        (OTHER_TORCH, {}, r"torch 2\.9\.0\+cpu against 2\.10\.0"),
        (changed(cpu="Another"), {}, "another machine: Made-up CPU against Another"),
        (changed(git_dirty=True), {}, "git commit abc against git commit abc with changes"),
        (changed(git_commit=None, git_dirty=None), {}, "git commit abc against not in git"),
        ({}, {"settings": {"epochs": 5}}, "their cells or settings differ"),
        ({}, {"workload": "other"}, "tiny against other"),
        ({}, {"seeds": (3, 4)}, "seed 3 of lr=0.1 is in both"),
        ({"data": lambda t: fewer}, {}, "data.num_train: 960 against 96"),
        ({"resolved": lambda t: {"threads": 4}}, {}, "threads: 1 against 4"),
    ]
    a = run(tmp_path, "a", seeds=(1, 2, 3))
    for number, (told, question, reason) in enumerate(refused):
        b = run(tmp_path / str(number), "b", told, **{"seeds": (4, 5, 6), **question})
        with pytest.raises(RecordError, match=f"a and b must not be pooled: .*{reason}.*compare`"):
            pooled([a, b])


def test_a_share_that_is_told_in_per_cent_is_not_cut_off_at_1(tmp_path: Path) -> None:
    first = run(tmp_path, "a", {"final": lambda t: {"test/f1": 80.0 + 0.3 * (t.seed - 2)}})
    second = run(tmp_path, "b", {"final": lambda t: {"test/f1": 85.0 - 0.2 * (t.seed - 2)}})
    found = side_by_side(first, second).learned[0]
    assert found.change == pytest.approx(5.0)
    assert found.interval is not None
    assert found.interval.low < 5.0 < found.interval.high
    assert limits_of("test/f1", [80.0, 80.3]).high > 80.3
    assert limits_of("test/f1", [0.8, 0.9]) == SHARES
