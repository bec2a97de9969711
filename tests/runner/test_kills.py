"""A training process that is killed ends with the same bits, whatever learns and whatever releases the messages."""

import itertools
import random

import pytest
from tiny import contents, killed, small, taken, train

from dpmac import privacy
from dpmac.config import Channel
from dpmac.learner import base as learners
from dpmac.runner import population

PAIRS = list(itertools.product(privacy.mechanisms.names(), learners.BUILT_IN))
FEW = {("code", "mappo"), ("response", "pathwise"), ("subset", "maddpg")}  # the Gaussian is killed in `dpmac train`


@pytest.fixture
def case(request, tmp_path):
    """What a run that nobody disturbs leaves behind, the folder of the same run before its first step, and its line."""
    mechanism, learner = request.param
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
def test_killed_at_random_moments_it_ends_with_the_same_bits(case, record_property):
    """At moments spread over loading, compiling, training and saving."""
    whole, folder, line = case
    draws, kills = random.Random(str(folder.parent.name)), 0
    for _ in range(5):
        kills += killed(line, taken(folder), draws.uniform(0.0, 3.0))
    list(population.train_folder(folder))
    assert contents(folder) == whole
    record_property("counted", f"{folder.parent.name}: killed {kills} times, and the same bits")
