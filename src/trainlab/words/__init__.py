"""Words: every label, caption, note and sentence in every language. The texts are in words.toml."""

import re
from collections.abc import Iterable, Mapping

from trainlab.spec.settings import Scalar
from trainlab.spec.study import level_text
from trainlab.words.numbers import count, is_share
from trainlab.words.tables import (
    BUILTIN_KEYS,
    LANGUAGES,
    TABLES,
    WORDS,
    Language,
    TextFormatter,
    check_language,
)

__all__ = ["LANGUAGES", "TABLES", "WORDS", "Language", "Words", "check_language"]

HAN = r"[\u4e00-\u9fff]"
CJK = r"[\u4e00-\u9fff\u3000-\u303f\uff00-\uffef]"


class Words:
    """The words of one language."""

    def __init__(self, lang: str) -> None:
        check_language(lang)
        self.lang, self.language = lang, LANGUAGES[lang]
        self._index = list(LANGUAGES).index(lang)

    def __call__(self, key: str, **values: object) -> str:
        """The text of a key with the values filled in for the names in it."""
        return TextFormatter(self.template("range")).vformat(self.template(key), (), values)

    def template(self, key: str) -> str:
        """The text of a key with its names not filled in."""
        return WORDS[key][self._index]

    def sentences(self, *texts: str) -> str:
        """Sentences one after the other; empty ones are left out."""
        return self.language.sentence_gap.join(filter(None, texts))

    def tidy(self, text: str) -> str:
        """In Chinese no gap between two characters, and one between a character and a number or letter."""
        if not self.language.is_cjk:
            return text
        text = re.sub(rf"(?<={CJK}) +(?={CJK})", "", text)
        return re.sub(rf"(?<={HAN})(?=[0-9A-Za-z])|(?<=[0-9A-Za-z%])(?={HAN})", " ", text)

    def capital(self, text: str) -> str:
        """With its first letter in upper case, in languages that begin a sentence so."""
        return text if self.lang == "zh" else text[:1].upper() + text[1:]

    def builtin(self, text: str) -> str:
        """A title or summary that comes with trainlab, in this language; any other text as it is."""
        return self(BUILTIN_KEYS[text]) if text in BUILTIN_KEYS else text

    def counted(self, one: str, several: str, number: float) -> str:
        """`1 seed`, `8 seeds`: the keys of the text for one and of that for any other number."""
        return self(one) if number == 1 else self(several, number=count(number))

    def listed(self, names: Iterable[str]) -> str:
        """`a, b, c`, with the comma of the language."""
        return self("list_comma").join(names)

    def named(self, kind: str, name: str) -> str:
        """The word for a name of some kind (`phase`, `mode`, `state`, …); the name itself without one."""
        key = f"{kind}_{name}"
        return self(key) if key in WORDS else name

    def phase(self, name: str) -> str:
        """A phase of the step."""
        return self.named("phase", name)

    def mode(self, name: str) -> str:
        """Training or inference."""
        return self.named("mode", name)

    def step(self, mode: str) -> str:
        """A training step or an inference step."""
        return self.named("step", mode)

    def metric(self, name: str) -> str:
        """`test accuracy`; of a metric of the user's own, `test f1`."""
        key = f"metric_{name.replace('/', '_')}"
        if key in WORDS:
            return self(key)
        part, slash, own = name.partition("/")
        return (
            self(f"metric_of_{part}", name=own)
            if slash and part in ("train", "test", "val")
            else name
        )

    def metric_title(self, name: str) -> str:
        """A metric, with `(%)` where it is shown in per cent."""
        title = self.metric(name)
        return self("metric_percent", metric=title) if is_share(name) else title

    def memory(self, name: str) -> str:
        """A kind of memory."""
        return self.named("memory", name)

    def differing(self, name: str) -> str:
        """What differs between trials or machines, in words as far as there are any for it."""
        outer, dot, inner = name.partition(".")
        if f"differs_{name}" in WORDS or not dot or f"differs_{outer}" not in WORDS:
            return self.named("differs", name)
        return self("confound_inner", outer=self(f"differs_{outer}"), inner=inner)

    def level(self, value: object) -> str:
        """A recorded value as text: words for None and booleans, others as they are."""
        if value is None or isinstance(value, bool):
            return self(f"level_{str(value).lower()}")
        return str(value)

    def setting(self, value: Scalar | None) -> str:
        """A level as users write it, or that it is not set."""
        return self("level_none") if value is None else level_text(value)

    def warning(self, code: str, value: float) -> str:
        """Why a measurement may be unstable; `value` is in cores or a share, depending on the code."""
        text = f"{value:.1f}" if code in ("others_busy", "stolen") else f"{100 * value:.0f}%"
        sign = "+" if code == "steps_drift" and value > 0 else ""
        return self(f"warning_{code}", value=sign + text)

    def probe_title(self, quantity: str, reducer: str) -> str:
        """`gradient of the input, sum of squares`: what stands beside the axis of a probe."""
        return self.listed(
            self.named("short", one) for one in (quantity, reducer.rpartition(":")[2])
        )

    def probe_meaning(self, quantity: str, reducer: str, every: str, of_type: str = "") -> str:
        """What a value of a probe is, in a sentence; a reducer of the user's own is given by name.
        `of_type`: the module's class or the function's name, where it is known."""
        key = "every_end" if quantity == "weight" else f"every_{every}"
        period = self(key) if key in WORDS else self("every_steps", number=every)
        is_relu = of_type.lower().rstrip("_") == "relu"
        if quantity == "local_grad" and reducer in ("sum", "sq_sum") and is_relu:
            return self.capital(self("meaning_relu", period=period))
        values = {"quantity": self(f"quantity_{quantity}"), "period": period}
        key = f"reducer_{reducer.partition('(')[0]}"
        if key in WORDS:
            return self.capital(self("meaning", reducer=self(key), **values))
        return self.capital(self("meaning_own", name=reducer.rpartition(":")[2], **values))

    def note(self, code: str, values: Mapping[str, object]) -> str:
        """A note of a trial; its code and values where a later version of trainlab wrote it."""
        if "why" in values:
            values = {**values, "why": self.named("silent", str(values["why"]))}
        key, as_it_is = f"note_{code}", f"{code} {dict(values)}"
        try:
            return self(key, **values) if key in WORDS else as_it_is
        except (KeyError, ValueError, TypeError):  # other values than this version writes
            return as_it_is
