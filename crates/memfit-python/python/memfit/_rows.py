"""Rows in all the forms that Keras's fit takes, as batches that the engine reads where they stand."""

import itertools
from typing import NamedTuple

from ._checkpoints import checksum, digest_of
from ._errors import Error
from ._request import input_names, knows_input, require_batch_size


class Batch(NamedTuple):
    """Rows of one step: rows `start…` of the arrays, or of `order`, which names their rows. `next` is the start and the rows of the
    next batch, where it is one of the same arrays and order: a GPU gets them while it computes. Batches of the user's own
    source are not read early, since the next may take the memory of this one."""

    arrays: list
    start: int
    rows: int
    order: object
    next: object = None


def rows_of(model, x, y=None, sample_weight=None, *, batch_size=None, class_weight=None, shuffle=False, steps=None,
            targets=True):
    """The rows that a call was given."""
    import keras

    if x is None:
        raise Error("there is no data; give x")
    require_batch_size(batch_size)
    x = _build_for(model, x)
    shape = _Shape(model, class_weight, targets)
    is_dataset = isinstance(x, keras.utils.PyDataset)
    if is_dataset or _is_stream(x):
        if y is not None or sample_weight is not None:
            raise Error(f"a {type(x).__name__} brings its targets and weights itself; give x alone")
        return (_Dataset if is_dataset else _Stream)(shape, x, batch_size, steps, shuffle)
    return Arrays(shape, shape.arrays(x, y, sample_weight), batch_size or 32, steps, shuffle)


def _build_for(model, x):
    """Builds a model that does not know its input for the rows that came, as Keras does; the data again, from its first batch on."""
    import keras

    if knows_input(model):
        return x
    first = x
    if isinstance(x, keras.utils.PyDataset):
        first = x[0]
    elif _is_stream(x):
        iterator = iter(x)
        first = next(iterator, None)
        if first is None:
            raise Error("the data has no batch; give at least one")
        x = itertools.chain([first], iterator) if iterator is x else x
    if first is not x:
        first = keras.utils.unpack_x_y_sample_weight(first)[0]
    leaves = _leaves((first,))
    if len(leaves) == 1 or not hasattr(leaves[0], "shape"):
        model.build((None, *_array(first[0] if len(leaves) == 1 and isinstance(first, (list, tuple)) else first).shape[1:]))
    if not knows_input(model):
        raise Error("the model does not know its inputs yet; give it a keras.Input for each")
    return x


def split(model, x, y, sample_weight, fraction):
    """Training and validation parts of arrays: the last rows are held out, as Keras does."""
    if not 0 < fraction < 1:
        raise Error(f"validation_split is {fraction}; give a fraction between 0 and 1")
    if x is None or _is_stream(x) or hasattr(x, "on_epoch_end"):
        raise Error("validation_split needs arrays; give validation_data beside a dataset or generator")
    rows = len(_leaves((x,))[0])
    held = int(rows * (1.0 - fraction))
    if held in (0, rows):
        raise Error(f"a validation_split of {fraction} leaves {held} of {rows} rows to train on; choose another")
    first = _map((x, y, sample_weight), lambda array: array[:held])
    last = _map((x, y, sample_weight), lambda array: array[held:])
    return first, last


