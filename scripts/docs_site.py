"""A hook of MkDocs: what the docs link to outside of docs/ (examples, benchmarks) is in the site, too."""

import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[1]
OUTSIDE = [
    ROOT / "benchmarks/README.md",
    *sorted(path for path in (ROOT / "examples").iterdir() if path.is_file()),
]


def on_files(files: Files, config: Any) -> None:
    """In the site they lie where they lie in the repository, without `docs/` above the others."""
    for path in OUTSIDE:
        name = path.relative_to(ROOT).as_posix()
        files.append(File.generated(config, name, abs_src_path=str(path)))


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Links between the two trees, one level nearer; GitHub's notes as quotations."""
    up = "../" * page.file.src_uri.count("/")
    nearer = re.sub(rf"\]\({re.escape(up)}\.\./(examples|benchmarks)/", rf"]({up}\1/", markdown)
    return nearer.replace("](../docs/", "](../").replace("> [!NOTE]\n", "> **Note:**\n")


def on_post_page(output: str, page: Any, **_: Any) -> str:
    """What reads a page aloud, or chooses a font, goes by its language."""
    is_chinese = page.file.src_uri.startswith("zh/")
    return output.replace('lang="en"', 'lang="zh"', 1) if is_chinese else output
