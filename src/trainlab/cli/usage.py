"""How a command line is read: mistakes in one line each, flags that say what they are by their name."""

import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from itertools import zip_longest
from typing import Any

from typer.core import TyperCommand, TyperGroup

from trainlab.cli.errors import tell
from trainlab.cli.language import asked_language, spoken_language
from trainlab.cli.verb_help import HELP_ALL, option_names, verb_page, verbs_page

YES_NO = "true|false"
"""The metavar of an option that is a flag, `--x` or `--no-x`, and also takes true, false or both."""
YES_NO_WORDS = frozenset({"true", "false", "yes", "no", "on", "off", "1", "0"})


class Verb(TyperCommand):
    """A verb, whose flags show no type in the help and need no value."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._lang = "en"
        self._yes_no = [option.opts[0] for option in self.params if option.metavar == YES_NO]
        for option in self.params:
            if option.metavar == YES_NO:
                option.metavar, option.secondary_opts = "", [_negative(option.opts[0])]

    def get_params(self, ctx: Any) -> list[Any]:
        return _untyped_flags(super().get_params(ctx))

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        self._lang = spoken_language(asked_language(args))
        if HELP_ALL in args:
            sys.stdout.write(verb_page(self, ctx, self._lang, everything=True))
            ctx.exit()
        return super().parse_args(ctx, list(_with_values(args, self._yes_no)))

    def format_help(self, ctx: Any, formatter: Any) -> None:
        formatter.write(verb_page(self, ctx, self._lang, everything=False))


class Verbs(TyperGroup):
    """The application, or a verb with verbs of its own."""

    def get_params(self, ctx: Any) -> list[Any]:
        return _untyped_flags(super().get_params(ctx))

    def format_help(self, ctx: Any, formatter: Any) -> None:
        formatter.write(verbs_page(self, ctx, spoken_language(None)))

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        *others: Any,
        **extra: Any,
    ) -> Any:
        """Exits with the code of the verb; 2, after one line, where the command line is not understood."""
        words = list(sys.argv[1:] if args is None else args)
        try:
            code = super().main(
                words, prog_name or "trainlab", *others, **{**extra, "standalone_mode": False}
            )
        except Exception as error:
            if not hasattr(error, "format_message"):
                raise
            # Without a line there is nothing wrong: a verb that needs a word shows its help.
            if line := usage_line(error, words):
                tell(line, asked_language(words))
            else:
                sys.stderr.write(error.format_message() + "\n")
            sys.exit(2)
        sys.exit(code if isinstance(code, int) else 0)


def usage_line(error: Any, words: Sequence[str]) -> str:
    """What is wrong with the words of a command line: where, what, the rule, the remedy."""
    context = getattr(error, "ctx", None)
    first = next((word for word in words if not word.startswith("-")), "")
    path = first if context is None else context.command_path.partition(" ")[2]
    see = f"see `{' '.join(['trainlab', *path.split(), '--help'])}`"
    message = str(getattr(error, "message", "") or "").strip()
    if type(error).__name__ == "NoArgsIsHelpError":
        return ""
    if type(error).__name__ == "NoSuchOption":
        return _no_such_option(error.option_name, words, _options_of(context), see)
    if unknown := re.match(r"No such command '(.*?)'", message):
        return f"{unknown[1]}: no such verb; {_verb_hint(unknown[1], context)}"
    if needy := re.match(r"Option '(.*?)' requires an argument", message):
        return f"{needy[1]}: got no value, needs one; {see}"
    if valueless := re.match(r"Option '(.*?)' does not take a value", message):
        return f"{valueless[1]}: takes no value; write {valueless[1]} alone"
    if extra := re.match(r"Got unexpected extra arguments?(?:\(s\))? \((.*)\)", message):
        return f"{path}: got {extra[1]!r}, one word too many; options begin with --; {see}"
    if type(error).__name__ == "MissingParameter":
        option = next((opt for opt in error.param.opts if opt.startswith("--")), "")
        value = error.param.metavar or error.param.name.upper()
        return f"{path}: {f'{option} {value}' if option else value}: is required; {see}"
    if (parameter := getattr(error, "param", None)) is not None:
        name = next((opt for opt in parameter.opts if opt.startswith("--")), parameter.name)
        got = _value_of(parameter.opts, words)
        return f"{name}: {'' if got is None else f'got {got!r}, '}{_rule(message, got)}"
    return f"{message[:1].lower()}{message[1:].rstrip('.')}; {see}"


def _no_such_option(option: str, words: Sequence[str], known: Iterable[str], see: str) -> str:
    from trainlab.spec import TrainSpec
    from trainlab.spec.base import name_hint, other_names

    typed = next((word.partition("=")[0] for word in words if word.startswith(option)), option)
    others = {
        f"--{other}": f"--{name.replace('_', '-')}"
        for other, name in other_names(TrainSpec).items()
        if f"--{name.replace('_', '-')}" in known
    }
    meant = f"--{typed.lstrip('-')}"
    return f"{typed}: no such option; {name_hint(meant, known, see, others)}"


def _verb_hint(verb: str, context: Any) -> str:
    from trainlab.spec.base import name_hint

    verbs = [] if context is None else list(context.command.list_commands(context))
    return name_hint(verb, verbs, f"there are {', '.join(verbs)}")


def _options_of(context: Any) -> list[str]:
    return [] if context is None else option_names(context.command.get_params(context))


def _value_of(options: Sequence[str], words: Sequence[str]) -> str | None:
    """The word that an option got; None where it cannot be told, as for an argument."""
    for word, following in zip_longest(words, words[1:], fillvalue=""):
        option, equals, value = word.partition("=")
        if option in options:
            return value if equals else following
    return None


def _rule(message: str, got: str | None) -> str:
    """The rule as it is said elsewhere."""
    from trainlab.spec.base import did_you_mean

    _, is_choice, choices = message.partition("is not one of ")
    if is_choice:
        names = re.findall(r"'([^']*)'", choices)
        return f"must be one of {', '.join(names)}{did_you_mean(got or '', names)}"
    rule = re.sub(r"^Input should be ", "must be ", message.rstrip("."))
    rule = re.sub(r"a valid integer.*", "a whole number", rule)
    rule = rule.replace("greater than or equal to", "at least")
    return rule.replace("less than or equal to", "at most")


def _with_values(args: Sequence[str], yes_no: Sequence[str]) -> Iterator[str]:
    """`--x` as `--x=true` and `--no-x` as `--x=false`; a value that follows stays its value."""
    positives, negatives = set(yes_no), {_negative(option): option for option in yes_no}
    for word, following in zip_longest(args, args[1:], fillvalue=""):
        if word in negatives:
            yield f"{negatives[word]}=false"
        elif word in positives and not _is_yes_no(following):
            yield f"{word}=true"
        else:
            yield word


def _is_yes_no(word: str) -> bool:
    return all(part.strip().lower() in YES_NO_WORDS for part in word.split(","))


def _negative(option: str) -> str:
    return f"--no-{option.removeprefix('--')}"


def _untyped_flags(parameters: list[Any]) -> list[Any]:
    for parameter in parameters:
        if getattr(parameter, "is_flag", False) and parameter.metavar is None:
            parameter.metavar = ""
    return parameters
