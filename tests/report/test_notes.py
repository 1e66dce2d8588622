"""What an author writes in Markdown: shown in every format, named where it cannot be, and kept in place.

Accept a change with: TRAINLAB_ACCEPT=1 python -m pytest tests/report/test_notes.py
"""

import re
import shutil
import subprocess
from base64 import b64decode
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import hypothesis
import pytest
from accepted import assert_accepted
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from PIL import Image

from trainlab.analysis.document import Document, OwnPicture, OwnText, Paragraph, Section
from trainlab.report.handed_in import html_lines, markdown_lines
from trainlab.report.html import parts_of
from trainlab.report.markdown import figure_files, markdown_of
from trainlab.report.notes import Notes, Unshown, formula_parts, notes_of, read_notes
from trainlab.report.pdf import pdf_of
from trainlab.words import LANGUAGES, Words

pytest.importorskip("latex2mathml", reason="needs trainlab[report]")

NOTES = r"""Text with **bold**, *italics*, ~~deleted~~, `a | b` and [a link](https://example.invalid/?a=1&b=2).
批大小*越大*，
每个样本**越快**。\
A new line, and the loss $L = \frac{1}{n}\sum_{i=1}^{n} \ell(y_i, \hat{y}_i)$ in it; it cost $5 and $6.

3. third
4. fourth
   - nested

     ```python
     x = {"a": [1 | 2]}  # <b>
     ```

> A quotation
> > in a quotation

| 设置 | accuracy | note |
|:--|--:|:-:|
| 16 | 95.20% | **good** |
| 64 | $10^{-3}$ | `a \| b`<br>$\|x\|$ |

![损失曲线](<below/loss curve.png>)

$$\begin{aligned} \mathbf{w}_{t+1} &= \mathbf{w}_t - \eta\,\nabla \mathcal{L}(\mathbf{w}_t) \\
&= \left(\sqrt[3]{x}\right] \end{aligned}$$

$$f(x) = \begin{cases} x & \text{若 } x > 0 \\ 0 & \text{否则} \end{cases}, \quad
A = \begin{bmatrix}1&2\\3&4\end{bmatrix}, \binom{n}{k}, \lim_{x\to0} \dfrac{\sin x}{x},
\underbrace{\vec{v} + \overline{x}}_{n}$$

## A heading within

---

<!-- not shown -->
"""
"""All that is shown."""
REFUSED = {
    "A footnote[^1] of two.": ("notes_footnote", "[^1]"),
    "[^1]: https://example.invalid": ("notes_footnote", "[^1]"),
    "A <b>tag</b>": ("notes_html", "<b>"),
    "<script>alert(1)</script>": ("notes_html", "<script>alert(1)</script>"),
    "**批大小：**越大越好": ("notes_stars", "**批大小：**越大越好"),
    r"$\nosuch{x}$": ("notes_formula", r"$\nosuch{x}$"),
    r"$$\frac{1$$": ("notes_formula", r"$$\frac{1$$"),
    r"$\newcommand{\a}{x}\a$": ("notes_formula", r"$\newcommand{\a}{x}\a$"),
    "![web](https://example.invalid/x.png)": (
        "notes_remote",
        "web (https://example.invalid/x.png)",
    ),
    "![data](data:image/png;base64,AAAA)": ("notes_remote", "data (data:image/png;base64,AAAA)"),
    "![gone](gone.png)": ("notes_missing", "gone (gone.png)"),
    "![above](../above.png)": ("notes_outside", "above (../above.png)"),
    "![link](link.png)": ("notes_outside", "link (link.png)"),
    "![drawing](drawing.svg)": ("notes_broken", "drawing (drawing.svg)"),
    "![cut](cut.png)": ("notes_broken", "cut (cut.png)"),
    "![large](large.jpg)": ("notes_large", "large (large.jpg)"),
    "> " * 9 + "deep": ("notes_deep", "> " * 8 + "> deep"),
}
"""Paragraphs of which something is shown as plain text, and what is said of it."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """With a picture in a folder below it, and others that are not taken."""
    home = tmp_path / "notes"
    (home / "below").mkdir(parents=True)
    Image.new("P", (60, 30)).save(home / "below" / "loss curve.png")
    Image.new("L", (9, 9)).save(tmp_path / "above.png")
    (home / "link.png").symlink_to(tmp_path / "above.png")
    (home / "drawing.svg").write_text("<svg xmlns='http://www.w3.org/2000/svg' onload='alert(1)'/>")
    (home / "cut.png").write_bytes((tmp_path / "above.png").read_bytes()[:40])
    (home / "large.jpg").write_bytes(bytes(5_000_001))
    return home


def read(folder: Path, text: str) -> tuple[Notes, dict[str, OwnPicture]]:
    (folder / "notes.md").write_text(text)
    markdown, pictures, unshown = read_notes(folder / "notes.md")
    notes = notes_of(markdown, lambda address: pictures.get(address, "notes_missing"))
    assert len(unshown) == len(notes.unshown)
    return Notes(notes.placed, unshown), pictures


def document_of(notes: Notes, lang: str = "en") -> Document:
    """Nothing but these notes, and a sentence of ours after them."""
    label = Words(lang)("lab_written_by_author")
    own = (OwnText(label, tuple(parts)) for parts in notes.placed.values())
    sections = (
        Section("own", "Own", tuple(own)),
        Section("ours", "Ours", (Paragraph("The end."),)),
    )
    return Document("Title", "subtitle", lang, "made", (), sections, origin="{}")


@pytest.mark.skipif(shutil.which("pdftotext") is None, reason="needs pdftotext")
@pytest.mark.parametrize("lang", LANGUAGES)
def test_notes_of_every_kind_read_as_accepted(folder: Path, lang: str, tmp_path: Path) -> None:
    for package in ("vl_convert", "typst"):
        pytest.importorskip(package, reason="needs trainlab[report]")
    notes, pictures = read(folder, NOTES)
    (picture,) = pictures.values()
    assert notes.unshown == ()
    document = document_of(notes, lang)
    page = next(part.html for part in parts_of(document) if part.id == "own")
    page = re.sub(r"base64,[\w+/=]+", "base64,PICTURE", page)
    (tmp_path / "report.pdf").write_bytes(pdf_of(document))
    command = ["pdftotext", "-layout", str(tmp_path / "report.pdf"), "-"]
    text = subprocess.run(command, capture_output=True, check=True).stdout.decode()
    assert_accepted(
        f"notes.{lang}.html", f"{page.strip()}\n\n<!-- As PDF:\n\n{text.strip()}\n-->\n"
    )
    assert figure_files(document) == {"figures/own-1.png": b64decode(picture.content)}


def page_of(document: Document) -> bytes:
    """Without scripts and styles."""
    return "".join(part.html for part in parts_of(document)).encode()


def test_what_is_not_shown_is_named_with_its_line_and_stands_as_plain_text(folder: Path) -> None:
    notes, pictures = read(folder, "\n\n".join(REFUSED))
    expected = [Unshown(2 * n + 1, *told) for n, told in enumerate(REFUSED.values())]
    assert list(notes.unshown) == expected
    assert pictures == {}
    page = "\n".join(html_lines(page_of(document_of(notes)))[1])
    for one in expected:
        assert one.text.removeprefix("> " * 8) in page
        for lang in LANGUAGES:
            assert one.text in Words(lang)(one.key, text=one.text)


def test_a_picture_is_turned_upright_made_smaller_and_keeps_nothing_of_the_camera(
    folder: Path,
) -> None:
    exif = Image.Exif()
    exif[0x0112], exif[0x010E] = 6, "Room 101, Example Street"
    Image.new("RGB", (3000, 1000), "red").save(folder / "photo.jpg", exif=exif)
    _, pictures = read(folder, "![photo](photo.jpg) ![again](photo.jpg)")
    (photo,) = pictures.values()
    assert (photo.width, photo.height, photo.kind) == (667, 2000, "jpeg")
    assert b"Example Street" not in b64decode(photo.content)
    # Where a report is checked the picture is white, and of the same size.
    without = notes_of("![photo](photo.jpg)", lambda _: replace(photo, content=""))
    assert pdf_of(document_of(without)).startswith(b"%PDF")


SIGNS = r"<>&\"'`*_~$|#-+.()[]{}!\/^:=%;" + "\n \t\u2028\x0b\x00\u202e\u0301学é1ax"
PIECES = st.one_of(
    st.text(st.sampled_from(SIGNS), max_size=12),
    st.sampled_from(
        (
            *(
                "</div>",
                "</p>",
                "<script>alert(1)</script>",
                "<!--",
                "-->",
                "]]>",
                "</math>",
                "{{ 1 }}",
                "#eval",
            ),
            *(
                "\n\n",
                "\n> ",
                "\n- ",
                "\n1. ",
                "\n# ",
                "\n```\n",
                "\n|a|b|\n|-|-|\n|c|d|\n",
                "\n---\n",
                "<br>",
            ),
            *(
                r"$\text{</math><script>}$",
                r"$\href{javascript:x}{y}$",
                r"$\style{a:url(//b)}{y}$",
                "$$\n",
            ),
            *("[x](javascript:y)", "![x](p.png)", "![\"onload=x](p.png 'y')", "[^1]: z", "\\\n"),
        )
    ),
)
TAGS = set(
    """div p h4 ul ol li blockquote pre code hr br table tbody tr td strong em s span img small math
    mrow mi mn mo mtext mspace mfrac msqrt mroot msub msup msubsup munder mover munderover mtable mtr
    mtd""".split()  # noqa: SIM905
)
ATTRIBUTES = set(
    """class start tabindex src alt width height display stretchy linethickness mathvariant
    displaystyle""".split()  # noqa: SIM905
)


class Page(HTMLParser):
    """Fails on what notes must never become."""

    def __init__(self) -> None:
        super().__init__()
        self.open = ["section", "h2"]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag in TAGS, tag
        assert {name for name, _ in attrs} <= ATTRIBUTES
        assert all(
            (value or "").startswith("data:image/") for name, value in attrs if name == "src"
        )
        if tag not in ("br", "hr", "img"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_comment(self, data: str) -> None:
        raise AssertionError(data)


@hypothesis.settings(deadline=None, max_examples=100)
@hypothesis.given(st.lists(PIECES, max_size=12).map("".join))
def test_no_notes_break_out_of_their_place(text: str) -> None:
    notes = notes_of(text, lambda _: OwnPicture(1, 1, "png"))
    document, empty = document_of(notes), document_of(Notes({}, ()))
    page = Page()
    page.feed(page_of(document).decode().partition('id="own-title">')[2].rpartition("<section")[0])
    assert page.open == []
    for read, write in ((html_lines, page_of), (markdown_lines, lambda d: markdown_of(d).encode())):
        ours = [line for line in read(write(document))[0] if "Written by the author" not in line]
        assert ours == read(write(empty))[0]
    # To whoever shows the Markdown, too.
    parser = MarkdownIt("commonmark").enable("table")
    shown, alone = (parser.render(markdown_of(one)) for one in (document, empty))
    rest = re.sub(r"<blockquote>.*</blockquote>\n", "", shown, flags=re.S)
    assert rest == alone


@pytest.mark.slow
@hypothesis.settings(deadline=None, max_examples=60)
@hypothesis.given(st.lists(PIECES, max_size=12).map("".join))
def test_any_notes_become_a_pdf(text: str) -> None:
    pytest.importorskip("typst", reason="needs trainlab[report]")
    assert pdf_of(document_of(notes_of(text, lambda _: OwnPicture(1, 1, "png")))).startswith(
        b"%PDF"
    )


def test_a_formula_holds_nothing_but_what_is_known() -> None:
    for latex in (r"\href{javascript:x}{y}", r"\style{x}{y}", r"\class{x}{y}", r"\color{x}{y}"):
        (part,) = formula_parts(latex)
        assert {(one.kind, one.text, one.style) for one in part.with_inner()} == {("mi", "y", "")}
    assert formula_parts("{" * 30 + "x" + "}" * 30) == ()
    assert formula_parts("x+" * 2000) == ()
