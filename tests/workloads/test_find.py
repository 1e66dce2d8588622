import copy
import sys
from pathlib import Path

import pytest

from trainlab.errors import WorkloadError
from trainlab.words.error_lines import error_line
from trainlab.workloads.find import find_workload
from trainlab.workloads.reference import with_name


def test_a_users_file_gives_its_workload(tiny_file: Path) -> None:
    assert find_workload(f"{tiny_file}:tiny").name == "tiny"


def test_a_file_with_one_workload_needs_no_name(tiny_file: Path) -> None:
    assert with_name(str(tiny_file)) == f"{tiny_file}:tiny"
    assert find_workload(str(tiny_file)).name == "tiny"


def test_a_file_with_several_workloads_or_none_is_told_with_their_names(tmp_path: Path) -> None:
    file = tmp_path / "own.py"
    for code, told in (
        ("a = Workload()\nb: object = lab.Workload()", f"Write one of {file}:a, {file}:b"),
        ("a = make()", f"{file}: has no workload; write one, as NAME = trainlab.Workload(…)"),
    ):
        file.write_text(code)
        with pytest.raises(WorkloadError) as caught:
            with_name(str(file))
        assert told in str(caught.value)
        assert error_line(str(caught.value), "zh") != str(caught.value)


def test_a_workload_that_cannot_be_found_is_told_with_a_remedy(tiny_file: Path) -> None:
    for reference, told in (
        ("fashion-mpl", "'fashion-mpl' is not known; did you mean fashion-mlp?"),
        ("qqq", "built in: mnist-cnn, fashion-mlp"),
        (f"{tiny_file}:tyni", "has no 'tyni'; it has tiny"),
        (f"{tiny_file}:data", "is a function, must be a trainlab.Workload"),
        ("nowhere.py:w", "nowhere.py: no such file"),
        ("no.such.module:w", "no.such.module: cannot be imported"),
    ):
        with pytest.raises(WorkloadError) as caught:
            find_workload(reference)
        assert told in str(caught.value)


def test_a_file_that_breaks_is_told_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "broken.py"
    for code, told in (
        ("x = 1\nx = 1 / 0", ":2: ZeroDivisionError"),
        ("a b", ":1: SyntaxError"),
        ("import nope_", "nope_"),
        ("import sys\nsys.exit(0)", ":2: SystemExit: 0"),
    ):
        path.write_text(code)
        with pytest.raises(WorkloadError) as caught:
            find_workload(f"{path}:w")
        assert told in str(caught.value)


def test_a_users_file_can_import_its_neighbour(tmp_path: Path, tiny_file: Path) -> None:
    (tmp_path / "neighbour_of_own.py").write_text("SIZE = 8\n")
    tiny_file.write_text("from neighbour_of_own import SIZE\n" + tiny_file.read_text())
    assert find_workload(f"{tiny_file}:tiny").name == "tiny"


def test_a_file_named_like_a_module_of_python_does_no_harm(tmp_path: Path, tiny_file: Path) -> None:
    (tmp_path / "copy.py").write_text(tiny_file.read_text())
    assert find_workload(f"{tmp_path}/copy.py:tiny").name == "tiny"
    assert sys.modules["copy"] is copy


def test_a_module_beside_the_user_can_be_named_and_its_faults_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tiny_file: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    tiny_file.rename(tmp_path / "work_beside.py")
    assert find_workload("work_beside:tiny").name == "tiny"
    (tmp_path / "broken_beside.py").write_text("1 / 0")
    with pytest.raises(WorkloadError, match="broken_beside: cannot be imported: ZeroDivisionError"):
        find_workload("broken_beside:w")
