"""Models and calls as people write them: what Keras takes is taken, and gives Keras's numbers."""

import keras
import numpy as np
import pytest
from keras import layers

import memfit
import models


def check(build, x, y, tolerance=1e-4, **arguments):
    """The same model trained by both, from the same weights."""
    arguments = {"epochs": 2, "batch_size": 8, "shuffle": False, "verbose": 0, **arguments}
    histories, weights = [], []
    for fit in (lambda model, *rows, **rest: model.fit(*rows, **rest), memfit.fit):
        keras.backend.clear_session()
        keras.utils.set_random_seed(7)
        model = build()
        histories.append(fit(model, x, y, **arguments).history)
        weights.append(model.get_weights())
    assert histories[0].keys() == histories[1].keys()
    for name, values in histories[0].items():
        np.testing.assert_allclose(histories[1][name], values, rtol=tolerance, atol=1e-6, err_msg=name)
    for theirs, ours in zip(*weights):
        np.testing.assert_allclose(ours, theirs, rtol=1e-3, atol=1e-5)


def test_a_model_without_an_input_is_built_for_the_rows():
    def build():
        model = keras.Sequential([layers.Flatten(), layers.Dense(4, activation="tanh"), layers.Dense(3)])
        model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True), metrics=["accuracy"])
        return model

    x, y = models.random(24, 4, 5), models.labels(24, 3)
    check(build, x, y)
    assert memfit.predict(build(), x).shape == (24, 3)
    endless = iter(lambda: (x[:8], y[:8]), None)
    assert memfit.fit(build(), endless, steps_per_epoch=3, verbose=0).history["loss"]
    with pytest.raises(memfit.Error, match="keras.Input"):
        memfit.plan(build())
    assert memfit.plan(build(), input_shape=(4, 5)).fits


def test_open_dimensions_are_those_of_the_rows():
    def build():
        words = keras.Input((None,), dtype="int32")
        x = layers.Bidirectional(layers.LSTM(4))(layers.Embedding(20, 6)(words))
        model = keras.Model(words, layers.Dense(1, activation="sigmoid")(x))
        model.compile("sgd", "binary_crossentropy", metrics=["accuracy"])
        return model

    x, y = models.labels(24 * 7, 20).reshape(24, 7), models.labels(24, 2)
    check(build, x, y, validation_data=(x[:, :5], y))
    with pytest.raises(memfit.Error, match="every dimension"):
        memfit.plan(build())
    assert memfit.plan(build(), input_shape=(7,)).fits


class Warmup(keras.optimizers.schedules.LearningRateSchedule):
    def __call__(self, step):
        step = keras.ops.cast(step, "float32")
        return 0.1 * keras.ops.minimum((step + 1.0) ** -0.5, (step + 1.0) * 0.3)


@pytest.mark.parametrize("schedule", [
    Warmup,
    lambda: keras.optimizers.schedules.CosineDecayRestarts(0.1, 2, t_mul=2.0, m_mul=0.5, alpha=0.1),
])
def test_schedules_of_all_kinds(schedule):
    def build():
        model = keras.Sequential([keras.Input((6,)), layers.Dense(4, activation="tanh"), layers.Dense(1)])
        model.compile(keras.optimizers.SGD(schedule(), momentum=0.9), "mse")
        return model

    check(build, models.random(24, 6), models.random(24, 1), epochs=4)


