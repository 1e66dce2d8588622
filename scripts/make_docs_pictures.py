"""Makes what the docs show of reports anew: docs/examples/report.png and the example reports in Markdown.

python scripts/make_docs_pictures.py [--mnist RUN] [--fashion RUN]

A lab without a run given is run first, on bundled data; better give runs of an idle machine. Needs what
`make install` installs, and a Chromium: playwright's, or the one that CHROMIUM names.
"""

import argparse
import os
import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from playwright.sync_api import sync_playwright

EXAMPLES = Path(__file__).parents[1] / "docs" / "examples"
VIEWPORT = {"width": 1400, "height": 1000}
"""The answer and its first chart: what fits above the fold of the README."""


def trainlab(*words: str | Path) -> None:
    """As typed in English."""
    command = [sys.executable, "-m", "trainlab", *map(str, words), "--lang", "en"]
    subprocess.run(command, check=True)


def run_of(lab: str, given: Path | None, scratch: Path) -> Path:
    """The run that was given, or a new one."""
    if given is None:
        given = scratch / lab
        trainlab("run", lab, "--data", "bundled", "--no-report", "--out", given)
    return given


def make_example(lab: str, run: Path) -> None:
    """The report as Markdown with its figures, in place of the one that is there."""
    shutil.rmtree(EXAMPLES / lab, ignore_errors=True)
    trainlab("report", run, "--format", "md", "--out", EXAMPLES / lab)


def take_picture(run: Path, scratch: Path) -> None:
    """The top of the HTML report, in light colours."""
    trainlab("report", run, "--format", "html", "--out", scratch)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=os.environ.get("CHROMIUM"))
        page = browser.new_page(viewport=VIEWPORT, color_scheme="light")
        page.goto((scratch / "report.html").as_uri())
        page.wait_for_selector("svg")
        page.screenshot(path=EXAMPLES / "report.png")


def main() -> None:
    """Both labs, and the picture of the first."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mnist", type=Path, help="a run of mnist-lab")
    parser.add_argument("--fashion", type=Path, help="a run of fashion-lab")
    asked = parser.parse_args()
    with TemporaryDirectory() as folder:
        scratch = Path(folder)
        mnist = run_of("mnist-lab", asked.mnist, scratch)
        make_example("mnist-lab", mnist)
        make_example("fashion-lab", run_of("fashion-lab", asked.fashion, scratch))
        take_picture(mnist, scratch)


if __name__ == "__main__":
    main()
