"""What is kept of finished teams."""

import jax
import numpy as np
from tiny import untrained

from dpmac.runner import finish, population


def test_episodes_of_a_task_that_carries_a_key_are_told(tmp_path):
    untrained(tmp_path / "run")
    loaded = population.load(tmp_path / "run")
    watched = finish.watch_all(loaded, len(loaded.runs))
    assert watched.examples.states.key.dtype == np.uint32
    of_one_run = jax.tree.map(lambda leaf: leaf[0], watched.examples)
    told = finish.told(loaded.program.task, of_one_run, np.zeros(0))
    assert len(told) == finish.EXAMPLES
    assert np.shape(told[0]["released"])[:2] == (5, 2)
