"""What a gate says: what follows from all of its comparisons, as a value and in words."""

from dataclasses import dataclass
from typing import Literal

from trainlab.analysis.confounds import Confound
from trainlab.analysis.gate.check import Check, Disturbance
from trainlab.analysis.gate.sentences import (
    check_sentence,
    command_for,
    differences_text,
    most_needed,
    needs_sentence,
)
from trainlab.stats.means import Interval
from trainlab.stats.one_sided import Judgement
from trainlab.words import Words

GateVerdict = Literal["pass", "fail", "cannot tell"]
EXIT_CODES: dict[GateVerdict, int] = {"pass": 0, "fail": 1, "cannot tell": 3}
LEADS: dict[GateVerdict, str] = {
    "pass": "gate_pass",
    "fail": "gate_fail",
    "cannot tell": "gate_cannot_tell",
}
ORDER: tuple[Judgement, ...] = ("worse", "cannot tell", "not worse")


@dataclass(frozen=True, kw_only=True)
class Gate:
    """A run held against an earlier one of the same thing."""

    run: str
    """The run folder."""
    baseline: str
    """The run folder it is held against."""
    command: str
    """What made the run."""
    mode: str | None
    """Of the step that is compared; None where only metrics are."""
    checks: tuple[Check, ...]
    """One per setting and figure."""
    only_run: tuple[str, ...]
    """Settings that the baseline does not have: they are not compared."""
    only_baseline: tuple[str, ...]
    differs: tuple[Confound, ...]
    """What else differs, baseline first: code, packages, commits. The first places to look for a cause."""

    disturbed: tuple[Disturbance, ...] = ()
    """What else ran while a run was timed."""
    num_failed: int = 0
    """Trials of the run that failed: those that ended are compared."""
    left_out: tuple[str, ...] = ()
    """Records of either run that are damaged, as error lines."""

    @property
    def verdict(self) -> GateVerdict:
        """`fail` where anything is surely worse, `pass` where all is surely not."""
        found = {check.verdict for check in self.checks}
        if "worse" in found:
            return "fail"
        return "cannot tell" if "cannot tell" in found else "pass"

    @property
    def exit_code(self) -> int:
        """0 for pass, 1 for fail, 3 for cannot tell."""
        return EXIT_CODES[self.verdict]

    @property
    def slowest(self) -> Check | None:
        """The setting whose step became slowest beside the baseline's; None where none was compared."""
        known = [one for one in self.checks if one.is_cost and one.change is not None]
        return max(known, key=lambda one: one.change or 0.0, default=None)

    @property
    def ratio(self) -> float | None:
        """How many times as long a step takes, in the setting that became slowest."""
        return None if self.slowest is None else self.slowest.change

    @property
    def interval(self) -> Interval | None:
        """The bounds of that ratio."""
        return None if self.slowest is None else self.slowest.interval

    @property
    def processes_needed(self) -> int | None:
        """Of each run, to decide every time that is open, if ratios are as they were seen; None where
        nothing is open or it cannot be said."""
        return most_needed([one.needed for one in self._open_times])

    @property
    def seeds_needed(self) -> int | None:
        """The same for the seeds that decide metrics."""
        return most_needed([one.needed for one in self._open_metrics])

    def sentences(self, lang: str = "en") -> list[str]:
        """The verdict first, then comparison by comparison, then what would tell where it is open."""
        words = Words(lang)
        lead = [self._lead(words)] if len(self.checks) > 1 else []
        told = [self._named(one, words, "{}") for one in self._by_verdict]
        return [*lead, *told, *self._needs(words)]

    def commands(self) -> list[str]:
        """What to run, with the code of either run, where it is open; none where no command made it."""
        open_parts = (("processes", self._open_times), ("seeds", self._open_metrics))
        made = (command_for(self.command, option, part) for option, part in open_parts if part)
        return [command for command in made if command is not None]

    def markdown(self, lang: str = "en") -> str:
        """One paragraph, for a comment on a pull request."""
        words = Words(lang)
        lead, *told = [
            *([self._lead(words)] if len(self.checks) > 1 else []),
            *(self._named(one, words, "`{}`") for one in self._by_verdict),
        ]
        again = [words("gate_again", command=f"`{one}`") for one in self.commands()]
        return words.sentences(f"**{lead}**", *told, *self._needs(words), *again)

    def differences(self, lang: str = "en") -> str:
        """What else differs between the runs, in a sentence; empty where nothing does."""
        return differences_text(self.differs, Words(lang))

    @property
    def _open_times(self) -> list[Check]:
        return [one for one in self.checks if one.is_cost and one.verdict == "cannot tell"]

    @property
    def _open_metrics(self) -> list[Check]:
        return [one for one in self.checks if not one.is_cost and one.verdict == "cannot tell"]

    @property
    def _by_verdict(self) -> list[Check]:
        return sorted(self.checks, key=lambda one: ORDER.index(one.verdict))

    def _lead(self, words: Words) -> str:
        wanted = {"pass": "not worse", "fail": "worse", "cannot tell": "cannot tell"}[self.verdict]
        some = sum(one.verdict == wanted for one in self.checks)
        return words(LEADS[self.verdict], some=some, all=len(self.checks))

    def _named(self, check: Check, words: Words, name: str) -> str:
        """A sentence, after the setting it is about where there are several."""
        text = check_sentence(check, words)
        is_alone = len({one.cell for one in self.checks}) == 1
        return text if is_alone else f"{name.format(check.cell)}{words('colon')}{text}"

    def _needs(self, words: Words) -> list[str]:
        parts = (("processes", self._open_times), ("seeds", self._open_metrics))
        return [text for kind, part in parts if (text := needs_sentence(kind, part, words))]
