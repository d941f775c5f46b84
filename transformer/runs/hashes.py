"""Hashes arrays and files, to detect changes after they were saved."""

import hashlib
from typing import Any

import jax
import numpy as np
from etils import epath

from transformer import files


def fingerprint(tree) -> str:
    """Computes the SHA-256 of a tree of arrays: a header and the bytes of each leaf, sorted by path.

    The header is the line `<path> <dtype> <shape>`, for example `decoder/layer_0/ffn/kernel float32
    (4, 8)`. The bytes are little-endian in row-major order. Whether a container is a tuple, a list or
    a dict makes no difference.
    """
    digest = hashlib.sha256()
    for name, leaf in sorted(named_leaves(tree).items()):
        add_leaf(digest, name, np.asarray(leaf))
    return digest.hexdigest()


def named_leaves(tree) -> dict[str, Any]:
    """Returns the leaves of a tree by their paths, in the order of `jax.tree.leaves`."""
    leaves = jax.tree.leaves_with_path(tree)
    return {jax.tree_util.keystr(path, simple=True, separator='/'): leaf for path, leaf in leaves}


def add_leaf(digest, name: str, array: np.ndarray) -> None:
    """Adds one leaf to the SHA-256 of a `fingerprint`. Leaves must be added in the order of their names."""
    digest.update(f'{name} {array.dtype.name} {array.shape}\n'.encode())
    little = np.ascontiguousarray(array, array.dtype.newbyteorder('<'))
    # Views the array as bytes without a copy, because bfloat16 cannot be hashed.
    digest.update(little.reshape(-1).view(np.uint8))


def folder_sha256(folder: epath.Path) -> dict[str, str]:
    """Computes the SHA-256 of all files in a folder and its subfolders, by their paths relative to it."""
    paths = (root / name for root, _, names in folder.walk() for name in names)
    return {str(path.relative_to(folder)): files.sha256(path) for path in paths}
