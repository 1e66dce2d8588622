"""The built-in studies: TOML files, the same as a user's own."""

from pathlib import Path

from trainlab.spec.question import Question, read_question

FOLDER = Path(__file__).parent


def study_names() -> list[str]:
    """Those that come with trainlab."""
    return sorted(path.stem for path in FOLDER.glob("*.toml"))


def study_file(name: str) -> Path:
    """The file of a built-in study."""
    return FOLDER / f"{name}.toml"


def builtin_study(name: str) -> Question:
    """A built-in study by name."""
    return read_question(study_file(name))
