"""The gate: what it says of runs whose truth is known, and which runs it refuses."""

import math
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from analysed import ends

from fabricate import DATA, ENVIRONMENT, Fabricated, made_study
from trainlab.analysis.answer import SEED_OPTIONS, command_with
from trainlab.analysis.evidence import Evidence, gather
from trainlab.analysis.gate import (
    Check,
    Disturbance,
    cost_checks,
    gate_of,
    metric_checks,
    needs_sentence,
)
from trainlab.errors import RecordError
from trainlab.record.run_folder import RunFolder
from trainlab.record.study_record import Gpu
from trainlab.spec import CostSpec
from trainlab.stats.means import Interval
from trainlab.words import Words

NOISE = 0.03


def run(
    path: Path,
    name: str,
    times: float = 1.0,
    *,
    processes: int = 8,
    noise: float = NOISE,
    told: dict[str, Any] | None = None,
    **question: Any,
) -> Evidence:
    """A profile whose steps take so many milliseconds, its processes apart by the noise."""
    draw = np.random.default_rng([ord(letter) for letter in name])

    def step_ms(trial: Any, process: int) -> float:
        return times * math.exp(noise * draw.standard_normal())

    cost = CostSpec(processes=processes, mode=question.pop("mode", "train"))
    study = made_study(**{"learn": False, "cost": cost, "name": name, **question})
    made = Fabricated(**{"step_ms": step_ms, **(told or {})})
    return gather(made.write(path / name, study))


def test_a_run_is_slower_not_slower_or_cannot_be_told(tmp_path: Path) -> None:
    old = run(tmp_path, "old")
    slow, same, near = (
        gate_of(run(tmp_path, name, times), old, slower=0.05)
        for name, times in (("slow", 1.2), ("same", 1.0), ("near", 1.05))
    )
    verdicts = [(one.verdict, one.exit_code) for one in (slow, same, near)]
    assert verdicts == [("fail", 1), ("pass", 0), ("cannot tell", 3)]
    assert slow.ratio == pytest.approx(1.2, rel=0.05)
    assert slow.interval is not None
    assert 1.05 < slow.interval.low < slow.ratio < slow.interval.high
    (check,) = near.checks
    assert (check.cell, check.subject, check.num_run) == ("base", "train/step_ms", 8)
    assert near.processes_needed is None or near.processes_needed > 8
    assert "power 90%" in " ".join(near.sentences())
    assert gate_of(run(tmp_path, "fast", 0.5), old).verdict == "pass"


CELLS = ("a", "b", "c", "d")
REPEATS = 100
RARELY = 0.05 + 3 * math.sqrt(0.05 * 0.95 / REPEATS)


def test_checks_fail_and_pass_as_often_as_their_bounds_allow_though_settings_are_many() -> None:
    """That all are within their margins needs no correction for their number: the one that is beyond it is
    passed in 5% of cases, however many the others are."""
    draw, found, limit = np.random.default_rng(3), defaultdict(list), math.log1p(0.05)
    study = SimpleNamespace(is_better_lower=lambda metric: True)

    def side(first: float, others: float) -> Any:
        middle = dict.fromkeys(CELLS, others) | {CELLS[0]: first}
        logs = {cell: middle[cell] + 0.02 * draw.standard_normal(5) for cell in CELLS}
        return SimpleNamespace(
            measurement=lambda cell, mode: SimpleNamespace(process_ms=tuple(np.exp(logs[cell]))),
            values=lambda cell, metric: dict(enumerate(logs[cell])),
            study=study,
            all_learned=(),
            path="",
        )

    for _ in range(REPEATS):
        before = side(0.0, 0.0)
        for name, truth in (("same", (0.0, 0.0)), ("one", (limit, 0.0)), ("all", (limit, limit))):
            pair = side(*truth), before, CELLS
            for checks in (
                cost_checks(*pair, "train", 0.05, len(CELLS)),
                metric_checks(*pair, "test/loss", limit, len(CELLS)),
            ):
                found[name].append([check.verdict for check in checks])
    assert sum("worse" in one for one in found["all"]) / len(found["all"]) < RARELY
    assert sum(one[0] == "not worse" for one in found["one"]) / len(found["one"]) < RARELY
    assert sum(set(one) == {"not worse"} for one in found["same"]) / len(found["same"]) > 0.4


