"""All local devices are used when there are several, and change nothing."""

import json
import os
import subprocess
import sys

import numpy as np
from tiny import CONFIG, leaves, train

SCRIPT = """
import json, sys
from pathlib import Path
import jax
from dpmac.runner import devices, population

folder = Path(sys.argv[1])
config = population.store.load_config(folder)
runs = population.runs_of(config)
states = devices.spread(population.start(population.check(config), population.keys_of(runs)))
for _ in population.train_folder(folder):
    pass
used = sorted(device.id for device in jax.tree.leaves(states)[0].sharding.device_set)
print(json.dumps({"devices": jax.local_device_count(), "used": used}))
"""


def test_runs_sharded_over_two_devices_give_the_same_results(tmp_path):
    from dpmac.runner import population

    population.create(tmp_path / "two", CONFIG)
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count=2"
    call = [sys.executable, "-c", SCRIPT, str(tmp_path / "two")]
    done = subprocess.run(call, capture_output=True, text=True, env={**os.environ, "XLA_FLAGS": flags})
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {"devices": 2, "used": [0, 1]}
    two, one = population.load(tmp_path / "two"), train(tmp_path / "one")
    for ours, theirs in zip(leaves(two), leaves(one), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-5)
