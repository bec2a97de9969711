"""The paper's formula, its inverse and its conditions."""

import dataclasses
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpmac.config import BadInput
from dpmac.privacy import theorem
from dpmac.privacy.theorem import Setting

EPSILON, DELTA = st.floats(1e-3, 100), st.floats(1e-12, 0.5)
SETTING = st.builds(
    Setting,
    gamma1=st.floats(1e-3, 1),
    gamma2=st.floats(1e-2, 1),
    agents=st.integers(1, 50),
    clip_norm=st.floats(1e-3, 1e3),
    beta=st.floats(0.01, 0.99),
)


@pytest.mark.parametrize(
    ("horizon", "sigmas"),
    [(1, ["64.25", "6.441", "0.6596"]), (25, ["321.3", "32.20", "3.298"])],
    ids=["step", "episode"],
)
def test_sigma_is_the_papers_to_the_printed_digits(horizon, sigmas):
    found = theorem.sigma(np.array([0.01, 0.1, 1]), 1e-4, theorem.released(25), horizon)
    for value, printed in zip(found, sigmas, strict=True):
        assert f"{value:#.4g}" == printed


def test_released_settings_are_those_of_every_task():
    assert theorem.released(40) == Setting(gamma1=1 / 40, gamma2=1.0, agents=2, clip_norm=0.5, beta=0.5)


@given(EPSILON, DELTA, SETTING, st.integers(1, 100))
@settings(deadline=None)
def test_epsilon_inverts_sigma(epsilon, delta, setting, horizon):
    sigma = theorem.sigma(epsilon, delta, setting, horizon)
    assert theorem.epsilon(sigma, delta, setting, horizon) == pytest.approx(epsilon, rel=1e-9)


def test_agents_may_have_their_own_epsilon_and_delta():
    epsilon, delta, setting = np.array([1.0, 0.1]), np.array([1e-4, 1e-6]), theorem.released(25)
    both = theorem.sigma(epsilon, delta, setting)
    assert both.tolist() == [theorem.sigma(e, d, setting) for e, d in zip(epsilon, delta, strict=True)]
    assert theorem.epsilon(both, delta, setting) == pytest.approx(epsilon)


@given(EPSILON, DELTA, st.integers(1, 100), st.floats(0.01, 0.99))
@settings(deadline=None)
def test_naive_bound_is_the_papers_expression(epsilon, delta, horizon, beta):
    alpha = float(theorem.order(epsilon, delta, beta))
    printed = horizon * epsilon + (horizon - 1) * math.log(delta) / (alpha - 1)
    assert theorem.naive_episode_epsilon(epsilon, horizon, beta) == pytest.approx(printed, rel=1e-6)


@pytest.mark.parametrize("epsilon", [0.01, 0.1, 1])
@pytest.mark.parametrize("horizon", [1, 25])
def test_side_conditions_fail_for_all_of_the_papers_budgets(epsilon, horizon):
    conditions = {item.name: item for item in theorem.side_conditions(epsilon, 1e-4, theorem.released(25), horizon)}
    assert not conditions["alpha <= bound"].holds
    assert conditions["alpha <= bound"].margin < 0
    assert not conditions["gamma2 < 1"].holds
    assert conditions["gamma1 < 1"].holds


@pytest.mark.parametrize("horizon", [25, 40])
@pytest.mark.parametrize("epsilon", [0.01, 0.1, 1, 3])
def test_no_beta_rescues_the_released_sampling_rate(horizon, epsilon):
    setting = theorem.released(horizon)
    for steps in (1, horizon):
        assert theorem.feasible(epsilon, 1e-4, setting, steps, gamma1=1 / horizon) is None
        for beta in np.linspace(0.001, 0.999, 400):
            conditions = theorem.side_conditions(epsilon, 1e-4, dataclasses.replace(setting, beta=beta), steps)
            assert not all(item.holds for item in conditions[2:])


@given(st.floats(0.3, 50), st.floats(1e-9, 1e-2), st.floats(0.1, 0.95), st.integers(1, 30))
@settings(deadline=None, max_examples=40)
def test_what_the_search_finds_meets_every_condition(epsilon, delta, gamma2, horizon):
    found = theorem.feasible(epsilon, delta, Setting(gamma1=0.5, gamma2=gamma2), horizon)
    if found is not None:
        assert all(item.holds for item in theorem.side_conditions(epsilon, delta, found, horizon))


def test_the_search_does_find_something():
    found = theorem.feasible(10, 1e-4, Setting(gamma1=0.5, gamma2=0.9), 25, gamma1=1 / 25)
    assert found is not None
    assert found.gamma1 == 1 / 25
    assert found.beta < 0.1


def test_the_search_respects_the_least_rate():
    found = theorem.feasible(10, 1e-4, Setting(gamma1=0.5, gamma2=0.9), 25, least=1 / 25)
    assert found is not None
    assert found.gamma1 >= 1 / 25


@pytest.mark.parametrize(
    "call",
    [
        lambda: theorem.sigma(0.0, 1e-4, theorem.released(25)),
        lambda: theorem.sigma(math.nan, 1e-4, theorem.released(25)),
        lambda: theorem.sigma(math.inf, 1e-4, theorem.released(25)),
        lambda: theorem.sigma(1.0, 1.0, theorem.released(25)),
        lambda: theorem.sigma(1.0, 0.0, theorem.released(25)),
        lambda: theorem.sigma(1.0, 1e-4, theorem.released(25), 0),
        lambda: theorem.epsilon(0.0, 1e-4, theorem.released(25)),
        lambda: theorem.released(0),
        lambda: theorem.released(25, clip_norm=0.0),
        lambda: Setting(gamma1=0.0),
        lambda: Setting(gamma1=0.1, gamma2=1.1),
        lambda: Setting(gamma1=0.1, beta=1.0),
        lambda: Setting(gamma1=0.1, agents=0),
        lambda: theorem.feasible(1.0, 1e-4, theorem.released(25), least=1.0),
        lambda: theorem.feasible(1.0, 1e-4, theorem.released(25), gamma1=1.0),
    ],
)
def test_nonsense_is_refused_with_a_message(call):
    with pytest.raises(BadInput, match="must"):
        call()
