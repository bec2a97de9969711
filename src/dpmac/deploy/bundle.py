"""One trained agent in a folder of its own, to be carried to the machine where it works.

    bundle-0/agent.json            what it is: sizes, method, channel, everybody's noise scales, which are public
    bundle-0/weights.safetensors   its own networks
    bundle-0/privacy.json          what is claimed for its messages
    bundle-0/ledger.json           what it has spent; there must never be a second copy of it at work

Nothing of the other agents is in it, and nothing that only training needs.
"""

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any

import jax
import safetensors
import safetensors.numpy

from dpmac.agents.team import TaskShape, Team, make_team
from dpmac.config import BadInput, Channel, NetworkConfig, from_json, require, to_json, whole
from dpmac.deploy.agent import Agent, WhenSpent
from dpmac.privacy import Ledger
from dpmac.results import store
from dpmac.runner import checkpoint

FORMAT = 1
DESCRIPTION, WEIGHTS, STATEMENT, LEDGER = "agent.json", "weights.safetensors", "privacy.json", "ledger.json"


@dataclass(frozen=True)
class Bundle:
    """What `agent.json` says."""

    format: int
    task: str
    agent: int
    agents: int
    observation: int
    actions: int
    horizon: int
    method: str
    channel: Channel
    networks: NetworkConfig
    noise: tuple[float, ...]
    """Noise scales of all agents."""
    epsilon: str
    """The budget of an episode, as it was written for training."""
    limit: float
    """ε that this agent may spend over all episodes."""
    delta: float
    digest: str = ""
    """Of the file of weights."""
    method_options: dict[str, Any] = field(default_factory=dict)
    task_options: dict[str, Any] = field(default_factory=dict)
    increments: tuple[int, ...] = ()
    """Places in an observation that hold its step's own increment."""

    def __post_init__(self) -> None:
        require(self.format == FORMAT, f"a bundle of format {self.format} cannot be read, only of {FORMAT}")
        require(whole(self.agents, 2) and len(self.noise) == self.agents, "every agent needs a noise scale")
        require(whole(self.agent, 0, self.agents - 1), f"agent must lie in 0..{self.agents - 1}, not {self.agent}")

    @property
    def shape(self) -> TaskShape:
        return TaskShape(self.agents, self.observation, self.actions, self.horizon, increments=self.increments)

    def team(self) -> Team:
        """A team of this shape without numbers: each leaf a shape (agent, …) and a type."""
        given = (self.shape, self.method, self.method_options, self.channel, self.networks)
        return jax.eval_shape(lambda key: make_team(key, *given), jax.random.key(0))


def export(
    run: str | PathLike[str],
    agent: int,
    out: str | PathLike[str],
    limit: float,
    epsilon: float | str | None = None,
    seed: int | None = None,
) -> Bundle:
    """Write one agent of a run's folder into a folder of its own, with a new ledger.

    epsilon and seed are named as for `dpmac.load`. limit: the ε that this agent may spend over all episodes, math.inf
    for no limit. Another bundle of the same agent has a limit of its own.
    """
    from dpmac.agents import protocol
    from dpmac.deploy.team import check_deployable, chosen, limits_of
    from dpmac.runner import population
    from dpmac.runner.noise import noise_scales

    run, out = Path(run), Path(out)
    loaded = population.load(run)
    config, program = loaded.config, loaded.program
    require(whole(agent, 0, program.task.agents - 1), f"agent must lie in 0..{program.task.agents - 1}, not {agent}")
    require(not program.shape.continuous, f"actions of {config.task} are continuous: its agents act in one process")
    check_deployable(loaded.teams)
    index, (limit,) = chosen(loaded, epsilon, seed), limits_of(limit, 1)
    member, budget = loaded.runs[index], loaded.runs[index].budget
    channel = protocol.channel_of(config.method, config.channel)
    noise = noise_scales(budget, channel, program.task.agents, program.task.horizon)
    free = protocol.find(config.method).speaks and noise[agent] == 0
    require(not free or math.isinf(limit), f"messages of agent {agent} leave as they are: no limit but inf can hold")
    bundle = Bundle(
        FORMAT,
        config.task,
        agent,
        *program.shape[:4],
        config.method,
        channel,
        config.networks,
        noise,
        member.label,
        limit,
        budget.delta,
        method_options=config.method_options,
        task_options=config.task_options,
        increments=program.shape.increments,
    )
    statement = store.read_json(run / STATEMENT)
    claims = statement.pop("claims", {}).get(member.label, [])
    claim = claims[agent] if claims else "none"
    cost = float(claims[agent]["exact_epsilon_episode"]) if claims else 0.0
    require(cost <= limit, f"the limit {limit:g} has no room for one episode, which costs epsilon {cost:.4g}")
    return write(out, bundle, loaded.one(index)[0], {**statement, "claim": claim})


def write(out: Path, bundle: Bundle, team: Team, statement: Any) -> Bundle:
    """Write a bundle with its agent of a team and a new ledger into a folder that does not exist yet."""
    require(not out.exists(), f"{out} exists already; a bundle, whose ledger is one of a kind, is never written over")
    weights = safetensors.numpy.save(checkpoint.flatten(jax.tree.map(lambda leaf: leaf[bundle.agent], team.members)))
    bundle = dataclasses.replace(bundle, digest=checkpoint.digest(weights))
    out.mkdir(parents=True)
    Ledger(out / LEDGER, [bundle.limit], bundle.delta, create=True)
    store.write_aside(out / WEIGHTS, weights)
    store.write_json(out / STATEMENT, statement)
    store.write_json(out / DESCRIPTION, to_json(bundle))
    return bundle


def read(folder: str | PathLike[str]) -> Bundle:
    """What a bundle says of itself."""
    path = Path(folder) / DESCRIPTION
    require(path.is_file(), f"{folder} is no bundle: it has no {DESCRIPTION}")
    data = store.read_json(path)
    require(isinstance(data, Mapping), f"{path} is damaged")
    return from_json(Bundle, data)


def open_bundle(folder: str | PathLike[str], when_spent: WhenSpent = "silent") -> Agent:
    """The agent of a bundle, with the ledger that is in it."""
    folder, bundle = Path(folder), read(folder)
    path, shapes = folder / WEIGHTS, bundle.team()
    try:
        data = path.read_bytes()
        require(checkpoint.digest(data) == bundle.digest, f"{path} is truncated or altered")
        arrays = safetensors.numpy.load(data)
    except OSError as error:
        raise BadInput(f"{path} cannot be read: {error.strerror}") from None
    except safetensors.SafetensorError as error:
        raise BadInput(f"{path} is damaged: {error}") from None
    like = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype), shapes.members)
    member = checkpoint.unflatten(like, arrays, str(path))
    ledger = Ledger(folder / LEDGER, [bundle.limit], bundle.delta)
    return Agent(
        bundle.agent,
        member,
        shapes.channel,
        bundle.noise,
        bundle.shape,
        ledger,
        0,
        bundle.networks.aware,
        when_spent=when_spent,
    )