class _Epochs:
    """Batches of one epoch after the other, as Keras counts them. Where steps are limited, an epoch goes on where the one before it
    stopped; it ends with the data, and the next one begins with the first batch again."""

    # Steps that come between two calls of callbacks, which look at whether to stop: `steps_per_execution`.
    at_once = 1
    iterator, taken = None, 0

    def restart(self):
        """Lets the next epoch begin with the first batch."""
        self.iterator, self.taken = None, 0

    def skip(self, epochs, batches, crc, is_over):
        """Goes on after some epochs and batches of the next one, which may be over with them. What cannot be read from the middle is read again from its start, and
        must have the checksum that it had."""
        for _ in range(epochs):
            for _ in self.epoch():
                pass
        self.current = self.epoch()
        self.crc = 0
        for number in range(batches):
            batch = next(self.current, None)
            if batch is None:
                raise Error(f"the data ended at batch {number} of an epoch that had {batches} when the checkpoint was written")
        if self.crc != crc:
            raise Error("the rows of this epoch are not those that the checkpoint's run had seen; give data that comes in the same order")
        if is_over:
            for _ in self.current:
                pass
            self.current = None

    # An epoch that goes on in its middle, and the checksum of its batches so far, where they are summed.
    current, crc, sums = None, 0, False

    def rest_of_epoch(self):
        """Batches of an epoch, or of the rest of one that goes on."""
        if self.current is None:
            self.crc = 0
            return self.epoch()
        current, self.current = self.current, None
        return current

    def epoch(self):
        """Batches of an epoch. `limit` is how many it has, where the caller says so; `count` how many there are, where it is known."""
        if self.iterator is None or self.limit is None:
            self.iterator, self.taken = self._pass(), 0
        started, ended = 0, False
        while not ended and (self.limit is None or started < self.limit):
            if self._is_over():
                break
            came = 0
            for batch in itertools.islice(self.iterator, self.at_once):
                came += 1
                if self.sums:
                    self.crc = checksum(batch, self.crc)
                yield batch
            started, self.taken, ended = started + self.at_once, self.taken + self.at_once, came < self.at_once
        if ended or self._is_over():
            self.iterator = None

    def _is_over(self):
        return self.count is not None and self.count <= self.taken


