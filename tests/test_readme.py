"""Every command and every line of Python that the README shows is run; the `make` lines are what runs this."""

import pytest
from pages import ROOT, blocks, run_console

from dpmac import privacy

README = (ROOT / "README.md").read_text()
CONSOLE = [block for block in blocks(README) if block.language == "console"]


@pytest.mark.parametrize("block", CONSOLE, ids=lambda block: block.text.splitlines()[0])
@pytest.mark.parametrize("small", [True, pytest.param(False, marks=pytest.mark.large)], ids=["small", "as written"])
def test_the_commands_work_and_print_what_is_shown(block, small, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run_console(block, small, [])


def test_the_python_is_right():
    (block,) = (block for block in blocks(README) if block.language == "python")
    names: dict = {}
    lines = block.text.strip().splitlines()
    exec("\n".join(lines[:-1]), names)
    assert names["sigma"] == pytest.approx(15.93, abs=0.005)
    assert eval(lines[-1].split("#")[0], names) == pytest.approx(1.0, abs=1e-4)


def test_what_an_eavesdropper_tells_is_compared_with_what_the_same_unit_allows():
    """An episode's messages with both budgets of an episode, and the numbers are those of the accountant."""
    channel, text = privacy.Channel(), " ".join(README.split())
    sigma = privacy.calibrate(channel, 1.0, 1e-4, horizon=25, unit="message")
    together = privacy.epsilon(privacy.Release(channel, sigma, horizon=25), 1e-4)
    each, whole = (100 * privacy.private_accuracy(epsilon, 1e-4, 3) for epsilon in (together, 1.0))
    assert f"a valid ε = 1 for each message allows {each:.1f} %" in text
    assert f"25 messages add up to ε = {together:.2f}" in text
    assert f"A budget of ε = 1 for the whole episode allows {whole:.1f} %" in text


def test_it_is_short_and_shows_a_result_early():
    lines = README.splitlines()
    assert len(lines) < 100
    assert any("exact_epsilon" in line for line in lines[:15])