def test_a_metric_is_worse_by_its_own_direction(tmp_path: Path) -> None:
    def learned(name: str, accuracy: float, loss: float) -> Evidence:
        def final(trial: Any) -> dict[str, float]:
            off = 0.001 * (trial.seed % 3)
            return {"test/accuracy": accuracy + off, "test/loss": loss - off}

        study = made_study(name=name, seeds=5)
        return gather(Fabricated(final=final).write(tmp_path / name, study))

    old, new = learned("old", 0.90, 0.3), learned("new", 0.87, 0.2)
    found = gate_of(new, old, worse={"test/accuracy": 0.01, "test/loss": 0.01})
    verdicts = {one.subject: one.verdict for one in found.checks}
    assert verdicts == {"test/accuracy": "worse", "test/loss": "not worse"}
    assert found.exit_code == 1
    assert found.ratio is None
    assert "Worse: test accuracy is 87." in found.sentences()[1]
    assert gate_of(old, new, worse={"test/accuracy": 0.01}).verdict == "pass"
    same = gate_of(learned("same", 0.90, 0.3), old, worse={"test/accuracy": 0.001})
    assert same.verdict == "pass"


def test_seeds_that_diverged_in_the_run_alone_never_pass(tmp_path: Path) -> None:
    study, made = made_study(seeds=5), Fabricated(**ends("base", "diverged", after=4))
    old = gather(Fabricated().write(tmp_path / "old", study))
    found = gate_of(gather(made.write(tmp_path / "new", study)), old, worse={"test/accuracy": 0.01})
    assert found.exit_code == 3
    assert "no finite value in one run" in found.sentences()[0]


def test_one_process_cannot_tell_and_how_many_could_is_said(tmp_path: Path) -> None:
    """A number that nobody waits for is no command."""
    found = gate_of(run(tmp_path, "new", 1.5, processes=1), run(tmp_path, "old"))
    assert (found.exit_code, found.interval) == (3, None)
    assert found.ratio is not None
    told = " ".join(found.sentences())
    assert "only from two of each run on (processes: 1, baseline 8)" in told
    assert "At the usual noise of 3% per process, about 8 processes" in told
    assert found.commands() == ["trainlab run --processes 8"]
    near = gate_of(run(tmp_path, "near", 1.05, noise=0.01), run(tmp_path, "quiet", noise=0.0))
    assert near.exit_code == 3
    assert near.processes_needed is None or near.processes_needed > 50
    assert near.commands() == []


def test_what_would_tell_is_said_as_far_as_it_is_known() -> None:
    numbers = {"baseline": 1.0, "run": 1.1, "change": 1.1, "num_baseline": 3, "num_run": 3}
    check = Check(
        cell="base", subject="train/step_ms", margin=0.05, interval=Interval(1.0, 1.2), **numbers
    )
    for needed, unchanged, told in (
        (9, 5, "About 9 processes in each run would tell if times are as measured, 5"),
        (9, None, "About 9 processes in each run would tell if times are as measured ("),
        (None, 5, "About 5 processes in each run would tell if nothing has changed"),
        (None, None, ""),
    ):
        one = replace(check, needed=needed, needed_unchanged=unchanged)
        assert needs_sentence("processes", [one], Words("en")).startswith(told), told


def test_the_command_that_would_tell_leaves_a_scripts_own_words_alone() -> None:
    """Options of ours among them are replaced, too: else the command would give --seeds twice, and a run
    folder that is there already."""
    for made, added, instead_of, told in (
        (
            "trainlab watch train.py --seed 5 --seeds 3 --metric 'acc=Accuracy: (.*)%' "
            "--out 'my runs/a' -- --out model.pt --seeds 4",
            "--seeds 71",
            SEED_OPTIONS,
            "trainlab watch train.py --seed 5 --metric 'acc=Accuracy: (.*)%' --seeds 71 "
            "-- --out model.pt --seeds 4",
        ),
        (
            "trainlab run mnist-lab --until-decided --max-seeds 20 --seeds=3 --lr 0.1",
            "--seeds 9",
            SEED_OPTIONS,
            "trainlab run mnist-lab --lr 0.1 --seeds 9",
        ),
        ("python notebook.py", "--processes 9", (), None),
    ):
        assert command_with(made, added, instead_of) == told


