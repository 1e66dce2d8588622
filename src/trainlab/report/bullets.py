"""Findings as bullets: their sentences, and how sure each is."""

from collections.abc import Iterable, Sequence

from trainlab.analyse.findings.finding import Finding
from trainlab.report.document import Block, Bullet, Bullets, Mark, Paragraph
from trainlab.stats.verdict import Verdict
from trainlab.words import Words

MOST = 20
"""Findings in one place; the tables and data files have the figures of all."""


def bullets(found: Iterable[Finding], words: Words) -> Bullets:
    """Findings as their sentences."""
    return Bullets(tuple(bullet(one, words) for one in found))


def bullet(finding: Finding, words: Words) -> Bullet:
    """One finding as its sentence."""
    mark = mark_of(finding.verdict)
    return Bullet(finding.sentence(words), mark, mark_label(mark, words))


def first_bullets(found: Sequence[Finding], words: Words) -> list[Block]:
    """The first of many, and how many are left out; nothing for none."""
    blocks: list[Block] = [bullets(found[:MOST], words)] if found else []
    if len(found) > MOST:
        blocks.append(Paragraph(words("findings_left_out", number=len(found) - MOST)))
    return blocks


def mark_of(verdict: Verdict | None) -> Mark:
    """How sure something is; what was not tested was measured."""
    return "fact" if verdict is None else verdict


def mark_label(mark: Mark, words: Words) -> str:
    """The mark in words."""
    return words(f"mark_{mark.replace(' ', '_')}")
