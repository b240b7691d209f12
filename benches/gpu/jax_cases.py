"""The convolution cases with JAX, jitted: time of a step and memory. Prints one JSON object a line."""

import functools
import json
import os
import statistics
import time

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")

import jax
import jax.numpy as jnp


def convolve(x, kernel, padding):
    return jax.lax.conv_general_dilated(x, kernel, (1, 1), padding, dimension_numbers=("NHWC", "HWIO", "NHWC"))


def pool(x):
    return jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")


def draw(key, shape):
    return jax.random.normal(key, shape, jnp.float32) * (2.0 / max(1, shape[-2])) ** 0.5 * 0.1


def large_images(batch, dtype):
    keys = jax.random.split(jax.random.key(0), 4)
    weights = [draw(keys[0], (3, 3, 3, 32)), jnp.zeros(32), draw(keys[1], (511 * 511 * 32, 10)), jnp.zeros(10)]
    x, y = jax.random.uniform(keys[2], (batch, 1024, 1024, 3)), jax.random.uniform(keys[3], (batch, 10))

    def loss(weights):
        hidden = pool(jax.nn.relu(convolve(x, weights[0], "VALID") + weights[1])).reshape(batch, -1)
        return jnp.mean((jax.nn.softmax(hidden @ weights[2] + weights[3]) - y) ** 2)

    return weights, loss


def six_convolutions(batch, dtype):
    keys = jax.random.split(jax.random.key(0), 9)
    sizes = [3, 256, 256, 512, 512, 1024, 1024]
    weights = []
    for key, before, after in zip(keys, sizes, sizes[1:]):
        weights += [draw(key, (3, 3, before, after)), jnp.zeros(after)]
    weights += [draw(keys[6], (1024, 10)), jnp.zeros(10)]
    x = jax.random.uniform(keys[7], (batch, 128, 128, 3)).astype(dtype)
    y = jax.nn.one_hot(jax.random.randint(keys[8], (batch,), 0, 10), 10)

    def loss(weights):
        hidden = x
        for index in range(6):
            kernel, bias = (one.astype(dtype) for one in weights[2 * index:2 * index + 2])
            hidden = jax.nn.relu(convolve(hidden, kernel, "SAME") + bias)
            if index in (1, 3):
                hidden = pool(hidden)
        logits = hidden.mean((1, 2)).astype(jnp.float32) @ weights[12] + weights[13]
        return -jnp.mean(jnp.sum(y * jax.nn.log_softmax(logits), -1))

    return weights, loss


def run(name, build, batch, dtype):
    weights, loss = build(batch, dtype)
    state = [(jnp.zeros_like(one), jnp.zeros_like(one)) for one in weights]

    @functools.partial(jax.jit, donate_argnums=(0, 1))
    def step(weights, state, number):
        value, slopes = jax.value_and_grad(loss)(weights)
        new_weights, new_state = [], []
        for weight, (m, v), slope in zip(weights, state, slopes):
            m, v = 0.9 * m + 0.1 * slope, 0.999 * v + 0.001 * slope * slope
            new_weights.append(weight - 0.001 * m / (jnp.sqrt(v) + 1e-7))
            new_state.append((m, v))
        return new_weights, new_state, value

    times = []
    for number in range(14):
        start = time.perf_counter()
        weights, state, value = step(weights, state, number)
        value.block_until_ready()
        times.append((time.perf_counter() - start) * 1e3)
    peak = jax.devices()[0].memory_stats()["peak_bytes_in_use"] / 2**30
    return {"case": name, "milliseconds": statistics.median(times[6:]), "gibibytes": peak}


if __name__ == "__main__":
    import sys

    cases = [
        ("large images, f32, batch 64", large_images, 64, jnp.float32),
        ("six convolutions, TF32, batch 32", six_convolutions, 32, jnp.float32),
        ("six convolutions, bf16, batch 128", six_convolutions, 128, jnp.bfloat16),
    ]
    # A process each: JAX keeps the peak of the process.
    if len(sys.argv) > 1:
        name, build, batch, dtype = cases[int(sys.argv[1])]
        try:
            print(json.dumps(run(name, build, batch, dtype)), flush=True)
        except Exception as error:  # noqa: BLE001 - whatever it was, the next case runs
            print(json.dumps({"case": name, "error": str(error).splitlines()[0][:200]}), flush=True)
    else:
        import subprocess

        for index in range(len(cases)):
            subprocess.run([sys.executable, __file__, str(index)], check=False)
