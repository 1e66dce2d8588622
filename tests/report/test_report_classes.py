"""Which classes are confused, as a report shows it in every format and language."""

import io
import re
from pathlib import Path

import pytest
from rich_run import confused_counts, rich_report, rich_run, rich_study, run_data, section_of

from trainlab import open_run
from trainlab.analysis.classes import best_confusion, share_text
from trainlab.analysis.document import Bullets, Gallery, Paragraph, Table
from trainlab.record.learning_record import Picture
from trainlab.record.run_folder import RunFolder, verify
from trainlab.report.contents import report_of
from trainlab.report.html import html_of
from trainlab.report.markdown import figure_files, markdown_of
from trainlab.report.pdf import pdf_of
from trainlab.report.pictures import png_of_picture

CLASSES = ("ant", "bee", "cat", "dog", "elk")
SEEDS = range(1, 9)
LEARNED = rich_study(cost=None)


def summed(number: int = 5) -> list[list[int]]:
    every = [confused_counts(number, seed) for seed in SEEDS]
    return [[sum(one[a][b] for one in every) for b in range(number)] for a in range(number)]


@pytest.fixture(scope="module")
def confused(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """A run that is only read; in a setting that is not the best another class is confused."""
    folder = rich_run(tmp_path_factory.mktemp("classes") / "run", study=LEARNED, classes=CLASSES)
    other = folder.trial("learn-batch_size=1-seed1").confusion
    counts = ((0, 500, 0, 0, 0), *((0,) * 5,) * 4)
    other.write(other.read().model_copy(update={"counts": counts, "num_samples": 500}))
    return folder


def test_the_matrix_is_the_sum_of_the_seeds_of_the_best_setting(confused: RunFolder) -> None:
    section = section_of(report_of(run_data(confused)), "classes")
    intro, bullets, matrix, gallery = section.blocks
    assert isinstance(intro, Paragraph)
    whole = summed()
    right = sum(whole[n][n] for n in range(5))
    best = "batch_size=16, the setting with the best test accuracy"
    assert f"{best}: {right:,} of 4,000" in intro.text
    assert "8 seeds, 500 test samples each" in intro.text
    assert isinstance(bullets, Bullets)
    (point,) = bullets.items
    assert f"bee and ant are confused most often with batch_size=16: {whole[1][0]}" in point.text
    assert isinstance(matrix, Table)
    assert [column.heading for column in matrix.columns[1:-1]] == list(CLASSES)
    for true, row in enumerate(matrix.rows):
        name, *fields, samples = row.entries
        assert (name.text, samples.text) == (CLASSES[true], "800")
        assert [one.value for one in fields] == pytest.approx([n / 800 for n in whole[true]])
        tones = [one.tone for one in fields]
        expected = ["right" if said == true else "wrong" for said in range(5)]
        assert tones == [e if n else None for e, n in zip(expected, whole[true], strict=True)]
    assert isinstance(gallery, Gallery)
    probabilities = re.findall(r"\(([\d.]+)%\)", " ".join(one.text for one in gallery.items))
    assert len(probabilities) == len(gallery.items) == 12
    assert sorted(map(float, probabilities), reverse=True) == list(map(float, probabilities))
    # Python gets it as a table.
    table = open_run(confused.path).confusion()
    assert table.to_numpy().tolist() == whole
    assert table.loc["bee", "ant"] == whole[1][0]


@pytest.mark.parametrize("lang", ["en", "zh"])
@pytest.mark.slow
def test_every_format_shows_matrix_and_pictures(lang: str, confused: RunFolder) -> None:
    report = report_of(run_data(confused), lang)
    title = {"en": "Which classes are confused", "zh": "哪些类被判错"}[lang]
    (gallery,) = report.galleries()
    page, text = html_of(report), markdown_of(report)
    assert title in page
    assert page.count("data:image/png;base64,") == 12
    assert "--shade:" in page
    assert f"## {title}" in text
    files = figure_files(report)
    shown = [name for name in files if "/mistakes-" in name]
    assert len(shown) == 12
    assert all(f"({name})" in text for name in shown)
    assert pdf_of(report).startswith(b"%PDF")
    said = {"en": "true", "zh": "实际"}[lang]
    assert all(item.text.startswith(said) for item in gallery.items)


def test_a_png_has_the_pixels_of_the_picture() -> None:
    image = pytest.importorskip("PIL.Image")
    for channels in (1, 3):
        values = bytes(range(5 * 4 * channels))
        picture = Picture.of(5, 4, values)
        drawn = image.open(io.BytesIO(png_of_picture(picture)))
        assert (drawn.size, drawn.tobytes()) == ((4, 5), values)
        large = image.open(io.BytesIO(png_of_picture(picture, 3)))
        assert large.size == (12, 15)
        assert large.resize((4, 5), image.Resampling.NEAREST).tobytes() == values


def test_many_classes_are_listed_and_what_is_no_image_is_not_drawn(tmp_path: Path) -> None:
    names = [f"kind {number}" for number in range(30)]
    report = rich_report(tmp_path / "run", study=LEARNED, classes=names, side=0)
    (pairs,) = section_of(report, "classes").blocks[2:]
    assert isinstance(pairs, Table)
    first = [entry.text for entry in pairs.rows[0].entries]
    assert first[:3] == ["kind 1", "kind 0", str(summed(30)[1][0])]


def test_a_damaged_record_is_told_and_its_trial_left_out(tmp_path: Path) -> None:
    folder = rich_run(tmp_path / "run", study=LEARNED, classes=CLASSES)
    path = folder.trial("learn-batch_size=16-seed3").confusion.path
    path.write_text(path.read_text().replace('"num_samples": 500', '"num_samples": 501'))
    (line,) = verify(folder).damaged
    assert "learn-batch_size=16-seed3/confusion.json" in line
    data = run_data(folder)
    confusion = best_confusion(data.evidence)
    assert confusion is not None
    assert confusion.seeds == (1, 2, 4, 5, 6, 7, 8)
    trouble = section_of(report_of(data), "trouble")
    assert "learn-batch_size=16-seed3/confusion.json" in repr(trouble)


def test_without_classes_or_without_mistakes_there_is_nothing_to_show(tmp_path: Path) -> None:
    report = rich_report(tmp_path / "none", study=LEARNED)
    assert "classes" not in [one.id for one in report.sections]
    assert open_run(tmp_path / "none").confusion().empty
    folder = rich_run(tmp_path / "run", study=LEARNED, classes=CLASSES)
    counts = tuple(tuple(100 * (a == b) for b in range(5)) for a in range(5))
    for trial in folder.trials():
        file = folder.trial(trial.id).confusion
        if file.exists():
            file.write(file.read().model_copy(update={"counts": counts, "worst": ()}))
    section = section_of(report_of(run_data(folder)), "classes")
    assert [type(block) for block in section.blocks] == [Paragraph, Paragraph]


def test_shares_do_not_look_like_none_or_all() -> None:
    told = [share_text(one) for one in (1, 0.99999, 0.5, 0.0001)]
    assert told == ["100", ">99.9", "50.0", "<0.1"]
