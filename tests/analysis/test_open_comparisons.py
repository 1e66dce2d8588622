"""Comparisons that stay open: for which cause, what is said of it, and when seeds are added."""

from pathlib import Path
from random import Random
from typing import Any

from analysed import EN, ends, evidence, of_kind

from command import Verb
from fabricate import made_study
from trainlab.analysis.answer import answer
from trainlab.analysis.evidence import Evidence, gather
from trainlab.analysis.factors import open_comparisons
from trainlab.analysis.finding import Finding
from trainlab.analysis.learning import learn_table
from trainlab.analysis.overview import findings
from trainlab.plan import Trial
from trainlab.words import Words

ZH = Words("zh")


def noisy(trial: Trial) -> dict[str, float]:
    return {"test/loss": 0.5 + Random(f"{trial.cell} {trial.seed}").gauss(0, 0.01)}


def run_of(path: Path, gone: str, after: int = 0, seeds: int = 6, **asked: Any) -> Evidence:
    """The trials of one cell end so, from a seed on."""
    study = made_study(vary={"lr": (0.1, 0.2, 0.3)}, seeds=seeds, **asked)
    return evidence(path, study, final=noisy, **ends("lr=0.3", gone, after))


def undecided(run: Evidence) -> Finding:
    (found,) = of_kind("undecided", run)
    return found


def effect_on(cell: str, run: Evidence) -> Finding:
    return next(one for one in of_kind("effect", run) if one.cells[1] == cell)


def test_what_is_not_decided_says_why(tmp_path: Path) -> None:
    for gone, cause, told in (
        ("diverged", "diverged", "seeds without a finite value"),
        ("failed", "failed", "trials failed"),
        ("interrupted", "failed", "trials failed"),
        ("done", "noise", "the noise allows for more than one answer in 3"),
    ):
        run = run_of(tmp_path / gone, gone)
        assert effect_on("lr=0.3", run).open_because == cause
        text = undecided(run).sentence(EN)
        assert told in text
        assert text.startswith("Comparisons not decided: 3 of ")
        assert cause == "noise" or "more than one answer in 1" in text
    single = run_of(tmp_path, "done", seeds=1)
    assert "a single seed or process in 3" in undecided(single).sentence(EN)


def test_times_to_a_target_that_cannot_be_told_are_counted(tmp_path: Path) -> None:
    study = made_study(vary={"lr": (0.1, 0.2)}, seeds=6, targets={"test/loss": 0.5})
    run = evidence(tmp_path, study, final=noisy)
    tested = [one for one in findings(run) if one.kind in ("effect", "time_difference")]
    assert "time_difference" in {one.kind for one in tested}
    num_open = sum(one.verdict == "cannot tell" for one in tested)
    assert undecided(run).numbers["num_open"] == num_open == len(tested)


def test_a_setting_that_never_trains_gets_no_more_seeds(tmp_path: Path) -> None:
    """One that trains now and then may yet be decided."""
    study = made_study(vary={"lr": (0.1, 0.3)}, seeds=3)
    for gone in ("diverged", "failed"):
        for after, counts in ((0, (0, 1)), (2, (1, 0))):
            path, state = tmp_path / f"{gone}{after}", ends("lr=0.3", gone, after)
            assert open_comparisons(evidence(path, study, final=noisy, **state)) == counts


def test_a_study_stops_where_seeds_cannot_decide(trainlab: Verb, tiny_file: Path) -> None:
    words = ["run", f"{tiny_file}:tiny", "--optimizer", "sgd", "--lr", "0.01,1e30", "--seeds", "3"]
    words += ["--until-decided", "--max-seeds", "6", "--device", "cpu", "--no-report"]
    shown = trainlab(*words, "--out", "r").stderr
    assert len(list((tiny_file.parent / "r" / "trials").iterdir())) == 6
    assert "1 comparison stays open, and more seeds would not decide it" in shown


def test_divergence_that_withholds_equivalence_is_named(tmp_path: Path) -> None:
    run = run_of(tmp_path, "diverged", after=4, margins={"test/loss": 0.5})
    effect = effect_on("lr=0.3", run)
    assert (effect.verdict, effect.open_because) == ("cannot tell", "rates")
    assert effect.numbers["seeds_needed"] is None
    text = effect.sentence(EN)
    assert "would settle it" not in text
    assert "not called equivalent: one has no finite value more often" in text
    assert "[95% CI" in text
    assert "不能称为等同" in effect.sentence(ZH)
    assert effect_on("lr=0.2", run).verdict == "equivalent"
    assert open_comparisons(run)[0] == 0


def test_identical_but_for_divergence_is_not_called_identical(tmp_path: Path) -> None:
    study, state = made_study(vary={"lr": (0.1, 0.3)}, seeds=4), ends("lr=0.3", "diverged", after=2)
    run = evidence(tmp_path, study, final=lambda t: {"test/loss": 0.4}, **state)
    effect = effect_on("lr=0.3", run)
    assert effect.verdict == "cannot tell"
    assert "identical in the 2 seeds that trained in both" in effect.sentence(EN)


def test_a_test_loss_that_is_not_finite_is_told_as_such_and_its_trial_has_trained(
    tmp_path: Path,
) -> None:
    study, final = made_study(), {"train/loss": 0.25, "test/loss": None}
    run = evidence(tmp_path, study, final=lambda t: final)
    for before in (None, "diverged"):  # as earlier versions called it
        for trial in run.trials if before else ():
            gone = {"state": before, "diverged_at_step": None}
            run.folder.trial(trial.id).write(trial.model_copy(update=gone))
        run = gather(run.folder)
        assert not of_kind("diverged", run)
        (found,) = of_kind("not_finite", run)
        assert found.sentence(EN) == "base: test loss was not finite in 3 of 3 trials."
        said = [one.text for one in answer(run, findings(run), EN).sentences]
        assert "Test loss was not finite in 3 of 3 runs." in said
        assert learn_table(run, EN).rows[0].entries[1].text == "3"
        assert "0.2500 [0.2500, 0.2500]" in [
            one.text for one in learn_table(run, EN).rows[0].entries
        ]


def test_the_table_says_how_trials_ended_where_none_ended_well(tmp_path: Path) -> None:
    for gone in ("failed", "interrupted"):
        run = run_of(tmp_path / gone, gone)
        *_, last = learn_table(run, EN).rows
        texts = [entry.text for entry in last.entries]
        assert gone in texts
        assert "none finite" not in texts
        assert learn_table(run, ZH).rows[2].entries[2].text == ZH(f"state_{gone}")
