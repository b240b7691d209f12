"""Steps of a session, one after the other: a device that works on its own begins the next before what this one told is read."""

from collections import deque


def steps(session, batches, ahead, before=None, rate=None):
    """Runs batches and yields what each told, in order. `ahead` of them are begun before the one in front of them is looked at;
    `before` is told the number of one that is about to begin, `rate` gives its learning rate."""
    begun = deque()
    for number, batch in enumerate(batches):
        if before:
            before(number)
        session.begin(*batch, rate() if rate else None)
        begun.append(batch)
        while ahead < len(begun):
            yield _end(session, begun.popleft())
    while begun:
        yield _end(session, begun.popleft())


def _end(session, batch):
    return session.end(batch.arrays, batch.start, batch.order)


def ahead_of(session, callbacks, hooks):
    """How many steps may be begun ahead. None where a callback is told of single batches: it may look at the model then, or change
    the learning rate, the weights or its mind about going on."""
    import keras

    def is_told(callback, hook):
        # Those that save at the end of an epoch alone do nothing between.
        if getattr(callback, "save_freq", None) == "epoch" and type(callback).__module__.startswith("keras."):
            return False
        plain = getattr(keras.callbacks.Callback, hook)
        return hook in getattr(callback, "__dict__", {}) or getattr(type(callback), hook, None) is not plain

    told = any(is_told(callback, hook) for callback in callbacks.callbacks for hook in hooks)
    return 0 if told else session.steps_ahead()


TRAIN_HOOKS = ("on_batch_begin", "on_batch_end", "on_train_batch_begin", "on_train_batch_end")
TEST_HOOKS = ("on_test_batch_begin", "on_test_batch_end")
