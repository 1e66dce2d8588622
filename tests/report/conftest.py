"""A run with everything a report can show, made once for all tests that only read it."""

import pytest
from rich_run import rich_run, run_data

from trainlab.analysis.document import Document
from trainlab.record.run_folder import RunFolder
from trainlab.report.contents import report_of


@pytest.fixture(scope="session")
def rich_folder(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """Not to be changed."""
    return rich_run(tmp_path_factory.mktemp("rich") / "run")


@pytest.fixture(scope="session")
def reports(rich_folder: RunFolder) -> dict[str, Document]:
    """Its report by language."""
    return {lang: report_of(run_data(rich_folder), lang) for lang in ("en", "zh")}
