"""The application as typer has it, and what a user sees of a mistake: one line and an exit code."""

import importlib
import inspect
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

import typer
from typer.core import TyperCommand, TyperGroup

from trainlab import __version__
from trainlab.cli.help_pages import HELP_ALL, YES_NO, verb_page, verbs_page
from trainlab.errors import SpecError, TrainlabError
from trainlab.language import split_language, spoken_language

if TYPE_CHECKING:
    from trainlab.analysis.evidence import Evidence
    from trainlab.workloads.user_code import UserMistake

YES_NO_WORDS = frozenset({"true", "false", "yes", "no", "on", "off", "1", "0"})
MOST_MISTAKES = 3
"""Of the user's code that are shown; the trials' records have them all."""


def application(
    arguments: Sequence[str], summary: str, verbs: Mapping[str, str], homes: Mapping[str, str]
) -> typer.Typer:
    """All verbs, of which only the one that is called has its options."""
    app = typer.Typer(
        name="trainlab",
        cls=Verbs,
        help=summary,
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
    )
    app.callback()(_root)
    called = next((word for word in arguments if not word.startswith("-")), None)
    for name, meaning in verbs.items():
        if name != called:
            app.command(name, help=meaning)(_not_called)
            continue
        offered = getattr(importlib.import_module(f"trainlab.cli.{homes[name]}"), name)
        if isinstance(offered, Mapping):
            group = typer.Typer(no_args_is_help=True)
            for inner, function in offered.items():
                add_verb(group, inner, function, (inspect.getdoc(function) or "").splitlines()[0])
            app.add_typer(group, cls=Verbs, name=name, help=meaning)
        else:
            add_verb(app, name, offered, meaning)
    return app


def add_verb(app: typer.Typer, name: str, function: Any, meaning: str) -> None:
    """Adds a verb with its options and examples."""
    from trainlab.cli.options import parameters_of

    parameters = list(parameters_of(function))
    passes_on = any(one.name == "arguments" for one in parameters)  # options may be a script's own
    lines = (inspect.getdoc(function) or "").splitlines()
    decorate = app.command(
        name,
        cls=Verb,
        help=meaning,
        epilog="\n".join(line for line in lines if line.startswith("trainlab ")),
        context_settings={"ignore_unknown_options": passes_on},
    )
    call = guarded(function)
    vars(call)["__signature__"] = inspect.Signature(parameters)
    decorate(call)


def _not_called() -> None:
    raise AssertionError("a verb that was not called has no body")


def _print_version(requested: bool) -> None:
    if requested:
        sys.stdout.write(f"trainlab {__version__}\n")
        raise typer.Exit


def _root(
    version: bool = typer.Option(
        False,
        "--version",
        is_eager=True,
        callback=_print_version,
        help="Print the version and exit.",
    ),
) -> None:
    pass


class Verb(TyperCommand):
    """A verb, whose flags show no type in the help and need no value."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._lang = "en"
        self._yes_no = [option.opts[0] for option in self.params if option.metavar == YES_NO]
        for option in self.params:
            if option.metavar == YES_NO:
                option.metavar, option.secondary_opts = "", [_negative(option.opts[0])]

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        self._lang = spoken_language(split_language(args)[0])
        if HELP_ALL in args:
            sys.stdout.write(verb_page(self, ctx, self._lang, everything=True))
            ctx.exit()
        ctx.allow_extra_args = True  # ours is the better line
        super().parse_args(ctx, list(_with_values(args, self._yes_no)))
        if ctx.args:
            path, extra = ctx.command_path.partition(" ")[2], " ".join(ctx.args)
            rule = "one word too many; options begin with --"
            raise SpecError([f"{path}: got {extra!r}, {rule}; {_see(path)}"])
        return list(ctx.args)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        formatter.write(verb_page(self, ctx, self._lang, everything=False))


class Verbs(TyperGroup):
    """The application, or a verb with verbs of its own."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        formatter.write(verbs_page(self, ctx, spoken_language(None)))

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if self.get_command(ctx, args[0]) is None:
            from trainlab.spec.base import name_hint

            verbs = list(self.list_commands(ctx))
            hint = name_hint(args[0], verbs, f"there are {', '.join(verbs)}")
            raise SpecError([f"{args[0]}: no such verb; {hint}"])
        return super().resolve_command(ctx, args)

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        *others: Any,
        **extra: Any,
    ) -> Any:
        """Exits with the code of the verb; 2, after one line, where the command line is not understood."""
        words = list(sys.argv[1:] if args is None else args)
        lang = split_language(words)[0]
        try:
            code = super().main(
                words, prog_name or "trainlab", *others, **{**extra, "standalone_mode": False}
            )
        except SpecError as error:
            tell(str(error), lang)
            sys.exit(2)
        except Exception as error:
            if not hasattr(error, "format_message"):
                raise
            if line := usage_line(error, words):
                tell(line, lang)
            else:  # nothing is wrong: a verb that needs a word shows its help
                sys.stderr.write(error.format_message() + "\n")
            sys.exit(2)
        sys.exit(code if isinstance(code, int) else 0)


