"""Findings as bullets: their sentences, and how sure each is."""

from collections.abc import Iterable, Sequence

from trainlab.analysis.finding import Finding
from trainlab.report.document import Block, Bullet, Bullets, Mark, Paragraph
from trainlab.stats.verdict import Verdict
from trainlab.words import Words

MOST_FINDINGS = 30
"""Findings listed in one place; the tables and data files have the numbers of all."""


def bullets(findings: Iterable[Finding], words: Words) -> Bullets:
    """Findings as their sentences."""
    marked = ((finding.sentence(words), mark_of(finding.verdict)) for finding in findings)
    return Bullets(tuple(Bullet(text, mark, mark_label(mark, words)) for text, mark in marked))


def first_bullets(findings: Sequence[Finding], words: Words) -> list[Block]:
    """The first MOST_FINDINGS, and how many more there are; empty where there are none."""
    blocks: list[Block] = [bullets(findings[:MOST_FINDINGS], words)] if findings else []
    if (num_left_out := len(findings) - MOST_FINDINGS) > 0:
        blocks.append(Paragraph(words("findings_left_out", number=num_left_out)))
    return blocks


def mark_of(verdict: Verdict | None) -> Mark:
    """How sure something is; what was measured and not tested is a fact."""
    return "fact" if verdict is None else verdict


def mark_label(mark: Mark, words: Words) -> str:
    """The mark in words."""
    return words(f"mark_{mark.replace(' ', '_')}")
