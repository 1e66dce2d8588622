"""What a report says about how it measured: only what the records show."""

from pathlib import Path
from typing import Any

import pytest
from rich_run import rich_run, run_data, section_of

from fabricate import Fabricated, made_study
from trainlab.analysis.document import Document, Paragraph, Table
from trainlab.analysis.method import Overhead, overhead_text
from trainlab.record.run_folder import RunFolder
from trainlab.report.contents import report_of
from trainlab.words import Words


def loaded(folder: RunFolder, **load: Any) -> RunFolder:
    """With this load during every measurement."""
    for trial in folder.trials():
        file = folder.trial(trial.id).cost
        if file.exists():
            record = file.read()
            meanwhile = record.load.model_copy(update=load)
            file.write(record.model_copy(update={"load": meanwhile}))
    return folder


def method_of(folder: RunFolder) -> tuple[Document, str]:
    document = report_of(run_data(folder), "en")
    blocks = section_of(document, "method").blocks
    return document, " ".join(block.text for block in blocks if isinstance(block, Paragraph))


def table_of(document: Document, caption: str) -> Table:
    blocks = section_of(document, "method").blocks
    return next(b for b in blocks if isinstance(b, Table) and b.caption.startswith(caption))


def test_what_else_ran_is_told_as_recorded(tmp_path: Path) -> None:
    _, text = method_of(loaded(rich_run(tmp_path / "r"), others_cores=0.83, stolen_cores=0.11))
    assert "alone on the machine" not in text
    assert "other programs kept 0.83 cores busy" in text
    assert "took 0.11 away" in text


@pytest.mark.parametrize(("num_pairs", "is_range"), [(5, True), (6, False)])
def test_fewer_than_six_pairs_have_a_range_and_no_interval(num_pairs: int, is_range: bool) -> None:
    overhead = Overhead("layers", 0.1, 0.05, 0.2, num_pairs)
    assert ("range +5.0%, +20.0%" in overhead_text([overhead], Words("en"))) == is_range


def test_unstable_measurements_with_trained_weights_are_told_from_the_others(
    tmp_path: Path,
) -> None:
    study = made_study(cost={"processes": 3, "weights": "both"}, vary={"lr": (0.1, 0.01)})
    folder = Fabricated(step_ms=lambda t, process: 2.0 + process).write(tmp_path / "r", study)
    document, _ = method_of(loaded(folder, others_cores=1.5))
    names = [row.entries[0].text for row in table_of(document, Words("en")("warning_table")).rows]
    assert len(names) == len(set(names))
    assert "lr=0.01 (trained weights)" in names
    assert "lr=0.01" in names


@pytest.mark.parametrize("rates", [(0.1,), (0.1, 0.01)])
def test_settings_are_said_to_be_compared_only_where_there_are_several(
    tmp_path: Path, rates: tuple[float, ...]
) -> None:
    vary = {"lr": rates} if len(rates) > 1 else {}
    folder = Fabricated().write(tmp_path / "r", made_study(vary=vary, seeds=(1, 2)))
    _, text = method_of(folder)
    assert ("differs between compared settings" in text) == (len(rates) > 1)
