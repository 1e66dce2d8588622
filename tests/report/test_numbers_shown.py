"""Numbers as they are shown: units that fit, limits that hold, one place for both ends of an interval."""

from pathlib import Path
from random import Random

from fabricate import Fabricated, made_study
from trainlab.analysis.document import Figure
from trainlab.analysis.evidence import gather
from trainlab.analysis.learning import learn_table
from trainlab.analysis.overview import data_of, findings
from trainlab.plan import Trial
from trainlab.report.contents import report_of
from trainlab.spec import CostSpec
from trainlab.stats.means import Interval
from trainlab.words import Words
from trainlab.words.numbers import memory, metric_difference

EN = Words("en")


def regression(trial: Trial) -> dict[str, float]:
    value = 0.01 + 0.3 * (trial.seed % 3 == 1) + 0.001 * len(trial.cell)
    return {"train/loss": value, "test/loss": value, "test/r2": value}


def test_a_loss_that_is_never_negative_has_no_negative_interval(tmp_path: Path) -> None:
    study = made_study(vary={"lr": (0.1, 0.2)}, seeds=3)
    evidence = gather(Fabricated(final=regression).write(tmp_path / "r", study))
    table = learn_table(evidence, EN)
    headings = [column.heading for column in table.columns]
    for row in table.rows:
        shown = dict(zip(headings, (entry.text for entry in row.entries), strict=True))
        assert "[0.0000, " in shown["test loss"]
        assert "[0.0000, " in shown["training loss"]
        assert "[-" in shown["test r2"], "one that can be negative keeps its interval"


def test_a_heading_names_what_there_is(tmp_path: Path) -> None:
    for heading, metrics in {
        "Loss and accuracy": ("test/loss", "test/accuracy"),
        "Loss and metrics": ("test/loss", "test/mae"),
        "Loss": ("train/loss", "test/loss"),
    }.items():
        made = Fabricated(final=lambda trial, names=metrics: dict.fromkeys(names, 0.5))
        data = data_of(gather(made.write(tmp_path / heading, made_study())))
        section = next(one for one in report_of(data, "en").sections if one.id == "learning")
        assert section.title == heading


def test_a_chart_of_steps_says_that_the_table_has_epochs(tmp_path: Path) -> None:
    folder = Fabricated(step_points=3).write(tmp_path / "r", made_study())
    section = next(
        one for one in report_of(data_of(gather(folder)), "en").sections if one.id == "learning"
    )
    figure = next(
        one for one in section.blocks if isinstance(one, Figure) and one.id == "trend-train-loss"
    )
    assert "at the last logged step it is base: 0.5" in figure.alt
    assert "the table has the mean over the last epoch" in figure.note


def test_both_ends_of_an_interval_are_written_to_the_same_place(tmp_path: Path) -> None:
    study = made_study(vary={"lr": (0.1, 0.2)}, seeds=5)
    made = Fabricated(final=lambda t: {"test/loss": Random(f"{t.cell} {t.seed}").random()})
    found = findings(gather(made.write(tmp_path / "r", study)))
    effect = next(one for one in found if one.kind == "effect" and one.subject == "test/loss")
    object.__setattr__(effect, "interval", Interval(-0.0004, 0.0213))
    assert "[95% CI -0.0004 to +0.0213]" in effect.sentence(EN)
    assert metric_difference("test/loss", -0.0004, "") == "-0.0004"
    assert metric_difference("test/loss", 0.00004, "", beside=0.02) == "+0.0000"


def test_memory_of_a_small_model_is_in_kib(tmp_path: Path) -> None:
    assert memory(0.05, 0.025) == "51.2 → 25.6 KiB"
    assert memory(0.05, 2.0) == "0.0500 → 2.00 MiB"
    study = made_study(vary={"batch_size": (1, 4)}, learn=False, cost=CostSpec(processes=3))
    made = Fabricated(peak_bytes=lambda trial: 1024 * 8 * trial.settings.batch_size)
    found = findings(gather(made.write(tmp_path / "r", study)))
    (told,) = (one.sentence(EN) for one in found if one.kind == "memory")
    assert "needs 8.00 → 32.0 KiB at its peak, 4.00 times" in told
