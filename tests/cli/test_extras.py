"""What an extra brings and is not there is named in one line, with the command that installs it."""

import sys
from pathlib import Path

import pytest

from command import Verb
from fabricate import Fabricated, made_study
from trainlab.report import html

REPORT = ("report", "r", "--format")
MLFLOW = ("export", "r", "--to", "mlflow", "--tracking-uri", "http://127.0.0.1:1")
RAY = ("run", "fashion-mlp", "--data", "bundled", "--on", "ray:127.0.0.1:1")
MISSING = {
    ("jinja2", *REPORT, "html"): "an HTML report needs jinja2: pip install 'trainlab[report]'",
    (
        "vl_convert",
        *REPORT,
        "html",
    ): "an HTML report needs vl_convert: pip install 'trainlab[report]'",
    ("typst", *REPORT, "pdf"): "a PDF report needs typst: pip install 'trainlab[report]'",
    ("brotli", *REPORT, "html", "--lang", "zh"): "中文 HTML 报告需要 brotli：pip install",
    ("starlette", "page", "."): "the page needs starlette: pip install 'trainlab[page]'",
    ("uvicorn", "page", "."): "the page needs uvicorn: pip install 'trainlab[page]'",
    ("mlflow", *MLFLOW): "--to mlflow needs mlflow: pip install 'trainlab[mlflow]'",
    ("ray", *RAY): "--on ray needs ray: pip install 'trainlab[ray]'",
}


def test_a_missing_extra_is_named_in_one_line(trainlab: Verb, tmp_path: Path) -> None:
    Fabricated().write(tmp_path / "r", made_study(vary={"lr": (0.1, 0.2)}))
    for kept in (html.environment, html.bundle):
        kept.cache_clear()  # another test may have made them
    for (package, *asked), told in MISSING.items():
        with pytest.MonkeyPatch.context() as without:
            for loaded in [
                package,
                *(name for name in sys.modules if name.startswith(f"{package}.")),
            ]:
                without.setitem(sys.modules, loaded, None)
            said = trainlab(*asked, code=2).stderr
        line = said.splitlines()[-1]
        assert line.startswith("trainlab: "), said
        assert told in line, package
        assert "Traceback" not in said, package
