"""The answer: which sentences stand in it, and that none is there without its evidence."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from analysed import EN, accuracy, ends, evidence, of_kind

from fabricate import DATA, Fabricated, made_study
from trainlab.analysis.answer import Answer, answer
from trainlab.analysis.evidence import busy_s, gather
from trainlab.analysis.learning import learn_table
from trainlab.analysis.overview import findings
from trainlab.analysis.probes import ACCUMULATION
from trainlab.analysis.scaling import PARALLEL
from trainlab.plan import Trial
from trainlab.record.cost_record import ColdStep
from trainlab.record.run_folder import RunFolder
from trainlab.record.trial_record import TrialRecord
from trainlab.spec import CostSpec, Study
from trainlab.stats.means import Interval
from trainlab.words import Words
from trainlab.words.numbers import times


def answer_of(folder: RunFolder, lang: str = "en") -> Answer:
    run = gather(folder)
    return answer(run, findings(run), Words(lang))


def answered(path: Path, study: Study, **records: Any) -> Answer:
    return answer_of(evidence(path, study, **records).folder)


def texts(found: Answer) -> list[str]:
    return [sentence.text for sentence in found.sentences]


def accuracies(**by_level: float) -> dict[str, Any]:
    """The accuracy of a cell by the text after its `=`, plus a little of its seed's own."""
    return accuracy(lambda t: by_level[f"l{t.cell.partition('=')[2]}"] + 0.001 * (t.seed % 3))


def steps_ms(by_batch: Callable[[int], float]) -> dict[str, Any]:
    """The time of a step by the batch size, a little more in later processes."""
    return {"step_ms": lambda t, process: by_batch(t.settings.batch_size) * (1 + 0.001 * process)}


BY_BATCH = made_study(vary={"batch_size": (1, 16, 64)}, seeds=5, margins={"test/accuracy": 0.01})


def test_the_best_setting_is_named_in_short_sentences_without_symbols(tmp_path: Path) -> None:
    found = answered(tmp_path, BY_BATCH, **accuracies(l1=0.80, l16=0.95, l64=0.90))
    assert "Batch 16 gives the best test accuracy: 95.1%." in texts(found)
    assert not found.open_points
    for told in (found, answer_of(RunFolder(tmp_path / "run"), "zh")):
        for text in texts(told):
            assert not set(text) & set("→[]［］≠±=/_"), text
            assert len(text) < 140


def test_a_trend_that_no_two_settings_show_is_told_with_what_they_do_not(tmp_path: Path) -> None:
    study = made_study(vary={"batch_size": (1, 4, 16, 64)}, seeds=3)
    noise = {1: (0, 2, -2), 4: (2, -2, 0), 16: (-2, 0, 2), 64: (2, 0, -2)}

    def level(trial: Trial) -> float:
        size = trial.settings.batch_size
        return 0.9 - 0.01 * size.bit_length() + 0.01 * noise[size][trial.seed - 1]

    found = answered(tmp_path, study, **accuracy(level))
    assert texts(found)[0] == (
        "Test accuracy is 89.0% at best (batch 1). Over all settings it changes with batch_size; which "
        "two differ, 3 seeds cannot tell yet."
    )


def test_equal_settings_are_said_to_be_the_same_within_the_margin(tmp_path: Path) -> None:
    found = answered(tmp_path, BY_BATCH, **accuracies(l1=0.80, l16=0.95, l64=0.95))
    assert texts(found) == [
        "Batch 16 and batch 64 give the best test accuracy, 95.1%, exactly the same in every seed."
    ]
    levels = {1: 0.80, 16: 0.95, 64: 0.9515}

    def level(trial: Trial) -> float:
        size = trial.settings.batch_size
        return levels[size] + 0.001 * ((trial.seed * (size + 7)) % 3)

    found = answered(tmp_path / "b", BY_BATCH, **accuracy(level))
    assert texts(found) == [
        "Batch 64 and batch 16 give the best test accuracy, 95.3%, and the same within 1.0 points."
    ]


