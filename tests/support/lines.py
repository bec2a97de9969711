"""Command lines that cannot be right, made by chance from what each command takes."""

import dataclasses
import random
import types
import typing
from collections.abc import Iterator
from typing import Any, Literal

from dpmac.cli import completion

GARBAGE = [
    "",
    " ",
    "-",
    "--",
    "---",
    "\t",
    "\\",
    "%s%n",
    "{}",
    "${HOME}",
    "`id`",
    "; rm -rf /",
    "../../../etc/passwd",
    "ε",
    "🦑",
    "a" * 5000,
    "\ufeff",
    "\u202e",
    "NaN",
    "-inf",
    "1e400",
    "0x10",
    "1_000",
    "1,5",
    "١٢",
    "None",
    "null",
    "[]",
    "__import__('os')",
]
NOT_WHOLE = ["x", "1.5", "", "nan", "inf", "1e-3", "1,000", "ε", "0x10", "one", "1 2"]
NOT_A_NUMBER = ["x", "", "1,5", "ε", "one", "1 2", "0x10", "1e"]
NOT_A_TASK = [
    "nope",
    "",
    ":",
    "cn:",
    ":CN",
    "os:system",
    "os.path:join",
    "dpmac.tasks.cn:RADIUS",
    "no.such:Task",
    "pettingzoo:",
    "pettingzoo:os",
    "pettingzoo:os:getcwd",
    "pettingzoo:no.such.module",
    "pettingzoo:mpe2.simple_reference_v3:raw_env",
    "../cn",
    "CN",
    "a" * 5000,
    "ε",
    "1",
]
ALWAYS_WRONG: dict[str, list[str]] = {
    "delta": ["0", "1", "2", "-1", "nan", "inf"],
    "clip_norm": ["0", "-1", "nan", "inf"],
    "symbols": ["1", "0", "-3", "257"],
    "copies": ["0", "-1"],
    "period": ["-1"],
    "rounds": ["0", "-1"],
    "sample_rate": ["-0.1", "1.1", "nan", "inf"],
    "recipient_rate": ["0", "-1", "1.5", "nan"],
    "seeds": ["-1"],
    "steps": ["0", "-5", "7"],
    "hidden": ["0", "-1", "5000"],
    "message_hidden": ["0", "4097"],
    "message_size": ["0", "-1"],
    "batch": ["-1"],
    "buffer": ["0", "-1"],
    "episodes": ["0", "-1", "1"],
    "evaluations": ["0", "-1"],
    "evaluation_episodes": ["0"],
    "discount": ["-0.1", "1.1", "nan"],
    "learning_rate": ["0", "-1", "nan", "inf"],
    "decay": ["-1", "2", "nan"],
    "explore_steps": ["-1"],
    "anneal_from": ["-1", "nan"],
    "anneal_share": ["0", "2", "nan"],
    "mix": ["0", "-1", "2000"],
    "checkpoint_seconds": ["-1", "nan"],
    "most_at_once": ["-1"],
    "epsilon": ["0", "-1", "nan", "x", "", ":", "1:", "1:2:3:4:5:6:7", "1;2"],
    "method": ["telepathy", "", "os:system", ":", "x:", "no.such:Class"],
    "set": ["colour", "=1", "colour=red", "=", "horizon=x", "horizon=-1"],
    "method_set": ["colour", "=1", "colour=red"],
    "updates_per_episode": ["0", "0.3", "-1", "nan", "inf"],
    "time_limit": ["0", "-1", "nan"],
    "deployed_episodes": ["0", "-1"],
    "confidence": ["0", "1", "-1", "2", "nan"],
    "horizon": ["0", "-1"],
    "size": ["0", "-1"],
    "fps": ["0", "-1", "nan", "inf"],
    "seed": ["-1"],
    "export": ["results.txt", "x"],
}
"""Values that are of the right type and still wrong, by the name of the option."""
NOT_HERE = {
    ("resume", "seed"),
    ("games binary-sums", "epsilon"),
    ("games binary-sums", "rounds"),
    ("games cgp", "horizon"),
    ("bench env", "episodes"),
    ("bench env", "rounds"),
    ("bench train", "episodes"),
    ("bench env", "set"),
    ("privacy calibrate", "epsilon"),
    ("privacy audit", "epsilon"),
    ("reproduce", "episodes"),
    ("train", "episodes"),
    ("train", "seed"),
}
"""Where such a value is not wrong, or is checked by another test."""
MANY = {
    (command, name)
    for command, told in completion.described().items()
    for name, kind in typing.get_type_hints(told.options).items()
    if typing.get_origin(kind) is tuple
}
"""Options that take any number of values, none as well."""
BASES: dict[str, list[str]] = {
    "tasks": ["probe-listen"],
    "train": ["probe-listen", "--out", "run", "--steps", "20", "--hidden", "8", "--batch", "4"],
    "resume": ["nowhere"],
    "evaluate": ["nowhere"],
    "watch": ["nowhere", "--out", "film.gif"],
    "reproduce": ["all", "--out", "results", "--scale", "smoke"],
    "report": ["nowhere", "--out", "report.html"],
    "frontier": ["probe-listen", "--out", "frontier", "--scale", "smoke"],
    "privacy eavesdrop": ["nowhere"],
}
"""Lines that are right but for what is added to them, or that name a folder which does not exist."""


