"""What is asked: frozen, validated values."""

from trainlab.spec.base import Spec as Spec
from trainlab.spec.base import checked as checked
from trainlab.spec.probe import ProbeSpec as ProbeSpec
from trainlab.spec.question import Question as Question
from trainlab.spec.settings import TrainSpec as TrainSpec
from trainlab.spec.settings import settings_for as settings_for
from trainlab.spec.study import Cell as Cell
from trainlab.spec.study import CostSpec as CostSpec
from trainlab.spec.study import Study as Study
