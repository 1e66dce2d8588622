"""The built-in studies: TOML files, the same as a user's own."""

from collections.abc import Mapping
from pathlib import Path

from trainlab.spec.question import Question, read_question

FOLDER = Path(__file__).parent


def study_names() -> list[str]:
    return sorted(path.stem for path in FOLDER.glob("*.toml"))


def study_file(name: str) -> Path:
    return FOLDER / f"{name}.toml"


def builtin_study(name: str) -> Question:
    return read_question(study_file(name))


Curve = tuple[float, ...]

FASHION_LAB: Mapping[str, Mapping[str, Curve]] = {
    "base": {
        "train/loss": (0.488, 0.373, 0.339, 0.316, 0.297),
        "test/loss": (0.423, 0.396, 0.373, 0.361, 0.371),
        "test/accuracy": (0.840, 0.854, 0.866, 0.872, 0.867),
    },
    "batch_size=16": {
        "train/loss": (0.476, 0.375, 0.342, 0.317, 0.303),
        "test/loss": (0.448, 0.404, 0.390, 0.367, 0.361),
        "test/accuracy": (0.837, 0.855, 0.860, 0.868, 0.874),
    },
    "batch_size=64": {
        "train/loss": (0.500, 0.382, 0.347, 0.319, 0.300),
        "test/loss": (0.440, 0.427, 0.371, 0.355, 0.363),
        "test/accuracy": (0.843, 0.849, 0.863, 0.873, 0.867),
    },
    "lr=0.01": {
        "train/loss": (0.583, 0.503, 0.486, 0.473, 0.456),
        "test/loss": (0.535, 0.512, 0.509, 0.548, 0.510),
        "test/accuracy": (0.817, 0.826, 0.835, 0.823, 0.834),
    },
    "optimizer=sgd,lr=0.001": {
        "train/loss": (1.355, 0.774, 0.661, 0.607, 0.572),
        "test/loss": (0.901, 0.716, 0.647, 0.608, 0.580),
        "test/accuracy": (0.726, 0.756, 0.772, 0.780, 0.795),
    },
}
"""Cell, metric, then epochs 1 to 5."""

MNIST_LAB: Mapping[str, Mapping[str, Curve]] = {
    "batch_size=1": {"test/loss": (0.1159,), "test/accuracy": (0.9749,)},
    "batch_size=16": {"test/loss": (0.0586,), "test/accuracy": (0.9829,)},
    "batch_size=64": {"test/loss": (0.0677,), "test/accuracy": (0.9782,)},
}
"""After one epoch."""

PUBLISHED = {"fashion-lab": FASHION_LAB, "mnist-lab": MNIST_LAB}
