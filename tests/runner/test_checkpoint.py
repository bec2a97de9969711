"""Checkpoints: what is truncated, altered or foreign is refused by name, and nothing is overwritten."""

import json
import shutil
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tiny import CONFIG, begin, contents, learning, train

from dpmac.config import BadInput, dumps
from dpmac.results import store
from dpmac.runner import checkpoint, population


class Tree(NamedTuple):
    weights: list
    key: jax.Array


@pytest.fixture
def tree():
    return Tree([jnp.arange(6.0).reshape(2, 3), jnp.array([True]), jnp.array(3, jnp.int8)], jax.random.key(7))


def test_a_tree_comes_back_to_the_bit(tree, tmp_path):
    checkpoint.save(tmp_path, "some", tree, {"config": "c", "evaluations": 3})
    place = checkpoint.place_of(tmp_path, "some", "c")
    assert place is not None
    assert place["evaluations"] == 3
    found = checkpoint.load(tmp_path, "some", jax.eval_shape(lambda: tree), place)
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(tree), strict=True):
        assert one.dtype == other.dtype
        np.testing.assert_array_equal(checkpoint.data_of(one), checkpoint.data_of(other))
    assert checkpoint.place_of(tmp_path, "other", "c") is None


def test_only_the_newest_state_and_no_leftovers_stay(tree, tmp_path):
    checkpoint.save(tmp_path, "group-1", tree, {"config": "c"})
    (tmp_path / ".group-1-0.safetensors.99.aside").write_bytes(b"cut off")
    (tmp_path / "group-1-0.safetensors").write_bytes(b"never referred to")
    checkpoint.save(tmp_path, "group-10", tree, {"config": "c"})
    checkpoint.save(tmp_path, "group-1", tree._replace(key=jax.random.key(8)), {"config": "c"})
    kinds = sorted(path.name.split("-")[1].split(".")[0] + path.suffix for path in tmp_path.iterdir())
    assert kinds == ["1.json", "1.safetensors", "10.json", "10.safetensors"]


def test_what_a_crash_left_beside_a_finished_checkpoint_is_removed(tmp_path):
    train(tmp_path, CONFIG)
    before = contents(tmp_path)
    left = tmp_path / "checkpoints" / f"group-0-{'0' * 32}.safetensors"
    left.write_bytes(b"episodes, and the key of the noise")
    assert list(population.train_folder(tmp_path)) == []
    assert contents(tmp_path) == before


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda tree: tree._replace(weights=tree.weights[:2]), "holds 4 arrays where 3"),
        (lambda tree: tree._replace(weights=[jnp.zeros((3, 2)), *tree.weights[1:]]), r"expected float32\(3, 2\)"),
        (lambda tree: tree._replace(weights=[tree.weights[0].astype(int), *tree.weights[1:]]), "expected int32"),
        (lambda tree: {"weights": tree.weights, "key": tree.key}, "lacks"),
    ],
)
def test_a_tree_of_another_shape_is_refused(tree, tmp_path, change, says):
    checkpoint.save(tmp_path, "some", tree, {"config": "c"})
    place = checkpoint.place_of(tmp_path, "some", "c")
    assert place is not None
    with pytest.raises(BadInput, match=says):
        checkpoint.load(tmp_path, "some", jax.eval_shape(lambda: change(tree)), place)


# A run's folder -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def begun(tmp_path_factory):
    found = tmp_path_factory.mktemp("checkpoint") / "run"
    begin(found)
    return found


def truncate(folder):
    (path,) = folder.glob("checkpoints/group-0-*.safetensors")
    path.write_bytes(path.read_bytes()[:-100])
    return path.name


def alter(folder):
    (path,) = folder.glob("checkpoints/group-0-*.safetensors")
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    return path.name


def remove(folder):
    (path,) = folder.glob("checkpoints/group-0-*.safetensors")
    path.unlink()
    return path.name


def move_on(folder):
    path = folder / "checkpoints/group-0.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "evaluations": 4}))
    return path.name


def cut_place(folder):
    path = folder / "checkpoints/group-0.json"
    path.write_text(path.read_text()[:20])
    return path.name


def empty_place(folder):
    (folder / "checkpoints/group-0.json").write_text("[]")
    return "group-0.json"


def other_configuration(folder):
    (folder / "config.json").write_text(dumps(learning(CONFIG, discount=0.5)))
    return "group-0.json belongs to another configuration"


def damaged_groups(folder):
    (folder / "checkpoints/groups.json").write_text('{"runs": 0}')
    return "groups.json"


def damaged_configuration(folder):
    (folder / "config.json").write_text((folder / "config.json").read_text()[:-9])
    return "config.json"


FAULTS = [truncate, alter, remove, move_on, cut_place, empty_place, other_configuration, damaged_groups]


@pytest.mark.parametrize("fault", [*FAULTS, damaged_configuration])
def test_a_damaged_or_foreign_checkpoint_is_refused_by_name_and_nothing_is_overwritten(fault, begun, tmp_path):
    shutil.copytree(begun, tmp_path / "run")
    name = fault(tmp_path / "run")
    before = contents(tmp_path / "run")
    with pytest.raises(BadInput, match=name):
        next(population.train_folder(tmp_path / "run"))
    with pytest.raises(BadInput, match=name):
        population.load(tmp_path / "run")
    assert contents(tmp_path / "run") == before


def test_a_run_that_does_not_name_a_younger_option_has_its_default(begun, tmp_path):
    shutil.copytree(begun, tmp_path / "run")
    path, place = tmp_path / "run/config.json", tmp_path / "run/checkpoints/group-0.json"
    data = json.loads(path.read_text())
    del data["mix"], data["learner_options"]["decay"]
    path.write_text(json.dumps(data))
    sealed = {**json.loads(place.read_text()), "config": store.mark(tmp_path / "run")}
    del sealed["seal"]
    place.write_text(json.dumps({**sealed, "seal": checkpoint.digest(dumps(sealed).encode())}))
    assert population.load(tmp_path / "run").config.mix == 1


def test_a_run_of_a_younger_version_is_refused_by_name(begun, tmp_path):
    shutil.copytree(begun, tmp_path / "run")
    path = tmp_path / "run/config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "telepathy": True}))
    with pytest.raises(BadInput, match=r"config\.json: RunConfig has no field telepathy; .* another version"):
        population.load(tmp_path / "run")


def test_a_second_process_on_the_same_folder_is_refused(begun, tmp_path):
    shutil.copytree(begun, tmp_path / "run")
    before = contents(tmp_path / "run")
    with store.locked(tmp_path / "run"), pytest.raises(BadInput, match="another process is at work"):
        next(population.train_folder(tmp_path / "run"))
    assert contents(tmp_path / "run") == before
