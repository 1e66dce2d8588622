"""What only torch, the data or the model can refuse: told before there is a run folder; and what a run
really used is told afterwards."""

import json
import re
from pathlib import Path

from command import Verb

REFUSED = [
    ("--model hidden=-4", "model(hidden=-4): own_work.py:13: RuntimeError: Trying to create"),
    ("--vary hidden=4,x", "model(hidden=x): own_work.py:13: TypeError: "),
    ("--batch-size 101", "--batch-size: got 101, but tiny (given) has 100 samples; use at most"),
    ("--train-samples 101", "--train-samples: got 101, but tiny (given) has 100 samples"),
    ("--train-samples 20 --batch-size 21", "got 21, but train_samples is 20; use at most 20"),
    ("--batch-size 5,200", "--batch-size: got 200, but tiny (given) has 100 samples"),
]


def test_what_the_model_or_the_data_refuse_leaves_no_folder(
    trainlab: Verb, tiny_file: Path, tmp_path: Path
) -> None:
    for options, told in REFUSED:
        words = ["run", f"{tiny_file}:tiny", "--out", "r", *options.split()]
        done = trainlab(*words, code=2)
        # On a slow machine the progress is told first: that torch starts, that the time is not yet known.
        lines = [line for line in done.stderr.splitlines() if not line.startswith("starting ")]
        # What the user's own code raised is told with the lines of hers that it came from.
        assert len(lines) == 1 or "in your code" in lines[0]
        assert told in lines[-1]
        chinese = trainlab(*words, "--lang", "zh", code=2).stderr
        assert re.search(r"trainlab: .*[\u4e00-\u9fff]", chinese), chinese
    assert not (tmp_path / "r").exists()
    assert not (tmp_path / "runs").exists()


def test_a_dry_run_for_programs_prints_one_json_value_whatever_a_file_prints(
    trainlab: Verb, tiny_file: Path
) -> None:
    tiny_file.write_text(tiny_file.read_text() + "\nprint('hello from my file')\n")
    for flags in (["--json", "--quiet"], ["--json"]):
        done = trainlab("run", f"{tiny_file}:tiny", "--dry-run", *flags)
        assert json.loads(done.stdout)["workload"] == f"{tiny_file}:tiny"


def test_profile_takes_several_levels_as_other_verbs_do(trainlab: Verb, tiny_file: Path) -> None:
    words = ["profile", f"{tiny_file}:tiny", "--batch-size", "5,20", "--on", "inline", "--out", "p"]
    words += ["--device", "cpu", "--processes", "1", "--cost-budget", "0.05s"]
    done = trainlab(*words, "--trace-mb", "0", "--active-steps", "2", "--json")
    measured = json.loads(done.stdout)["measurements"]
    assert {one["settings"]["batch_size"] for one in measured} == {5, 20}
    shown = trainlab("show", "p").stdout
    assert all(f"batch_size={size}" in shown for size in (5, 20))


def test_what_an_option_changed_of_a_study_is_told_as_changed(
    trainlab: Verb, tiny_file: Path, tmp_path: Path
) -> None:
    (tmp_path / "s.toml").write_text(
        f'workload = "{tiny_file}:tiny"\nseeds = 2\n'
        '[settings]\nepochs = 3\ndevice = "cpu"\nlr = 0.5\n[vary]\nbatch_size = [5, 10]\n'
    )
    words = ["run", "s.toml", "--epochs", "1", "--batch-size", "20,25", "--lr", "0.5", "--out", "r"]
    done = trainlab(*words, "--no-tensorboard", "--no-report")
    changed = "epochs 1 (the study says 3), batch_size 20, 25 (the study says 5, 10)."
    told = f"Changed on the command line: {changed}"
    assert "Changed on the command line: epochs, batch_size." in done.stdout
    # What was typed as the file has it was not changed.
    overridden = json.loads((tmp_path / "r/study.json").read_text())["overridden"]
    assert overridden == {"epochs": 3, "batch_size": [5, 10]}
    assert told in trainlab("show", "r", "--all").stdout
    report, chinese = (
        tmp_path / "r/report/report.md",
        "命令行改动的设置：epochs 为 1（研究文件中为 3）",
    )
    for lang, text in (("en", told), ("zh", chinese)):
        trainlab("report", "r", "--format", "md", "--lang", lang)
        assert text in report.read_text(encoding="utf-8")
