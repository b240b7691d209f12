"""A Keras model as a request to the engine: its configuration, what it is compiled with, and the budget."""

import contextlib
import json

from . import _engine
from ._errors import Error
from ._live import complete
from ._variables import bytes_on_the_way

# Schedules of the learning rate that the engine computes; others are asked in Python before each step.
_SCHEDULES = {
    "ExponentialDecay", "CosineDecay", "CosineDecayRestarts", "PiecewiseConstantDecay", "PolynomialDecay", "InverseTimeDecay",
}


def request(model, batch_size, options, *, sample_weights=(), baseline=None):
    """The text of a request. `options` are the arguments that all calls share; `sample_weights` says of each array of weights whether it
    weighs every sample of a row."""
    config = options.get("config") or describe(model, options.get("dims"))
    budget = options.get("budget")
    if budget is not None and not isinstance(budget, str) and not _is_count(budget):
        raise Error(f'budget is {budget!r}; give bytes from 1 on, or a size such as "3GiB" or "50%"')
    settings = {
        "train.batch": int(batch_size),
        "train.seed": int(options.get("seed") or 0),
        "train.precision": options.get("precision"),
        "train.device": options.get("device"),
        "train.like": options.get("like"),
        "memory.budget": budget if budget is None or isinstance(budget, str) else f"{int(budget)}B",
        "memory.disk": options.get("disk"),
        "memory.costs": options.get("costs"),
        "memory.guard": options.get("guard"),
        "memory.allow_batchnorm_split": bool(options.get("allow_batchnorm_split", False)),
        "checkpoint.folder": options.get("checkpoints"),
        "checkpoint.keep": options.get("keep"),
    }
    return json.dumps({
        "config": config,
        "settings": settings,
        "sample_weights": len(sample_weights),
        "weights_of_samples": list(sample_weights),
        "threads": options.get("threads"),
        "handover": bytes_on_the_way(model),
        "resume": options.get("resume"),
        "validation": options.get("validation"),
        "baseline": _engine.baseline() if baseline is None else baseline,
    })


def describe(model, dims=None):
    """The model's configuration with what it is compiled with. `dims` are those of a row of each input, where they are known: they
    take the place of dimensions that the model leaves open. Keras may import a whole backend to write it, so that a baseline is
    taken after this."""
    try:
        with _without_schedule(model):
            config = json.loads(_plain(model).to_json())
            compiled = model.get_compile_config() if getattr(model, "compiled", False) else None
            config["class_name"] = _class_name(model, config["class_name"])
            if compiled:
                config["compile_config"] = json.loads(json.dumps(compiled))
    except (NotImplementedError, TypeError, ValueError) as error:
        raise Error(
            f"the model cannot be written as a configuration ({error}); build it with keras.Sequential or the functional API"
        ) from error
    compiled = config.get("compile_config")
    if compiled:
        config["compile_config"] = named(complete(model, unscaled(compiled)))
    if dims is not None:
        _close_dims(model, config, dims)
    return config


def _plain(model):
    """A functional model whose class is the user's may have no configuration: that of its graph is taken, with the same layers."""
    import keras

    functional = _functional()
    if not isinstance(model, functional) or type(model).__module__.startswith("keras."):
        return model
    if isinstance(model, keras.Sequential):
        return model
    return functional(model._inputs_struct, model._outputs_struct, name=model.name)


def _class_name(model, name):
    """What the model is, where its class is one of the user's."""
    import keras

    if type(model).__module__.startswith("keras."):
        return name
    return "Sequential" if isinstance(model, keras.Sequential) else "Functional"


def _functional():
    """Keras's class of functional models, which it does not name in public."""
    import keras

    return next(kind for kind in keras.Model.__subclasses__() if kind.__name__ == "Functional")


def require_batch_size(batch_size):
    """Stops where this cannot be the number of rows of a batch."""
    if batch_size is not None and not _is_count(batch_size):
        raise Error(f"batch_size is {batch_size!r}; give a whole number from 1 on")


def _is_count(value):
    """Whether a value is a whole number from 1 on, of Python or of NumPy."""
    try:
        return not isinstance(value, (bool, str)) and int(value) == value and 1 <= value
    except (TypeError, ValueError, OverflowError):
        return False


def schedule_in_python(optimizer):
    """The learning rate's schedule where it is one that the engine does not know."""
    import keras

    schedule = getattr(optimizer, "_learning_rate", None)
    if isinstance(schedule, keras.optimizers.schedules.LearningRateSchedule):
        return schedule if type(schedule).__name__ not in _SCHEDULES else None
    # A variable can be called in some backends; a callable of the user's gives the rate of now.
    return (lambda _step: schedule()) if callable(schedule) and not isinstance(schedule, keras.Variable) else None


