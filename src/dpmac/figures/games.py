"""Pictures of the games."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from dpmac.games import binary_sums as sums
from dpmac.games import rounds
from dpmac.games.cgp import Array, Game, best_responses
from dpmac.games.equilibria import grid_regret
from dpmac.games.potential import on_grid
from dpmac.games.rounds import Rounds
from dpmac.games.study import Study

BLUE, ORANGE, GREEN, GREY = "#0072B2", "#D55E00", "#009E73", "#555555"


def error_against_epsilon(agents: int, prior: Array, played: int, seed: int) -> Figure:
    """Mean squared error of a guess, over agents, against ε: lines in closed form, dots from so many rounds played."""
    figure = Figure(figsize=(6.4, 4.2), layout="constrained")
    axes = figure.add_subplot()
    epsilons, rng = np.geomspace(0.05, 10, 121), np.random.default_rng(seed)
    for name, colour in (("naive", ORANGE), ("corrected", BLUE), ("bayes", GREEN)):
        errors = []
        for i, epsilon in enumerate(epsilons):
            p = np.full(agents, sums.perturbation(epsilon))
            receiver = sums.receivers(p, prior)[name]
            errors.append(sums.moments(receiver, p, prior).mse.mean())
            if i % 12 == 6:
                mse = sums.simulate(receiver, p, prior, played, rng).mse.mean()
                axes.plot(epsilon, mse, "o", color=colour, markersize=4)
        axes.plot(epsilons, errors, color=colour, label=name)
    axes.set(
        xscale="log",
        yscale="log",
        xlabel="ε of every agent",
        ylabel="mean squared error, mean of all agents",
    )
    chances = " to ".join(f"{chance:g}" for chance in np.unique([prior.min(), prior.max()]))
    axes.set_title(f"Binary sums, {agents} agents, bits 1 with probability {chances}", fontsize=10)
    axes.grid(alpha=0.25)
    axes.legend(title="receiver (dots: played)", frameon=False)
    return figure


def square(game: Game, studied: Study) -> Figure:
    """Best responses, equilibria and dynamics over the potential, or over the larger regret where there is none."""
    figure = Figure(figsize=(6.4, 5.2), layout="constrained")
    axes = figure.add_subplot()
    samples = studied.samples
    if studied.weights is not None:
        kind = "exact" if studied.exact_potential else "weighted"
        heights, label = on_grid(samples, studied.weights), f"{kind} potential Φ"
    else:
        heights, label = -grid_regret(samples), "minus the larger regret (no potential exists)"
    shades = axes.imshow(heights.T, origin="lower", extent=(0, 1, 0, 1), cmap="Greys_r", alpha=0.7)
    axes.contour(samples.p, samples.p, heights.T, levels=16, colors="white", linewidths=0.5, linestyles="solid")
    figure.colorbar(shades, ax=axes, label=label)
    draw_responses(axes, game, samples.p[:: max(1, samples.cells // 80)])
    for (order, path), style in zip(studied.walks.items(), (("-", "s"), (":", "x")), strict=True):
        p1, p2 = zip(*path.path, strict=True)
        axes.plot(p1, p2, style[0], marker=style[1], color=GREEN, lw=1, ms=4, label=f"{order} dynamics: {path.said}")
    draw_equilibria(axes, studied)
    axes.set(xlabel="p₁", ylabel="p₂", xlim=(-0.03, 1.03), ylim=(-0.03, 1.03), aspect="equal")
    axes.set_title(f"B = ({game.B[0]:g}, {game.B[1]:g}), C = ({game.C[0]:g}, {game.C[1]:g})", fontsize=10)
    figure.legend(loc="outside upper center", ncols=2, frameon=False, fontsize=8)
    return figure


def draw_responses(axes: Axes, game: Game, grid: Array) -> None:
    """Every best response of either player to every p of the other on the grid."""
    for n, colour, marker in ((0, BLUE, "o"), (1, ORANGE, "D")):
        pairs = [(response, float(p)) for p in grid for response in best_responses(game, n, float(p))]
        own, other = zip(*pairs, strict=True)
        first, second = (own, other) if n == 0 else (other, own)
        axes.plot(first, second, marker, color=colour, markersize=2.5, label=f"best responses of player {n + 1}")


def draw_equilibria(axes: Axes, studied: Study) -> None:
    """Exact equilibria filled, approximate ones as open circles."""
    found = studied.equilibria
    if found.exact is not None:
        for i, segment in enumerate(found.exact):
            p1, p2 = zip(segment.start, segment.end, strict=True)
            label = "equilibria" if i == 0 else None
            axes.plot(p1, p2, "-o", color="black", lw=3, ms=8, label=label, zorder=5, clip_on=False)
    for i, group in enumerate(found.approximate):
        label = "approximate equilibria" if i == 0 else None
        face = {"markerfacecolor": "none", "markeredgewidth": 2, "clip_on": False}
        axes.plot(*group.point, "o", color="black", ms=9, label=label, zorder=5, **face)


def when_and_where(game: Rounds, saving: float) -> Figure:
    """Own value of giving everything in one round or never, and the equilibrium over α and β at this discount."""
    figure = Figure(figsize=(9.2, 3.8), layout="constrained")
    left, right = figure.subplots(1, 2)
    draw_values(left, game, saving)
    draw_phases(right, game, saving)
    return figure


def draw_values(axes: Axes, game: Rounds, saving: float) -> None:
    rounds_given = [*range(game.horizon), None]
    values = []
    for t in rounds_given:
        b, p = np.zeros((game.horizon, 2)), np.ones((game.horizon, 2))
        if t is not None:
            b[t], p[t] = saving, 0.0
        values.append(rounds.own_values(game, rounds.episode(game, [saving] * 2, b, p))[0])
    best = int(np.argmax(values))
    colours = [BLUE if i == best else "#B8C7D3" for i in range(len(values))]
    names = [f"{t + 1}" if t is not None else "never" for t in rounds_given]
    axes.bar(names, values, color=colours)
    axes.set(xlabel="round in which everything is given", ylabel="own value")
    axes.set_title(f"mean x₀ = {saving:g}, α = {game.alpha:g}, β = {game.beta:g}, g = {game.discount:g}", fontsize=10)


def draw_phases(axes: Axes, game: Rounds, saving: float) -> None:
    top = max(0.2, 1.5 * game.alpha)
    betas, alphas = np.linspace(0, 1.3, 131), np.linspace(0, top, 101)
    order = ("first", "last", "never")
    codes = [
        [order.index(rounds.when_to_give(Rounds(a, b * saving, game.horizon, game.discount), saving)) for b in betas]
        for a in alphas
    ]
    shades = ["#F0C9A8", "#A9CCE3", "#DDDDDD"]
    axes.contourf(betas, alphas, codes, levels=[-0.5, 0.5, 1.5, 2.5], colors=shades)
    for code, name in enumerate(order):
        where = np.argwhere(np.array(codes) == code)
        if len(where) > 50:  # a region too small for its name goes without
            i, j = map(int, np.median(where, axis=0))
            text = "never give" if name == "never" else f"give in the {name} round"
            axes.text(float(betas[j]), float(alphas[i]), text, ha="center", va="center", fontsize=9)
    if saving > 0:
        axes.plot(game.beta / saving, game.alpha, "o", color="black")
    axes.set(xlabel="β/x₀", ylabel="α", xlim=(0, 1.3), ylim=(0, top))
    axes.set_title(f"equilibrium at g = {game.discount:g}; dot: this game", fontsize=10)
