"""Variables of Keras as NumPy arrays, whole or in parts."""

import math

# Variables of TensorFlow are read and written in parts of this size from twice as many bytes on, which takes little memory.
_PART = 4 << 20


def bytes_on_the_way(model):
    """The most bytes of variables between Keras and the arena at once: an array, and the backend's copy of it."""
    return 2 * max((_bytes(variable) // len(slices(variable)) for variable in model.weights), default=0) + _MARGIN


# Parts differ by less than a row, and an allocator rounds up.
_MARGIN = 1 << 20


def _has_parts(variable):
    """Whether parts of a variable can be read and written in place: those of TensorFlow's."""
    value = getattr(variable, "_value", None)
    is_variable = type(value).__name__ == "ResourceVariable"
    return is_variable and 2 * _PART <= _bytes(variable) and bool(variable.shape[0])


def slices(variable):
    """Parts of a variable along its first axis, or none for the whole."""
    if not _has_parts(variable):
        return [None]
    count = variable.shape[0]
    rows = max(1, _PART * count // _bytes(variable))
    return [slice(start, min(start + rows, count)) for start in range(0, count, rows)]


def offset(variable, rows, value):
    """The first byte of a part."""
    return 0 if rows is None or not len(value) else rows.start * (value.nbytes // len(value))


def _bytes(variable):
    return 4 * math.prod(variable.shape)


def number(variable):
    """A variable of one number, also where a strategy holds it more than once."""
    return float(numpy_of(variable))


def numpy_of(variable):
    """A variable's values."""
    import keras

    value = getattr(variable, "_value", None)
    # Of a variable that a strategy mirrors, all copies are alike.
    if hasattr(value, "_values"):
        return value._values[0].numpy()
    # One copy and not two.
    if type(value).__name__ == "ResourceVariable":
        return value.numpy()
    return keras.ops.convert_to_numpy(variable)
