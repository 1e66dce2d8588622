"""What follows from watching a script, from records written by hand."""

import math
import re
from pathlib import Path
from typing import Any

from trainlab.analysis.answer import answer
from trainlab.analysis.evidence import Evidence, gather
from trainlab.analysis.overview import findings
from trainlab.analysis.scripts import (
    _counted,
    growth,
    lines_so_far,
    seen_texts,
    typical_step_ms,
    whole_parts_s,
)
from trainlab.plan import Trial
from trainlab.record.run_folder import RunFolder
from trainlab.record.script_record import OptimizerRow, ReadRow
from trainlab.record.trial_record import Failure
from trainlab.words import Words
from watched_runs import WatchedRun, facts, loader, watched

EN, ZH = Words("en"), Words("zh")
VARY = {"vary": {"batch-size": [16, 64]}, "seeds": (1, 2)}


def evidence_of(path: Path, run: WatchedRun | None = None, **asked: Any) -> Evidence:
    home = path / str(len(list(path.iterdir())))
    home.mkdir()
    return gather((run or WatchedRun()).write(home / "run", **asked))


def told(path: Path, kind: str, run: WatchedRun | None = None, **asked: Any) -> list[str]:
    """The sentences of that kind."""
    found = findings(evidence_of(path, run, **asked))
    return [one.sentence(EN) for one in found if one.kind == kind]


def test_the_parts_add_up_with_the_first_step_apart() -> None:
    run = watched()
    parts = whole_parts_s(run)
    assert math.isclose(sum(parts.values()), run.wall_s)
    assert math.isclose(parts["first_step"], 0.1)
    assert math.isclose(parts["data"], 39 * 0.001)
    assert parts["startup"] == 2.0
    assert parts["evaluation"] == 1.0


def test_a_typical_step_adds_up_and_leaves_out_what_was_held_up() -> None:
    steps = {"forward": [9.0, 1, 1, 1, 50, 1, 1, 1, 1], "backward": [9.0, 2, 2, 2, 2, 2, 70, 2, 2]}
    assert typical_step_ms(watched(steps_ms=steps)) == {"forward": 1.0, "backward": 2.0}
    assert typical_step_ms(watched(steps_ms={"forward": [1.0]})) == {}


def test_the_time_of_a_run_is_told_with_what_watching_took(tmp_path: Path) -> None:
    found = findings(evidence_of(tmp_path))
    (time,) = (one for one in found if one.kind == "script_time")
    assert time.sentence(EN) == (
        "The script ran for 3.49 s: start-up 57.3%, training 14.0%, evaluation 28.7%. A step takes "
        "10.0 ms (median), the first one 100 ms. Observing it took 0.00550 s of that (0.2%). "
        "Beside it, 0.400 s went into curves, TensorBoard and other records."
    )
    assert "启动 57.3%" in time.sentence(ZH)


def test_a_script_whose_processes_did_the_work_has_no_shares_of_training(tmp_path: Path) -> None:
    steps = {"forward": [], "other": []}
    seen = watched(steps_ms=steps, startup_s=44.0, evaluation_s=1.0, cpu_s=4.0, others_cpu_s=80.0)
    run = WatchedRun(seen=lambda trial: seen, epochs=0)
    (sentence,) = told(tmp_path, "script_time", run)
    assert sentence.startswith(
        "The script ran for 45.0 s. Other processes that it started did most of the work (80.0 s "
        "of CPU time, against 4.00 s of its own): what they did, training too, was not seen."
    )
    assert told(tmp_path, "script_part", run) == []
    with_workers = loader(num_workers=2)
    assert not watched(loaders=[with_workers], cpu_s=4.0, others_cpu_s=80.0).is_of_others


def test_what_was_seen_says_parts_of_passes_ranges_and_what_a_size_was_taken_from() -> None:
    optimizer = OptimizerRow(
        name="Adam", lr=0.0, code="auto", num_steps=4, lowest_lr=0.0, highest_lr=3e-4
    )
    own = loader(batch_size=None, passes=0.4)
    run = watched(loaders=[own], optimizers=[optimizer], batch_size=None, first_dimension=35)
    seen = dict(_counted(run, EN))
    shown = "batch 35, taken from the first dimension of the first tensor"
    assert seen["training loader"].startswith(shown)
    assert seen["training loader"].endswith("0.4 of a pass")
    assert seen["optimizer"] == "Adam, lr 0 to 0.0003, 4 updates"
    facts = {"batch_size": 8, "accumulate": 4, "optimizer": "Adam", "lr": 3e-4, "lr_varies": True}
    assert seen_texts(facts, EN) == ["batch 8 × 4", "Adam lr up to 0.0003"]
    assert seen_texts({"first_dimension": 35}, EN) == [shown]


