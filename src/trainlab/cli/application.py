"""One command line: its verb is found, checked and called; a mistake is one line and an exit code."""

import inspect
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

import click

from trainlab.cli.help_pages import HELP_ALL, Option, verb_page, verbs_page
from trainlab.errors import SpecError, TrainlabError
from trainlab.language import split_language, spoken_language
from trainlab.spec import TrainSpec
from trainlab.spec.base import name_hint, option_of, other_names, plain
from trainlab.words.error_lines import error_line
from trainlab.workloads.user_code import hint_for, mistake_in

if TYPE_CHECKING:
    from trainlab.analysis.evidence import Evidence

YES_NO_WORDS = frozenset({"true", "false", "yes", "no", "on", "off", "1", "0"})
MOST_MISTAKES = 3
"""Of the user's code that are shown; the trials' records have them all."""


def run_command(words: Sequence[str], verbs: Mapping[str, str], find: Callable[[str], Any]) -> int:
    """Runs a command line with these verbs, of which `find` gives one by name; its exit code."""
    lang = spoken_language(split_language(words)[0])
    try:
        name, *others = words
        _check_verb(name, verbs)
        _call(name, others, verbs[name], find(name), lang)
    except KeyboardInterrupt:
        tell("interrupted", lang)
        return 130
    except Exception as error:  # noqa: BLE001  the user's code, or a defect of ours: shown whole
        return _tell_error(error, lang)
    return 0


def _call(path: str, words: Sequence[str], meaning: str, verb: Any, lang: str) -> None:
    """SystemExit with the verb's code where that is not 0."""
    if isinstance(verb, Mapping):  # it has verbs of its own
        meanings = {own: (one.__doc__ or "").partition("\n")[0] for own, one in verb.items()}
        groups = {"Verbs": meanings}
        if words[:1] in ([], ["--help"]):
            sys.stdout.write(verbs_page(f"trainlab {path}", meaning, groups, lang))
            raise SystemExit(0 if words else 2)
        name, *others = words
        _check_verb(name, verb)
        _call(f"{path} {name}", others, meanings[name], verb[name], lang)
        return
    options = list(verb.options())
    own = words[: words.index("--")] if "--" in words else words
    if "--help" in own or HELP_ALL in own:
        lines = (inspect.getdoc(verb) or "").splitlines()
        examples = [line for line in lines if line.startswith("trainlab ")]
        is_all = HELP_ALL in own
        page = verb_page(f"trainlab {path}", meaning, options, examples, lang, everything=is_all)
        sys.stdout.write(page)
    else:
        verb.of(_texts(path, options, words, passes_on=verb.passes_on))()


def _check_verb(name: str, verbs: Mapping[str, Any]) -> None:
    if name not in verbs:
        if name.startswith("-"):
            raise SpecError([f"{name}: options stand after the verb; see `trainlab --help`"])
        hint = name_hint(name, verbs, f"there are {', '.join(verbs)}")
        raise SpecError([f"{name}: no such verb; {hint}"])


def _texts(
    path: str, options: Sequence[Option], words: Sequence[str], *, passes_on: bool
) -> dict[str, Any]:
    """What a command line gives for each option, by its key. click only splits the words; what a value must
    be is its field's to say. `passes_on`: options that are not known stay where they are."""
    settings = {"ignore_unknown_options": passes_on, "allow_extra_args": True}
    params = list(map(_param, options))
    command = click.Command(path, settings, params=params, add_help_option=False)
    see = f"see `trainlab {path} --help`"
    try:
        context = command.make_context(path, list(_with_values(words, options)))
    except click.NoSuchOption as error:
        raise SpecError([_no_such_option(error.option_name, words, options, see)]) from None
    except click.BadOptionUsage as error:
        name, problem = error.option_name, f"got no value, needs one; {see}"
        if any(one.kind == "flag" and name in one.names for one in options):
            problem = f"takes no value; write {name} alone"
        raise SpecError([f"{name}: {problem}"]) from None
    if context.args:
        rule = "one word too many; options begin with --"
        raise SpecError([f"{path}: got {' '.join(context.args)!r}, {rule}; {see}"])
    for one in options:
        if one.is_required and context.params[one.key] in (None, ()):
            name = " ".join([*one.names[:1], one.metavar])
            raise SpecError([f"{path}: {name}: is required; {see}"])
    return context.params


