"""One command, `dpmac`. Each of its commands is a module of this package, imported only when it is called.

A command module has `run(argv)`. It parses with `parse`, prints with `emit`, and raises `BadInput` for what a user got
wrong: that becomes one line on stderr and exit code 2. Any other failure is exit code 1.
"""

import errno
import importlib
import io
import os
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, get_origin, get_type_hints

from dpmac import __version__
from dpmac.config import BadInput, Failure, dumps, require

if TYPE_CHECKING:
    from rich.table import Table

T = TypeVar("T")

COMMANDS = {
    "tasks": "list tasks: sizes, horizon, reward unit, returns of a random and of a scripted policy",
    "train": "train a team for every budget and seed",
    "config": "print the whole configuration of a run, as a file to edit",
    "resume": "continue an interrupted run; the result is bit-identical",
    "evaluate": "score a trained run on common starts",
    "plot": "draw learning curves of one or many runs",
    "watch": "make a film of an episode with its messages",
    "privacy": "calibrate, account, audit, audit-training, eavesdrop, explain, stream, ledger",
    "games": "binary-sums, cgp, rounds",
    "reproduce": "train every run behind the paper's figures, in slices if asked",
    "frontier": "compare channels and schedules: return against exact epsilon",
    "sweep": "train every point of a grid or a search, and rank the settings",
    "report": "make one page about runs: curves, returns, privacy; for the paper's runs also verdicts",
    "deploy": "export, keys, run, world, status: run trained agents as processes",
    "bench": "env, train: measure the speed of this machine",
    "doctor": "check versions, devices and memory, and test learning and privacy",
    "demo": "train a small team with and without messages, on a laptop",
}


FLAGS = {
    "--help": "print this text",
    "--version": "print the version",
    "--completion": "SHELL: print a completion script for bash, zsh or fish",
}
NOWHERE = {errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOENT, errno.ENAMETOOLONG}
"""What is wrong with a place that a user named, where nobody can write or read."""
DESCRIBE = "\0describe"
"""An argument that nobody can type: a command then says what it takes instead of running."""


class Described(Exception):
    """Options and example of a command that was asked to describe itself."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; the exit code is 0, 2 for bad input, 1 for a failure while running."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # an encoding other than UTF-8 may have no ε
    arguments = list(sys.argv[1:] if argv is None else argv)
    if not arguments or arguments[0] in ("-h", "--help"):
        print(usage("dpmac", COMMANDS))
        print("\n" + rows(FLAGS) + "\n\nExample: dpmac train ccn --epsilon 1 3 inf --seeds 5 --out runs/ccn")
        return 0 if arguments else 2
    if arguments == ["--version"]:
        print(f"dpmac {__version__}")
        return 0
    try:
        if arguments[0] == "--completion":
            from dpmac.cli import completion

            print(completion.script(" ".join(arguments[1:])), end="")
            return 0
        choose("dpmac", COMMANDS, arguments, lambda name: importlib.import_module(f"dpmac.cli.{name}").run)
    except BadInput as error:
        print(f"dpmac: {error}", file=sys.stderr)
        return 2
    except Failure as error:
        print(f"dpmac: {error}", file=sys.stderr)
        return 1
    except (FileExistsError, NotADirectoryError) as error:
        print(f"dpmac: {error.filename}: a file is in the way of a folder", file=sys.stderr)
        return 2
    except IsADirectoryError as error:
        print(f"dpmac: {error.filename} is a folder, not a file", file=sys.stderr)
        return 2
    except SystemExit as stop:
        if isinstance(stop.code, str):  # of a task or method of the user's own
            print(f"dpmac: {stop.code}", file=sys.stderr)
            return 1
        return stop.code or 0
    except KeyboardInterrupt:
        print("dpmac: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:
        nowhere = isinstance(error, OSError) and error.filename is not None and error.errno in NOWHERE
        if not nowhere and (os.environ.get("DPMAC_DEBUG") or "--verbose" in arguments):
            raise
        print(f"dpmac: {reason(error)}", file=sys.stderr)
        return 2 if nowhere else 1
    return 0


def reason(error: Exception) -> str:
    """One line for a failure that nobody foresaw, and how to see more of it."""
    if isinstance(error, OSError):
        if error.filename is None or not error.strerror:
            return str(error)
        return f"{error.filename}: {error.strerror[0].lower()}{error.strerror[1:]}"
    first, *rest = str(error).strip().splitlines() or [""]
    if "Traceback" in first:  # of Python code that compiled code has called: what was raised is the first line outside
        said = next((line for line in rest if line and not line[0].isspace()), first)
    else:
        said = f"{type(error).__name__}: {first}"
    return f"{said} (with DPMAC_DEBUG=1 set, the same command shows where)"


def choose(prog: str, commands: dict[str, str], arguments: Sequence[str], load: Callable[[str], Callable[..., Any]]):
    """Call the command that the first argument names with the rest; `load` brings its function."""
    name, rest = (arguments[0], list(arguments[1:])) if arguments else ("", [])
    if name in ("-h", "--help"):
        print(f"{usage(prog, commands)}\n\nExample: {prog} {next(iter(commands))} --help")
        return None
    require(bool(arguments), f"{prog} needs a command: {', '.join(commands)}")
    if name not in commands:
        raise BadInput(f"unknown command {name!r}; {prog} has: {', '.join(commands)}")
    return load(name)(rest)


def usage(prog: str, commands: dict[str, str]) -> str:
    """Help for a command that only chooses among others."""
    return f"usage: {prog} COMMAND [options]    ({prog} COMMAND --help says more)\n\n{rows(commands)}"


def rows(table: dict[str, str]) -> str:
    """Names and what they are, in two columns."""
    width = max(map(len, table))
    return "\n".join(f"  {name:<{width}}  {said}" for name, said in table.items())


def parse(cls: type[T], argv: Sequence[str], prog: str, example: str, default: T | None = None) -> T:
    """Read a dataclass from the command line; its docstring is the help, with an example below.

    default: an instance whose values hold where the command line says nothing.
    """
    if DESCRIBE in argv:
        raise Described(cls, example)
    require("" not in argv, "an argument is empty")
    named = [word.partition("=")[0].replace("_", "-") for word in argv]
    for name, kind in get_type_hints(cls).items():
        option = f"--{name.replace('_', '-')}"
        once = get_origin(kind) is not tuple or named.count(option) < 2
        require(once, f"{option} is given twice; it takes all values at once, as {option} A B")
    import tyro

    from dpmac.cli.options import registry, wrapped

    plain = bool(os.environ.get("NO_COLOR")) or not (sys.stdout.isatty() and sys.stderr.isatty())
    tyro._experimental_options["ansi_codes"] = not plain
    description = wrapped(f"{(cls.__doc__ or '').strip()}\n\nExample: {example}")
    options = (tyro.conf.FlagCreatePairsOff,)
    given: dict[str, Any] = {} if default is None else {"default": default}
    with registry():
        return tyro.cli(cls, args=list(argv), prog=prog, description=description, config=options, **given)


def emit(data: Any, as_json: bool, text: Callable[[], str]) -> None:
    """Print a result: JSON for machines, otherwise the text."""
    print(dumps(data, indent=2) if as_json else text())


def drawn(grid: "Table", width: int = 100) -> str:
    """A table as text. Brackets and colons in it are a user's own, such as those of a folder's name, and no markup."""
    from rich.console import Console

    console = Console(width=width, markup=False, emoji=False)
    with console.capture() as text:
        console.print(grid)
    return text.get()