def test_a_run_that_finished_no_pass_says_what_part_of_one_it_made(tmp_path: Path) -> None:
    run = WatchedRun(resolved=lambda trial: facts(trial) | {"passes": 0.4}, epochs=0)
    evidence = evidence_of(tmp_path, run)
    found = answer(evidence, findings(evidence), EN)
    assert "(0.4 of a pass)" in found.sentences[0].text
    assert "epoch" not in found.sentences[0].text


def test_what_takes_much_is_named_and_what_takes_little_is_not(tmp_path: Path) -> None:
    slow = {"data": [10.0] * 4, "forward": [3.0] * 4, "backward": [6.0] * 4, "optimizer": [1.0] * 4}

    def seen(trial: Any) -> Any:
        steps = {
            name: [ms * (1 + (trial.seed == 2) * (name == "data")) for ms in times]
            for name, times in slow.items()
        }
        return watched(steps_ms=steps, startup_s=0.01, evaluation_s=0.001 * trial.seed)

    found = findings(evidence_of(tmp_path, WatchedRun(seen=seen), seeds=(1, 2, 3)))
    parts = [one for one in found if one.kind == "script_part"]
    assert [(one.subject, one.of) for one in parts] == [("data", "step")]
    assert parts[0].sentence(EN) == (
        "Waiting for data takes 50.0% of a step (median of 3 seeds; 50.0% to 66.7%): 13.3 ms."
    )
    # Evaluation is named from a fifth of the run on.
    often = WatchedRun(seen=lambda trial: watched(startup_s=0.1, evaluation_s=0.4))
    assert told(tmp_path, "script_part", often) == ["Evaluation takes 40.4% of the run: 0.400 s."]
    # On a GPU calls return before their work is done: parts of a step are not blamed.
    steps = {"forward": [1.0] * 9, "backward": [1.0] * 9, "optimizer": [8.0] * 9}
    on_gpu = WatchedRun(
        seen=lambda trial: watched(steps_ms=steps, startup_s=0.01, evaluation_s=0.0),
        resolved=lambda trial: facts(trial) | {"device": "cuda"},
    )
    assert told(tmp_path, "script_part", on_gpu) == []


def test_memory_that_grows_all_the_time_is_told_and_a_single_rise_is_not(tmp_path: Path) -> None:
    mib = 1 << 20
    leaking = watched(memory=[(step, (300 + 2 * step) * mib) for step in range(1, 41)])
    once = watched(memory=[(step, (300 + 90 * (step > 20)) * mib) for step in range(1, 41)])
    filling = watched(memory=[(step, (300 + 9 * min(step, 8)) * mib) for step in range(1, 41)])
    few = watched(memory=[(step, (300 + 2 * step) * mib) for step in range(1, 6)])
    assert [growth(run) for run in (once, filling, few)] == [None, None, None]
    assert told(tmp_path, "script_memory", WatchedRun(seen=lambda trial: leaking)) == [
        "The process grew by 2.00 MiB per update, from 310 to 380 MiB over 35 updates, and did not "
        "stop growing."
    ]


def test_training_data_that_no_loader_shuffles_are_told(tmp_path: Path) -> None:
    in_order = (
        "The training data come in the order of the data set in each of 2 passes: the loader does "
        "not shuffle."
    )
    for order, sentences in (("in order", [in_order]), ("shuffled", []), ("own", [])):
        seen = watched(loaders=[loader(order=order)])
        run = WatchedRun(seen=lambda trial, seen=seen: seen)
        assert told(tmp_path, "script_order", run) == sentences, order


def test_seeds_that_a_script_does_not_heed_are_one_run_and_decide_nothing(tmp_path: Path) -> None:
    def final(trial: Trial) -> dict[str, float]:
        size = float(trial.settings.script["batch-size"])
        return {"train/loss": 0.4, "test/accuracy": 0.9 + 0.001 * size}

    asked = {"vary": {"batch-size": [16, 64]}, "seeds": (1, 2, 3, 4)}
    run = WatchedRun(final=final, seen=lambda trial: watched())
    evidence = evidence_of(tmp_path, run, **asked)
    assert list(evidence.values("batch-size=16", "test/accuracy")) == [1]
    found = findings(evidence)
    (seeds,) = (one for one in found if one.kind == "script_seeds")
    assert seeds.sentence(EN).startswith(
        "The 4 seeds gave exactly the same: the script seeds itself, or draws nothing at random."
    )
    effects = [one for one in found if one.kind == "effect"]
    assert {one.verdict for one in effects} <= {"cannot tell"}, "one run each says nothing"
    assert told(tmp_path, "script_seeds") == []


def test_an_argument_that_changes_no_loss_is_called_out(tmp_path: Path) -> None:
    def seen(trial: Any) -> Any:
        return watched(losses=[trial.seed / step for step in range(1, 41)])

    evidence = evidence_of(tmp_path, WatchedRun(seen=seen), **VARY)
    (same,) = (one for one in findings(evidence) if one.kind == "script_same")
    assert (same.subject, same.n) == ("script.batch-size", 4)
    assert same.sentence(EN) == (
        "All levels of batch-size gave exactly the same losses, update by update: it seems to change "
        "nothing that is learned; see whether the script uses it."
    )
    assert "完全相同" in same.sentence(ZH)


