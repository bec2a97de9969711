"""The privacy statement of a run: the noise of each agent, the claim, and whether it is valid."""

import dataclasses
from typing import Any

from dpmac.config import Budget, Channel, Release
from dpmac.privacy import accounting, mechanisms, theorem

NEIGHBOURS = {
    "message": "two inputs of one agent for one single message, both picked by an adversary who has seen everything "
    "that was released before",
    "episode": "two inputs of one agent at every step of an episode, both picked by an adversary who has seen "
    "everything that was released before",
    "increment": "two streams of one agent that differ in what one single step adds, picked by an adversary who has "
    "seen everything that was released before, and who sees all messages of the episode; what a step adds is the part "
    "of its observation that the task declares as its increment, and the sender is given nothing else; a change of the "
    "increments of several steps is protected less",
}
"""By what a budget covers."""
ABOUT = "agents deployed with this noise (dpmac.load); they draw it from the operating system for every message"
SIMULATED = (
    "the run's own messages are simulated: their noise is float32, on the same grid, from a seed, and protects nothing "
    "from anyone who knows the seed or enumerates the outputs of the generator"
)
"""What `privacy.json` says about the path that its claims hold for, and the one that they do not hold for."""


def noise_scales(budget: Budget, channel: Channel, agents: int, horizon: int) -> tuple[float, ...]:
    """Noise scale of each agent under the budget's accountant; 0 for ε = inf.

    Noise at the receiver is as large as it would be at the sender, though it protects nothing.

    >>> noise_scales(Budget((1.0, float("inf")), accountant="paper"), Channel(), agents=2, horizon=25)
    (3.2978146122263037, 0.0)
    """
    if budget.accountant == "paper":
        formula = mechanisms.of(channel).paper_sigma
        return tuple(
            0.0 if epsilon == float("inf") else formula(epsilon, budget.delta, budget.unit, horizon)
            for epsilon in budget.of(agents)
        )
    sender = dataclasses.replace(channel, place="sender")
    return tuple(
        accounting.calibrate(sender, epsilon, budget.delta, horizon, budget.unit, budget.neighbours)
        for epsilon in budget.of(agents)
    )


def claim(budget: Budget, channel: Channel, agents: int, horizon: int) -> list[dict[str, Any]]:
    """What a run says about each agent's privacy, one entry per agent; `privacy.json` of a run holds it.

    `valid` says whether the claimed (ε, δ) holds for the unit and by the accountant that made the claim;
    `exact_epsilon` is the exact ε of the same noise at the same δ, whichever accountant chose it.
    """
    levels, mechanism = noise_scales(budget, channel, agents, horizon), mechanisms.of(channel)
    entries = [entry(budget, channel, horizon, agent, level) for agent, level in enumerate(levels)]
    for item in entries:
        item["released_as"] = mechanism.released_as
        if mechanism.warning and item["noise"] > 0:
            item["warnings"].append(mechanism.warning)
    return entries


def entry(budget: Budget, channel: Channel, horizon: int, agent: int, noise: float) -> dict[str, Any]:
    """The claim about one agent, whose budget is the one that its place in `budget` names."""
    epsilon = budget.epsilon[agent if len(budget.epsilon) > 1 else 0]
    message, episode = (
        accounting.epsilon(Release(channel, noise, horizon, unit), budget.delta) for unit in ("message", "episode")
    )
    covered = Release(channel, noise, horizon, budget.unit, budget.neighbours)
    exact = accounting.epsilon(covered, budget.delta)
    failed = failed_conditions(epsilon, budget, channel, horizon)
    return {
        "agent": agent,
        "epsilon": epsilon,
        "delta": budget.delta,
        "unit": budget.unit,
        "covers": budget.covers,
        "neighbours": NEIGHBOURS[budget.covers],
        "accountant": budget.accountant,
        "mechanism": channel.mechanism,
        "noise": noise,
        "valid": exact <= epsilon and not failed,
        "exact_epsilon": exact,
        "exact_epsilon_message": message,
        "exact_epsilon_episode": episode,
        "failed_conditions": failed,
        "warnings": warnings(budget, channel, horizon, noise, exact, episode, failed),
    }


def failed_conditions(epsilon: float, budget: Budget, channel: Channel, horizon: int) -> list[dict[str, Any]]:
    """Side conditions that the paper's claim needs and lacks; the exact accountant has none."""
    if budget.accountant == "exact" or epsilon == float("inf"):
        return []
    setting = theorem.released(horizon, channel.clip_norm)
    conditions = theorem.side_conditions(epsilon, budget.delta, setting, theorem.steps(budget.unit, horizon))
    failed = [condition._asdict() for condition in conditions if not condition.holds]
    drawn = max(channel.rates(horizon))
    if channel.sample_rate == 0 or drawn > setting.gamma1:
        name = "sender draws a random subset at rate gamma1"
        failed.append(
            {"name": name, "holds": False, "value": drawn, "limit": setting.gamma1, "margin": setting.gamma1 - drawn}
        )
    return failed


def warnings(
    budget: Budget, channel: Channel, horizon: int, noise: float, exact: float, episode: float, failed: list[Any]
) -> list[str]:
    """What a reader of the claim must know, most severe first."""
    found = []
    if noise == 0:
        return ["no noise: messages are released as they are"]
    if channel.place == "receiver":
        found.append("noise at the receiver gives no local guarantee: the receiver has seen the raw message")
    if failed:
        names = ", ".join(item["name"] for item in failed)
        found.append(
            f"the paper's theorem does not apply (fails: {names}); exact epsilon of the {budget.unit}: {exact:.4g}"
        )
    if budget.unit == "message" and channel.uses(horizon) > 1:
        sees = f"an adversary sees {channel.uses(horizon)} messages an episode"
        found.append(f"epsilon is for one message; {sees}, together epsilon {episode:.4g}")
    if budget.neighbours == "increment":
        found.append(f"epsilon is for what one step adds; for what a whole episode adds up to, epsilon {episode:.4g}")
    return found
