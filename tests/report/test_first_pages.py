"""The first page of every kind of run, in both languages, as somebody has read and accepted it."""

from collections.abc import Callable
from pathlib import Path

import pytest
from accepted import assert_accepted
from rich_run import rich_data, rich_study, run_data
from varied_run import drawn, learn_run

from fabricate import DATA, Fabricated, made_study
from trainlab.analysis.comparison import comparison_of, side_by_side
from trainlab.analysis.document import Document
from trainlab.plan import Trial
from trainlab.report.contents import report_of
from trainlab.report.markdown import markdown_of
from trainlab.spec import CostSpec


def mnist_lab(path: Path, lang: str) -> Document:
    """Three batch sizes of images; 16 and 64 are alike."""
    study = rich_study(title="What do tensor operations cost?", seeds=5)

    def final(trial: Trial) -> dict[str, float]:
        level = 0.93 if trial.settings.batch_size == 1 else 0.962
        return {"test/accuracy": level + drawn(trial.cell, trial.seed).gauss(0, 0.001)}

    images = DATA.model_copy(update={"name": "mnist"})
    return report_of(rich_data(path, study=study, final=final, data=lambda trial: images), lang)


def fashion_lab(path: Path, lang: str) -> Document:
    """Several factors around a base, divergence and failures."""
    return report_of(run_data(learn_run(path)), lang)


def single_run(path: Path, lang: str) -> Document:
    """One setting, one seed."""
    return report_of(run_data(Fabricated().write(path, made_study(seeds=1))), lang)


def profile(path: Path, lang: str) -> Document:
    """One setting, cost alone."""
    study = made_study(learn=False, cost=CostSpec(mode="both", processes=3))
    return report_of(rich_data(path, study=study), lang)


def unfinished(path: Path, lang: str) -> Document:
    """A study of which the last seeds never ran."""
    data = rich_data(path, state=lambda trial: "pending" if trial.seed > 6 else "done")
    return report_of(data, lang)


def comparison(path: Path, lang: str) -> Document:
    """The same study on two machines, the second twice as fast."""
    first = rich_data(path / "a")
    second = rich_data(
        path / "b",
        step_ms=lambda trial, process: 0.25 + 0.0125 * trial.settings.batch_size + 1e-4 * process,
    )
    compared = side_by_side(first.evidence, second.evidence)
    return comparison_of(first, second, compared, lang, ("laptop", "server"))


KINDS: tuple[Callable[[Path, str], Document], ...] = (
    *(mnist_lab, fashion_lab, single_run, profile, unfinished, comparison),
)


@pytest.mark.parametrize("lang", ["en", "zh"])
@pytest.mark.parametrize("kind", KINDS)
def test_the_first_page_reads_as_accepted(
    kind: Callable[[Path, str], Document], lang: str, tmp_path: Path
) -> None:
    text = markdown_of(kind(tmp_path / "run", lang))
    # Title, notices and the answer: all before the second heading of its level.
    head, answer, *_ = text.split("\n## ")
    told = f"{head}\n## {answer}\n".replace(f"{tmp_path}/", "")
    assert_accepted(f"first_pages/{kind.__name__}.{lang}.md", told)