def usage_line(error: Any, words: Sequence[str]) -> str:
    """What typer found wrong with the words of a command line: where, what, the rule, the remedy."""
    context = getattr(error, "ctx", None)
    first = next((word for word in words if not word.startswith("-")), "")
    path = first if context is None else context.command_path.partition(" ")[2]
    option, parameter = getattr(error, "option_name", None), getattr(error, "param", None)
    if hasattr(error, "possibilities"):
        return _no_such_option(str(option), words, context, _see(path))
    if option is not None and any(word.startswith(f"{option}=") for word in words):
        return f"{option}: takes no value; write {option} alone"
    if option is not None:
        return f"{option}: got no value, needs one; {_see(path)}"
    if parameter is not None:  # every value is a text, so that it can only be missing
        option = next((opt for opt in parameter.opts if opt.startswith("--")), "")
        value = parameter.metavar or parameter.name.upper()
        return f"{path}: {f'{option} {value}' if option else value}: is required; {_see(path)}"
    return ""


def _see(path: str) -> str:
    return f"see `{' '.join(['trainlab', *path.split(), '--help'])}`"


def _no_such_option(option: str, words: Sequence[str], context: Any, see: str) -> str:
    from trainlab.spec import TrainSpec
    from trainlab.spec.base import name_hint, other_names

    parameters = [] if context is None else context.command.get_params(context)
    known = [n for one in parameters for n in (*one.opts, *one.secondary_opts)] + [HELP_ALL]
    typed = next((word.partition("=")[0] for word in words if word.startswith(option)), option)
    others = {
        f"--{other}": f"--{name.replace('_', '-')}"
        for other, name in other_names(TrainSpec).items()
        if f"--{name.replace('_', '-')}" in known
    }
    hint = name_hint("--" + typed.lstrip("-"), known, see, others)
    return f"{typed}: no such option; {hint}"


def _with_values(args: Sequence[str], yes_no: Sequence[str]) -> Iterator[str]:
    """`--x` as `--x=true` and `--no-x` as `--x=false`; a value that follows stays its value."""
    negatives = {_negative(option): option for option in yes_no}
    for word, following in zip_longest(args, args[1:], fillvalue=""):
        is_value = all(part.strip().lower() in YES_NO_WORDS for part in following.split(","))
        if word in negatives:
            yield f"{negatives[word]}=false"
        else:
            yield f"{word}=true" if word in yes_no and not is_value else word


def _negative(option: str) -> str:
    return f"--no-{option.removeprefix('--')}"


def tell(line: str, lang: str | None) -> None:
    """An error line, in the language asked for."""
    from trainlab.spec.base import plain

    if (spoken := spoken_language(lang)) != "en":
        from trainlab.words.error_lines import error_line

        line = error_line(line, spoken)
    sys.stderr.write(f"trainlab: {plain(line)}\n")


def guarded(function: Callable[..., None]) -> Callable[..., None]:
    """The verb, called with the words of the command line, and its errors reported: the user's mistakes in
    a line each, ours with a traceback."""

    def call(**words: Any) -> None:
        from trainlab.cli.options import values_of

        lang = words.get("lang")
        try:
            function(**values_of(function, words))
        except TrainlabError as error:
            _tell_mistake(error, lang)
            for line in str(error).splitlines():
                tell(line, lang)
            _tell_hint(str(error), lang)
            raise typer.Exit(2) from None
        except KeyboardInterrupt:
            tell("interrupted", lang)
            raise typer.Exit(130) from None
        except typer.Exit:
            raise
        except Exception as error:  # noqa: BLE001  the user's code, or a defect of ours: shown whole
            if (mistake := _tell_mistake(error, lang)) is not None:
                tell(str(mistake), lang)
                _tell_hint(mistake.message, lang)
                raise typer.Exit(2) from None
            traceback.print_exc()
            tell("this is a defect of trainlab; please report the above", lang)
            raise typer.Exit(1) from None

    return call


def _tell_mistake(error: BaseException, lang: str | None) -> "UserMistake | None":
    """Shows where in the user's code an error came from, if it did."""
    from trainlab.record.trial_record import OF_RULES
    from trainlab.workloads.user_code import mistake_in

    mistake = mistake_in(error)
    if mistake is not None and mistake.trace and mistake.kind not in OF_RULES:
        _show_trace(mistake.trace, lang)
    return mistake


def _show_trace(trace: str, lang: str | None) -> None:
    from trainlab.spec.base import plain

    tell("in your code, most recent call last:", lang)
    for line in trace.splitlines():
        sys.stderr.write(f"{plain(line)}\n")


def _tell_hint(message: str, lang: str | None) -> None:
    from trainlab.workloads.user_code import hint_for

    if (hint := hint_for(message)) is not None and hint not in message:
        tell(hint, lang)


def exit_for_failures(evidence: "Evidence", lang: str | None = None) -> None:
    """The same for every verb that runs trials: exit code 2 where the user's code failed, after what it
    raised; 1 where a trial failed otherwise."""
    failed = [trial.error for trial in evidence.trials if trial.state == "failed"]
    if not failed:
        return
    mistakes = {one.mistake: one for one in failed if one is not None and one.mistake}
    for mistake, error in list(mistakes.items())[:MOST_MISTAKES]:
        if error.own_traceback:
            _show_trace(error.own_traceback, lang)
        tell(mistake, lang)
        _tell_hint(error.message, lang)
    raise typer.Exit(2 if mistakes else 1)
