"""Small workloads of many kinds: whoever brings one of these has a pattern to start from."""

from zoo import control, data_kinds, generative, odd_models, sequences, vision
from zoo.specimen import Specimen as Specimen

FAMILIES = (vision, sequences, generative, control, odd_models, data_kinds)

ZOO: dict[str, Specimen] = {
    kind.workload.name: kind for family in FAMILIES for kind in family.KINDS
}
