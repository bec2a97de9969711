"""The assignment problem, exactly, inside compiled code."""

from typing import NamedTuple

import jax
import jax.numpy as jnp


class _Search(NamedTuple):
    """A shortest augmenting path from one row; column 0 stands for the row that is being placed."""

    column: jax.Array
    used: jax.Array
    slack: jax.Array
    previous: jax.Array
    u: jax.Array
    v: jax.Array


def assign(cost: jax.Array) -> jax.Array:
    """The column (row,) of each row, all different, that makes the sum of costs (row, column) least; rows ≤ columns.

    The Hungarian method with potentials u and v and shortest augmenting paths: O(rows² · columns). Rows and columns
    count from 1 inside; 0 means none.
    """
    rows, columns = cost.shape
    if rows > columns:
        raise ValueError(f"as many columns as rows are needed, not {rows} rows and {columns} columns")
    padded = jnp.pad(cost, ((1, 0), (1, 0)))

    def place(row, carry):
        """Give one more row a column, and move the earlier ones where that is cheaper."""
        u, v, owner = carry
        owner = owner.at[0].set(row)

        def extend(search: _Search) -> _Search:
            used = search.used.at[search.column].set(True)
            at = owner[search.column]
            reduced = padded[at] - search.u[at] - search.v
            better = ~used & (reduced < search.slack)
            slack = jnp.where(better, reduced, search.slack)
            previous = jnp.where(better, search.column, search.previous)
            nearest = jnp.argmin(jnp.where(used, jnp.inf, slack))
            delta = slack[nearest]
            u = search.u.at[owner].add(jnp.where(used, delta, 0))
            return _Search(
                nearest, used, jnp.where(used, slack, slack - delta), previous, u, search.v - jnp.where(used, delta, 0)
            )

        start = _Search(
            jnp.array(0),
            jnp.zeros(columns + 1, bool),
            jnp.full(columns + 1, jnp.inf),
            jnp.zeros(columns + 1, int),
            u,
            v,
        )
        found = jax.lax.while_loop(lambda s: (owner[s.column] != 0) | (s.column == 0), extend, start)

        def shift(carry):
            column, owner = carry
            before = found.previous[column]
            return before, owner.at[column].set(owner[before])

        _, owner = jax.lax.while_loop(lambda c: c[0] != 0, shift, (found.column, owner))
        return found.u, found.v, owner

    start = (jnp.zeros(rows + 1), jnp.zeros(columns + 1), jnp.zeros(columns + 1, int))
    _, _, owner = jax.lax.fori_loop(1, rows + 1, place, start)
    return jnp.zeros(rows + 1, int).at[owner[1:]].set(jnp.arange(columns))[1:]
