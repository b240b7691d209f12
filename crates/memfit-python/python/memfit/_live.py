"""What a model is compiled with, read from the live objects: Keras's configuration of an object leaves some of its arguments out."""

from ._errors import Error

# Losses and metrics are computed in float32.
_NARROW = {"float16", "bfloat16"}


def complete(model, compiled):
    """The compile configuration with the arguments that `get_config` leaves out."""
    given = getattr(getattr(model, "_compile_config", None), "config", None) or {}
    ranks = {len(output.shape) for output in getattr(model, "outputs", None) or []}
    last = ranks.pop() - 1 if len(ranks) == 1 else None
    for key in ("loss", "metrics", "weighted_metrics"):
        if key in compiled and key in given:
            compiled[key] = _complete(given[key], compiled[key], last)
    return {**compiled, "optimizer": _decayed(model, getattr(model, "optimizer", None), compiled.get("optimizer"))}


def _complete(live, config, last):
    if isinstance(live, dict) and isinstance(config, dict):
        return {key: _complete(live[key], one, last) if key in live else one for key, one in config.items()}
    if isinstance(live, (list, tuple)):
        if isinstance(config, dict):
            config = config.get("config", {}).get("value", config.get("items", config))
        if isinstance(config, list) and len(config) == len(live):
            return [_complete(one, known, last) for one, known in zip(live, config)]
        return config
    if not (isinstance(config, dict) and isinstance(config.get("config"), dict)):
        return config
    _require_width(live)
    kept = getattr(live, "_fn_kwargs", None) or {}
    plain = {key: one for key, one in kept.items() if one is None or isinstance(one, (bool, int, float, str))}
    whole = {**config["config"], **plain}
    # The last axis is counted from the end.
    if isinstance(whole.get("axis"), int) and whole["axis"] == last:
        whole["axis"] = -1
    return {**config, "config": whole}


def _require_width(live):
    width = getattr(live, "dtype", None)
    if isinstance(width, str) and width in _NARROW:
        raise Error(
            f"`{getattr(live, 'name', type(live).__name__)}` asks for dtype=\"{width}\", and memfit computes losses and metrics in "
            "float32; leave dtype out"
        )


def _decayed(model, optimizer, config):
    """The optimizer's configuration with the weights that do not decay, by their number among the model's."""
    optimizer = getattr(optimizer, "inner_optimizer", optimizer)
    if not isinstance(config, dict) or not isinstance(config.get("config"), dict) or not hasattr(optimizer, "_use_weight_decay"):
        return config
    if not getattr(optimizer, "weight_decay", None):
        return config
    trainable = {id(variable) for variable in model.trainable_variables}
    kept = [number for number, variable in enumerate(model.weights)
            if id(variable) in trainable and not optimizer._use_weight_decay(variable)]
    return {**config, "config": {**config["config"], "exclude_from_weight_decay": kept}} if kept else config
