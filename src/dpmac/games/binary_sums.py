"""Single-round binary sums: N agents hold a bit each, tell it under randomised response, and guess the sum.

All receivers are of one form: what an agent makes of the message x_j ∈ {0, 1} is offset_j + scale_j·x_j, and its guess
is its own bit plus those of the others. So one closed form and one simulation serve them all.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit

from dpmac.games import require

Array = NDArray[np.float64]
CHUNK = 1 << 16
"""At most so many rounds are simulated at once, and of more than 64 agents fewer, so that memory is bounded."""


class Receiver(NamedTuple):
    """What is made of the message of each sender: offset + scale·x, both of shape (agent,)."""

    offset: Array
    scale: Array


class Moments(NamedTuple):
    """Error of each agent's guess (agent,): E[g − Σb], Var[g − Σb] and E[(g − Σb)²], over bits and messages."""

    bias: Array
    variance: Array
    mse: Array


class Simulated(NamedTuple):
    """`Moments` of rounds that were played (agent,)."""

    bias: Array
    variance: Array
    mse: Array
    mse_error: Array
    """Standard error of `mse`."""


class Utilities(NamedTuple):
    """Mean utility of each agent's guess (agent,), by two definitions."""

    bias: Array
    """The paper's: −|E[g] − Σb|. The expectation is over messages, for given bits; the mean over bits is taken last."""
    error: Array
    """What one round can pay: −E|g − Σb|. It is never above the other."""


def perturbation(epsilon: ArrayLike) -> Array:
    """p = 2/(e^ε + 1), which makes randomised response exactly (ε, 0)-private; neighbours: the two values of one bit.

    >>> float(perturbation(np.log(3)))
    0.5
    """
    epsilon = np.asarray(epsilon, float)
    fine = np.all((epsilon >= 0) & ((epsilon <= 700) | (epsilon == np.inf)))  # p would soon be 0
    require(fine, f"epsilon must be at least 0 and at most 700, or inf (no perturbation), not {epsilon.tolist()}")
    return 2 * expit(-epsilon)


def privacy(p: ArrayLike) -> Array:
    """ε of randomised response with perturbation p: ln(2/p − 1), inf at p = 0; neighbours: the two values of one bit.

    >>> round(float(privacy(0.5)), 4)
    1.0986
    """
    p = probabilities("p", p)
    with np.errstate(divide="ignore"):
        return np.log(2 - p) - np.log(p)


def probabilities(name: str, values: ArrayLike, agents: int | None = None) -> Array:
    """Check that these are probabilities, one for each agent or one for all."""
    values = np.asarray(values, float)
    require(np.all((values >= 0) & (values <= 1)), f"{name} must lie in [0, 1], not {values.tolist()}")
    if agents is None:
        return values
    require(agents >= 2, f"binary sums need at least 2 agents, not {agents}: one alone has nobody to tell")
    require(values.size in (1, agents), f"{name} must be one number or one for each of {agents} agents")
    return np.broadcast_to(values, (agents,))


def randomised_response(bits: NDArray[np.bool_], p: ArrayLike, rng: np.random.Generator) -> NDArray[np.bool_]:
    """Messages for bits (…, agent): with probability p a fair coin instead, which is wrong half the time."""
    return bits ^ (rng.random(bits.shape, dtype=np.float32) < np.asarray(p) / 2)


def naive(p: Array) -> Receiver:
    """Believe what others tell: y = x."""
    return Receiver(np.zeros_like(p), np.ones_like(p))


def corrected(p: Array) -> Receiver:
    """The paper's 𝒜_RR, unbiased: y = (x − p/2)/(1 − p), to which the guess adds the own bit."""
    require(np.all(p < 1), "the corrected receiver needs p < 1 (epsilon > 0): at p = 1 messages say nothing")
    return Receiver(-p / 2 / (1 - p), 1 / (1 - p))


