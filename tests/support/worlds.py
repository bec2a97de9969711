"""Small PettingZoo environments of a user, for tests: one of them for every way in which they differ."""

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from pettingzoo import ParallelEnv


class World(ParallelEnv):
    """Two agents, five steps; a reset with a seed decides everything."""

    metadata: dict[str, Any] = {"name": "world", "render_modes": ["rgb_array"]}  # noqa: RUF012
    max_cycles = 5

    def __init__(self, render_mode: str | None = None):
        self.render_mode = render_mode
        self.possible_agents = ["sender", "hearer"]
        self.agents: list[str] = []
        self.taken: list[dict[str, Any]] = []

    def observation_space(self, agent: str) -> gymnasium.Space:
        return spaces.Discrete(3)

    def action_space(self, agent: str) -> gymnasium.Space:
        return spaces.Discrete(3)

    def reset(self, seed: int | None = None, options: dict | None = None):
        self.chance = np.random.default_rng(seed)
        self.secret, self.time, self.agents = int(self.chance.integers(3)), 0, list(self.possible_agents)
        return self.seen(), {agent: {} for agent in self.agents}

    def seen(self) -> dict[str, Any]:
        return {"sender": self.secret, "hearer": 0}

    def earned(self, actions: dict[str, Any]) -> dict[str, float]:
        """One for the hearer's guess at the sender's symbol, from the second step on: the first message is there."""
        right = actions["hearer"] == self.secret and self.time > 0
        return {"sender": 0.0, "hearer": 2.0 * right}

    def step(self, actions: dict[str, Any]):
        self.taken.append(actions)
        rewards, here = self.earned(actions), list(self.agents)
        self.time += 1
        over = self.time >= self.max_cycles
        self.agents = [] if over else self.agents
        return self.seen(), rewards, dict.fromkeys(here, False), dict.fromkeys(here, over), {a: {} for a in here}

    def render(self):
        return np.full((10, 20, 3), 40 * self.time, np.uint8)


class Steered(World):
    """The hearer steers with a number in [-1, 1], to the left, the middle or the right."""

    def action_space(self, agent: str) -> gymnasium.Space:
        return spaces.Box(-1.0, 1.0, (1,), np.float32)

    def earned(self, actions: dict[str, Any]) -> dict[str, float]:
        miss = abs(float(actions["hearer"][0]) - (self.secret - 1))
        return {"sender": 0.0, "hearer": 2.0 * (1 - miss) * (self.time > 0)}


class Leaving(World):
    """The sender leaves after two steps, and everything ends after three."""

    def step(self, actions: dict[str, Any]):
        assert set(actions) == set(self.agents), "an action for each agent that is there, and no other"
        self.taken.append(actions)
        here = list(self.agents)
        self.time += 1
        gone = {agent: self.time == 3 or (agent == "sender" and self.time == 2) for agent in here}
        self.agents = [agent for agent in here if not gone[agent]]
        seen = dict.fromkeys(here, 1)
        return seen, dict.fromkeys(here, 1.0), gone, dict.fromkeys(here, False), {agent: {} for agent in here}


class Uneven(World):
    """One agent sees a picture and has two actions that begin at 5; the other sees a symbol and has four."""

    def observation_space(self, agent: str) -> gymnasium.Space:
        return spaces.Box(0, 1, (2, 3), np.float32) if agent == "sender" else spaces.Discrete(3)

    def action_space(self, agent: str) -> gymnasium.Space:
        return spaces.Discrete(2, start=5) if agent == "sender" else spaces.Discrete(4)

    def seen(self) -> dict[str, Any]:
        return {"sender": np.arange(6, dtype=np.float32).reshape(2, 3) / 6, "hearer": 2}


class Forgetful(World):
    """Does not care for seeds."""

    def reset(self, seed: int | None = None, options: dict | None = None):
        return super().reset(None)


class Endless(World):
    """Does not say how long an episode is."""

    max_cycles = None  # type: ignore[assignment]

    def step(self, actions: dict[str, Any]):
        here = list(self.agents)
        return self.seen(), dict.fromkeys(here, 1.0), dict.fromkeys(here, False), dict.fromkeys(here, False), {}


