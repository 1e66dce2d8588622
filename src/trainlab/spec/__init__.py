"""What is asked: frozen, validated values."""

from trainlab.spec.base import Spec, checked
from trainlab.spec.probe import ProbeSpec
from trainlab.spec.question import Question
from trainlab.spec.settings import TrainSpec, settings_for
from trainlab.spec.study import Cell, CostSpec, Study

__all__ = [
    "Cell",
    "CostSpec",
    "ProbeSpec",
    "Question",
    "Spec",
    "Study",
    "TrainSpec",
    "checked",
    "settings_for",
]
