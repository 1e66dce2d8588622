"""The answer to the question of a run: a few plain sentences, reasons, and what is left open."""

from collections.abc import Sequence
from dataclasses import replace
from typing import TypeVar

from trainlab.analysis.answer.learned import failure_sentences, learned_sentences
from trainlab.analysis.answer.open_points import open_points
from trainlab.analysis.answer.reasons import reasons
from trainlab.analysis.answer.scripts import script_sentences
from trainlab.analysis.answer.sentence import Answer, OpenPoint, Sentence
from trainlab.analysis.answer.speed import (
    batch_sentences,
    device_sentences,
    hardware_sentences,
    speed_sentences,
    step_sentences,
)
from trainlab.analysis.evidence import Evidence
from trainlab.analysis.finding import Finding
from trainlab.words import Words

__all__ = ["Answer", "OpenPoint", "Sentence", "answer"]

T = TypeVar("T", Sentence, OpenPoint)

MOST = 5
"""Sentences of an answer."""


def answer(evidence: Evidence, findings: Sequence[Finding], words: Words) -> Answer:
    """What a reader with one minute should read; the most important first."""
    device = list(device_sentences(evidence, findings, words))
    speed = list(speed_sentences(evidence, findings, words))
    learned = list(learned_sentences(evidence, findings, words))
    failed = list(failure_sentences(evidence, findings, words))
    script = list(script_sentences(findings, words))
    step = list(step_sentences(evidence, words))
    batch = list(batch_sentences(findings, words))
    last = list(hardware_sentences(evidence, words))
    # One sentence of each kind before the second of any; what is about cost first, where it was measured.
    columns = [device, speed, learned[:1], failed, script, step, learned[1:], batch]
    firsts = [column[0] for column in columns if column]
    rest = [sentence for column in columns for sentence in column[1:]]
    chosen = [*firsts, *rest][: MOST - len(last)]
    # What is about one thing stands together.
    sentences = [one for column in columns for one in column if one in chosen] + last
    return Answer(
        sentences=tuple(_tidy(one, words) for one in sentences),
        reasons=tuple(_tidy(one, words) for one in reasons(evidence, findings, words)),
        open_points=tuple(_tidy(one, words) for one in open_points(evidence, findings, words)),
    )


def _tidy(one: T, words: Words) -> T:
    return replace(one, text=words.tidy(one.text))
