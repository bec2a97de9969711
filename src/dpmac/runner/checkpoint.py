"""Trees of arrays as safetensors plus JSON, never pickle; what does not fit is refused by name.

A checkpoint is `NAME-DIGEST.safetensors` and `NAME.json`, which holds that digest, the configuration's, the place in
the run, and a seal over all this. The JSON is replaced last, so that a crash leaves the state before or that after.
"""

import hashlib
import re
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import safetensors
import safetensors.numpy

from dpmac.config import BadInput, dumps, require
from dpmac.results import store

FORMAT = 2
"""Of what a checkpoint holds; version 0.1 wrote none."""


def current(place: dict[str, Any]) -> bool:
    """Whether a checkpoint was written in this format."""
    return place.get("format") == FORMAT


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


def digest(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=16).hexdigest()


def save(folder: Path, name: str, tree: Any, place: dict[str, Any]) -> None:
    """Write a checkpoint; the one before it is intact until this one is complete."""
    data = safetensors.numpy.save(flatten(tree))
    tensors = folder / f"{name}-{digest(data)}.safetensors"
    store.write_aside(tensors, data)
    place = {"format": FORMAT, "digest": digest(data), **place}
    store.write_json(folder / f"{name}.json", {**place, "seal": digest(dumps(place).encode())})
    tidy(folder, name, place)


def tidy(folder: Path, name: str, place: dict[str, Any]) -> None:
    """Remove what the checkpoint at this place has replaced, which may hold episodes and the key of the noise."""
    for old in (*folder.glob(f"{name}-*.safetensors"), *folder.glob(f".{name}*.aside")):
        if old.name != f"{name}-{place['digest']}.safetensors":
            old.unlink()


def place_of(folder: Path, name: str, config_digest: str) -> dict[str, Any] | None:
    """Where a checkpoint stands in the run, or nothing if there is none; a damaged or foreign one is refused."""
    path = folder / f"{name}.json"
    if not path.exists():
        return None
    place = store.read_json(path)
    seal = place.pop("seal", None) if isinstance(place, dict) else None
    require(seal == digest(dumps(place).encode()), f"{path} is truncated or altered")
    if place["config"] != config_digest:
        raise BadInput(f"{path} belongs to another configuration")
    return place


def load(folder: Path, name: str, like: Any, place: dict[str, Any], within: str | None = None) -> Any:
    """The tree of a checkpoint at its `place_of`, of the shape of `like`; a damaged one is refused.

    within: where in a larger tree it stands, of which the rest is then left out.
    """
    sound = isinstance(place["digest"], str) and re.fullmatch("[0-9a-f]{32}", place["digest"]) is not None
    require(sound, f"{folder / name}.json names no digest; nothing beside it is read")
    path = folder / f"{name}-{place['digest']}.safetensors"
    try:
        data = path.read_bytes()
    except OSError as error:
        raise BadInput(f"{path} cannot be read: {error.strerror}") from None
    require(digest(data) == place["digest"], f"{path} is truncated or altered")
    try:
        arrays = safetensors.numpy.load(data)
        if within is not None:
            wanted = {f"{within}{jax.tree_util.keystr(where)}" for where, _ in jax.tree.leaves_with_path(like)}
            arrays = {key.removeprefix(within): value for key, value in arrays.items() if key in wanted}
        return unflatten(like, arrays, str(path))
    except safetensors.SafetensorError as error:
        raise BadInput(f"{path} is damaged: {error}") from None
