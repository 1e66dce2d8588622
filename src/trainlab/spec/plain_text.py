"""Plain text: without characters that steer a terminal, hide what is written or cannot be drawn."""

import re
from typing import Any

STEERING = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufeff\ufffe\uffff]"
)
"""Control characters but for tab and line end, marks of the direction of writing, halves of characters."""
IN_THEIR_PLACE = "\N{REPLACEMENT CHARACTER}"


def plain(text: str) -> str:
    """The text with every such character replaced."""
    return STEERING.sub(IN_THEIR_PLACE, text)


def plain_value(value: Any) -> Any:
    """A JSON value with all its texts and names plain."""
    if isinstance(value, str):
        return plain(value)
    if isinstance(value, dict):
        return {plain(name): plain_value(inner) for name, inner in value.items()}
    return [plain_value(inner) for inner in value] if isinstance(value, list) else value
