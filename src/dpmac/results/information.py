"""What a message adds to what its receiver sees anyway, measured in played episodes."""

import numpy as np

RIDGE = 1e-6


def explained(inputs: np.ndarray, facts: np.ndarray) -> float:
    """Share of the variance of facts (episode, time, fact) that inputs (episode, time, input) explain, linearly.

    Fitted on one half of the episodes and measured on the other; facts that never change are left out, and each of the
    others counts the same. Fits that do worse than the mean explain nothing, and where no fact changes there is nothing
    to explain.
    """
    half = len(inputs) // 2
    moving = facts.reshape(-1, facts.shape[-1]).std(0) > 1e-6
    if not moving.any():
        return 0.0
    fit, test = (side.reshape(-1, side.shape[-1]) for side in (facts[:half, :, moving], facts[half:, :, moving]))
    centre, scale = fit.mean(0), fit.std(0) + 1e-12
    x, held = (np.insert(side.reshape(-1, side.shape[-1]), 0, 1.0, axis=1) for side in (inputs[:half], inputs[half:]))
    spread = x.std(0) + (x.std(0) == 0)
    x, held = x / spread, held / spread
    weights = np.linalg.solve(x.T @ x + RIDGE * len(x) * np.eye(x.shape[1]), x.T @ ((fit - centre) / scale))
    errors = (test - centre) / scale - held @ weights
    return max(0.0, 1.0 - float(np.mean(np.square(errors))))


def information(observations: np.ndarray, released: np.ndarray) -> dict[str, float]:
    """How well an agent can tell what another one saw a step ago: from its own observation, and with its messages too.

    observations (episode, T + 1, agent, feature), released (episode, T, agent, message). A receiver with a memory can
    average noise away, so it is given the last message and the mean of all so far.
    """
    steps = released.shape[1]
    average = np.cumsum(released, axis=1) / np.arange(1, steps + 1)[:, None, None]
    agents, alone, told = observations.shape[2], [], []
    for receiver in range(agents):
        for sender in (other for other in range(agents) if other != receiver):
            own = observations[:, 1:steps, receiver]
            heard = [released[:, : steps - 1, sender], average[:, : steps - 1, sender]]
            facts = observations[:, : steps - 1, sender]
            alone.append(explained(own, facts))
            told.append(explained(np.concatenate([own, *heard], axis=-1), facts))
    return {"observation": float(np.mean(alone)), "with_messages": float(np.mean(told))}
