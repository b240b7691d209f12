"""A model that was built under TensorFlow's MirroredStrategy trains once, and every replica gets its weights."""

import subprocess
import sys

import keras
import pytest

PROGRAM = """
import warnings
import tensorflow as tf
tf.config.set_logical_device_configuration(tf.config.list_physical_devices("CPU")[0],
                                           [tf.config.LogicalDeviceConfiguration()] * {REPLICAS})
import keras
import numpy as np
import memfit

x = np.random.default_rng(1).random((16, 6), dtype=np.float32)
y = np.random.default_rng(2).random((16, 1), dtype=np.float32)
strategy = tf.distribute.MirroredStrategy([f"CPU:{i}" for i in range({REPLICAS})])

def make():
    keras.utils.set_random_seed(7)
    model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(4), keras.layers.BatchNormalization(), keras.layers.Dense(1)])
    model.compile("adam", "mse", metrics=["mae"])
    return model

with strategy.scope():
    mirrored = make()
plain = make()
plain.set_weights([np.array(value) for value in mirrored.get_weights()])
arguments = dict(batch_size=8, epochs=2, shuffle=False, verbose=0, validation_data=(x[:8], y[:8]))

def run():
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        history = memfit.fit(mirrored, x, y, **arguments)
    assert any("memfit trains one" in str(one.message) for one in said) == (1 < {REPLICAS}), [str(one.message) for one in said]
    return history.history

if {INSIDE}:
    with strategy.scope():
        mine = run()
else:
    mine = run()
theirs = memfit.fit(plain, x, y, **arguments).history
assert mine == theirs, (mine, theirs)
for a, b in zip(mirrored.variables, plain.variables):
    copies = a._value._values if hasattr(a._value, "_values") else [a._value]
    for one in copies:
        np.testing.assert_allclose(one.numpy(), np.asarray(b), atol=1e-6)
# And it goes on in Keras, on all replicas.
if {INSIDE}:
    with strategy.scope():
        mirrored.fit(x, y, verbose=0)
else:
    mirrored.fit(x, y, verbose=0)
"""


@pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="a strategy of TensorFlow's")
@pytest.mark.parametrize("replicas, inside", [(1, False), (2, True), (2, False)])
def test_one_replica_trains_and_all_get_its_weights(replicas, inside):
    program = PROGRAM.replace("{REPLICAS}", str(replicas)).replace("{INSIDE}", str(inside))
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr[-3000:]
