"""Models and weights in files: what Keras writes, and .safetensors beside it."""

import json
from pathlib import Path

from ._errors import Error
from ._request import request, require_input, require_model

_ELEMENTS = {"F16": "float16", "F32": "float32", "F64": "float64"}


def save(model, path):
    """Writes a model to a `.keras` file, or its weights to a `.weights.h5` or `.safetensors` file.

    The names in a `.safetensors` file are those that the `memfit` command uses.
    """
    require_model(model, compiled=False)
    require_input(model)
    name = str(path)
    if name.endswith(".keras"):
        model.save(path)
    elif name.endswith(".weights.h5"):
        model.save_weights(path)
    elif name.endswith(".safetensors"):
        _write_safetensors(model, Path(path))
    else:
        raise Error(f"`{name}` must end in .keras, .weights.h5 or .safetensors")


def load(path, model=None):
    """Reads a `.keras` file and returns its model, or reads weights into `model` and returns that.

    A `.weights.h5` or `.safetensors` file has weights alone, so that it needs the model.
    """
    import keras

    name = str(path)
    if name.endswith(".keras") and model is None:
        return keras.saving.load_model(path)
    if model is None:
        raise Error(f"`{name}` has weights and no model; give the model too: memfit.load(path, model)")
    require_model(model, compiled=False)
    require_input(model)
    if name.endswith(".safetensors"):
        _read_safetensors(model, Path(path))
    else:
        model.load_weights(path)
    return model


def _names(model):
    from . import _engine

    known = _engine.weights(request(model, 1, {}))
    if len(known) != len(model.weights):
        raise Error(f"the model has {len(model.weights)} weights and memfit knows {len(known)}; please report this")
    return [name for name, _ in known]


def _write_safetensors(model, path):
    import keras
    import numpy as np

    header, end = {}, 0
    for name, weight in zip(_names(model), model.weights):
        size = 4 * int(np.prod(weight.shape, dtype=np.int64))
        header[name] = {"dtype": "F32", "shape": [int(dim) for dim in weight.shape], "data_offsets": [end, end + size]}
        end += size
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    half_written = path.with_name(path.name + ".part")
    with open(half_written, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for weight in model.weights:
            file.write(np.ascontiguousarray(keras.ops.convert_to_numpy(weight), dtype="<f4").data)
    half_written.replace(path)


def _read_safetensors(model, path):
    import numpy as np

    with open(path, "rb") as file:
        size = path.stat().st_size
        length = int.from_bytes(file.read(8), "little")
        if size < 8 + length:
            raise Error(f"`{path}` is cut off or no .safetensors file; write or copy it again")
        header = json.loads(file.read(length))
        found = []
        for name, weight in zip(_names(model), model.weights):
            entry = header.get(name)
            if entry is None:
                raise Error(f"`{path}` has no `{name}`; give the file of this model")
            start, end = entry["data_offsets"]
            if entry["dtype"] not in _ELEMENTS or list(entry["shape"]) != list(weight.shape) or size < 8 + length + end:
                raise Error(f"`{path}` has `{name}` as {entry}, and the model's is {tuple(weight.shape)}; give its own file")
            found.append((weight, start, end, np.dtype(_ELEMENTS[entry["dtype"]]).newbyteorder("<")))
        for weight, start, end, dtype in found:
            file.seek(8 + length + start)
            weight.assign(np.frombuffer(file.read(end - start), dtype=dtype).reshape(weight.shape))
