"""The parts of a lab report: their titles, what authors call them, what of a run's report goes there."""

import re
from dataclasses import dataclass
from unicodedata import normalize

from trainlab.words import LANGUAGES, Words

NUMBERING = re.compile(r"^[\s(第]*(?:\d+(?:\.\d+)*|[一二三四五六七八九十]+)[\s.、):节章部分]*")
"""What may stand before a heading: `2.`, `(3)`, `四、`, `第五部分`."""


@dataclass(frozen=True)
class LabPart:
    """One part."""

    id: str
    title: str
    """The key of its title in the words."""
    names: str
    """The key of what authors call it, with commas between."""
    sections: tuple[str, ...] = ()
    """Sections of the run's report that stand in it, by their ids."""


PURPOSE = LabPart("lab-purpose", "lab_purpose", "lab_purpose_names")
ENVIRONMENT = LabPart(
    "lab-environment", "lab_environment", "lab_environment_names", ("environment",)
)
METHOD = LabPart("lab-method", "lab_method", "lab_method_names", ("seen", "network", "method"))
RESULTS = LabPart("lab-results", "lab_results", "lab_results_names")
"""Also has every section that no other part has."""
DISCUSSION = LabPart("lab-discussion", "lab_discussion", "lab_discussion_names")
CONCLUSION = LabPart("lab-conclusion", "lab_conclusion", "lab_conclusion_names")
APPENDIX = LabPart("lab-appendix", "lab_appendix", "lab_appendix_names", ("repeat", "files"))
PARTS = (PURPOSE, ENVIRONMENT, METHOD, RESULTS, DISCUSSION, CONCLUSION, APPENDIX)
"""In the order of a lab report."""


def part_named(heading: str) -> LabPart | None:
    """The part that a heading of the author's notes names, in any language, numbered or not."""
    plain = normalize("NFKC", heading).strip().rstrip(":").strip().lower()
    for text in (plain, NUMBERING.sub("", plain).strip()):
        for part in PARTS:
            if text in _names_of(part):
                return part
    return None


def _names_of(part: LabPart) -> set[str]:
    names: set[str] = set()
    for lang in LANGUAGES:
        words = Words(lang)
        names |= {words(part.title).lower(), *words(part.names).split(words("list_comma"))}
    return names
