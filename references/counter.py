"""The counter-based generator that gives every input, target and weight.

A tensor is described by a small JSON object, its spec, and its elements are
computed from the spec alone, so that no tensor has to be stored:

    {"shape": [...], "kind": "uniform",  "seed": N, "low": a, "high": b}
    {"shape": [...], "kind": "integers", "seed": N, "low": a, "high": b}
    {"shape": [...], "kind": "one_hot",  "seed": N}

README.md has the formulas.
"""

import numpy as np


def bits(seed, count):
    """The 64-bit numbers of one seed for element indices 0 .. count - 1."""
    with np.errstate(over="ignore"):
        index = np.arange(1, count + 1, dtype=np.uint64)
        z = np.uint64(seed) * np.uint64(0xD1342543DE82EF95)
        z = z + index * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return z ^ (z >> np.uint64(31))


def uniform(shape, seed, low=-1.0, high=1.0):
    """The spec of a float32 tensor over [low, high)."""
    return {"shape": list(shape), "kind": "uniform", "seed": seed,
            "low": low, "high": high}


def integers(shape, seed, low, high):
    """The spec of an int32 tensor over low .. high - 1."""
    return {"shape": list(shape), "kind": "integers", "seed": seed,
            "low": low, "high": high}


def one_hot(shape, seed):
    """The spec of a float32 tensor with a single 1 in each row of the last axis."""
    return {"shape": list(shape), "kind": "one_hot", "seed": seed}


def tensor(spec, step=0):
    """The numbers of a spec; step is added to its seed."""
    shape, seed = tuple(spec["shape"]), spec["seed"] + step
    if spec["kind"] == "uniform":
        u = (bits(seed, int(np.prod(shape))) >> np.uint64(40)) / np.float64(2**24)
        values = spec["low"] + (spec["high"] - spec["low"]) * u
        return values.astype(np.float32).reshape(shape)
    if spec["kind"] == "integers":
        span = np.uint64(spec["high"] - spec["low"])
        drawn = (bits(seed, int(np.prod(shape))) >> np.uint64(33)) % span
        return (spec["low"] + drawn.astype(np.int64)).astype(np.int32).reshape(shape)
    if spec["kind"] == "one_hot":
        rows, classes = shape[:-1], shape[-1]
        drawn = (bits(seed, int(np.prod(rows))) >> np.uint64(33)) % np.uint64(classes)
        return np.eye(classes, dtype=np.float32)[drawn.astype(np.int64)].reshape(shape)
    raise ValueError(f"unknown kind {spec['kind']!r}")
