"""trainlab init: files that run at once, comments in the user's language, nothing overwritten."""

import re
import tomllib
from pathlib import Path

import pytest

from command import Verb
from fabricate import Fabricated, made_study
from trainlab.record.run_folder import RunFolder

FILES, STARTERS = ("model.py", "study.toml"), ("blank", "mnist")
HAN = re.compile(r"[\u4e00-\u9fff]")


@pytest.mark.parametrize(("starter", "lang"), [("blank", "en"), ("mnist", "zh")])
def test_what_is_written_runs_and_gives_a_report(
    starter: str, lang: str, trainlab: Verb, tmp_path: Path
) -> None:
    said = trainlab("init", "my study", "--from", starter, "--lang", lang).stdout.splitlines()
    assert said[:2] == [str(Path("my study") / name) for name in FILES]
    assert said[2].endswith("trainlab run 'my study/study.toml'")
    less = ["--train-samples", "300"] if starter == "mnist" else []
    words = ["run", "my study/study.toml", "--seeds", "2", "--out", "r", "--no-report", *less]
    assert "Run folder: r" in trainlab(*words).stdout
    learned = (tmp_path / "r" / "results.csv").read_text().count(",learn,")
    assert learned == 2 * (4 if starter == "blank" else 2)
    (report,) = trainlab("report", "r", "--format", "md").stdout.split()[-1:]
    assert "What do these settings do" in Path(report).read_text() or lang == "zh"


def test_comments_are_in_the_language_asked_for_and_code_is_the_same(
    trainlab: Verb, tmp_path: Path
) -> None:
    for starter in STARTERS:
        made = {lang: tmp_path / f"{starter}-{lang}" for lang in ("en", "zh")}
        for lang, folder in made.items():
            trainlab("init", folder.name, "--from", starter, "--lang", lang)
        for name in FILES:
            english, chinese = ((folder / name).read_text() for folder in made.values())
            assert not HAN.search(english)
            assert len(HAN.findall(chinese)) > 50
            assert all(len(line) <= 110 for line in english.splitlines())
        studies = [tomllib.loads((made[lang] / "study.toml").read_text()) for lang in made]
        for study, lang in zip(studies, made, strict=True):
            assert study.pop("name") == f"{starter}-{lang}"
            study.pop("title")
        assert studies[0] == studies[1]


def test_nothing_is_overwritten_and_another_folder_is_offered(
    trainlab: Verb, tmp_path: Path
) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "study.toml").write_text("precious")
    (tmp_path / "mine_2").mkdir()
    told = trainlab("init", "mine", code=2).stderr
    there = "is there already; choose another folder, as mine_3"
    assert told == f"trainlab: mine/study.toml: {there}\n"
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["study.toml"]
    Fabricated().write(tmp_path / "r", made_study(seeds=1))
    told = trainlab("init", "r", code=2).stderr
    assert told == "trainlab: r: is a run folder; choose another folder, as r_2\n"
    assert not (tmp_path / "r" / "model.py").exists()
    assert (tmp_path / "mine" / "study.toml").read_text() == "precious"
    told = trainlab("init", "mine", "--lang", "zh", code=2).stderr
    assert told == "trainlab: mine/study.toml：已经存在；请选择别的文件夹，如 mine_3\n"
    trainlab("init", "mine_3")
    told = trainlab("init", "other", "--from", "minst", code=2).stderr
    meant = "--from: got 'minst', must be one of blank, mnist; did you mean mnist?"
    assert told == f"trainlab: {meant}\n"
    assert not (tmp_path / "other").exists()


def test_a_study_finds_its_model_beside_itself_before_the_current_folder(
    trainlab: Verb, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainlab("init", "mine")
    (tmp_path / "model.py").write_text("raise RuntimeError('the wrong one')")
    trainlab("run", "mine/study.toml", "--seeds", "1", "--out", "r", "--no-report")
    monkeypatch.chdir(tmp_path / "mine")
    trainlab("run", "study.toml", "--seeds", "1", "--out", "r", "--no-report")
    for folder in (tmp_path / "r", tmp_path / "mine" / "r"):
        states = {trial.state for trial in RunFolder(folder).trials()}
        assert states == {"done"}