def test_what_seeds_cannot_tell_is_open_with_the_command_that_would(tmp_path: Path) -> None:
    def level(trial: Trial) -> float:
        own = (0.01, -0.012, 0.004)[trial.seed % 3]
        return 0.904 + own if trial.settings.batch_size == 1 else 0.9 - own

    study = made_study(vary={"batch_size": (1, 16)}, seeds=3)
    found = answered(tmp_path, study, **accuracy(level))
    assert texts(found) == [
        "Test accuracy is 90.5% at best (batch 1), but 3 seeds cannot tell the settings apart."
    ]
    (point,) = found.open_points
    assert point.text.startswith("Which gives the better test accuracy (batch 1 and batch 16): 3 ")
    assert "seeds would settle all of this" in point.text
    assert point.command is not None
    assert point.command.startswith("trainlab run --seeds ")


def test_a_faster_setting_is_named_with_its_factor_per_sample_or_image(tmp_path: Path) -> None:
    cost = CostSpec(mode="both", processes=4)
    study = made_study(vary={"batch_size": (1, 64)}, learn=False, cost=cost)
    times = steps_ms(lambda size: 1.0 if size == 1 else 10.0)
    for name, sample in (("tiny", "sample"), ("mnist", "image")):
        data = DATA.model_copy(update={"name": name})
        found = texts(answered(tmp_path / name, study, data=lambda t, d=data: d, **times))
        assert found[0] == f"Batch 64 trains 6.4 times as fast per {sample} as batch 1."
        assert "There was no GPU on this machine." in found


def test_what_a_gpu_gains_comes_first_and_at_every_batch(tmp_path: Path) -> None:
    vary = {"device": ("cpu", "cuda:0"), "batch_size": (1, 64)}
    study = made_study(vary=vary, learn=False, cost=CostSpec(processes=4))
    times = {("cpu", 1): 1.0, ("cpu", 64): 40.0, ("cuda:0", 1): 2.0, ("cuda:0", 64): 4.0}

    def step_ms(trial: Trial, process: int) -> float:
        own = times[str(trial.settings.device), trial.settings.batch_size]
        return own * (1 + 0.001 * ((process * 7) % 3))

    found = answered(tmp_path, study, step_ms=step_ms)
    assert texts(found)[0] == (
        "In training, the GPU is, compared with the CPU: 2 times as slow at batch 1; "
        "10 times as fast at batch 64."
    )


def test_each_factor_of_several_has_its_sentence_the_largest_first(tmp_path: Path) -> None:
    study = made_study(design="one-at-a-time", vary={"batch_size": (16,), "lr": (0.1,)}, seeds=5)

    def level(trial: Trial) -> float:
        lower = 0.2 if "lr" in trial.cell else 0.05 if "batch" in trial.cell else 0.0
        return 0.9 - lower + 0.001 * (trial.seed % 3)

    assert texts(answered(tmp_path, study, **accuracy(level))) == [
        "The base setting gives the best test accuracy: 90.1%.",
        "Learning rate 0.1 instead of learning rate 0.001 lowers test accuracy by 20.0 points, "
        "to 70.1%.",
        "Batch 16 instead of batch 64 lowers test accuracy by 5.0 points, to 85.1%.",
    ]


def test_a_single_run_and_a_profile_have_an_answer(tmp_path: Path) -> None:
    found = answered(tmp_path / "a", made_study(seeds=1), final=lambda t: {"test/accuracy": 0.9})
    assert texts(found) == [
        "Test accuracy is 90.0% after 2 epochs (one run).",
        "Training and testing took 2.00 s on the CPU, of which an epoch of training took 0.750 s.",
    ]
    found = answered(tmp_path / "c", made_study(seeds=3), final=lambda t: {"test/accuracy": 0.9})
    assert "took 2.00 s per seed on the CPU (median of 3 seeds), of which" in texts(found)[1]
    study = made_study(learn=False, cost=CostSpec(processes=3))
    found = answered(tmp_path / "b", study, step_ms=lambda trial, process: 2.0 + 0.01 * process)
    assert texts(found)[0].startswith("A training step of batch 64 takes 2.0")
    assert any("In training, no operator takes longer than addmm: " in t for t in texts(found))


def test_diverging_settings_are_named(tmp_path: Path) -> None:
    study = made_study(vary={"lr": (0.1, 10.0)}, seeds=3)
    found = answered(tmp_path, study, **ends("lr=10", "diverged"))
    assert "With learning rate 10, training diverged in 3 of 3 runs." in texts(found)


