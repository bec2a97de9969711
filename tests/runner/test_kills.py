"""A training process that is killed ends with the same bits, whatever learns and whatever releases the messages."""

import itertools
import random

import pytest
from tiny import changed, contents, killed, private, small, train

from dpmac import privacy
from dpmac.config import Channel
from dpmac.learner import base as learners
from dpmac.runner import population

PRIVATE = "private"
"""Where the name of a mechanism stands: training is private, too."""
PAIRS = list(itertools.product((*privacy.mechanisms.names(), PRIVATE), learners.BUILT_IN))
FEW = {
    ("code", "mappo"),
    ("response", "pathwise"),
    ("subset", "maddpg"),
    (PRIVATE, "pathwise"),
}  # the Gaussian is killed in `dpmac train`


@pytest.fixture
def case(request, tmp_path):
    """What a run that nobody disturbs leaves behind, the folder of the same run before its first step, and its line."""
    mechanism, learner = request.param
    if mechanism == PRIVATE:
        config = private(learner)
    else:
        config = small(learner, Channel(mechanism, period=0 if mechanism == "response" else 1))
    train(tmp_path / "whole", config)
    folder = tmp_path / "run"
    population.create(folder, config)
    return contents(tmp_path / "whole"), folder, ["resume", folder, "--checkpoint-seconds", "0", "--quiet"]


@pytest.mark.parametrize("case", sorted(FEW), ids="-".join, indirect=True)
def test_killed_after_a_checkpoint_it_ends_with_the_same_bits(case):
    whole, folder, line = case
    assert killed(line, (folder / "checkpoints/group-0.json").exists)
    assert contents(folder) != whole
    list(population.train_folder(folder))
    assert contents(folder) == whole


@pytest.mark.large
@pytest.mark.parametrize("case", PAIRS, ids="-".join, indirect=True)
def test_killed_at_random_moments_it_ends_with_the_same_bits(case, request, record_property):
    """Three times while it starts, compiles or trains, and three times while it trains or saves."""
    whole, folder, line = case
    name, saved = request.node.callspec.id, folder / "checkpoints/group-0.json"
    draws, started, training = random.Random(name), 0, 0
    for _ in range(3):
        started += killed(line, changed(folder / "lock"), draws.uniform(0.0, 3.0))
        training += killed(line, changed(saved), draws.uniform(0.0, 0.1))
    list(population.train_folder(folder))
    assert contents(folder) == whole
    record_property("counted", f"{name}: killed {started} times after its start and {training} times as it trained")
