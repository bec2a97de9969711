"""Trees of arrays as safetensors plus JSON, never pickle; what does not fit is refused by name.

A checkpoint is `NAME.safetensors` and `NAME.json`, which holds the first one's digest, the configuration's digest and
the place in the run. The JSON is replaced last, so that a crash leaves the state before or the state after.
"""

import hashlib
import os
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import safetensors
import safetensors.numpy

from dpmac.config import BadInput, require
from dpmac.results import store


def flatten(tree: Any) -> dict[str, np.ndarray]:
    """Named arrays of a tree; typed keys become their data."""
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    return {jax.tree_util.keystr(path): np.asarray(data_of(leaf)) for path, leaf in leaves}


def data_of(leaf: Any) -> Any:
    return jax.random.key_data(leaf) if is_key(leaf) else leaf


def is_key(leaf: Any) -> bool:
    return jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def unflatten(like: Any, arrays: dict[str, np.ndarray], name: str) -> Any:
    """A tree of the shape of `like` from named arrays; every name, shape and type must agree."""
    leaves, structure = jax.tree_util.tree_flatten_with_path(like)
    found = []
    require(len(leaves) == len(arrays), f"{name} holds {len(arrays)} arrays where {len(leaves)} are expected")
    for path, leaf in leaves:
        key = jax.tree_util.keystr(path)
        require(key in arrays, f"{name} lacks {key}")
        wanted = jax.eval_shape(data_of, leaf)
        array = arrays[key]
        fits = array.shape == wanted.shape and array.dtype == wanted.dtype
        require(fits, f"{name}: {key} is {array.dtype}{array.shape}, expected {wanted.dtype}{wanted.shape}")
        value = jnp.asarray(array)
        found.append(jax.random.wrap_key_data(value) if is_key(leaf) else value)
    return jax.tree_util.tree_unflatten(structure, found)


def save(folder: Path, name: str, tree: Any, place: dict[str, Any]) -> None:
    """Write a checkpoint; the one before it is intact until this one is complete."""
    data = safetensors.numpy.save(flatten(tree))
    mark = hashlib.blake2b(data, digest_size=16).hexdigest()
    tensors = folder / f"{name}-{mark}.safetensors"
    store.write_aside(tensors, data)
    store.write_json(folder / f"{name}.json", {"tensors": tensors.name, "digest": mark, **place})
    for old in folder.glob(f"{name}-*.safetensors"):
        if old != tensors:
            old.unlink()


def place_of(folder: Path, name: str) -> dict[str, Any] | None:
    """Where a checkpoint stands in the run, or nothing if there is none."""
    path = folder / f"{name}.json"
    if not path.exists():
        return None
    place = store.read_json(path)
    require(isinstance(place, dict) and {"tensors", "digest", "config"} <= set(place), f"{path} is damaged")
    return place


def load(folder: Path, name: str, like: Any, config_digest: str) -> Any:
    """The tree of a checkpoint, of the shape of `like`; a damaged or foreign one is refused."""
    place = place_of(folder, name)
    require(place is not None, f"{folder} holds no checkpoint {name}")
    assert place is not None
    require(place["config"] == config_digest, f"{folder / name} belongs to another configuration")
    path = folder / os.path.basename(str(place["tensors"]))
    try:
        data = path.read_bytes()
    except OSError as error:
        raise BadInput(f"{path} cannot be read: {error.strerror}") from None
    require(hashlib.blake2b(data, digest_size=16).hexdigest() == place["digest"], f"{path} is truncated or altered")
    try:
        return unflatten(like, safetensors.numpy.load(data), str(path))
    except safetensors.SafetensorError as error:
        raise BadInput(f"{path} is damaged: {error}") from None