class Failing(World):
    """Breaks in its third step."""

    def step(self, actions: dict[str, Any]):
        if self.time == 2:
            raise ZeroDivisionError("the wheel came off")
        return super().step(actions)


class Unseeded(World):
    """Its reset takes no seed."""

    def reset(self):  # type: ignore[override]
        return super().reset()


class Old(World):
    """Its reset returns observations alone."""

    def reset(self, seed: int | None = None, options: dict | None = None):
        return super().reset(seed)[0]


class Shrinking(World):
    """Observations have two numbers until so many steps are done, and then one."""

    def __init__(self, max_cycles: int = 1, render_mode: str | None = None):
        super().__init__(render_mode)
        self.max_cycles = max_cycles

    def observation_space(self, agent: str) -> gymnasium.Space:
        return spaces.Box(0, 1, (2,), np.float32)

    def seen(self) -> dict[str, Any]:
        return dict.fromkeys(self.possible_agents, np.zeros(2 if self.time < self.max_cycles else 1, np.float32))


class Blind(World):
    def render(self):
        return None


def seeing(space: gymnasium.Space):
    """An environment whose agents observe this space."""
    return type("Seeing", (World,), {"observation_space": lambda self, agent: space})


def acting(space: gymnasium.Space):
    """An environment whose agents act in this space."""
    return type("Acting", (World,), {"action_space": lambda self, agent: space})


class Masked(World):
    """In every step another action is forbidden; the observation says which."""

    def observation_space(self, agent: str) -> gymnasium.Space:
        return spaces.Dict({"observation": spaces.Discrete(3), "action_mask": spaces.MultiBinary(3)})

    def mask(self) -> np.ndarray:
        return (np.arange(3) != (self.secret + self.time) % 3).astype(np.int8)

    def seen(self) -> dict[str, Any]:
        return {name: {"observation": symbol, "action_mask": self.mask()} for name, symbol in super().seen().items()}

    def step(self, actions: dict[str, Any]):
        assert all(self.mask()[action] for action in actions.values()), "a forbidden action was taken"
        return super().step(actions)


class Hinted(Masked):
    """The same, but masks stand beside observations."""

    def observation_space(self, agent: str) -> gymnasium.Space:
        return World.observation_space(self, agent)

    def seen(self) -> dict[str, Any]:
        return World.seen(self)

    def reset(self, seed: int | None = None, options: dict | None = None):
        seen, infos = super().reset(seed)
        return seen, {agent: {"action_mask": self.mask()} for agent in infos}

    def step(self, actions: dict[str, Any]):
        *rest, infos = super().step(actions)
        return *rest, {agent: {"action_mask": self.mask()} for agent in infos}


class Parted(World):
    """What is seen has a name and a place, and an action has two parts, or three with names."""

    def observation_space(self, agent: str) -> gymnasium.Space:
        return spaces.Dict({"kind": spaces.MultiDiscrete([2, 3]), "place": spaces.Tuple([spaces.Box(0, 1, (2,))] * 2)})

    def action_space(self, agent: str) -> gymnasium.Space:
        if agent == "sender":
            return spaces.MultiDiscrete([2, 3])
        return spaces.Dict({"go": spaces.Discrete(2), "hand": spaces.MultiBinary(1), "aim": spaces.Box(-1, 1, (1,))})

    def seen(self) -> dict[str, Any]:
        one = {"kind": np.array([1, 2]), "place": (np.array([0.1, 0.2]), np.array([0.3, 0.4]))}
        return dict.fromkeys(self.possible_agents, one)

    def earned(self, actions: dict[str, Any]) -> dict[str, float]:
        return {agent: float(self.action_space(agent).contains(action)) for agent, action in actions.items()}


Named = seeing(spaces.Text(5))
Writing = acting(spaces.Text(5))
Many = acting(spaces.MultiDiscrete([12, 11]))
Unbounded = acting(spaces.Box(-np.inf, np.inf, (2,)))
Crowded = acting(spaces.Discrete(128))
Wide = acting(spaces.Box(-1.0, 1.0, (70,)))


class Undrawn(World):
    """It inherits a `render` that nobody has written."""

    def render(self):
        return ParallelEnv.render(self)