def test_data_for_a_validation_begins_again_each_time():
    import tensorflow as tf

    model, x, y = models.dense()
    rows = tf.data.Dataset.from_tensor_slices((x, y)).batch(8)
    seen = []

    class Look(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            seen.append((logs["val_loss"], self.model.evaluate(x[:8], y[:8], verbose=0)[0]))

    memfit.fit(model, x, y, epochs=2, validation_data=rows, validation_steps=1, callbacks=[Look()], verbose=0)
    np.testing.assert_allclose(*zip(*seen), rtol=1e-4)


def test_evaluations_are_reported_as_keras_reports_them(capsys):
    inside = keras.Input((6,))
    x = layers.Dense(4, activation="tanh")(inside)
    model = keras.Model(inside, {"b": layers.Dense(1, name="b")(x), "a": layers.Dense(2, name="a")(x)})
    model.compile("sgd", {"b": "mse", "a": "mae"}, metrics={"a": ["mse"], "b": ["mae"]})
    x, y = models.random(24, 6), {"b": models.random(24, 1), "a": models.random(24, 2)}
    np.testing.assert_allclose(memfit.evaluate(model, x, y, 8, 0), model.evaluate(x, y, 8, 0), rtol=1e-4)
    ours, theirs = (judge(x, y, verbose=0, return_dict=True) for judge in (lambda *a, **b: memfit.evaluate(model, *a, **b), model.evaluate))
    assert list(ours) == list(theirs)
    assert capsys.readouterr().out == ""


def test_evaluate_and_predict_call_back():
    model, x, y = models.dense()
    seen = []

    class Look(keras.callbacks.Callback):
        def on_test_batch_end(self, batch, logs=None):
            seen.append(("test", batch, sorted(logs)))

        def on_predict_batch_end(self, batch, logs=None):
            seen.append(("predict", batch, logs["outputs"].shape))

    memfit.evaluate(model, x, y, batch_size=12, callbacks=[Look()], verbose=0)
    memfit.predict(model, x, batch_size=12, callbacks=[Look()])
    assert seen[1] == ("test", 1, ["accuracy", "loss"]) and seen[3] == ("predict", 1, (12, 3))


def test_code_that_would_not_run_is_refused():
    class Own(keras.Model):
        def __init__(self):
            super().__init__()
            self.inner = layers.Dense(1)

        def call(self, x):
            return self.inner(x)

    class Stepped(keras.Model):
        def train_step(self, data):
            raise NotImplementedError

    inside = keras.Input((6,))
    for model, word in ((Own(), r"call\(\)"), (Stepped(inside, layers.Dense(1)(inside)), r"train_step\(\)")):
        model.compile("sgd", "mse")
        with pytest.raises(memfit.Error, match=word):
            memfit.fit(model, models.random(8, 6), models.random(8, 1))


def test_a_lambda_is_refused_with_what_to_write_instead():
    model = keras.Sequential([keras.Input((6,)), layers.Lambda(lambda x: x * 2), layers.Dense(1)])
    model.compile("sgd", "mse")
    with pytest.raises(memfit.Error, match="keras.ops"):
        memfit.plan(model)


def test_an_encoder_hands_its_states_to_a_decoder():
    def build():
        source, target = keras.Input((None,), dtype="int32"), keras.Input((None, 5))
        _, *states = layers.LSTM(6, return_state=True)(layers.Embedding(9, 4, mask_zero=True)(source))
        x = layers.LSTM(6, return_sequences=True)(target, initial_state=states)
        model = keras.Model([source, target], layers.Dense(5, activation="softmax")(x))
        model.compile(keras.optimizers.SGD(0.5), "sparse_categorical_crossentropy", metrics=["accuracy"])
        return model

    x = [models.labels(24 * 7, 9).reshape(24, 7), models.random(24, 4, 5)]
    check(build, x, models.labels(24 * 4, 5).reshape(24, 4), validation_split=0.25)


def tagger():
    words = keras.Input((6,), dtype="int32")
    x = layers.GRU(4, return_sequences=True)(layers.Embedding(5, 4, mask_zero=True)(words))
    model = keras.Model(words, layers.Dense(3, activation="softmax")(x))
    model.compile("sgd", "sparse_categorical_crossentropy", metrics=["accuracy"], weighted_metrics=["sparse_categorical_crossentropy"])
    return model


@pytest.mark.parametrize("weights", [None, models.random(24, 6)])
def test_masks_and_weights_of_steps_count_in_loss_and_metrics(weights):
    x, y = models.labels(24 * 6, 5).reshape(24, 6), models.labels(24 * 6, 3).reshape(24, 6)
    check(tagger, x, y, sample_weight=weights)


def test_metrics_of_several_numbers_are_arrays():
    def build():
        model = keras.Sequential([keras.Input((6,)), layers.Dense(3, activation="softmax")])
        metrics = [keras.metrics.F1Score(), keras.metrics.Recall(thresholds=[0.2, 0.4]), "accuracy"]
        model.compile("sgd", "categorical_crossentropy", metrics=metrics)
        return model

    x, y = models.random(24, 6), np.eye(3, dtype="float32")[models.labels(24, 3)]
    check(build, x, y, validation_split=0.25)
    assert memfit.evaluate(build(), x, y, return_dict=True, verbose=0)["f1_score"].shape == (3,)


def test_images_prepared_as_keras_applications_want_them():
    def build():
        image = keras.Input((8, 8, 3))
        x = keras.applications.resnet50.preprocess_input(image)
        x = layers.GlobalAveragePooling2D()(layers.Conv2D(4, 3)(x))
        model = keras.Model(image, layers.Dense(1)(x))
        model.compile(keras.optimizers.SGD(1e-5), "mse")
        return model

    check(build, 255 * models.random(16, 8, 8, 3), models.random(16, 1))


def test_class_weight_needs_one_class_a_row():
    x, y = models.labels(24 * 6, 5).reshape(24, 6), models.labels(24 * 6, 3).reshape(24, 6, 1)
    with pytest.raises(memfit.Error, match="one class a row"):
        memfit.fit(tagger(), x, y, class_weight={0: 1.0, 1: 2.0}, verbose=0)


def video():
    frame = keras.Sequential([layers.Rescaling(1 / 255), layers.Conv2D(3, 3, activation="relu"), layers.GlobalAveragePooling2D()])
    frames = keras.Input((4, 6, 6, 3), dtype="uint8")
    x = layers.RNN([layers.GRUCell(5), layers.LSTMCell(4)])(layers.TimeDistributed(frame)(frames))
    model = keras.Model(frames, layers.Dense(1)(x))
    model.compile(keras.optimizers.SGD(0.1), "mse")
    return model


def test_a_model_on_every_frame_and_cells_after_it(tmp_path):
    x, y = (255 * models.random(24, 4, 6, 6, 3)).astype("uint8"), models.random(24, 1)
    check(video, x, y)
    model = video()
    memfit.fit(model, x, y, verbose=0)
    memfit.save(model, tmp_path / "video.keras")
    again = keras.models.load_model(tmp_path / "video.keras")
    np.testing.assert_allclose(again.predict(x, verbose=0), memfit.predict(model, x), rtol=1e-4, atol=1e-6)


def mean_squared_error(truth, prediction):
    return keras.ops.mean(2 * keras.ops.square(truth - prediction))


class Own(keras.losses.Loss):
    def call(self, truth, prediction):
        return keras.ops.mean(truth - prediction)


@pytest.mark.parametrize("arguments", [
    {"loss": mean_squared_error}, {"loss": Own()}, {"loss": lambda truth, prediction: truth - prediction},
    {"loss": ["mse"], "metrics": [["mae", mean_squared_error]]},
])
def test_losses_and_metrics_of_ones_own_are_refused_even_by_a_name_of_keras(arguments):
    model, x, y = keras.Sequential([keras.Input((6,)), layers.Dense(3)]), models.random(8, 6), models.random(8, 3)
    model.compile("sgd", **arguments)
    with pytest.raises(memfit.Error, match="of your own"):
        memfit.fit(model, x, y, verbose=0)
    model.compile("sgd", keras.losses.mean_squared_error, metrics=[keras.metrics.mean_absolute_error, keras.metrics.MeanSquaredError()])
    assert memfit.fit(model, x, y, verbose=0).history["loss"]


@pytest.mark.parametrize("arguments, word", [
    ({"batch_size": 0}, "batch_size is 0"), ({"batch_size": "a"}, "batch_size is 'a'"), ({"batch_size": 2.5}, "batch_size is 2.5"),
    ({"budget": -5}, "budget is -5"), ({"budget": 0}, "budget is 0"), ({"class_weight": "balanced"}, "give a dict"),
])
def test_arguments_that_mean_nothing_are_refused(arguments, word):
    model, x, y = models.dense()
    with pytest.raises(memfit.Error, match=word):
        memfit.fit(model, x, y, verbose=0, **arguments)
    assert memfit.fit(model, x, y, verbose=0, batch_size=np.int64(8), budget=np.int64(1 << 30)).history["loss"]


def test_data_that_ends_within_an_epoch_is_reported():
    model, x, y = models.dense()
    with pytest.warns(UserWarning, match="step 3 of 5"):
        memfit.fit(model, ((x[:8], y[:8]) for _ in range(3)), steps_per_epoch=5, verbose=0)
