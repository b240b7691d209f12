"""When Keras's EarlyStopping stops: the numbers in crates/memfit/src/early_stopping.rs.

python references/early_stopping.py
"""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
import keras

NAN = float("nan")
CASES = [
    ("val_loss", 2, 0.0, "min", [3.0, 2.0, 2.5, 2.1, 2.2]),
    ("val_loss", 2, 0.0, "min", [3.0, 2.0, 2.5, 1.9, 2.2]),
    ("val_loss", 0, 0.0, "min", [3.0, 2.0, 2.5]),
    ("val_loss", 1, 0.0, "min", [3.0, 3.0]),
    ("val_loss", 2, 0.1, "min", [3.0, 2.95, 2.92, 2.0]),
    ("val_loss", 2, 0.1, "min", [3.0, 2.95, 2.85, 2.8, 2.8]),
    ("accuracy", 2, 0.0, "max", [0.1, 0.3, 0.2, 0.2, 0.9]),
    ("accuracy", 1, 0.05, "max", [0.1, 0.2, 0.24]),
    ("loss", 2, 0.0, "min", [NAN, 1.0, 1.0]),
    ("loss", 2, 0.0, "min", [1.0, NAN, 0.5, NAN, NAN]),
    ("loss", 3, 0.0, "min", [1.0, 1.0, 1.0]),
    ("loss", 3, 0.0, "min", [3.0, 2.0, NAN, 2.5, 1.0, 1.5, 1.5, 1.5]),
]


class Model:
    stop_training = False


for monitor, patience, min_delta, mode, values in CASES:
    callback = keras.callbacks.EarlyStopping(monitor, patience=patience, min_delta=min_delta, mode=mode)
    callback.set_model(Model())
    callback.on_train_begin()
    stopped = None
    for epoch, value in enumerate(values):
        callback.on_epoch_end(epoch, {monitor: value})
        if callback.model.stop_training:
            stopped = epoch
            break
    print(monitor, patience, min_delta, mode, values, "->", stopped)