def test_an_unfinished_study_answers_from_what_it_has(tmp_path: Path) -> None:
    """The rest is expected to take as long as what has ended by itself."""
    state = {"state": lambda t: "pending" if t.seed == 5 else "done"}
    folder = evidence(tmp_path, BY_BATCH, **accuracies(l1=0.8, l16=0.95, l64=0.9), **state).folder
    for number, trial in enumerate(t for t in folder.trials() if t.state == "done"):
        minute = f"2026-01-01T00:{number:02}"
        times = {"started": f"{minute}:00", "ended": f"{minute}:20"}
        folder.trial(trial.id).write(trial.model_copy(update=times))
    found = answer_of(folder)
    assert "Batch 16 gives the best test accuracy: 95.1%." in texts(found)
    (point,) = found.open_points
    assert point.text == "Not finished: 3 of 15 trials (still to run, or interrupted)."
    assert point.command == f"trainlab resume {tmp_path / 'run'}"
    assert point.remark == "About 1 min on this machine"
    for trial in folder.trials():
        folder.trial(trial.id).write(trial.model_copy(update={"state": "interrupted"}))
    assert answer_of(folder).open_points[0].remark == ""


def test_reasons_are_given_only_where_the_records_bear_them_out(tmp_path: Path) -> None:
    study = made_study(vary={"batch_size": (1, 64)}, learn=False, cost=CostSpec(processes=4))

    def phases(optimizer_64: float) -> Callable[[Trial], dict[str, float]]:
        return lambda trial: (
            {"forward": 0.2, "backward": 0.3, "optimizer": 0.5}
            if trial.settings.batch_size == 1
            else {"forward": 4.0, "backward": 6.0, "optimizer": optimizer_64}
        )

    times = steps_ms(lambda size: 1.0 if size == 1 else 10.5)
    fixed = answered(tmp_path / "a", study, **times, phases_ms=phases(0.5))
    reasons = [one.text for one in fixed.reasons]
    (why,) = (one for one in reasons if one.startswith("A larger batch is cheaper"))
    assert "(optimizer)" in why
    assert any(
        "The optimizer updates every parameter once per step, whatever" in one for one in reasons
    )
    grows = answered(tmp_path / "b", study, **times, phases_ms=phases(20.0))
    assert not any("optimizer" in one.text for one in grows.reasons)


def test_training_without_resets_fails_only_where_it_learns_less(tmp_path: Path) -> None:
    study = made_study(vary={"zero_grad": (False,)}, design="one-at-a-time", seeds=5)
    cells = ("zero_grad=false",)
    grown = ACCUMULATION(subject="fc", cells=cells, n=5, times=40.0, probe="*:grad:norm")
    for level, fails in ((0.2, True), (0.95, False)):
        by_cell = {"base": 0.9, "zero_grad=false": level}
        of_seeds = accuracy(lambda t, by_cell=by_cell: by_cell[t.cell] + 0.001 * (t.seed % 3))
        run = evidence(tmp_path / str(level), study, **of_seeds)
        (effect,) = of_kind("no_reset", run)
        assert effect.verdict == "different"
        reasons = answer(run, (*findings(run), grown), Words("en")).reasons
        assert any("Training without resets fails" in one.text for one in reasons) == fails


def test_reasons_are_of_the_device_that_the_headline_is_about_and_name_it(tmp_path: Path) -> None:
    vary = {"device": ("cpu", "cuda:0"), "batch_size": (1, 64)}
    study = made_study(vary=vary, learn=False, cost=CostSpec(processes=4))
    times = {("cpu", 1): 1.0, ("cpu", 64): 40.0, ("cuda:0", 1): 2.0, ("cuda:0", 64): 3.2}
    shares = {"forward": 0.25, "optimizer": 0.75}

    def step_ms(trial: Trial, process: int) -> float:
        own = times[str(trial.settings.device), trial.settings.batch_size]
        return own * (1 + 0.001 * ((process * 7) % 3))

    found = answered(tmp_path, study, step_ms=step_ms, phases_ms=lambda trial: shares)
    assert any("(at device=cuda:0)" in text for text in texts(found) if "trains 40 times" in text)
    reasons = [one.text for one in found.reasons]
    assert reasons[0].startswith(
        "A larger batch is cheaper on the GPU because batch 64 takes only about 1.6 times "
    )
    assert "once per step on the GPU, whatever the batch" in reasons[1]