@contextlib.contextmanager
def _without_schedule(model):
    """A schedule of the user's own needs no configuration: the rate is given with each step."""
    optimizer = getattr(model, "optimizer", None)
    optimizer = getattr(optimizer, "inner_optimizer", optimizer)
    if schedule_in_python(optimizer) is None:
        yield
        return
    rate = optimizer._learning_rate
    optimizer._learning_rate = 0.001
    try:
        yield
    finally:
        optimizer._learning_rate = rate


def _close_dims(model, config, dims):
    """Writes the dimensions of rows where the model's inputs leave them open."""
    if isinstance(dims, dict):
        dims = [dims.get(name) for name in input_names(model)]
    if len(dims) != len(model.inputs):
        raise Error(f"there are {len(dims)} shapes of rows for {len(model.inputs)} inputs; give one for each")
    known = {tensor._keras_history.operation.name: row for tensor, row in zip(model.inputs, dims) if row is not None}
    for layer in config["config"]["layers"]:
        shape = layer["config"].get("batch_shape")
        row = known.get(layer["config"].get("name"))
        if layer["class_name"] == "InputLayer" and shape and row is not None and len(row) == len(shape) - 1:
            layer["config"]["batch_shape"] = [shape[0], *(given if own is None else own for own, given in zip(shape[1:], row))]


def input_names(model):
    """What the inputs are called in a dict of arrays, in the engine's order."""
    struct = getattr(model, "input", None)
    return sorted(struct) if isinstance(struct, dict) else [tensor.name for tensor in model.inputs]


def unscaled(compiled):
    """The configuration with the optimizer that a LossScaleOptimizer wraps: the engine scales by itself."""
    optimizer = compiled.get("optimizer")
    if isinstance(optimizer, dict) and optimizer.get("class_name") == "LossScaleOptimizer":
        return {**compiled, "optimizer": optimizer["config"]["inner_optimizer"]}
    return compiled


def named(value):
    """The configuration with functions of Keras by their names: `loss=keras.losses.mean_squared_error` is a name too."""
    if isinstance(value, dict):
        if value.get("class_name") == "function" and isinstance(value.get("config"), str):
            return value["config"]
        return {key: named(one) for key, one in value.items()}
    return [named(one) for one in value] if isinstance(value, list) else value


def require_model(model, *, compiled):
    """Stops with what to do where the engine cannot take a model."""
    if not hasattr(model, "to_json") or not hasattr(model, "weights"):
        raise Error(f"expected a Keras model, got {type(model).__name__}; build one with keras.Sequential or keras.Model")
    if compiled and not getattr(model, "compiled", False):
        raise Error('the model is not compiled; call model.compile(optimizer="adam", loss=…) first')
    _refuse_own_code(model, compiled)


def require_input(model):
    """Stops where the shape of the model's inputs is not known yet."""
    if not knows_input(model):
        raise Error("the model does not know its input yet; give it a keras.Input, or call model.build((None, …))")


def knows_input(model):
    """Whether the shape of the model's inputs is known."""
    return bool(getattr(model, "inputs", None))


def _refuse_own_code(model, compiled):
    """A model whose steps are Python of the user's is no graph that could be planned."""
    kind = type(model)
    if not kind.call.__module__.startswith("keras."):
        raise Error(
            f"`{model.name}` is a {kind.__name__} with a call() of its own, which memfit cannot look into; build it with "
            "keras.Sequential or the functional API: keras.Model(inputs, outputs)"
        )
    for method in ("train_step", "compute_loss") if compiled else ():
        if not getattr(kind, method).__module__.startswith("keras."):
            raise Error(
                f"{kind.__name__} has a {method}() of its own, which memfit would not run; give model.compile a loss that memfit "
                "knows and leave it out"
            )
    given = getattr(getattr(model, "_compile_config", None), "config", None) or {"loss": getattr(model, "loss", None)}
    for what in ("loss", "metrics", "weighted_metrics") if compiled else ():
        own = _own_code(given.get(what))
        if own is not None:
            raise Error(
                f"{what}: `{own}` is Python code of your own, which cannot be planned; use one of Keras's by its name or as an object, "
                'as in "mse" or keras.losses.Huber()'
            )


def _own_code(given):
    """The name of a function or class that is none of Keras's, in what a model is compiled with."""
    if given is None or isinstance(given, str):
        return None
    if isinstance(given, (dict, list, tuple)):
        parts = given.values() if isinstance(given, dict) else given
        return next(filter(None, map(_own_code, parts)), None)
    named = given if hasattr(given, "__qualname__") else type(given)
    return None if named.__module__.split(".")[0] == "keras" else named.__qualname__