def _param(one: Option) -> click.Parameter:
    is_flag, takes_many = one.kind == "flag", one.kind == "texts"
    if not one.names:
        number = -1 if takes_many else 1
        return click.Argument([one.key], nargs=number, required=False, default=None)
    name, *short = one.names
    names = [one.key, f"{name}/{one.negative}" if is_flag else name, *short]
    return click.Option(names, is_flag=is_flag, multiple=takes_many, default=None)


def _with_values(words: Sequence[str], options: Sequence[Option]) -> Iterator[str]:
    """`--x` as `--x=true` and `--no-x` as `--x=false`; a value that follows stays its value."""
    negatives = {one.negative: one.names[0] for one in options if one.kind == "yes-no"}
    for word, following in zip_longest(words, words[1:], fillvalue=""):
        is_value = all(part.strip().lower() in YES_NO_WORDS for part in following.split(","))
        if word in negatives:
            yield f"{negatives[word]}=false"
        else:
            yield f"{word}=true" if word in negatives.values() and not is_value else word


def _no_such_option(name: str, words: Sequence[str], options: Sequence[Option], see: str) -> str:
    known = [name for one in options for name in (*one.names, one.negative) if name]
    typed = next((word.partition("=")[0] for word in words if word.startswith(name)), name)
    others = {f"--{other}": option_of(TrainSpec, n) for other, n in other_names(TrainSpec).items()}
    others = {other: option for other, option in others.items() if option in known}
    hint = name_hint("--" + typed.lstrip("-"), [*known, HELP_ALL, "--help"], see, others)
    return f"{typed}: no such option; {hint}"


def _tell_error(error: Exception, lang: str) -> int:
    """Shows the user's mistakes in a line each, ours with a traceback; the exit code."""
    mistake = mistake_in(error)
    trace = "" if mistake is None else mistake.own_traceback
    if isinstance(error, TrainlabError):
        _tell_mistake(str(error), str(error), trace, lang)
    elif mistake is not None:
        _tell_mistake(mistake.mistake, mistake.message, trace, lang)
    else:
        traceback.print_exception(error)
        tell("this is a defect of trainlab; please report the above", lang)
        return 1
    return 2


def exit_for_failures(evidence: "Evidence", lang: str, *, is_told: bool = False) -> None:
    """The same for every verb that runs trials: exit code 2 where the user's code failed, after what it
    raised, unless that `is_told`; 1 where a trial failed otherwise; a script's own where it ran once."""
    failed = [trial.error for trial in evidence.trials if trial.state == "failed"]
    mistakes = {one.mistake: one for one in failed if one is not None and one.mistake}
    for mistake, error in list(mistakes.items())[: 0 if is_told else MOST_MISTAKES]:
        _tell_mistake(mistake, error.message, error.own_traceback, lang)
    if failed:
        own = failed[0].exit_code if len(evidence.trials) == 1 and failed[0] is not None else None
        raise SystemExit(own or (2 if mistakes else 1))


def _tell_mistake(lines: str, message: str, trace: str, lang: str) -> None:
    """Where in the user's code an error came from, what is wrong, and a hint for what the error says."""
    if trace:
        tell("in your code, most recent call last:", lang)
        sys.stderr.write(f"{plain(trace.rstrip())}\n")
    for line in lines.splitlines():
        tell(line, lang)
    if (hint := hint_for(message)) is not None and hint not in message:
        tell(hint, lang)


def tell(line: str, lang: str) -> None:
    """An error line, in the language that is spoken."""
    sys.stderr.write(f"trainlab: {plain(error_line(line, lang))}\n")