def test_a_headline_that_is_not_known_well_is_a_range_with_its_reason(tmp_path: Path) -> None:
    study = made_study(vary={"batch_size": (1, 64)}, learn=False, cost=CostSpec(processes=4))
    noise = (1.0, 1.5, 0.7, 1.2)

    def step_ms(trial: Trial, process: int) -> float:
        return 10.0 * noise[process - 1] if trial.settings.batch_size == 64 else 1.0

    ratio, *_ = of_kind("cost", evidence(tmp_path / "a", study, step_ms=step_ms))
    assert ratio.interval is not None
    low, high = times(1 / ratio.interval.high), times(1 / ratio.interval.low)
    first, *_ = texts(answered(tmp_path / "b", study, step_ms=step_ms))
    assert first == (
        f"Batch 64 trains {low} to {high} times as fast per sample as batch 1. Only a range is known, "
        "since processes differ by 114%: quiet the machine, or measure more of them."
    )


def test_the_slow_first_step_is_put_down_to_what_was_counted_in_its_slowest_phase(
    tmp_path: Path,
) -> None:
    folder = evidence(tmp_path, made_study(learn=False, cost=CostSpec(processes=3))).folder

    def step(zero_grad: float, modules: int, pages: int) -> ColdStep:
        of_phases = {
            "zero_grad": {"modules_imported": modules, "page_faults": 3},
            "forward": {"modules_imported": 0, "page_faults": pages},
        }
        counts = {"page_faults": pages + 3, "modules_imported": modules}
        counts |= dict.fromkeys(("libraries_loaded", "device_allocations"))
        return ColdStep(
            phases_ms={"zero_grad": zero_grad, "forward": zero_grad / 2},
            in_phases=of_phases,
            **counts,
        )

    for trial in folder.trials():
        home = folder.trial(trial.id)
        if home.cost.exists():
            told = {"cold": [step(14.0, 1, 4000)], "settled": [step(2.0, 0, 0)]}
            home.cost.write(home.cost.read().model_copy(update=told))
    (why,) = (one.text for one in answer_of(folder).reasons)
    assert (
        "Of the 18.0 ms more, 12.0 ms are zero_grad, the largest part, during which a Python module "
        "was imported." in why
    )
    assert "pages of memory" not in why


def test_in_chinese_no_gap_stands_between_two_characters() -> None:
    words = Words("zh")
    assert words.tidy("是 批大小 1和批大小 16 的") == "是批大小 1 和批大小 16 的"
    assert Words("en").tidy("a  b") == "a  b"


def test_the_time_of_trials_that_ran_together_counts_once() -> None:
    def trial(start: int, end: int) -> TrialRecord:
        times = {"started": f"2026-01-01T00:00:{start:02}", "ended": f"2026-01-01T00:00:{end:02}"}
        return TrialRecord.model_construct(**times)

    assert busy_s([trial(0, 10), trial(2, 8), trial(5, 20), trial(30, 31)]) == 21
    assert busy_s([]) == 0


def test_levels_that_are_the_same_at_one_other_level_are_not_called_same(tmp_path: Path) -> None:
    vary = {"batch_size": (1, 16), "lr": (0.1, 0.01)}
    study = made_study(vary=vary, seeds=6, margins={"test/accuracy": 0.02})

    def level(trial: Trial) -> float:
        lower = 0.3 if (trial.settings.batch_size, trial.settings.lr) == (16, 0.01) else 0.0
        return 0.95 - lower + 0.001 * ((trial.seed * (trial.settings.batch_size + 7)) % 3)

    found = answered(tmp_path, study, **accuracy(level))
    assert not any("is the same for" in text for text in texts(found))


