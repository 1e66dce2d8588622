"""The documentation as a site: built from the pages without a warning, it loads nothing from outside."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from pages import ROOT


def test_every_page_is_in_the_navigation() -> None:
    config = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    for folder in ("", "zh/"):
        for page in (ROOT / "docs" / folder).glob("*.md"):
            assert re.search(rf": {folder}{re.escape(page.name)}$", config, re.M), page


@pytest.mark.slow
def test_the_site_loads_nothing_from_outside(tmp_path: Path) -> None:
    pytest.importorskip("material", reason="pip install 'trainlab[docs]'")
    words = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "--site-dir", tmp_path]
    quiet = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(words, cwd=ROOT, env=quiet, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    pages = sorted(tmp_path.rglob("*.html"))
    assert len(pages) > 20
    outside = re.compile(r"<(?:script|img|iframe|link)\b[^>]*(?:src|href)=[\"']?(?:https?:)?//")
    for page in pages:
        assert not outside.search(page.read_text(encoding="utf-8")), page.name
    for sheet in tmp_path.rglob("*.css"):
        assert not re.search(r"url\([\"']?(?:https?:)?//", sheet.read_text()), sheet.name
