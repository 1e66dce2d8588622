"""Builds the wheel and the sdist into dist/, checks what they hold, and uses the wheel as others will.

    python scripts/check_dist.py [--python python3.12]

The wheel is built from the sdist. In an environment and a folder of its own it makes a run and its reports.
The packages that it needs are those of this Python; with `--python` all are fetched anew for that one,
which takes minutes, shows that all are named, and that a report without its extra is refused in one line.
"""

import argparse
import os
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
DIST = ROOT / "dist"
TOOLS = ("build", "hatchling>=1.26", "twine")
BESIDE_SOURCE = {
    ".gitignore",
    "CHANGELOG.md",
    "LICENSE",
    "PKG-INFO",
    "README.md",
    "constraints.txt",
}
BESIDE_SOURCE |= {"pyproject.toml"}
MOST_MB = 12.0
"""Installed."""
RUN = "run mnist-lab --data bundled --train-samples 200 --seeds 2 --no-profile --batch-size 16,64"
REPORT = "report runs --format html,pdf,md --lang zh"
REFUSED = "No report: an HTML report needs vl_convert: pip install 'trainlab[report]'"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--python", help="fetch all that trainlab needs, for this Python")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        tools = _environment(place / "tools", sys.executable)
        _install(tools, *TOOLS)
        for old in DIST.glob("trainlab-*"):
            old.unlink()
        _run(tools, "-m", "build", "--no-isolation", "--outdir", str(DIST), str(ROOT), place=place)
        (wheel,), (sdist,) = DIST.glob("*.whl"), DIST.glob("*.tar.gz")
        _run(tools, "-m", "twine", "check", "--strict", str(wheel), str(sdist), place=place)
        _check_contents(wheel, sdist)
        python = _environment(place / "installed", asked.python or sys.executable)
        _use(python, wheel, place, is_fetched=asked.python is not None)
    print("The wheel is as it should be.")


def _check_contents(wheel: Path, sdist: Path) -> None:
    """All of src that is kept in git is in both, and nothing but that."""
    listed = subprocess.check_output(["git", "ls-files", "-z", "src"], cwd=ROOT, text=True)
    kept = {name for name in listed.split("\0") if name}
    with tarfile.open(sdist) as archive:
        packed = {file.name.partition("/")[2] for file in archive if file.isfile()}
    _same("sdist", packed, kept | BESIDE_SOURCE)
    with zipfile.ZipFile(wheel) as zipped:
        sizes = {file.filename: file.file_size for file in zipped.infolist()}
    of_package = {f"src/{name}" for name in sizes if not name.split("/")[0].endswith(".dist-info")}
    _same("wheel", of_package, kept)
    licences = {Path(name).name for name in sizes if ".dist-info/licenses/" in name}
    _same(
        "licences", licences, {Path(name).name for name in kept if "LICENSE" in name} | {"LICENSE"}
    )
    installed_mb = sum(sizes.values()) / 1e6
    print(f"wheel {wheel.stat().st_size / 1e6:.1f} MB, {installed_mb:.1f} MB installed")
    if installed_mb > MOST_MB:
        sys.exit(f"{wheel.name}: {installed_mb:.1f} MB installed, must be at most {MOST_MB} MB")


def _same(what: str, found: set[str], wanted: set[str]) -> None:
    if found != wanted:
        sys.exit(
            f"{what}: lacks {sorted(wanted - found)}, should not have {sorted(found - wanted)}"
        )


def _use(python: Path, wheel: Path, place: Path, *, is_fetched: bool) -> None:
    """A run and its reports, with the wheel alone and with its extra."""
    if is_fetched:
        _install(python, str(wheel))
        said = _run(python, "-m", "trainlab", *RUN.split(), place=place)
        if REFUSED not in said:
            sys.exit(f"without its extra: must end with {REFUSED!r}, but said:\n{said}")
        _install(python, f"{wheel}[page]")
    else:
        _install(python, "--no-deps", str(wheel))
        for site in python.parents[1].glob("lib/python*/site-packages"):
            (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
        _run(python, "-m", "trainlab", *RUN.split(), place=place)
    where = _run(python, "-c", "import trainlab; print(trainlab.__file__)", place=place)
    if not where.startswith(str(python.parents[1])):
        sys.exit(f"trainlab: got {where.strip()}, must be the installed one")
    (run,) = (place / "runs").iterdir()
    _run(python, "-m", "trainlab", *REPORT.replace("runs", f"runs/{run.name}").split(), place=place)
    for name in ("report.html", "report.pdf", "report.md"):
        if not (run / "report" / name).is_file():
            sys.exit(f"{name}: was not written")


def _environment(folder: Path, python: str) -> Path:
    """A new one; its Python."""
    subprocess.run([python, "-m", "venv", folder], check=True)
    return folder / "bin" / "python"


def _install(python: Path, *what: str) -> None:
    pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "--constraint", ROOT / "constraints.txt", *what], check=True)


def _run(python: Path, *arguments: str, place: Path) -> str:
    """What a command says in this folder, without the source on its path; the end of all where it fails."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    command = [str(python), *arguments]
    done = subprocess.run(
        command, cwd=place, env=clean, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    if done.returncode:
        sys.exit(f"{' '.join(arguments)}: ended with {done.returncode}:\n{done.stdout}")
    return done.stdout


if __name__ == "__main__":
    main()
