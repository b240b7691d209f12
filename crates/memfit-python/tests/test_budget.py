"""What a run of fit holds, counted from before the call to its end, in a process of its own."""

import subprocess
import sys
import textwrap

import pytest

PROGRAM = """
import sys
import keras
import numpy as np
import memfit

def read(key):
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith(key))

units = 1024
model = keras.Sequential([keras.Input((units,)), *(keras.layers.Dense(units) for _ in range(3))])
model.compile("adam", "mse")
x = np.random.default_rng(1).random((32, units), dtype=np.float32)
arguments = {CASE}
validation = {"validation_batch_size": 16} if "validation_data" in arguments else {}
budget = memfit.plan(model, batch_size=16, **validation).bytes_smallest_budget + arguments.pop("more", 0)
with open("/proc/self/clear_refs", "w") as file:
    file.write("5")
before = read("VmRSS")
history = memfit.fit(model, x, x, batch_size=16, epochs=2, budget=budget, verbose=0, **arguments)
added = read("VmHWM") - before
assert added <= budget, (added, budget)
assert history.memfit.bytes_added <= budget
assert len(model.optimizer.variables) == 2 + 2 * len(model.weights)
assert int(model.optimizer.iterations) == 4 and float(abs(np.asarray(model.optimizer.variables[3])).max()) > 0
model.fit(x, x, verbose=0)
"""

CASES = {
    # Keras has no variables of Adam's yet: they are built with their values when the arena gives them up.
    "built_at_the_end": "{}",
    # Weights and optimizer stay in the arena while a validation runs, and its own values beside them.
    "validated": '{"validation_data": (x, x)}',
    # A callback may look at them, so that they are there from the start, and counted.
    "built_at_the_start": '{"callbacks": [keras.callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: model.get_weights())], "more": 32 << 20}',
}


@pytest.mark.parametrize("case", CASES)
def test_the_peak_from_before_fit_to_its_end_is_within_the_budget(case):
    program = textwrap.dedent(PROGRAM.replace("{CASE}", CASES[case]))
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr[-2000:]