def bayes(p: Array, prior: ArrayLike) -> Receiver:
    """Posterior mean of each bit under P(b = 1) = prior: the least mean squared error where that prior holds."""
    prior = probabilities("prior", prior, len(p))

    def posterior(likelihood_one: Array, likelihood_zero: Array) -> Array:
        evidence = prior * likelihood_one + (1 - prior) * likelihood_zero
        # A message of probability nought never comes; the prior stands in for what would be made of it.
        return np.where(evidence > 0, prior * likelihood_one / np.where(evidence > 0, evidence, 1), prior)

    heard_zero, heard_one = posterior(p / 2, 1 - p / 2), posterior(1 - p / 2, p / 2)
    return Receiver(heard_zero, heard_one - heard_zero)


def receivers(p: Array, prior: ArrayLike) -> dict[str, Receiver]:
    """All receivers by name; no corrected one where p = 1, because no unbiased guess exists there."""
    found = {"naive": naive(p), "bayes": bayes(p, prior)}
    return found | {"corrected": corrected(p)} if np.all(p < 1) else found


def moments(receiver: Receiver, p: Array, q: ArrayLike) -> Moments:
    """Closed form of the error where bits are independent with P(b = 1) = q; a known bit is q = 0 or q = 1."""
    q = probabilities("q", q, len(p))
    bias_zero, bias_one = conditional_bias(receiver, p)
    response = receiver.scale**2 * p / 2 * (1 - p / 2)  # Var[scale·x] is the same for both bits
    spread = q * (1 - q) * (bias_one - bias_zero) ** 2
    bias = others((1 - q) * bias_zero + q * bias_one)
    variance = others(response + spread)
    return Moments(bias, variance, variance + bias**2)


def simulate(receiver: Receiver, p: Array, q: ArrayLike, rounds: int, rng: np.random.Generator) -> Simulated:
    """The same by playing so many rounds, each with fresh bits and messages."""
    sums = np.zeros((3, len(p)))
    for bits, messages in played(p, q, rounds, rng):
        error = others(receiver.offset + receiver.scale * messages - bits)
        square = error**2
        sums += error.sum(axis=0), square.sum(axis=0), np.einsum("ri,ri->i", square, square)
    bias, mse, fourth = sums / rounds
    spread = np.sqrt(np.maximum(fourth - mse**2, 0) / (rounds - 1)) if rounds > 1 else np.full(len(p), np.inf)
    return Simulated(bias, mse - bias**2, mse, spread)


def utilities(receiver: Receiver, p: Array, q: ArrayLike, rounds: int, rng: np.random.Generator) -> Utilities:
    """Both utilities by playing so many rounds. The bias for given bits is in closed form; only the bits are drawn."""
    bias_zero, bias_one = conditional_bias(receiver, p)
    bias, error = np.zeros(len(p)), np.zeros(len(p))
    for bits, messages in played(p, q, rounds, rng):
        bias += np.abs(others(np.where(bits, bias_one, bias_zero))).sum(axis=0)
        error += np.abs(others(receiver.offset + receiver.scale * messages - bits)).sum(axis=0)
    return Utilities(0.0 - bias / rounds, 0.0 - error / rounds)  # 0 rather than −0


def conditional_bias(receiver: Receiver, p: Array) -> tuple[Array, Array]:
    """E[y_j − b_j] of what is made of each sender's message (agent,), for b = 0 and for b = 1."""
    zero = receiver.offset + receiver.scale * p / 2
    one = receiver.offset + receiver.scale * (1 - p / 2) - 1
    return zero, one


def played(
    p: Array, q: ArrayLike, rounds: int, rng: np.random.Generator
) -> Iterator[tuple[NDArray[np.bool_], NDArray[np.bool_]]]:
    """Bits and messages (round, agent) of so many rounds, in chunks."""
    q = probabilities("q", q, len(p))
    require(rounds >= 1, f"rounds must be at least 1, not {rounds}")
    chunk = max(1, CHUNK * 64 // max(64, len(p)))
    for start in range(0, rounds, chunk):
        bits = rng.random((min(chunk, rounds - start), len(p)), dtype=np.float32) < q
        yield bits, randomised_response(bits, p, rng)


def others(terms: Array) -> Array:
    """Σ_{j≠i} of terms (…, agent), for each agent i."""
    return terms.sum(axis=-1, keepdims=True) - terms
