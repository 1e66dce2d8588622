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

InLanguage = Callable[[str], Document]


def mnist_lab(path: Path) -> InLanguage:
    """Three batch sizes of images; 16 and 64 are alike."""
    study = rich_study(title="What do tensor operations cost?", seeds=5)

    def final(trial: Trial) -> dict[str, float]:
        level = 0.93 if trial.settings.batch_size == 1 else 0.962
        return {"test/accuracy": level + drawn(trial.cell, trial.seed).gauss(0, 0.001)}

    images = DATA.model_copy(update={"name": "mnist"})
    data = rich_data(path, study=study, final=final, data=lambda trial: images)
    return lambda lang: report_of(data, lang)


def fashion_lab(path: Path) -> InLanguage:
    """Several factors around a base, divergence and failures."""
    data = run_data(learn_run(path))
    return lambda lang: report_of(data, lang)


def single_run(path: Path) -> InLanguage:
    """One setting, one seed."""
    data = run_data(Fabricated().write(path, made_study(seeds=1)))
    return lambda lang: report_of(data, lang)


def profile(path: Path) -> InLanguage:
    """One setting, cost alone."""
    study = made_study(learn=False, cost=CostSpec(mode="both", processes=3))
    data = rich_data(path, study=study)
    return lambda lang: report_of(data, lang)


def unfinished(path: Path) -> InLanguage:
    """A study of which the last seeds never ran."""
    data = rich_data(path, state=lambda trial: "pending" if trial.seed > 6 else "done")
    return lambda lang: report_of(data, lang)


def comparison(path: Path) -> InLanguage:
    """The same study on two machines, the second twice as fast."""
    first = rich_data(path / "a")
    second = rich_data(
        path / "b",
        step_ms=lambda trial, process: 0.25 + 0.0125 * trial.settings.batch_size + 1e-4 * process,
    )
    compared = side_by_side(first.evidence, second.evidence)
    return lambda lang: comparison_of(first, second, compared, lang, ("laptop", "server"))


@pytest.mark.parametrize(
    "kind", [mnist_lab, fashion_lab, single_run, profile, unfinished, comparison]
)
def test_the_first_page_reads_as_accepted(
    kind: Callable[[Path], InLanguage], tmp_path: Path
) -> None:
    in_language = kind(tmp_path / "run")
    for lang in ("en", "zh"):
        # Title, notices and the answer: all before the second heading of its level.
        head, answer, *_ = markdown_of(in_language(lang)).split("\n## ")
        told = f"{head}\n## {answer}\n".replace(f"{tmp_path}/", "")
        assert_accepted(f"first_pages/{kind.__name__}.{lang}.md", told)
