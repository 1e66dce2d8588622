"""Numbers as people read them, alike in every language."""

import math

MIB = 1 << 20
LARGE_LOSS = 1e6
"""Losses from here on, of a training gone wrong, are written with an exponent."""


def figure(value: float, digits: int = 3) -> str:
    """At least so many digits, thousands separated by commas, no exponent from 0.001 on."""
    if value == 0 or not math.isfinite(value):
        return "0" if value == 0 else str(value)
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    if abs(value) < 1e-3:
        return f"{value:.{digits}g}"
    places = max(0, digits - 1 - math.floor(math.log10(abs(value))))
    return f"{value:.{places}f}"


def memory(first_mib: float, second_mib: float) -> str:
    """`1.00 → 16.0 MiB`; in KiB where both are less than a tenth of one."""
    both = first_mib, second_mib
    unit, factor = ("KiB", 1024) if max(both) < 0.1 else ("MiB", 1)
    return " → ".join(figure(factor * one) for one in both) + f" {unit}"


def mib(num_bytes: float) -> str:
    """Bytes in MiB."""
    return figure(num_bytes / MIB)


def count(value: float) -> str:
    """A number of things: `7`, `1,204`; a median that is not whole: `7.50`."""
    return f"{value:,.0f}" if value == int(value) else figure(value)


def percent(share: float) -> str:
    """`12.3%`; below 0.05% only the first digit that is not zero: `0.04%`."""
    small = 5e-7 <= abs(share) < 5e-4
    return f"{100 * share:.1g}%" if small else f"{100 * share:.1f}%"


def whole_percent(share: float) -> str:
    """`55%`; one digit after the point below 10%."""
    return f"{100 * share:.0f}%" if share >= 0.1 else f"{100 * share:.1f}%"


def times(ratio: float) -> str:
    """`6.6`, `31`, `1.05`, `1,204`: how many times, to two digits or three."""
    return f"{ratio:.{3 if ratio < 1.2 else 2}g}" if ratio < 99.5 else figure(ratio)


def is_share(metric: str) -> bool:
    """Whether a metric is shown in per cent."""
    return metric.endswith("accuracy")


def metric_value(metric: str, value: float | None, beside: float = 0.0) -> str:
    """Accuracies as `97.82%`, the rest to four places or three digits; `beside`: the size of a number that
    it stands beside, to whose place it is then written too."""
    if value is None:
        return "not finite"
    if is_share(metric):
        return f"{100 * value:.2f}%"
    size = max(abs(value), abs(beside))
    return f"{value:.4f}" if 0.01 <= size < LARGE_LOSS else f"{value:.3g}"


def metric_difference(metric: str, value: float, points: str, beside: float = 0.0) -> str:
    """`+0.41 points` for accuracies, `+0.0123` otherwise; `points` is the language's word. `beside`: the
    size of a number that it stands beside, to whose place it is then written too."""
    size = max(abs(value), abs(beside))
    if is_share(metric):
        rounds_to_zero = 0 < size < 5e-5
        return f"{100 * value:+.1g} {points}" if rounds_to_zero else f"{100 * value:+.2f} {points}"
    return f"{value:+.4f}" if 0.001 <= size < LARGE_LOSS or size == 0 else f"{value:+.3g}"


def p_value(p: float) -> str:
    """`p = 0.03`; `p < 0.001` below that, so as never to claim a smaller one than can be computed."""
    return "p < 0.001" if p < 1e-3 else f"p = {p:.2g}"


def bare_operator(name: str) -> str:
    """An operator's name without torch's prefix."""
    return name.removeprefix("aten::")