def test_where_others_differ_it_is_not_said_that_no_setting_does(tmp_path: Path) -> None:
    """The best is too noisy to be told from any, but two others differ."""
    study = made_study(vary={"batch_size": (1, 16, 64)}, seeds=10)

    def level(trial: Trial) -> float:
        own = {1: 0.45 + 0.001 * (trial.seed % 3), 16: 0.50 + 0.001 * (trial.seed % 2)}
        return own.get(trial.settings.batch_size, 0.51 + 0.2 * (-1) ** trial.seed)

    run = evidence(tmp_path, study, **accuracy(level))
    told = texts(answer_of(run.folder))
    differ = [one.cells for one in of_kind("effect", run) if one.verdict == "different"]
    assert ("batch_size=1", "batch_size=16") in differ
    assert any("cannot tell it from" in text for text in told)
    assert not any("cannot tell the settings apart" in text for text in told)


def test_times_of_trials_that_were_cut_short_do_not_count(tmp_path: Path) -> None:
    folder = evidence(tmp_path, made_study(seeds=2), **ends("base", "interrupted", after=1)).folder
    first, second = folder.trials()
    folder.trial(first.id).write(first.model_copy(update={"total_s": 100.0}))
    folder.trial(second.id).write(second.model_copy(update={"total_s": 10.0}))
    told = texts(answer_of(folder))
    assert any("took 100 s" in text for text in told), told
    rows = learn_table(gather(folder), EN).rows
    assert "100" in [entry.text for row in rows for entry in row.entries]


def test_a_single_setting_tells_where_its_loss_went(tmp_path: Path) -> None:
    folder = Fabricated().write(tmp_path / "run", made_study(seeds=1))
    (trial,) = folder.trials()
    home = folder.trial(trial.id)
    for losses, told in (
        ((2.3, 0.12), ["Training loss fell from 2.3000 in the first epoch to 0.1200 in the last."]),
        ((0.12, 2.3), ["Training loss rose from 0.1200 in the first epoch to 2.3000 in the last."]),
        ((0.5, 0.5), []),
    ):
        epochs = zip(home.epochs(), losses, strict=True)
        lines = [{**line, "train/loss": loss} for line, loss in epochs]
        home.curve_file.write_text("".join(json.dumps(line) + "\n" for line in lines))
        found = texts(answer_of(folder))
        assert [text for text in found if text.startswith("Training loss")] == told


def test_sentences_about_speed_stand_together(tmp_path: Path) -> None:
    cost = CostSpec(mode="both", processes=4)
    study = made_study(vary={"batch_size": (1, 64)}, seeds=5, cost=cost)
    times = steps_ms(lambda size: 1.0 if size == 1 else 10.5)
    found = answered(tmp_path, study, **times, **accuracies(l1=0.80, l64=0.90))
    speed, inference, accuracy, *_ = texts(found)
    assert speed == "Batch 64 trains 6.1 times as fast per sample as batch 1."
    assert inference == "In inference, batch 64 is 6.1 times as fast per sample as batch 1."
    assert accuracy.startswith("Batch 64 gives the best test accuracy")


def test_settings_changed_together_are_named_once(tmp_path: Path) -> None:
    study = made_study(design="one-at-a-time", cells=({"optimizer": "sgd", "lr": 0.5},), seeds=5)
    final = accuracy(lambda t: (0.9 if t.cell == "base" else 0.7) + 0.001 * (t.seed % 3))
    run = evidence(tmp_path, study, **final)
    assert not any("(at " in text for text in texts(answer_of(run.folder)))
    effects = of_kind("effect", run)
    assert effects
    assert not any("(at " in one.sentence(EN) for one in effects)


def test_what_processes_gain_is_said_as_far_as_it_is_shown() -> None:
    for low, speedup, high, said in (
        (1.4, 1.5, 1.6, "2 processes train 1.5 times as fast as 1, an efficiency of 75%."),
        (0.5, 0.571, 0.6, "2 processes train more slowly than 1: a step takes 1.8 times as long."),
        (0.9, 1.02, 1.1, "Whether 2 processes train faster or more slowly than 1 is not shown."),
    ):
        who = {"factor": "processes", "levels": (1, 2), "cells": ("processes=1", "processes=2")}
        ends = {"efficiency_low": low / 2, "efficiency_high": high / 2}
        found = {"speedup": speedup, "efficiency": speedup / 2, "interval": Interval(low, high)}
        gain = PARALLEL(subject="train/step_ms", n=5, **who, **found, **ends)
        assert gain.fill(EN, gain.of_kind.brief(gain) or "") == said