def test_several_settings_are_told_one_by_one_the_worst_first(tmp_path: Path) -> None:
    def step_ms(trial: Any, process: int) -> float:
        return (1.3 if trial.cell == "batch_size=16" else 1.0) * (1 + 0.002 * process)

    sizes = {"batch_size": (1, 16)}
    old = run(tmp_path, "old", noise=0.001, vary=sizes)
    found = gate_of(run(tmp_path, "new", told={"step_ms": step_ms}, vary=sizes), old)
    verdicts = {one.cell: one.verdict for one in found.checks}
    assert verdicts == {"batch_size=1": "not worse", "batch_size=16": "worse"}
    lead, first, second = found.sentences()
    assert lead.startswith("Fail: of 2 comparisons with the baseline, 1 ")
    assert first.startswith("batch_size=16: Slower: a training step takes 1.3")
    assert second.startswith("batch_size=1: Not slower:")
    assert found.markdown("zh").startswith("**未通过")

    # A setting that broke in the run does not pass.
    state = {"state": lambda trial: "failed" if trial.cell == "batch_size=16" else "done"}
    found = gate_of(run(tmp_path, "broken", vary=sizes, noise=0.001, told=state), old)
    assert found.exit_code == 3
    assert found.num_failed > 0
    assert "batch_size=16: Cannot tell: one of the runs has no time" in found.sentences()[1]


def test_inference_is_compared_where_it_is_all_there_is_or_asked_for(tmp_path: Path) -> None:
    old, new = (run(tmp_path, name, mode="inference") for name in ("old", "new"))
    assert gate_of(new, old).mode == "inference"
    both = [run(tmp_path, name, mode="both") for name in ("old2", "new2")]
    assert gate_of(*both).mode == "train"
    assert gate_of(*both, mode="inference").checks[0].subject == "inference/step_ms"
    with pytest.raises(RecordError, match=r"old: has no timed step in mode train"):
        gate_of(both[1], old, mode="train")


def machine(**changed: Any) -> dict[str, Any]:
    return {"environment": ENVIRONMENT.model_copy(update={"host": "a", **changed})}


def test_times_of_two_machines_or_settings_are_refused(tmp_path: Path) -> None:
    fewer, more = DATA.model_copy(update={"num_train": 9}), {"threads": 4}
    old = run(tmp_path, "old", told=machine())
    for told, refused in (
        (machine(cpu="Z80"), "with CPU Z80, the baseline with Made-up CPU; times of two"),
        (machine(gpus=(Gpu(name="H200"),)), "with GPU H200 .*, the baseline with none; "),
        (machine(num_vcpus_usable=1), "with usable vCPUs 1, the baseline with 2; "),
        (machine() | {"resolved": lambda t: more}, "base: threads is 4, in the baseline 1; run"),
        (machine() | {"data": lambda t: fewer}, "base: data.num_train is 9, in the baseline 960;"),
        (machine() | {"state": lambda t: "pending"}, "is not finished; go on with `trainlab resu"),
    ):
        with pytest.raises(RecordError, match=refused):
            gate_of(run(tmp_path / refused[:9], "new", told=told), old)
    with pytest.raises(RecordError, match="has no learn trial that ended well; train with"):
        gate_of(old, run(tmp_path, "old2", told=machine()), worse={"test/accuracy": 0.01})


def test_another_hosts_name_can_be_allowed_and_other_software_is_named(tmp_path: Path) -> None:
    torch = {"packages": {**ENVIRONMENT.packages, "torch": "2.10.0"}, "git_commit": "def"}
    new = run(tmp_path, "new", told=machine(host="b", **torch))
    found = gate_of(new, run(tmp_path, "old", told=machine(host="a")), any_host=True)
    named = [str(one) for one in found.differs]
    assert "packages.torch: 2.9.0+cpu against 2.10.0" in named
    assert "git_commit: abc against def" in named
    assert "2.9.0+cpu → 2.10.0" in found.differences()


def test_a_file_in_two_checkouts_is_one_workload_and_what_else_ran_is_told(tmp_path: Path) -> None:
    old = run(tmp_path, "old", workload="before/train.py:net")
    new = run(tmp_path, "new", workload="after/train.py:net")
    assert gate_of(new, old).exit_code == 0
    home = RunFolder(Path(new.path)).trial("cost-train-process2")
    record = home.cost.read()
    busy = record.load.model_copy(update={"others_cores": 0.9})
    home.cost.write(record.model_copy(update={"load": busy}))
    found = gate_of(gather(RunFolder(Path(new.path))), old)
    assert found.disturbed == (Disturbance(new.path, "others_busy", 0.9),)
