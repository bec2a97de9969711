"""`dpmac --completion SHELL`: a script that completes commands, options and choices with the Tab key."""

import dataclasses
import importlib
import types
import typing
from typing import Any, Literal, NamedTuple

import tyro

from dpmac import cli
from dpmac.config import require
from dpmac.privacy import mechanisms

SHELLS = {
    "bash": 'eval "$(dpmac --completion bash)"  in ~/.bashrc',
    "zsh": 'eval "$(dpmac --completion zsh)"  in ~/.zshrc, after compinit',
    "fish": "dpmac --completion fish | source  in ~/.config/fish/config.fish",
}

BASH = """\
_dpmac() {{
    local words command="${{COMP_WORDS[1]}}"
    local current="${{COMP_WORDS[COMP_CWORD]}}" before="${{COMP_WORDS[COMP_CWORD-1]}}"
    (( COMP_CWORD == 1 )) && command=""
    if [[ -n $command && " {groups} " == *" $command "* ]] && (( COMP_CWORD > 2 )); then
        command="$command ${{COMP_WORDS[2]}}"
    fi
    case "$command $before" in
{choices}
        *) case "$command" in
{options}
        esac ;;
    esac
    COMPREPLY=( $(compgen -W "$words" -- "$current") )
}}
complete -o bashdefault -o default -F _dpmac dpmac
"""


class Described(NamedTuple):
    """A command as its help tells it."""

    options: type
    example: str


def described() -> dict[str, Described]:
    """Every command by its words: `train`, `privacy calibrate`, …"""
    found = {}
    for name in cli.COMMANDS:
        module = importlib.import_module(f"dpmac.cli.{name}")
        for rest in getattr(module, "COMMANDS", {"": ""}):
            try:
                module.run([*rest.split(), cli.DESCRIBE])
            except cli.Described as told:
                found[f"{name} {rest}".strip()] = Described(*told.args)
    return found


def choices_of(kind: Any) -> tuple[str, ...]:
    """Words that an option may take, if it has them."""
    if typing.get_origin(kind) is Literal:
        return tuple(map(str, typing.get_args(kind)))
    if typing.get_origin(kind) in (typing.Union, types.UnionType):
        return tuple(word for part in typing.get_args(kind) for word in choices_of(part))
    return ()


def flags_of(options: type) -> dict[str, tuple[str, ...]]:
    """Options of a command with their choices, those of nested groups too; what has no flag but a place is left out."""
    hints = typing.get_type_hints(options, include_extras=True)
    plain = typing.get_type_hints(options)
    placed = {name for name, kind in hints.items() if is_placed(kind)}
    names = [item.name for item in dataclasses.fields(options) if item.name not in placed]
    known = {"mechanism": tuple(mechanisms.names())}
    flags = {}
    for name in names:
        nested, choices = dataclasses.is_dataclass(plain[name]), known.get(name) or choices_of(plain[name])
        flags |= flags_of(plain[name]) if nested else {f"--{name.replace('_', '-')}": choices}
    return flags


def is_placed(kind: Any) -> bool:
    return tyro.conf.Positional in getattr(kind, "__metadata__", ()) or kind is tyro.conf.Positional


def words_of(command: str, options: type) -> list[str]:
    """What may stand after a command: its options, and tasks where it takes one."""
    from dpmac import tasks

    takes_tasks = command in ("train", "tasks", "frontier", "deploy world")
    return [*flags_of(options), "--help", *(tasks.names() if takes_tasks else ())]


def script(shell: str) -> str:
    """The script for a shell."""
    require(shell in SHELLS, f"--completion takes {', '.join(SHELLS)}, not {shell!r}")
    commands = described()
    return f"# {SHELLS[shell]}\n" + (fish(commands) if shell == "fish" else bash(commands, shell))


def groups_of(commands: dict[str, Described]) -> dict[str, list[str]]:
    """Commands that only choose among others."""
    pairs = [name.split() for name in commands if " " in name]
    return {group: [second for first, second in pairs if first == group] for group, _ in pairs}


def bash(commands: dict[str, Described], shell: str) -> str:
    groups, first = groups_of(commands), [*cli.COMMANDS, *cli.FLAGS]
    rows = {"": first, **groups, **{name: words_of(name, told.options) for name, told in commands.items()}}
    picks = {
        f"{name} {flag}": choices
        for name, told in commands.items()
        for flag, choices in flags_of(told.options).items()
        if choices
    } | {" --completion": tuple(SHELLS)}

    def lines(table: dict[str, Any], depth: int) -> str:
        return "\n".join(f'{" " * depth}"{key}") words="{" ".join(words)}" ;;' for key, words in table.items())

    body = BASH.format(groups=" ".join(groups), choices=lines(picks, 8), options=lines(rows, 12))
    return body if shell == "bash" else f"autoload -U +X bashcompinit && bashcompinit\n{body}"


def fish(commands: dict[str, Described]) -> str:
    """One line for each word, with the condition under which it is offered."""
    groups = groups_of(commands)
    lines = ['function __dpmac_at; set -l w (commandline -opc); test "$w[2..]" = "$argv"; end']
    lines += ['function __dpmac_in; set -l w (commandline -opc); string match -q -- "$argv*" "$w[2..]"; end']
    lines += [f'complete -c dpmac -f -n "__dpmac_at" -a "{name}" -d "{said}"' for name, said in cli.COMMANDS.items()]
    lines += [f'complete -c dpmac -n "__dpmac_at" -l {flag[2:]}' for flag in cli.FLAGS]
    for group, names in groups.items():
        lines.append(f'complete -c dpmac -f -n "__dpmac_at {group}" -a "{" ".join(names)}"')
    for name, told in commands.items():
        for flag, choices in flags_of(told.options).items():
            picks = f' -x -a "{" ".join(choices)}"' if choices else ""
            lines.append(f'complete -c dpmac -n "__dpmac_in {name}" -l {flag[2:]}{picks}')
        free = [word for word in words_of(name, told.options) if not word.startswith("--")]
        if free:
            lines.append(f'complete -c dpmac -n "__dpmac_in {name}" -a "{" ".join(free)}"')
    return "\n".join(lines) + "\n"
