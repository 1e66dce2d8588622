"""What seeds change is no setting: cells that differ by it are compared by their spread alone."""

from pathlib import Path
from random import Random

from analysed import EN, evidence, of_kind

from fabricate import made_study
from trainlab.analysis.evidence import Evidence
from trainlab.analysis.factors import open_comparisons
from trainlab.analysis.overview import data_of, findings
from trainlab.analysis.prospects import prospects
from trainlab.plan import Trial
from trainlab.report.contents import report_of
from trainlab.spec import CostSpec, Study

PARTS = ("all", "weights", "order", "dropout")
STDS = {"all": 0.01, "weights": 0.02, "order": 0.004, "dropout": 0.0}


def accuracy(trial: Trial) -> dict[str, float]:
    """Means as far apart as the weights of seed 0 happen to lie from the others."""
    part, lr = trial.settings.seed_parts, trial.settings.start_lr
    shift = 0.05 * PARTS.index(part) + (0.2 if lr == 0.2 else 0.0)
    own = Random(f"{part} {lr} {trial.seed}").gauss(0, STDS[part])
    return {"test/accuracy": 0.5 + shift + own, "test/loss": 1.0 - shift - own}


def evidence_of(path: Path, study: Study) -> Evidence:
    return evidence(path, study, final=accuracy)


def test_a_study_of_what_seeds_change_has_no_findings_but_spreads(tmp_path: Path) -> None:
    study = made_study(vary={"seed_parts": PARTS}, seeds=5, cost=CostSpec(processes=3))
    run = evidence_of(tmp_path, study)
    kinds = [one.kind for one in findings(run) if one.factor == "seed_parts"]
    assert kinds == ["seed_spread"] * 4
    told = {one.kind for one in findings(run)}
    assert not told & {"effect", "best", "trend", "interaction", "undecided", "cost", "memory"}
    assert open_comparisons(run) == (0, 0)
    assert prospects(study) == ()
    # No spread is said as such.
    dropout = {one.part: one for one in of_kind("seed_spread", run)}["dropout"]
    assert (dropout.std, dropout.ratio, dropout.interval) == (0.0, None, None)
    assert dropout.sentence(EN) == (
        "Seeds that change dropout do not change test accuracy: it is the same in all 5 seeds."
    )


def test_another_factor_is_compared_where_seeds_change_the_same(tmp_path: Path) -> None:
    study = made_study(vary={"seed_parts": ("all", "order"), "lr": (0.1, 0.2)}, seeds=5)
    run = evidence_of(tmp_path, study)
    effects = {one.cells for one in of_kind("effect", run)}
    assert effects == {("seed_parts=all,lr=0.1", "seed_parts=all,lr=0.2")}
    (best,) = of_kind("best", run)
    assert best.cells == ("seed_parts=all,lr=0.2",)
    assert best.numbers["num_diverging"] == 0


def method_text(path: Path, study: Study) -> str:
    document = report_of(data_of(evidence_of(path, study)), "en")
    section = next(one for one in document.sections if one.id == "method")
    return " ".join(getattr(block, "text", "") for block in section.blocks)


def test_the_method_does_not_claim_pairs_that_there_are_not(tmp_path: Path) -> None:
    paired = "settings are compared seed by seed"
    assert paired in method_text(tmp_path / "lr", made_study(vary={"lr": (0.1, 0.2)}))
    varied = method_text(tmp_path / "parts", made_study(vary={"seed_parts": PARTS}))
    assert paired not in varied
    assert "by their spread over seeds" in varied
    held = {"lr": (0.1, 0.2)}
    fixed = method_text(tmp_path / "held", made_study(vary=held, settings={"seed_parts": "order"}))
    assert "seeds change the data order alone" in fixed
