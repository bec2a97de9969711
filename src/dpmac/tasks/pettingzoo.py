"""Any task as a PettingZoo `ParallelEnv`. Needs the extra `pettingzoo`."""

from functools import partial
from typing import Any

import gymnasium
import jax
import numpy as np
from pettingzoo import ParallelEnv

from dpmac.config import BadInput, require, whole
from dpmac.tasks.base import State, Task, make
from dpmac.tasks.render import render


class ParallelTask(ParallelEnv):
    """One episode after the other of a task, for programs that speak PettingZoo's parallel interface.

    Reaching the horizon truncates. A reset with a seed starts that seed's episode; one without goes on to a next one.
    """

    def __init__(self, task: Task | str, render_mode: str | None = None, **options: Any) -> None:
        self.task: Task = make(task, **options) if isinstance(task, str) else task
        require(render_mode in (None, "rgb_array"), f"render_mode must be rgb_array or None, not {render_mode!r}")
        self.render_mode = render_mode
        self.metadata = {"name": f"dpmac_{self.task.name}", "render_modes": ["rgb_array"], "render_fps": 10}
        self.possible_agents = [f"agent_{i}" for i in range(self.task.agents)]
        self.agents: list[str] = []
        shape = (self.task.observation_size,)
        self.observation_spaces = {
            agent: gymnasium.spaces.Box(-np.inf, np.inf, shape, np.float32) for agent in self.possible_agents
        }
        self.action_spaces = {agent: gymnasium.spaces.Discrete(self.task.actions) for agent in self.possible_agents}
        self._key = jax.random.key(np.random.SeedSequence().generate_state(1)[0])
        self._state: State = None
        self._time = 0

    def observation_space(self, agent: str) -> gymnasium.spaces.Space:
        return self.observation_spaces[agent]

    def action_space(self, agent: str) -> gymnasium.spaces.Space:
        return self.action_spaces[agent]

    def reset(self, seed: int | None = None, options: dict | None = None) -> tuple[dict, dict]:
        del options
        if seed is not None:
            require(whole(int(seed), 0, 2**32 - 1), f"a seed must lie in [0, 2^32), not {seed}")
            self._key = jax.random.key(seed)
        self._key, reset_key = jax.random.split(self._key)
        self._state, observations = _reset(self.task, reset_key)
        self._time, self.agents = 0, list(self.possible_agents)
        return self._by_agent(np.asarray(observations)), {agent: {} for agent in self.agents}

    def step(self, actions: dict[str, Any]) -> tuple[dict, dict, dict, dict, dict]:
        if not self.agents:
            raise BadInput("the episode is over or has not begun: call reset first")
        require(set(actions) == set(self.agents), f"actions are needed for exactly {', '.join(self.agents)}")
        for agent, action in actions.items():
            if not self.action_spaces[agent].contains(action):
                raise BadInput(
                    f"{agent}: an action must be a whole number from 0 to {self.task.actions - 1}, not {action!r}"
                )
        chosen = np.array([actions[agent] for agent in self.possible_agents], np.int32)
        self._state, observations, rewards = _step(self.task, self._state, chosen)
        self._time += 1
        over = self._time >= self.task.horizon
        found = (
            self._by_agent(np.asarray(observations)),
            self._by_agent(np.asarray(rewards).tolist()),
            dict.fromkeys(self.agents, False),
            dict.fromkeys(self.agents, over),
            {agent: {} for agent in self.agents},
        )
        self.agents = [] if over else self.agents
        return found

    def render(self) -> np.ndarray | None:
        if self.render_mode is None:
            return None
        if self._state is None:
            raise BadInput("there is nothing to draw before the first reset")
        return render(self.task.scene(self._state))

    def close(self) -> None:
        self._state, self.agents = None, []

    def _by_agent(self, values: Any) -> dict[str, Any]:
        return dict(zip(self.possible_agents, values, strict=True))


@partial(jax.jit, static_argnums=0)
def _reset(task: Task, key: jax.Array) -> tuple[State, jax.Array]:
    state = task.reset(key)
    return state, task.observe(state)


@partial(jax.jit, static_argnums=0)
def _step(task: Task, state: State, actions: jax.Array) -> tuple[State, jax.Array, jax.Array]:
    state, rewards = task.step(state, actions)
    return state, task.observe(state), rewards
