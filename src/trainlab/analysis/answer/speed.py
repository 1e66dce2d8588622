"""What the answer says about cost: how much faster a setting is, what a step takes and where it goes."""

import math
from collections.abc import Iterator, Sequence

from trainlab.analysis.answer.sentence import Sentence
from trainlab.analysis.cost import CostRatio
from trainlab.analysis.evidence import Evidence
from trainlab.analysis.finding import Finding
from trainlab.analysis.measurement import MODES, Measurement
from trainlab.analysis.names import joined, level_name, names_of, sample_word, section_of
from trainlab.analysis.operators import TopOperator, is_on_device, ranked
from trainlab.analysis.scaling import OptimizerShare, ParallelGain, Scaling
from trainlab.spec import Cell
from trainlab.words import Words
from trainlab.words.numbers import MIB, bare_operator, figure

DEVICE = "device"
NOTABLE_SHARE = 0.2
"""From this share of a step on, the optimizer is worth a sentence."""


def device_sentences(
    evidence: Evidence, findings: Sequence[Finding], words: Words
) -> Iterator[Sentence]:
    """What a GPU gains, at each level of the other factors."""
    for mode in MODES:
        gains = [ratio for ratio in _ratios(findings, mode) if ratio.factor == DEVICE]
        if gains:
            yield _gain(evidence, mode, gains, words)


def speed_sentences(
    evidence: Evidence, findings: Sequence[Finding], words: Words
) -> Iterator[Sentence]:
    """Of each other factor the fastest level in training; one mode without the other where only that
    was measured."""
    for mode in MODES:
        # What processes gain is told with their efficiency.
        apart = {DEVICE, *(gain.factor for gain in _parallel_gains(findings))}
        ratios = [ratio for ratio in _ratios(findings, mode) if ratio.factor not in apart]
        for factor in dict.fromkeys(ratio.factor for ratio in ratios):
            own = [ratio for ratio in ratios if ratio.factor == factor]
            told = [ratio for ratio in own if ratio.verdict == "different"]
            if told:
                yield _faster(evidence, mode, max(told, key=lambda ratio: ratio.weight), words)
            elif all(ratio.verdict == "equivalent" for ratio in own):
                yield _same_speed(evidence, mode, own, words)


def step_sentences(evidence: Evidence, words: Words) -> Iterator[Sentence]:
    """What a step takes, where one setting was measured."""
    cells = {measurement.trial.cell for measurement in evidence.measured}
    if len(cells) != 1:
        return
    cell = next(iter(cells))
    for mode in MODES:
        if (measurement := evidence.measurement(cell, mode)) is not None:
            yield from _step(evidence, mode, measurement, words)


def batch_sentences(findings: Sequence[Finding], words: Words) -> Iterator[Sentence]:
    """The optimizer's share at the smallest batch, the batch beyond which gains end, the top operator."""
    for share in findings:
        if isinstance(share, OptimizerShare) and share.share_a >= NOTABLE_SHARE:
            text = words(
                "answer_optimizer",
                setting=level_name("batch_size", share.levels[0], words),
                share=whole_percent(share.share_a),
            )
            yield Sentence(text, "phases", (share,))
    for scaling in findings:
        if isinstance(scaling, Scaling) and scaling.mode == "train" and scaling.knows_enough:
            text = words("answer_enough", batch=round(scaling.enough or 0))
            yield Sentence(text, "scaling", (scaling,))
    for gain in _parallel_gains(findings):
        first, second = map(words.setting, gain.levels)
        text = words(
            f"answer_parallel_{gain.direction}",
            first=first,
            second=second,
            times=times(max(gain.speedup, 1 / gain.speedup)),
            share=whole_percent(gain.efficiency),
        )
        yield Sentence(text, "parallel", (gain,))
    for top in findings:
        if isinstance(top, TopOperator) and top.of_mode == "train":
            text = words(
                "answer_operator",
                setting=level_name("batch_size", top.levels[1], words),
                operator=bare_operator(top.subject),
                share=whole_percent(top.share_b),
                whole=words(f"share_of_{top.share_of}"),
            )
            yield Sentence(text, "operators", (top,))


def hardware_sentences(evidence: Evidence, words: Words) -> Iterator[Sentence]:
    """That there was no GPU, where costs were measured without one."""
    environments = evidence.environments.values()
    if evidence.measured and environments and not any(one.gpus for one in environments):
        yield Sentence(words("answer_no_gpu"), "environment")


def whole_percent(share: float) -> str:
    """`55%`; one digit after the point below 10%."""
    return f"{100 * share:.0f}%" if share >= 0.1 else f"{100 * share:.1f}%"


def times(ratio: float) -> str:
    """`6.6`, `31`, `1.05`, `1,204`: how many times, to two digits or three."""
    return f"{ratio:.{3 if ratio < 1.2 else 2}g}" if ratio < 99.5 else figure(ratio)


