"""The help of a verb: the options most people need, in groups; with --help-all every one."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from trainlab.cli.help import OF_A_VERB, Group, Texts, headed, help_page

HELP_ALL = "--help-all"
REST = "`{path} --help-all` shows the other {number} options too."

WHAT = "What to run"
MORE_WHAT = "What to run: more"
SETTINGS = "Settings people change most (defaults: trainlab workloads)"
MORE_SETTINGS = "All other settings (defaults are the workload's)"
MEASURING = "Measuring"
MORE_MEASURING = "Measuring: more"
OUTPUT = "Output"
MORE_OUTPUT = "Output: more"
ORDER = (
    *(WHAT, MORE_WHAT, SETTINGS, MORE_SETTINGS),
    *(MEASURING, MORE_MEASURING, OUTPUT, MORE_OUTPUT),
)
"""Groups of verbs with many options, as they follow on each other."""
ONLY_IN_ALL = (MORE_WHAT, MORE_SETTINGS, MORE_MEASURING, MORE_OUTPUT)


def verb_page(command: Any, context: Any, lang: str, *, everything: bool) -> str:
    """The page of one verb; without `everything` its basic options, in a sentence each."""
    texts = Texts(lang)
    grouped: dict[str, list[Any]] = {}
    for parameter in _without_help(command.get_params(context)):
        grouped.setdefault(_group_of(parameter), []).append(parameter)
    is_long = any(title in ONLY_IN_ALL for title in grouped)
    titles = sorted(grouped, key=lambda title: ORDER.index(title) if title in ORDER else -1)
    shown = [title for title in titles if everything or title not in ONLY_IN_ALL]
    row = _brief_row if is_long and not everything else _row
    groups = [Group(texts(title), [row(one, texts) for one in grouped[title]]) for title in shown]
    examples = [(line, "") for line in (command.epilog or "").splitlines()]
    groups.append(Group(texts("Examples"), examples))
    num_left = sum(len(grouped[title]) for title in titles if title not in shown)
    ending = texts(REST, path=context.command_path, number=num_left) if num_left else ""
    return help_page(_usage(command, context, texts), texts(command.help or ""), groups, ending)


def verbs_page(command: Any, context: Any, lang: str) -> str:
    """The page of a verb that has verbs of its own."""
    texts = Texts(lang)
    meanings = {
        name: command.get_command(context, name).get_short_help_str(200)
        for name in command.list_commands(context)
    }
    parameters = _without_help(command.get_params(context))
    groups = [
        Group(texts("Verbs"), [(name, texts(meaning)) for name, meaning in meanings.items()]),
        Group(texts("Options"), [_row(parameter, texts) for parameter in parameters]),
    ]
    ending = texts(OF_A_VERB, path=context.command_path)
    return help_page(_usage(command, context, texts), texts(command.help or ""), groups, ending)


def _usage(command: Any, context: Any, texts: Texts) -> str:
    arguments = [p for p in command.get_params(context) if p.param_type_name == "argument"]
    names = [_name(p) if p.required else f"[{_name(p).strip('[]')}]" for p in arguments]
    verb = ["VERB"] if hasattr(command, "list_commands") else []
    words = [context.command_path, *verb, "[OPTIONS]", *names]
    return headed(texts("Usage:"), " ".join(words))


def _group_of(parameter: Any) -> str:
    own = getattr(parameter, "rich_help_panel", None)
    return own or ("Arguments" if parameter.param_type_name == "argument" else "Options")


def _row(parameter: Any, texts: Texts) -> tuple[str, str]:
    meaning, default = texts(_meaning(parameter)), texts(_default(parameter))
    return _name(parameter), f"{meaning} [{default}]" if default else meaning


def _brief_row(parameter: Any, texts: Texts) -> tuple[str, str]:
    return _name(parameter), texts.first_sentence(_meaning(parameter))


def _meaning(parameter: Any) -> str:
    return " ".join((parameter.help or "").split())


def _name(parameter: Any) -> str:
    if parameter.param_type_name == "argument":
        return str(parameter.metavar or parameter.name.upper())
    names = ", ".join((*parameter.opts, *parameter.secondary_opts))
    is_flag = parameter.is_flag or parameter.metavar == ""
    return names if is_flag else f"{names} {parameter.metavar or parameter.name.upper()}"


def _default(parameter: Any) -> str:
    """As it is shown: the text that an option brings for it, or its value."""
    if isinstance(parameter.show_default, str):
        return parameter.show_default
    is_shown = isinstance(parameter.default, int | float | str | Path) and not isinstance(
        parameter.default, bool
    )
    return str(parameter.default) if is_shown else ""


def option_names(parameters: Iterable[Any]) -> list[str]:
    """What can be typed for these parameters."""
    names = [n for parameter in parameters for n in (*parameter.opts, *parameter.secondary_opts)]
    return [*names, HELP_ALL]


def _without_help(parameters: Iterable[Any]) -> list[Any]:
    """All but --help, which whoever reads its page has found."""
    return [parameter for parameter in parameters if "--help" not in parameter.opts]
