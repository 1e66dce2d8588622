"""trainlab class: the hand-ins of a class, each told for what it is, and results side by side."""

import json
import os
import time
from dataclasses import dataclass
from pathlib import Path
from shutil import copytree

import hypothesis
import pandas as pd
import pytest
from hypothesis import strategies as st

from command import called
from fabricate import ENVIRONMENT, Fabricated, made_study
from trainlab.analysis.document import Paragraph, Table
from trainlab.analysis.evidence import gather
from trainlab.record.run_folder import RunFolder
from trainlab.report.handed_in import FORMATS, differing_words
from trainlab.report.lab_report import HandIn
from trainlab.report.submissions import (
    STATES,
    ClassOverview,
    Submission,
    change_text,
    class_document,
    csv_of,
    read_class,
)
from trainlab.report.writing import document_of
from trainlab.stats.means import Mean
from trainlab.words import LANGUAGES, Words

NOTES = "# Discussion\nBatches differ.\n\nI once saw 12.34 s.\n"
EN = Words("en")


def run_of(path: Path, accuracy: float, host: str = "", **asked: object) -> RunFolder:
    """A small run with this accuracy."""
    final = {"train/loss": 0.3, "test/accuracy": accuracy}
    machine = ENVIRONMENT.model_copy(update={"host": host})
    made = Fabricated(final=lambda trial: final, environment=machine)
    return made.write(path, made_study(vary={"batch_size": [1, 16]}, **asked))


def written(run: RunFolder, suffix: str, author: str, lang: str = "en") -> bytes:
    hand_in = HandIn(author, f"id-{author}", course="AI", notes=NOTES)
    return FORMATS[suffix][0](document_of(gather(run), lang, hand_in))


