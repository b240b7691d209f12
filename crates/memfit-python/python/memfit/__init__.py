"""fit() that fits: Keras models trained inside a memory budget that is planned to the byte.

    import keras, memfit

    model = keras.applications.ResNet50(weights=None, classes=10)
    model.compile(optimizer="adam", loss="sparse_categorical_crossentropy", metrics=["accuracy"])

    print(memfit.plan(model, batch_size=64, budget="3GiB"))       # what it would hold, before anything runs
    memfit.fit(model, x, y, batch_size=64, budget="3GiB")         # trains the model within that budget
    model.save("trained.keras")                                   # its weights are the trained ones

A budget counts what memfit adds to this process. What Python, Keras, your arrays and the model's own weights hold already is the
baseline: it is reported, and not counted. A job that does not fit is refused before anything is allocated, with
`memfit.DoesNotFit`, which says the smallest budget that would do and what else would help.

Keras is imported when a model is first handed over, so that `import memfit` stays light.
"""

from ._errors import DoesNotFit, Error, NotFinite, OverBudget
from ._files import load, save
from ._inference import evaluate, predict
from ._plan import Batches, Device, Plan, Sweep, devices, largest_batch, plan, sweep
from ._training import Memory, fit

__version__ = "0.1.0"

__all__ = [
    "Batches",
    "Device",
    "DoesNotFit",
    "Error",
    "Memory",
    "NotFinite",
    "OverBudget",
    "Plan",
    "Sweep",
    "devices",
    "evaluate",
    "fit",
    "largest_batch",
    "load",
    "plan",
    "predict",
    "save",
    "sweep",
]
