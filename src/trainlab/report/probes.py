"""Probes: what was watched inside the network. Nothing to show where a study has none."""

from trainlab.report.document import Section
from trainlab.report.material import Material
from trainlab.report.words import Words


def probe_section(material: Material, words: Words) -> Section | None:
    """None where no trial was probed."""
    return None