class Arrays(_Epochs):
    """Whole arrays, read row by row where they stand; a memory map is never read as a whole."""

    def __init__(self, shape, arrays, batch_size, steps, shuffle):
        self.lent = [lend(array) for array in arrays]
        counts = {array[2][0] if array[2] else 0 for array in self.lent}
        if len(counts) != 1:
            raise Error(f"the arrays have {sorted(counts)} rows; give arrays of the same rows")
        self.dims = shape.dims(arrays)
        rows = counts.pop()
        if rows == 0:
            raise Error("the arrays have no rows; give at least one")
        self.rows = rows
        self.batch_size = min(batch_size, rows)
        self.count = -(-rows // self.batch_size)
        self.steps = steps or self.count
        self.weighted = shape.weighted(arrays)
        self.shuffle = shuffle
        self.limit = steps
        self.shape, self.arrays = shape, arrays

    def sample(self, rows):
        """The first rows of all arrays."""
        return [array[:rows] for array in self.arrays]

    # Batches are views of arrays: they can be passed over, and need no checksum.
    def skip(self, epochs, batches, crc, is_over):
        super().skip(epochs, batches, 0, is_over)

    def digest(self):
        """What distinguishes these rows from others."""
        return [digest_of(self.lent), self.batch_size, self.limit, bool(self.shuffle)]

    passes, seed = 0, None

    def _pass(self):
        import numpy as np

        if self.seed is None:
            self.seed = int(np.random.randint(0, 2**31))
        # The order is computed from seed and pass, and held nowhere: a checkpoint needs no more.
        order = (self.seed, self.passes) if self.shuffle else None
        self.passes += 1
        starts = range(0, self.rows, self.batch_size)
        batches = [(start, min(self.batch_size, self.rows - start)) for start in starts]
        for (start, rows), after in zip(batches, [*batches[1:], None]):
            yield Batch(self.lent, start, rows, order, after)


class _Batches(_Epochs):
    """Batches that the user's data source makes."""

    def __init__(self, shape, source, batch_size, steps, shuffle):
        self.shape, self.source, self.limit, self.shuffle = shape, source, steps, shuffle
        first = self._first()
        self.steps = steps or self.count
        arrays = shape.unpack(first)
        self.weighted, self.dims = shape.weighted(arrays), shape.dims(arrays)
        self.batch_size = batch_size or len(arrays[0])
        self.first = arrays

    def digest(self):
        """What distinguishes these rows from others, before they come."""
        return [self.dims_listed(), self.batch_size, self.limit, bool(self.shuffle)]

    def dims_listed(self):
        return [list(dims) for dims in self.dims] if self.dims is not None else None

    def sample(self, rows):
        """The first rows of the first batch, which is there until the first epoch begins."""
        return [array[:rows] for array in self.first]

    def _batch(self, value):
        arrays = self.shape.unpack(value)
        if self.shape.weighted(arrays) != self.weighted:
            raise Error("some batches have sample weights and some do not; give them with all or with none")
        borrowed = [lend(array) for array in arrays]
        rows = borrowed[0][2][0]
        if self.batch_size < rows:
            raise Error(f"a batch of {rows} rows came and {self.batch_size} were planned for; give batch_size={rows}")
        return Batch(borrowed, 0, rows, None)


class _Stream(_Batches):
    """Anything that can be iterated: tf.data.Dataset, DataLoader, a generator."""

    def _first(self):
        values = iter(self.source)
        # A generator is its own iterator: it goes on, and cannot begin again.
        self.again = values is not self.source
        self.count = _length(self.source) if self.again else None
        first = next(values, None)
        if first is None:
            raise Error("the data has no batch; give at least one")
        self.ready = itertools.chain([first], values)
        return first

    def restart(self):
        if self.again:
            super().restart()

    def _pass(self):
        values, self.ready, self.first = self.ready, None, None
        if values is None:
            values = iter(self.source)
        return map(self._batch, values)


class _Dataset(_Batches):
    """keras.utils.PyDataset: batches by number."""

    def _first(self):
        self.count = _length(self.source)
        if self.count is None and self.limit is None:
            raise Error("the dataset has no end; give steps_per_epoch")
        return self.source[0]

    def _pass(self):
        import numpy as np

        self.first, numbers = None, itertools.count()
        if self.count is not None:
            # How many there are may have changed with the last epoch.
            self.count = _length(self.source)
            numbers = np.random.permutation(self.count) if self.shuffle else range(self.count)
        return (self._batch(self.source[int(number)]) for number in numbers)

    def epoch(self):
        yield from super().epoch()
        self.source.on_epoch_end()


class _Shape:
    """What the model takes, by name and number."""

    def __init__(self, model, class_weight, targets):
        keys = input_names(model)
        names = getattr(model, "output_names", None) or [tensor.name for tensor in model.outputs]
        self.inputs, self.outputs = keys, list(names)
        self.class_weight, self.targets = class_weight, targets

    def unpack(self, value):
        """The arrays of a batch: (x, y) or (x, y, sample_weight), or x alone."""
        import keras

        x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(value)
        return self.arrays(x, y, sample_weight)

    def arrays(self, x, y, sample_weight):
        """Inputs, targets and weights in the engine's order."""
        arrays = self._ordered("x", x, self.inputs)
        if not self.targets:
            return arrays
        if y is None:
            raise Error("there are no targets; give y")
        targets = self._ordered("y", y, self.outputs)
        weights = None if sample_weight is None else self._weights(sample_weight, len(targets[0]))
        if self.class_weight is not None:
            weights = [_class_weights(self.class_weight, targets, weights)]
        return arrays + targets + (weights or [])

    def dims(self, arrays):
        """Dimensions of a row of each input."""
        return [list(array.shape[1:]) for array in arrays[:len(self.inputs)]]

    def weighted(self, arrays):
        """For each array of weights whether it weighs every sample of a row: there is none, one for all outputs, or one for each."""
        return [1 < array.ndim for array in arrays[len(self.inputs) + len(self.outputs):]] if self.targets else []

    def _weights(self, value, rows):
        """One array for all outputs, or one for each; outputs that a dict leaves out count by 1."""
        import numpy as np

        several = 1 < len(self.outputs)
        if several and isinstance(value, dict):
            strange = [name for name in value if name not in self.outputs]
            if strange:
                raise Error(f"sample_weight has {', '.join(strange)}; give weights for {', '.join(self.outputs)}")
            value = [value.get(name) for name in self.outputs]
        if several and isinstance(value, (list, tuple)) and len(value) == len(self.outputs):
            value = [np.ones(rows, dtype=np.float32) if one is None else one for one in value]
            weights = self._ordered("sample_weight", value, self.outputs)
        else:
            weights = self._ordered("sample_weight", value, ["rows"])
        return [weight.reshape(-1) if weight.ndim == 2 and weight.shape[1] == 1 else weight for weight in weights]

    def _ordered(self, what, value, names):
        if isinstance(value, dict):
            missing = [name for name in names if name not in value]
            if missing:
                raise Error(f"{what} has {', '.join(map(str, value))}, and {', '.join(missing)} is missing; add it")
            value = [value[name] for name in names]
        elif isinstance(value, (list, tuple)) and (1 < len(names) or (len(value) == 1 and hasattr(value[0], "shape"))):
            value = list(value)
        else:
            value = [value]
        if len(value) != len(names):
            raise Error(f"{what} has {len(value)} arrays; give one for each of {', '.join(names)}")
        return [_array(one) for one in value]


def lend(array):
    """An array as the engine borrows it: its bytes, NumPy's name of its elements, its dimensions. C-contiguous arrays are
    borrowed where they are; others are copied."""
    import numpy as np

    if array.dtype.name == "bfloat16":
        array = array.astype(np.float32)
    array = array if array.flags.c_contiguous else np.ascontiguousarray(array)
    return array.view(np.ndarray).reshape(-1).view(np.uint8), array.dtype.str, list(array.shape)


def _array(value):
    import numpy as np

    if hasattr(value, "detach"):
        value = value.detach().cpu()
    array = np.asarray(value)
    if array.dtype.kind not in "fiub" and array.dtype.name != "bfloat16":
        raise Error(f"an array holds elements of type {array.dtype}; convert them to numbers, as with .astype(\"float32\")")
    if array.ndim == 0:
        raise Error("a single number came where rows were expected; give an array with a first axis of rows")
    return array


def _class_weights(class_weight, targets, weights):
    import numpy as np

    if not isinstance(class_weight, dict):
        raise Error(f"class_weight is {class_weight!r}; give a dict from class to weight, as in {{0: 1.0, 1: 5.0}}")
    if len(targets) != 1:
        raise Error("class_weight needs one output; give sample_weight instead")
    classes = targets[0]
    if 1 < classes.ndim and 1 < classes.shape[-1]:
        classes = classes.argmax(axis=-1)
    if classes.size != len(classes):
        raise Error(f"class_weight needs one class a row, and y has the shape {targets[0].shape}; give sample_weight instead")
    classes = np.rint(classes.reshape(len(classes), -1)[:, 0]).astype(np.int64)
    table = np.ones(max(int(classes.max()), *map(int, class_weight)) + 1, dtype=np.float32)
    for number, weight in class_weight.items():
        table[int(number)] = weight
    found = table[classes]
    return found if weights is None else found * weights[0].astype(np.float32)


def _is_stream(x):
    is_array = hasattr(x, "shape") or hasattr(x, "__array__") or isinstance(x, (dict, list, tuple))
    return not is_array and hasattr(x, "__iter__")


def _length(source):
    """How many batches there are; none where that is not known."""
    try:
        count = source.num_batches if hasattr(type(source), "num_batches") else len(source)
    except (TypeError, AttributeError, NotImplementedError):
        return None
    return count if isinstance(count, int) else None


def _leaves(value):
    if isinstance(value, dict):
        return [leaf for one in value.values() for leaf in _leaves(one)]
    if isinstance(value, (list, tuple)):
        return [leaf for one in value for leaf in _leaves(one)]
    return [value]


def _map(value, change):
    if value is None:
        return None
    if isinstance(value, dict):
        return {key: _map(one, change) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_map(one, change) for one in value)
    return change(value)