def test_an_argument_of_which_one_seed_differs_is_not_called_out(tmp_path: Path) -> None:
    def seen(trial: Any) -> Any:
        differs = trial.settings.script["batch-size"] == 64 and trial.seed == 2
        return watched(losses=[trial.seed / step + differs * 1e-9 for step in range(1, 41)])

    vary = {"batch-size": [32, 48, 64], "lr": [0.1]}
    assert told(tmp_path, "script_same", WatchedRun(seen=seen), vary=vary, seeds=(1, 2)) == []
    # The first losses are the same whatever is varied.
    steps = {"forward": [1.0, 1.0]}
    short = WatchedRun(seen=lambda trial: watched(steps_ms=steps, losses=[1.0, 0.5]))
    assert told(tmp_path, "script_same", short, **VARY) == []


def test_the_varied_argument_and_what_follows_from_it_are_no_confounds(tmp_path: Path) -> None:
    found = findings(evidence_of(tmp_path, profile=True, **VARY))
    compared = [one for one in found if one.kind in ("effect", "cost")]
    assert {one.kind for one in compared} == {"effect", "cost"}
    assert [one.confounds for one in compared if one.confounds] == []
    # Batches of a script make a series.
    series = [one.cells for one in found if one.kind == "scaling"]
    assert series == [("batch-size=16", "batch-size=64")]


def test_what_else_was_seen_to_differ_is_a_confound(tmp_path: Path) -> None:
    for seen, text in (
        ({"order": "in order"}, "order of the training data: shuffled against in order"),
        ({"optimizer": "SGD"}, "optimizer: Adadelta against SGD"),
        ({"passes": 3}, "passes over the training data: 2 against 3"),
        ({"parameters": 7}, "number of parameters: 149418 against 7"),
    ):
        differing = WatchedRun(
            resolved=lambda trial, own=seen: (
                facts(trial) | (own if trial.cell == "batch-size=64" else {})
            )
        )
        effects = told(tmp_path, "effect", differing, **VARY)
        assert effects
        for effect in effects:
            assert effect.endswith(f"Beware: these also differ: {text}.")


def test_of_several_optimizers_the_answer_has_all_losses_and_of_a_failed_script_its_error(
    tmp_path: Path,
) -> None:
    losses = {"train/loss": 0.1, "train/loss_2": 4.0}
    evidence = evidence_of(tmp_path, WatchedRun(final=lambda trial: losses, epochs=3))
    first = answer(evidence, findings(evidence), EN).sentences[0].text
    assert re.findall(r"loss\w* is [\d.]+", first) == ["loss is 0.1000", "loss_2 is 4.0000"]
    (home,) = tmp_path.iterdir()
    for trial in evidence.trials:
        error = Failure(
            kind="OSError", message="no\nmore", traceback="", field="script", line="a.py:3"
        )
        folder = RunFolder(home / "run").trial(trial.id)
        folder.write(trial.model_copy(update={"state": "failed", "error": error}))
    failed = gather(RunFolder(home / "run"))
    told = [one.text for one in answer(failed, findings(failed), EN).sentences]
    assert "The script failed: a.py:3: script raised OSError: no" in told


def test_what_was_seen_so_far_is_told_in_three_lines() -> None:
    slow = {"data": [12.0] * 40, "forward": [3.0] * 40, "backward": [5.0] * 40}
    read = ReadRow(file="/home/ada/train.py", line=21, per_step=1.0, ms=0.5)
    run = watched(steps_ms=slow, reads=[read])
    lines = [
        "So far, 40 updates: a step takes 20.0 ms, of which data 60.0%, backward 25.0%, forward 15.0%.",
        "Waiting for data takes 60.0% of a step: 12.0 ms.",
        "train.py:21 reads numbers from tensors in each step (as .item() does): 0.500 ms of it. On a GPU "
        "each read waits for all work before it.",
    ]
    assert lines_so_far(run, EN) == lines
    faster = lines_so_far(watched(steps_ms=slow | {"data": [2.0] * 40}, reads=[read]), EN)
    assert len(faster) == 2
    assert "a step takes 10.0 ms" in faster[0]
    in_order = watched(steps_ms=slow, reads=[read], loaders=[loader(order="in order")])
    assert len(lines_so_far(in_order, ZH)) == 3


def test_batches_of_very_few_samples_and_memory_that_grows_are_told_so_far() -> None:
    memory = [(step, (300 + 10 * step) << 20) for step in range(1, 41)]
    _, first, second = lines_so_far(watched(batch_size=2, memory=memory), EN)
    assert first.startswith("The process grew by 10.0 MiB per update")
    assert second.startswith("Batches of 2 are small: ")
    # Of a script whose other processes do the work nothing is known.
    assert lines_so_far(watched(others_cpu_s=9.0, num_steps=0), EN) == []