def _parallel_gains(findings: Sequence[Finding]) -> list[ParallelGain]:
    """Those that are known well enough to be told."""
    gains = (one for one in findings if isinstance(one, ParallelGain))
    return [gain for gain in gains if gain.interval is not None]


def _ratios(findings: Sequence[Finding], mode: str) -> list[CostRatio]:
    return [one for one in findings if isinstance(one, CostRatio) and one.mode == mode]


def _gain(evidence: Evidence, mode: str, gains: Sequence[CostRatio], words: Words) -> Sentence:
    cells = {cell.id: cell for cell in evidence.cells}
    parts = [words(_gain_key(gain), times=_gained(gain)) for gain in gains]
    if len(gains) > 1:
        parts = [
            words("gain_at", gain=part, rest=_others(cells[gain.cells[1]], words))
            for part, gain in zip(parts, gains, strict=True)
        ]
    first, second = (level_name(DEVICE, level, words) for level in gains[0].levels)
    text = words(
        f"answer_device_{mode}",
        second=second,
        first=first,
        gains=words("list_semicolon").join(parts),
    )
    return Sentence(text, "factor-device", tuple(gains))


def _gain_key(gain: CostRatio) -> str:
    if gain.verdict == "different":
        return "gain_faster" if gain.ratio < 1 else "gain_slower"
    return "gain_same" if gain.verdict == "equivalent" else "gain_unknown"


def _gained(gain: CostRatio) -> str:
    """How many times as fast the faster of the two is."""
    return times(math.exp(abs(math.log(gain.ratio))))


def _others(cell: Cell, words: Words) -> str:
    rest = [level_name(name, level, words) for name, level in cell.levels.items() if name != DEVICE]
    return words.listed(rest)


def _faster(evidence: Evidence, mode: str, ratio: CostRatio, words: Words) -> Sentence:
    """The faster of two settings against the slower one."""
    slow, fast = names_of(ratio, evidence.cells, words)
    if ratio.ratio > 1:
        slow, fast = fast, slow
    text = words(
        f"answer_faster_{mode}",
        fast=words.capital(fast),
        low_fast=fast,
        slow=slow,
        times=_gained(ratio),
        sample=sample_word(evidence, words),
        at=ratio.shared_text(words),
    )
    return Sentence(text, section_of(ratio.factor), (ratio,))


def _same_speed(
    evidence: Evidence, mode: str, ratios: Sequence[CostRatio], words: Words
) -> Sentence:
    names = list(
        dict.fromkeys(name for one in ratios for name in names_of(one, evidence.cells, words))
    )
    text = words(
        f"answer_same_speed_{mode}",
        names=words.capital(joined(names, words)),
        margin=whole_percent(max(one.margin or 0.0 for one in ratios)),
        sample=sample_word(evidence, words),
    )
    return Sentence(text, section_of(ratios[0].factor), tuple(ratios))


WORTH_TELLING = 0.2
"""Of a step that is spent on fetching samples."""


def _step(
    evidence: Evidence, mode: str, measurement: Measurement, words: Words
) -> Iterator[Sentence]:
    summary = measurement.summary
    yield Sentence(
        words(
            f"answer_step_{mode}",
            batch=summary.batch_size,
            device=level_name(DEVICE, str(measurement.trial.resolved.get(DEVICE, "cpu")), words),
            ms=figure(summary.step_ms.value),
            us=figure(summary.sample_us.value),
            sample=sample_word(evidence, words),
        ),
        "comparison",
    )
    if mode == "train" and (total := sum(summary.phases_ms.values())):
        shares = sorted(summary.phases_ms.items(), key=lambda phase: -phase[1])[:2]
        named = (f"{words.phase(name)} {whole_percent(ms / total)}" for name, ms in shares)
        yield Sentence(words("answer_phases", phases=joined(named, words)), "phases")
        fetching = summary.phases_ms.get("data", 0.0) / total
        if WORTH_TELLING <= fetching < 1 and not measurement.trial.resolved.get("data_resident"):
            times = f"{1 / (1 - fetching):.1f}"
            text = words("answer_loader", share=whole_percent(fetching), times=times)
            yield Sentence(text, "phases")
    if measurement.operators is not None and (rows := ranked(measurement.operators, "self")):
        whole = "share_of_device" if is_on_device(measurement.operators) else "share_of_step"
        text = words(
            f"answer_top_{mode}",
            operator=bare_operator(rows[0].name),
            share=whole_percent(rows[0].share),
            whole=words(whole),
        )
        yield Sentence(text, "operators")
    if mode == "train" and measurement.memory is not None:
        peak = figure(measurement.memory.peak_bytes / MIB)
        yield Sentence(words("answer_memory", mib=peak), "phases")
