"""Where privacy meets training: budgets become the noise scales that a population trains at."""

import dataclasses
import math
from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp

from dpmac import privacy
from dpmac.agents import protocol
from dpmac.agents.mechanisms import NoiseScale, noise_scale
from dpmac.config import Budget, Channel, RunConfig
from dpmac.runner.train import Program


def towards(budget: Budget, start: float, share: float) -> Budget:
    """A budget on the way, geometrically, from an ε that is looser down to this one."""

    def now(epsilon: float) -> float:
        return epsilon if math.isinf(epsilon) else max(start, epsilon) ** (1 - share) * epsilon**share

    return dataclasses.replace(budget, epsilon=tuple(map(now, budget.epsilon)))


def training_budgets(config: RunConfig, budget: Budget, share: float) -> list[Budget]:
    """Budgets that training draws from after this share of the run: one, or several where noise scales are mixed."""
    if config.anneal_from == 0:
        return [budget]
    if config.mix > 1:
        return [towards(budget, config.anneal_from, row / (config.mix - 1)) for row in range(config.mix)]
    return [towards(budget, config.anneal_from, min(1.0, share / config.anneal_share))]


@cache
def noise_scales(budget: Budget, channel: Channel, agents: int, horizon: int) -> tuple[float, ...]:
    """Noise of each agent under a budget; cached, for calibration is slow."""
    return privacy.noise_scales(budget, channel, agents, horizon)


def scale_of(config: RunConfig, program: Program, budget: Budget) -> NoiseScale:
    """Noise scales (agent,) of a budget."""
    task, channel = program.task, protocol.channel_of(config.method, config.channel)
    return noise_scale(channel, noise_scales(budget, channel, task.agents, task.horizon))


def scales_of(config: RunConfig, program: Program, budgets: Iterable[Budget]) -> NoiseScale:
    """Noise scales (run, agent) of the runs' budgets."""
    return stack(scale_of(config, program, budget) for budget in budgets)


def tables_of(config: RunConfig, program: Program, budgets: Sequence[Budget], share: float) -> NoiseScale:
    """Noise scales (run, row, agent) that training draws from after this share of the run."""
    rows = [training_budgets(config, budget, share) for budget in budgets]
    return stack(stack(scale_of(config, program, budget) for budget in row) for row in rows)


def stack(scales: Iterable[NoiseScale]) -> Any:
    return jax.tree.map(lambda *x: jnp.stack(x), *scales)
