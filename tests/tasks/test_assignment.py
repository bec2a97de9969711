"""The assignment inside compiled code costs what SciPy's does."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import linear_sum_assignment

from dpmac.tasks.assignment import assign


@pytest.mark.parametrize(("rows", "columns"), [(1, 1), (3, 3), (2, 5), (8, 8), (20, 24)])
def test_assignment_is_optimal(rows, columns):
    costs = np.random.default_rng(0).uniform(size=(30, rows, columns)).astype(np.float32)
    costs[:5] = np.round(costs[:5] * 2)  # ties
    for cost, own in zip(costs, np.asarray(jax.jit(jax.vmap(assign))(costs)), strict=True):
        assert len(set(own.tolist())) == rows
        best = cost[linear_sum_assignment(cost)].sum()
        assert cost[np.arange(rows), own].sum() == pytest.approx(best, abs=1e-4)


def test_more_rows_than_columns_are_refused():
    with pytest.raises(ValueError, match="3 rows and 2 columns"):
        assign(jnp.zeros((3, 2)))
