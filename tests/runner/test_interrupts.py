"""Ctrl-C, as a real signal: what is in hand is finished and saved, and the way on is told."""

import shlex
import signal
import time

from tiny import begin, contents, dpmac, train

from dpmac import cli

REPRODUCE = shlex.split("reproduce tarmac --scale smoke --tasks ccn --methods tarmac --seeds 1 --skip-figures --out")


def interrupted(process, when):
    """The end of a command that gets Ctrl-C as soon as something is the case: its exit code, output and errors."""
    while process.poll() is None and not when():
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    out, error = process.communicate()
    assert "Traceback" not in out + error
    return process.returncode, out, error


def test_resume_saves_and_says_how_to_go_on(tmp_path):
    train(tmp_path / "whole")
    begin(tmp_path / "run", pieces=1)
    before = (tmp_path / "run/metrics.csv").stat().st_mtime_ns
    process = dpmac("resume", tmp_path / "run", "--quiet")
    code, _, error = interrupted(process, lambda: (tmp_path / "run/metrics.csv").stat().st_mtime_ns > before)
    assert code == 130
    assert f"saved; go on with: dpmac resume {tmp_path / 'run'}" in error
    assert len((tmp_path / "run/metrics.csv").read_text()) < len((tmp_path / "whole/metrics.csv").read_text())
    assert cli.main(["resume", str(tmp_path / "run"), "--quiet"]) == 0
    assert contents(tmp_path / "run") == contents(tmp_path / "whole")


def test_reproduce_says_that_the_same_command_goes_on(tmp_path, capsys):
    process = dpmac(*REPRODUCE, tmp_path)
    code, out, error = interrupted(process, lambda: any((tmp_path / "jobs").glob("*/config.json")))
    assert code == 130
    assert "0 of 3 runs finished" in out
    assert "the same command goes on" in out
    assert error.strip().endswith("interrupted")
    (job,) = (tmp_path / "jobs").iterdir()
    assert (job / "checkpoints/group-0.json").exists()
    assert cli.main([*REPRODUCE, str(tmp_path)]) == 0
    assert "3 of 3 runs finished" in capsys.readouterr().out


def test_quiet_and_verbose_exclude_each_other(tmp_path, capsys):
    for command in (["train", "cn", "--out"], [*REPRODUCE], ["resume"], ["frontier", "ccn", "--out"]):
        assert cli.main([*command, str(tmp_path / "none"), "--quiet", "--verbose"]) == 2
        assert "--quiet and --verbose exclude each other" in capsys.readouterr().err
    assert not (tmp_path / "none").exists()
