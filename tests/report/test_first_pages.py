"""The first page of every kind of run, in both languages, as somebody has read and accepted it."""

from collections.abc import Callable
from pathlib import Path

import pytest
from accepted import assert_accepted
from rich_run import rich_data, rich_study, run_data
from varied_run import drawn, learn_run

from fabricate import DATA, Fabricated, made_study
from trainlab.analysis.comparison import SideBySide, comparison_of, side_by_side
from trainlab.analysis.finding import RunData
from trainlab.execute.planned_run import start_run
from trainlab.plan import Trial
from trainlab.report.contents import report_of
from trainlab.report.markdown import markdown_of
from trainlab.spec import CostSpec

Beside = tuple[RunData, RunData, SideBySide]


def mnist_lab(path: Path) -> RunData:
    """Three batch sizes of images; 16 and 64 are alike."""
    study = rich_study(title="What do tensor operations cost?", seeds=5)

    def final(trial: Trial) -> dict[str, float]:
        level = 0.93 if trial.settings.batch_size == 1 else 0.962
        return {"test/accuracy": level + drawn(trial.cell, trial.seed).gauss(0, 0.001)}

    images = DATA.model_copy(update={"name": "mnist"})
    return rich_data(path, study=study, final=final, data=lambda trial: images)


def fashion_lab(path: Path) -> RunData:
    """Several factors around a base, divergence and failures."""
    return run_data(learn_run(path))


def single_run(path: Path) -> RunData:
    """One setting, one seed."""
    return run_data(Fabricated().write(path, made_study(seeds=1)))


def profile(path: Path) -> RunData:
    """One setting, cost alone."""
    return rich_data(path, study=made_study(learn=False, cost=CostSpec(mode="both", processes=3)))


def unfinished(path: Path) -> RunData:
    """A study of which the last seeds never ran."""
    return rich_data(path, state=lambda trial: "pending" if trial.seed > 6 else "done")


def comparison(path: Path) -> Beside:
    """The same study on two machines, the second twice as fast."""
    first = rich_data(path / "a")
    second = rich_data(
        path / "b",
        step_ms=lambda trial, process: 0.25 + 0.0125 * trial.settings.batch_size + 1e-4 * process,
    )
    return first, second, side_by_side(first.evidence, second.evidence)


@pytest.mark.parametrize(
    "kind", [mnist_lab, fashion_lab, single_run, profile, unfinished, comparison]
)
def test_the_first_page_reads_as_accepted(
    kind: Callable[[Path], RunData | Beside], tmp_path: Path
) -> None:
    made = kind(tmp_path / "run")
    for lang in ("en", "zh"):
        if isinstance(made, RunData):
            document = report_of(made, lang)
        else:
            document = comparison_of(*made, lang, ("laptop", "server"))
        # Title, notices and the answer, before which a comparison has what else differs.
        num_parts = 2 if isinstance(made, RunData) else 3
        first = "\n## ".join(markdown_of(document).split("\n## ")[:num_parts])
        told = f"{first}\n".replace(f"{tmp_path}/", "")
        assert_accepted(f"first_pages/{kind.__name__}.{lang}.md", told)


def test_a_run_of_which_nothing_was_started_names_no_machine(tmp_path: Path) -> None:
    started = start_run(made_study(vary={"lr": (0.1, 0.2)}, seeds=3), tmp_path / "r")
    said = report_of(run_data(started)).subtitle
    assert " · 2 settings × 3 seeds, begun 20" in said
