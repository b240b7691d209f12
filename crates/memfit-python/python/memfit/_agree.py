"""Before the first step: what memfit computes for loss and metrics on the first rows is what the objects themselves say."""

import json
import math

from . import _engine
from ._errors import Error

_ROWS = 32

# Targets and predictions of the rows that are compared take at most this.
_BYTES = 4 << 20

# What rounding may do, relative and absolute.
_RELATIVE, _ABSOLUTE = 2e-3, 1e-4


def require_agreement(model, rows, config):
    """Stops where a loss or metric of the model gives another number than memfit's for the same targets and predictions.

    Predictions are synthetic, so that the model need not run: numbers of the kind that its last layers give. No arena of the model is
    there yet, and what this takes is small and counted.
    """
    outputs = _output_dims(model, rows)
    if outputs is None:
        return
    bytes_row = 4 * sum(math.prod(dims) for dims in outputs)
    count = min(_ROWS, _BYTES // max(bytes_row, 1))
    if count == 0:
        return
    arrays = rows.sample(count)
    first = len(model.inputs)
    targets, weights = arrays[first:first + len(outputs)], arrays[first + len(outputs):]
    for is_positive in (False, True):
        predictions = _predictions(model, outputs, len(targets[0]), is_positive)
        theirs = _of_objects(model, targets, predictions, weights)
        if theirs is None or all(_is_finite(value) for value in theirs.values()):
            break
    if theirs is None:
        return
    mine = _of_memfit(config, outputs, model, predictions, targets, weights)
    for name, value in theirs.items():
        if name in mine and not _alike(mine[name], value):
            what = "the loss" if name == "loss" else f"the metric `{name}`"
            raise Error(
                f"{what} ({_kind(model, name)}) gives {_text(value)} for the first {len(targets[0])} targets with synthetic predictions, and "
                f"memfit computes {_text(mine[name])}; leave it out, or report this with the model's compile configuration"
            )


def _of_objects(model, targets, predictions, weights):
    """Loss and metrics by name as Keras's objects give them; none where they cannot be asked."""
    import keras

    names, struct = len(targets), getattr(model, "_outputs_struct", None)
    is_nested = isinstance(struct, (list, tuple, dict))
    pack = lambda values: keras.tree.pack_sequence_as(struct, list(values)) if is_nested else values[0]
    y = pack([keras.ops.convert_to_tensor(_plain(one)) for one in targets])
    y_pred = pack([keras.ops.convert_to_tensor(one) for one in predictions])
    weight = None
    if weights:
        each = weights if len(weights) == names else weights * names
        weight = pack([keras.ops.convert_to_tensor(one, dtype="float32") for one in each])
    found = {}
    loss, metrics = getattr(model, "_compile_loss", None), getattr(model, "_compile_metrics", None)
    if loss is not None:
        found["loss"] = keras.ops.convert_to_numpy(loss(y, y_pred, weight)) * _replicas()
    if metrics is not None:
        if metrics.built:
            metrics.reset_state()
        metrics.update_state(y, y_pred, weight)
        found.update({name: keras.ops.convert_to_numpy(value) for name, value in metrics.result().items()})
        metrics.reset_state()
    return found


def _replicas():
    """By how much Keras divides a loss within the scope of a strategy."""
    import keras

    if keras.backend.backend() != "tensorflow":
        return 1
    import tensorflow

    return tensorflow.distribute.get_strategy().num_replicas_in_sync


def _of_memfit(config, outputs, model, predictions, targets, weights):
    """The same by the engine, of a model whose outputs are its inputs."""
    from ._inference import logs_of
    from ._rows import lend

    names = [f"prediction_{index}" for index in range(len(outputs))]
    layers, ends = [], []
    for name, dims, output in zip(names, outputs, _output_names(model)):
        shape = [None, *dims]
        layers.append({"class_name": "InputLayer", "name": name, "inbound_nodes": [],
                       "config": {"batch_shape": shape, "dtype": "float32", "sparse": False, "name": name}})
        tensor = {"class_name": "__keras_tensor__", "config": {"shape": shape, "dtype": "float32", "keras_history": [name, 0, 0]}}
        layers.append({"class_name": "Identity", "name": output, "config": {"name": output, "trainable": True, "dtype": "float32"},
                       "inbound_nodes": [{"args": [tensor], "kwargs": {}}]})
        ends.append([output, 0, 0])
    compiled = {**config["compile_config"], "optimizer": "sgd"}
    graph = {"name": "outputs", "trainable": True, "layers": layers, "input_layers": [[name, 0, 0] for name in names],
             "output_layers": ends}
    request = {
        "config": {"class_name": "Functional", "config": graph, "compile_config": compiled},
        "settings": {"train.batch": len(targets[0]), "train.device": "cpu", "memory.budget": "1GiB", "memory.costs": "analytic"},
        "sample_weights": len(weights), "weights_of_samples": [1 < weight.ndim for weight in weights], "threads": 1, "baseline": _engine.baseline(),
    }
    session = _engine.Session(json.dumps(request), "evaluation")
    arrays = [lend(array) for array in [*predictions, *targets, *weights]]
    session.open()
    try:
        session.begin_epoch()
        [(loss, metrics, *_)] = session.step(arrays, 0, len(targets[0]))
    finally:
        session.close()
    return logs_of(["loss", *session.metrics()], [loss, *metrics])


def _predictions(model, outputs, rows, is_positive):
    """Numbers of the kind that the last layers give, the same in every run."""
    import numpy as np

    draw = np.random.default_rng(26)
    found = []
    for tensor, dims in zip(model.outputs, outputs):
        value = draw.normal(size=(rows, *dims))
        last = _activation(tensor)
        if last == "softmax":
            value = np.exp(value) / np.exp(value).sum(axis=-1, keepdims=True)
        elif last == "sigmoid":
            value = 1 / (1 + np.exp(-value))
        elif is_positive or last in ("relu", "softplus", "exponential", "relu6"):
            value = np.abs(value) + 0.01
        found.append(value.astype(np.float32))
    return found


def _activation(tensor):
    layer = tensor._keras_history.operation
    name = getattr(getattr(layer, "activation", None), "__name__", None)
    return name or ("softmax" if type(layer).__name__ == "Softmax" else None)


def _output_dims(model, rows):
    """Dimensions of the outputs without the rows; none where they are open still."""
    dims = [list(tensor.shape[1:]) for tensor in model.outputs]
    if any(None in one for one in dims):
        try:
            shapes = [(None, *row) for row in rows.dims]
            found = model.compute_output_shape(shapes[0] if len(shapes) == 1 else shapes)
        except Exception:
            return None
        found = [found] if isinstance(found, tuple) else list(found)
        dims = [list(one[1:]) for one in found]
    return None if any(None in one for one in dims) else dims


def _output_names(model):
    return list(getattr(model, "output_names", None) or [tensor.name for tensor in model.outputs])


def _plain(array):
    import numpy as np

    return np.ascontiguousarray(array)


def _alike(mine, theirs):
    import numpy as np

    mine, theirs = np.asarray(mine, dtype=np.float64), np.asarray(theirs, dtype=np.float64)
    if not np.isfinite(theirs).all():
        return True
    return mine.shape == theirs.shape and np.allclose(mine, theirs, rtol=_RELATIVE, atol=_ABSOLUTE)


def _is_finite(value):
    import numpy as np

    return bool(np.isfinite(np.asarray(value, dtype=np.float64)).all())


def _kind(model, name):
    if name == "loss":
        given = model.loss
        return given if isinstance(given, str) else type(given).__name__
    for metric in model._compile_metrics.metrics:
        if metric.name == name or name.endswith(metric.name):
            return type(metric).__name__
    return "a metric"


def _text(value):
    import numpy as np

    return np.array2string(np.asarray(value, dtype=np.float64), precision=5)
