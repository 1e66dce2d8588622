"""What is asked: frozen, validated values."""

from trainlab.spec.base import Spec, checked
from trainlab.spec.cost import CostSpec
from trainlab.spec.study import Study
from trainlab.spec.train import TrainSpec, settings_for

__all__ = ["CostSpec", "Spec", "Study", "TrainSpec", "checked", "settings_for"]
