"""Cost of an update: linear in the horizon and the batch, at most quadratic in agents."""

import pytest

from dpmac.analysis import bench
from dpmac.config import RunConfig, Training

SLACK = 1.3
"""Clocks on a busy machine are no better than that."""


def seconds(sizes):
    """Seconds of an update for (agents, horizon, batch) each, side by side."""
    configs = [
        RunConfig(
            "cn",
            task_options={"agents": agents, "horizon": horizon},
            learner_options={"batch": batch, "buffer": 256},
            training=Training(steps=4 * horizon * 100),
        )
        for agents, horizon, batch in sizes
    ]
    return bench.measure(bench.prepare(configs), iterations=2, repeats=7)


@pytest.mark.large
def test_cost_is_linear_in_the_horizon_and_in_the_batch():
    base, longer, wider = seconds([(3, 10, 64), (3, 40, 64), (3, 10, 256)])
    assert longer <= 4 * base * SLACK
    assert wider <= 4 * base * SLACK


@pytest.mark.large
def test_cost_is_at_most_quadratic_in_agents():
    four, eight, sixteen = seconds([(4, 10, 64), (8, 10, 64), (16, 10, 64)])
    assert eight <= 4 * four * SLACK
    assert sixteen <= 4 * eight * SLACK
    assert sixteen <= 16 * four * SLACK
