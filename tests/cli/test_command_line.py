"""The command line as people know it: help, completion, colours, failures, and how quickly it is there."""

import os
import pty
import re
import resource
import shutil
import subprocess
import sys

import pytest

from dpmac import cli
from dpmac.cli import completion

COMMANDS = completion.described()


def test_all_commands_of_the_package_are_described():
    groups = {name.split()[0] for name in COMMANDS}
    assert groups == set(cli.COMMANDS)
    assert "privacy calibrate" in COMMANDS
    assert len(COMMANDS) > 15


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help_with_an_example_of_itself_and_json(name, capsys):
    assert cli.main([*name.split(), "--help"]) == 0
    told = capsys.readouterr().out
    assert f"Example: dpmac {name}" in " ".join(told.split())
    assert "--json" in told
    assert COMMANDS[name].example.startswith(f"dpmac {name}")


@pytest.mark.parametrize("name", ["", *completion.groups_of(COMMANDS)])
def test_commands_that_choose_have_an_example_too(name, capsys):
    assert cli.main([*name.split(), "--help"]) == 0
    assert "Example: dpmac" in capsys.readouterr().out


@pytest.mark.parametrize("name", COMMANDS)
def test_every_example_can_be_parsed(name, monkeypatch):
    import tyro

    for example in COMMANDS[name].example.split("    or    "):
        words = example.split()
        config = (tyro.conf.FlagCreatePairsOff,)
        tyro.cli(COMMANDS[name].options, args=words[1 + len(name.split()) :], config=config)


# Completion -----------------------------------------------------------------------------------------------------------


def completed(shell: str, line: str, tmp_path) -> set[str]:
    """What a shell offers at the end of a line."""
    if not shutil.which(shell):
        assert "CI" not in os.environ, f"continuous integration must complete in every shell: install {shell}"
        pytest.skip(f"{shell} is not installed")
    (tmp_path / "script").write_text(completion.script(shell))
    words = line.split(" ")
    if shell == "fish":
        code = f"source {tmp_path}/script; complete -C '{line}'"
    else:
        start = "autoload -U +X compinit && compinit -u -D\n" if shell == "zsh" else ""
        listed = " ".join(f"'{word}'" for word in words)
        arrays = "setopt KSH_ARRAYS\n" if shell == "zsh" else ""
        code = (
            f"{start}source {tmp_path}/script\n{arrays}COMP_WORDS=({listed})\nCOMP_CWORD={len(words) - 1}\n"
            f'_dpmac\nprintf "%s\\n" "${{COMPREPLY[@]}}"'
        )
    found = subprocess.run(
        [shell, "-c", code], capture_output=True, text=True, env={**os.environ, "HOME": str(tmp_path)}
    )
    assert found.returncode == 0, found.stderr
    # Outside of a line that is being typed, zsh offers what does not begin as the word does, too.
    return {word.split("\t")[0] for word in found.stdout.splitlines() if word.startswith(words[-1])}


@pytest.mark.parametrize("shell", list(completion.SHELLS))
@pytest.mark.parametrize(
    ("line", "offers", "not_offered"),
    [
        ("dpmac re", {"resume", "reproduce", "report"}, {"train"}),
        ("dpmac train c", {"cn", "ccn"}, {"pp"}),
        ("dpmac train cn --ep", {"--epsilon"}, {"--delta"}),
        ("dpmac train cn --unit ", {"message", "episode"}, {"gaussian"}),
        ("dpmac privacy ca", {"calibrate"}, {"account"}),
        ("dpmac privacy calibrate --acc", {"--accountant"}, {"--sigma"}),
        ("dpmac privacy account --s", {"--sigma", "--symbols"}, {"--accountant"}),
    ],
)
def test_shells_complete_commands_options_and_choices(shell, line, offers, not_offered, tmp_path):
    found = completed(shell, line, tmp_path)
    assert offers <= found
    assert not found & not_offered


def test_a_shell_that_nobody_knows_is_refused(capsys):
    assert cli.main(["--completion", "tcsh"]) == 2
    assert cli.main(["--completion"]) == 2
    assert "bash, zsh, fish" in capsys.readouterr().err


# Colours --------------------------------------------------------------------------------------------------------------


def on_a_terminal(arguments: list[str], **environment: str) -> str:
    """What a command writes when it believes that a person is looking."""
    ours, theirs = pty.openpty()
    given = {**os.environ, "TERM": "xterm-256color", **environment}
    process = subprocess.Popen([sys.executable, "-m", "dpmac", *arguments], stdout=theirs, stderr=theirs, env=given)
    os.close(theirs)
    parts = []
    while True:
        try:
            part = os.read(ours, 65536)
        except OSError:
            break
        if not part:
            break
        parts.append(part)
    process.wait()
    os.close(ours)
    return b"".join(parts).decode()


def test_colours_are_for_terminals_and_no_color_is_respected():
    command = ["privacy", "calibrate", "--help"]
    assert "\x1b[" in on_a_terminal(command)
    assert "\x1b[" not in on_a_terminal(command, NO_COLOR="1")
    piped = subprocess.run([sys.executable, "-m", "dpmac", *command], capture_output=True, text=True)
    assert "calibrate" in piped.stdout
    assert "\x1b" not in piped.stdout + piped.stderr


# Failures -------------------------------------------------------------------------------------------------------------


@pytest.fixture
def broken(monkeypatch):
    from dpmac.cli import tasks

    def fail(argv):
        raise KeyError("a thing that nobody foresaw\nand a second line")

    monkeypatch.setattr(tasks, "run", fail)


def test_an_unforeseen_failure_is_one_line_and_exit_code_one(broken, capsys, monkeypatch):
    monkeypatch.delenv("DPMAC_DEBUG", raising=False)
    assert cli.main(["tasks"]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("dpmac: KeyError: ")
    assert "nobody foresaw" in line
    assert "DPMAC_DEBUG=1" in line


def test_its_traceback_is_shown_to_those_who_ask(broken, monkeypatch):
    with pytest.raises(KeyError):
        cli.main(["tasks", "--verbose"])
    monkeypatch.setenv("DPMAC_DEBUG", "1")
    with pytest.raises(KeyError):
        cli.main(["tasks"])


# Time -----------------------------------------------------------------------------------------------------------------


def seconds_of(code: str) -> float:
    """Processor time of a fresh interpreter that runs this."""

    def spent() -> float:
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        return used.ru_utime + used.ru_stime

    before = spent()
    subprocess.run([sys.executable, "-c", code], check=True)
    return spent() - before


def test_importing_it_takes_less_than_a_third_of_a_second():
    assert min(seconds_of("import dpmac") for _ in range(3)) < 0.3


def test_importing_it_brings_no_heavy_package():
    code = "import sys, dpmac, dpmac.cli, dpmac.privacy; print(*{name.split('.')[0] for name in sys.modules})"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert "dpmac" in loaded
    assert not {"jax", "numpy", "scipy", "matplotlib", "tyro", "rich", "equinox"} & set(loaded)


def test_an_encoding_without_an_epsilon_is_no_failure():
    code = "import dpmac.cli as cli; cli.usage = lambda *_: '\\u03b5 = 1'; cli.main([])"
    environment = {**os.environ, "PYTHONIOENCODING": "latin-1"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, env=environment, check=True)
    assert done.stdout.startswith(b"? = 1")


def test_the_version_is_told(capsys):
    assert cli.main(["--version"]) == 0
    assert re.fullmatch(r"dpmac \d+\.\d+\.\d+\n", capsys.readouterr().out)
