"""A Keras model as a request to the engine: its configuration, what it is compiled with, and the line."""

import json

from . import _engine
from ._errors import Error


def request(model, batch_size, options, *, sample_weights=0, baseline=None):
    """The text of a request. `options` are the arguments that all calls share."""
    config = options.get("config") or describe(model)
    budget = options.get("budget")
    return json.dumps({
        "config": config,
        "batch": int(batch_size),
        "budget": budget if budget is None or isinstance(budget, str) else int(budget),
        "disk": options.get("disk"),
        "precision": options.get("precision"),
        "costs": options.get("costs"),
        "allow_batchnorm_split": bool(options.get("allow_batchnorm_split", False)),
        "sample_weights": int(sample_weights),
        "seed": int(options.get("seed") or 0),
        "threads": options.get("threads"),
        "device": options.get("device"),
        "baseline": _engine.baseline() if baseline is None else baseline,
    })


def describe(model):
    """The model's configuration with what it is compiled with. Keras may import a whole backend to write it, so that a baseline is
    taken behind this."""
    try:
        config = json.loads(model.to_json())
    except (NotImplementedError, TypeError, ValueError) as error:
        raise Error(
            f"the model cannot be written as a configuration ({error}); build it with keras.Sequential or the functional API"
        ) from error
    compiled = config.get("compile_config")
    if compiled:
        config["compile_config"] = named(unscaled(compiled))
    return config


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
    """Stops with what to do where a model cannot be handed over."""
    if not hasattr(model, "to_json") or not hasattr(model, "weights"):
        raise Error(f"expected a Keras model, got {type(model).__name__}; build one with keras.Sequential or keras.Model")
    if compiled and not getattr(model, "compiled", False):
        raise Error('the model is not compiled; call model.compile(optimizer="adam", loss=…) first')
    if not model.built:
        raise Error("the model does not know its input yet; give it a keras.Input, or call model.build((None, …))")
