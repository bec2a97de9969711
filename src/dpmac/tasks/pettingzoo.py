"""Any task as a PettingZoo `ParallelEnv`. Needs the extra `pettingzoo`."""

from functools import partial
from typing import Any

import gymnasium
import jax
import numpy as np
from pettingzoo import ParallelEnv

from dpmac.config import BadInput, require, whole
from dpmac.tasks.base import State, Task, abilities, advance, allowed, make
from dpmac.tasks.render import render


class ParallelTask(ParallelEnv):
    """One episode after the other of a task, for programs that speak PettingZoo's parallel interface.

    Reaching the horizon truncates; a task that is over before terminates. `info["action_mask"]` says which actions are
    allowed, where not all are. A reset with a seed starts that seed's episode; one without goes on to a next one.
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
        count, spaces = self.task.actions, gymnasium.spaces
        continuous = abilities(self.task).continuous
        space = spaces.Box(-1, 1, (count,), np.float32) if continuous else spaces.Discrete(count)
        self.action_spaces = dict.fromkeys(self.possible_agents, space)
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
        return self._by_agent(np.asarray(observations)), self._infos()

    def step(self, actions: dict[str, Any]) -> tuple[dict, dict, dict, dict, dict]:
        if not self.agents:
            raise BadInput("the episode is over or has not begun: call reset first")
        require(set(actions) == set(self.agents), f"actions are needed for exactly {', '.join(self.agents)}")
        for agent, action in actions.items():
            if not self.action_spaces[agent].contains(action):
                numbers = f"{self.task.actions} numbers in [-1, 1]"
                whole_one = f"a whole number from 0 to {self.task.actions - 1}"
                wanted = numbers if abilities(self.task).continuous else whole_one
                raise BadInput(f"{agent}: an action must be {wanted}, not {action!r}")
        chosen = np.array([actions[agent] for agent in self.possible_agents])
        self._state, observations, rewards = _step(self.task, self._state, chosen)
        self._time += 1
        ended = abilities(self.task).over
        terminal = ended is not None and bool(ended(self._state))
        over = self._time >= self.task.horizon and not terminal
        found = (
            self._by_agent(np.asarray(observations)),
            self._by_agent(np.asarray(rewards).tolist()),
            dict.fromkeys(self.agents, terminal),
            dict.fromkeys(self.agents, over),
            self._infos(),
        )
        self.agents = [] if over or terminal else self.agents
        return found

    def render(self) -> np.ndarray | None:
        if self.render_mode is None:
            return None
        if self._state is None:
            raise BadInput("there is nothing to draw before the first reset")
        return render(self.task.scene(self._state))

    def close(self) -> None:
        self._state, self.agents = None, []

    def _infos(self) -> dict[str, dict[str, Any]]:
        masks = allowed(self.task, self._state)
        if masks is None:
            return {agent: {} for agent in self.possible_agents}
        return self._by_agent([{"action_mask": mask} for mask in np.asarray(masks, np.int8)])

    def _by_agent(self, values: Any) -> dict[str, Any]:
        return dict(zip(self.possible_agents, values, strict=True))


@partial(jax.jit, static_argnums=0)
def _reset(task: Task, key: jax.Array) -> tuple[State, jax.Array]:
    state = task.reset(key)
    return state, task.observe(state)


@partial(jax.jit, static_argnums=0)
def _step(task: Task, state: State, actions: jax.Array) -> tuple[State, jax.Array, jax.Array]:
    state, rewards = advance(task, state, actions)
    return state, task.observe(state), rewards