@dataclass(frozen=True)
class Made:
    """A folder of hand-ins, and that of the runs of most."""

    folder: Path
    runs: Path
    overview: ClassOverview

    def of(self, file: str) -> Submission:
        return next(one for one in self.overview.submissions if one.file == file)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    """Each file is called after what is told of it."""
    for package in ("vl_convert", "typst"):
        pytest.importorskip(package, reason="needs trainlab[report]")
    home = tmp_path_factory.mktemp("class")
    folder, runs = home / "handed-in", home / "runs"
    for path in (folder / "cem", runs):
        path.mkdir(parents=True)
    shared, own = (
        run_of(runs / "shared", 0.91, "lab-1", cost={"processes": 3}),
        run_of(runs / "own", 0.965, "lab-1"),
    )
    for author in ("Ada", "Bob"):
        (folder / f"{author}.html").write_bytes(written(shared, ".html", author))
    page, text = (folder / "Ada.html").read_bytes(), written(own, ".md", "Cem").decode()
    (folder / "truncated.html").write_bytes(page.partition(b"</main>")[0])
    (folder / "truncated.md").write_text(text[: len(text) // 2])
    assert text.count("96.50%") > 1
    (folder / "cem" / "number.MD").write_text(text.replace("96.50%", "98.50%"))
    (folder / "name.md").write_text(text.replace("Author: Cem", "Author: Don"))
    gone = [line for line in text.splitlines() if line != "Seeds per setting: 3."]
    (folder / "sentence.md").write_text("\n".join(gone).replace("Varied:", "Changed:"))
    (folder / "chinese.md").write_bytes(written(own, ".md", "李华", "zh"))
    (folder / "own-text.md").write_text(text.replace("I once saw", "On 7.77% of days I saw"))
    (folder / "good.pdf").write_bytes(written(own, ".pdf", "Gus"))
    (folder / "foreign.pdf").write_bytes(b"%PDF-1.4\n1 0 obj <<>> endobj\n%%EOF\n")
    (folder / "foreign.md").write_text("**Author: Me**\n\n# An essay\n")
    (folder / "foreign.docx").write_bytes(b"PK")
    (folder / "absent.md").write_bytes(written(run_of(home / "elsewhere", 0.5), ".md", "Ida"))
    hal = run_of(folder / "hal", 0.92, "hal-pc")
    hal.report_folder.mkdir()
    (hal.report_folder / "report.md").write_bytes(written(hal, ".md", "Hal"))
    copytree(hal.path, folder / "kim" / "hers")
    trial = next((folder / "kim" / "hers").glob("trials/*/trial.json"))
    trial.write_text(trial.read_text().replace("done", "left", 1))
    mia = run_of(folder / "mia" / "run", 0.55)
    (folder / "mia" / "report.md").write_bytes(written(mia, ".md", "Mia"))
    (folder / "nobody").mkdir()
    (folder / "link.md").symlink_to(home / "elsewhere" / "study.json")
    os.mkfifo(folder / "pipe.html")
    return Made(folder, runs, read_class(folder, runs))


def test_every_hand_in_is_told_for_what_it_is(made: Made) -> None:
    expected = {
        "unchanged": "Ada.html Bob.html chinese.md good.pdf own-text.md hal mia/report.md",
        "no_run": "absent.md",
        "changed": "cem/number.MD name.md sentence.md",
        "cut_off": "truncated.html truncated.md",
        "no_report": "foreign.docx foreign.md foreign.pdf nobody",
        "damaged": "kim/hers",
        "unreadable": "link.md pipe.html",
    }
    told = {one.file: one.state for one in made.overview.submissions}
    assert told == {file: state for state, files in expected.items() for file in files.split()}
    assert made.overview.is_changed
    assert "changed or damaged" in made.of("kim/hers").reason
    assert "link out of the folder" in made.of("link.md").reason
    assert made.of("hal").who == "Hal"
    assert made.of("truncated.html").who == "Ada"
    # The student's run beside her report is that report's, and no hand-in of its own.
    assert made.of("mia/report.md").run.endswith("mia/run")
    assert (made.of("absent.md").who, made.of("absent.md").num_own_words) == ("Ida", 7)
    assert made.of("good.pdf").own_numbers == ("12.34",)
    assert made.of("own-text.md").own_numbers == ("7.77", "12.34")
    assert made.of("good.pdf").own == ("Batches differ.", "I once saw 12.34 s.")
    assert made.of("Ada.html").own == made.of("chinese.md").own == made.of("good.pdf").own


def test_what_was_changed_is_told_in_words_and_with_its_place(made: Made) -> None:
    def changes(file: str) -> list[str]:
        return [change_text(change, EN) for change in made.of(file).changes]

    assert changes("name.md") == ["name edited: Cem → Don"]
    (number,) = changes("cem/number.MD")
    assert number.startswith("number edited: 96.50% → 98.50% in “Method”, “Question and answer”, ")
    edited, removed = changes("sentence.md")
    assert edited == "sentence edited: Varied → Changed in “Purpose”"
    assert removed == "sentence removed in “Purpose”: Seeds per setting: 3."


WORDS = st.lists(st.sampled_from(["a", "of", "batch_size", "the", "批"]), min_size=1, max_size=8)
NUMBERS = st.sampled_from(["1", "0.5", "-0.5", "96.5%", "1,204", "1e-05"])


@hypothesis.settings(deadline=None, max_examples=60)
@hypothesis.given(WORDS, NUMBERS, NUMBERS, WORDS, WORDS)
def test_the_words_that_differ_are_those_that_were_edited(
    before: list[str], number: str, other: str, after: list[str], rest: list[str]
) -> None:
    line, edited = (" ".join([*before, n, *after]) for n in (number, other))
    assert differing_words(line, edited) == ([(number, other)] if number != other else [])
    others = " ".join([*before, other, *rest])
    for one, two in differing_words(line, others):
        assert one in line
        assert two in others
        assert one != two


def test_one_run_under_two_names_and_one_machine_are_told(made: Made) -> None:
    ada = made.of("Ada.html")
    assert [one.file for one in made.overview.of_same_run(ada)] == ["Bob.html"]
    assert "Gus" in {one.who for one in made.overview.of_same_machine(ada)}
    assert "Hal" not in {one.who for one in made.overview.of_same_machine(ada)}
    blocks = next(s for s in class_document(made.overview, "en").sections if s.id == "class-same")
    told = [block.text for block in blocks.blocks if isinstance(block, Paragraph)]
    assert told[0] == "One run under several names: Ada (Ada.html), Bob (Bob.html)."
    assert told[-1].startswith("Different runs on one machine (lab-1): Ada (Ada.html), ")


def test_outliers_are_told_from_five_runs_on() -> None:
    def overview(*values: float) -> ClassOverview:
        means = [Mean(value, None, None, 1) for value in values]
        about = {"study": "s", "metric": "test/accuracy"}
        rows = (
            Submission(file=f"{n}", records=f"{n}", over_seeds=m, **about)
            for n, m in enumerate(means)
        )  # type: ignore[arg-type]
        return ClassOverview("class", tuple(rows))

    near = (0.90, 0.91, 0.92, 0.93)
    for values, far in ((near, []), ((*near, 0.99), ["4"]), ((*near, 0.94), []), ((0.9,) * 5, [])):
        (spread,) = overview(*values).spreads
        assert sorted(spread.outliers) == far, values
    assert not overview(*near, 0.5).is_changed


@pytest.mark.parametrize("lang", LANGUAGES)
def test_the_document_and_the_csv_file_have_every_hand_in(
    made: Made, lang: str, tmp_path: Path
) -> None:
    document = class_document(made.overview, lang)
    ids = ["class-table", "class-changed", "class-same", "class-results", "class-own"]
    assert [section.id for section in document.sections] == ids
    # A reader of a screen is told of each place by a name of its own.
    captions = [block.caption for block in document.all_blocks() if isinstance(block, Table)]
    assert not {*captions} & {section.title for section in document.sections}
    first = next(block for block in document.all_blocks() if isinstance(block, Table))
    assert len(first.rows) == len(made.overview.submissions)
    path = tmp_path / "class.csv"
    path.write_text(csv_of(made.overview, lang))
    table = pd.read_csv(path).set_index("file")
    assert len(table) == len(first.rows)
    assert {*table["state"]} <= {*STATES}
    assert table.loc["Ada.html", ["value", "num_seeds"]].tolist() == [0.91, 3]
    assert table.loc["Ada.html", "same_run_as"] == "Bob"
    assert table.loc["Ada.html", "own_first_line"] == "Batches differ."


def test_json_and_the_exit_code_say_whether_something_was_changed(
    made: Made, tmp_path: Path
) -> None:
    (tmp_path / "a.html").write_bytes((made.folder / "Ada.html").read_bytes())
    out = tmp_path / "out" / "c.csv"
    done = called("class", tmp_path, "--runs", made.runs, "--json", "--csv", out)
    assert done.code == 0
    assert json.loads(done.stdout)["hand_ins"][0]["state"] == "unchanged"
    assert out.read_text().count("\n") == 2
    (tmp_path / "b.md").write_bytes((made.folder / "name.md").read_bytes())
    done = called("class", tmp_path, "--runs", made.runs, "--lang", "zh")
    assert done.code == 1
    assert "姓名被改：Cem → Don" in done.stdout
    (tmp_path / "empty").mkdir()
    for place, rule in (("a.html", "is a file"), ("no", "no such"), ("empty", "holds no hand-ins")):
        done = called("class", tmp_path / place)
        assert (done.code, rule in done.stderr) == (2, True), place


def test_a_file_that_was_made_to_take_for_ever_is_read_at_once() -> None:
    from trainlab.report.handed_in import html_lines, origin_in

    begun = time.monotonic()
    for opening in (
        '<script id="handed-in">',
        '<script id="handed-in"',
        '<div class="own">',
        "<style",
    ):
        assert origin_in(opening.encode() * 40_000) is None
        html_lines(opening.encode() * 40_000)
    assert origin_in(b"\nstream\n" * 100_000) is None
    assert time.monotonic() - begun < 20
