"""Steps of a session, one after the other: a device that works on its own begins the next before the readback of this one."""


def steps(session, batches, ahead, before=None, rate=None):
    """Runs batches and yields what each gave, in order. Up to `ahead` of them are in flight; `before` is called with the number of one
    that is about to begin, `rate` gives its learning rate."""
    for number, batch in enumerate(batches):
        if before:
            before(number)
        yield from session.step(*batch, rate() if rate else None, ahead)
    yield from session.finish_steps()


def ahead_of(session, callbacks, hooks):
    """How many steps may be in flight when another begins. It is 0 where a callback has a hook for single batches: the hook may read
    the model, change the learning rate or the weights, or stop the training."""
    import keras

    def has_hook(callback, hook):
        # Callbacks that save only at the end of an epoch do nothing between.
        if getattr(callback, "save_freq", None) == "epoch" and type(callback).__module__.startswith("keras."):
            return False
        plain = getattr(keras.callbacks.Callback, hook)
        return hook in getattr(callback, "__dict__", {}) or getattr(type(callback), hook, None) is not plain

    waits = any(has_hook(callback, hook) for callback in callbacks.callbacks for hook in hooks)
    return 0 if waits else session.steps_ahead()


TRAIN_HOOKS = ("on_batch_begin", "on_batch_end", "on_train_batch_begin", "on_train_batch_end")
TEST_HOOKS = ("on_test_batch_begin", "on_test_batch_end")