def wrong_values(command: str, name: str, kind: Any) -> list[str]:
    """Values that an option cannot have."""
    found = [] if (command, name) in NOT_HERE else list(ALWAYS_WRONG.get(name, ()))
    origin = typing.get_origin(kind)
    if origin is tuple:
        kind = typing.get_args(kind)[0]
    elif origin in (typing.Union, types.UnionType):
        kind = next(part for part in typing.get_args(kind) if part is not type(None))
    if typing.get_origin(kind) is Literal:
        return [*found, "x", "", "Episode", "ε", "0"]
    if kind is int:
        return [*found, *NOT_WHOLE]
    return [*found, *NOT_A_NUMBER] if kind is float else found


def bad_lines(count: int, seed: int) -> Iterator[list[str]]:
    """So many command lines, each with at least one thing in it that cannot be right."""
    chance = random.Random(seed)
    commands = completion.described()
    table = {
        (command, name): values
        for command, told in commands.items()
        for name, kind in options_of(told.options).items()
        if (values := wrong_values(command, name, kind))
    }
    makers = [unknown_command, unknown_option, missing_value, wrong_task, two_wrong, two_wrong, two_wrong]
    for _ in range(count):
        yield chance.choice(makers)(chance, list(commands), table)


def options_of(options: type) -> dict[str, Any]:
    """Options of a command that have a flag, with their types."""
    hints = typing.get_type_hints(options)
    flags = completion.flags_of(options)
    names = [item.name for item in dataclasses.fields(options)]
    return {name: hints[name] for name in names if f"--{name.replace('_', '-')}" in flags}


def base(command: str) -> list[str]:
    return [*command.split(), *BASES.get(command, [])]


def unknown_command(chance: random.Random, commands: list[str], table: Any) -> list[str]:
    words = [chance.choice(GARBAGE) for _ in range(chance.randint(1, 4))]
    group = chance.choice([[], ["privacy"], ["games"], ["bench"]])
    return [*group, "x" + words[0], *words[1:]]


def unknown_option(chance: random.Random, commands: list[str], table: Any) -> list[str]:
    flag = chance.choice(
        ["--bogus", "--x", "-z", "--epsilonn", "--no-json", "--json=maybe", "--\u03b5", "--=", "--json=1"]
    )
    line = base(chance.choice(commands))
    line.insert(chance.randint(len(line) - 1, len(line)) if len(line) > 2 else len(line), flag)
    return line


def missing_value(chance: random.Random, commands: list[str], table: Any) -> list[str]:
    command, name = chance.choice(sorted(key for key in table if key not in MANY))
    return [*base(command), f"--{name.replace('_', '-')}"]


def wrong_task(chance: random.Random, commands: list[str], table: Any) -> list[str]:
    command = chance.choice(["train", "tasks", "frontier"])
    task = chance.choice(NOT_A_TASK)
    return [command, task, *base(command)[2:]]


def two_wrong(chance: random.Random, commands: list[str], table: Any) -> list[str]:
    command = chance.choice(sorted({command for command, _ in table}))
    names = [name for where, name in table if where == command]
    line = base(command)
    for name in chance.sample(names, min(len(names), chance.randint(1, 3))):
        line = with_option(line, name, chance.choice(table[command, name]))
    return line


def single_lines() -> Iterator[list[str]]:
    """Every wrong value of every option, alone in a line that is otherwise right."""
    for command, told in completion.described().items():
        for name, kind in options_of(told.options).items():
            for value in wrong_values(command, name, kind):
                yield with_option(base(command), name, value)


def with_option(line: list[str], name: str, value: str) -> list[str]:
    """The line with an option set to a value."""
    flag = f"--{name.replace('_', '-')}"
    if flag in line:
        line = line[: line.index(flag)] + line[line.index(flag) + 2 :]
    return [*line, flag, value]
