"""Ten training steps of small models, for training.json."""

import json
import math

import keras
import numpy as np
import tensorflow as tf
from keras import layers, losses, optimizers
from keras.optimizers import schedules

import counter
from layer_cases import digits, is_scale

STEPS = 10

# Step s draws its data with seed + s, so tensors keep 100 seeds apart.
INPUT_SEED, TARGET_SEED, SAMPLE_SEED, WEIGHT_SEED = 1000, 2000, 3000, 4000


def weight_range(weight):
    """The range a weight starts in: He's for kernels, narrow for offsets."""
    name = weight.path.split("/")[-1]
    if is_scale(weight.path):
        return 0.5, 1.5
    if name == "embeddings":
        return -0.5, 0.5
    if name == "kernel":
        depthwise = "depthwise" in weight.path
        fan_in = math.prod(weight.shape[:2] if depthwise else weight.shape[:-1])
        limit = round(math.sqrt(6 / fan_in), 4)
        return -limit, limit
    return -0.1, 0.1


class Case:
    """A model, what it is compiled with and the data of its steps."""

    def __init__(self, name, model, optimizer, loss, inputs, targets, *, sample_weights=None,
                 loss_weights=None, metrics=None, dense_gradients=False, note=None):
        self.name = name
        self.model = model
        self.optimizer = optimizer
        self.loss = loss
        self.inputs = inputs
        self.targets = targets
        self.sample_weights = sample_weights
        self.loss_weights = loss_weights
        self.metrics = metrics
        self.dense_gradients = dense_gradients
        self.note = note

    def compute(self):
        model = self.model
        weights = [
            {"path": weight.path,
             **counter.uniform(weight.shape, WEIGHT_SEED + i, *weight_range(weight))}
            for i, weight in enumerate(model.weights)
        ]
        optimizer = optimizers.serialize(self.optimizer)
        result = {
            "name": self.name,
            "config": json.loads(model.to_json()),
            "optimizer": {key: optimizer[key] for key in ("class_name", "config")},
            "loss": [describe(loss) for loss in self.loss]
            if isinstance(self.loss, list) else describe(self.loss),
            "inputs": self.inputs,
            "targets": self.targets,
            "sample_weights": self.sample_weights,
            "weights": weights,
            "batch": self.inputs[0]["shape"][0],
            "steps": STEPS,
        }
        if self.loss_weights:
            result["loss_weights"] = self.loss_weights
        if self.metrics:
            result["metrics"] = self.metrics
        if self.note:
            result["note"] = self.note

        def restart():
            for weight, spec in zip(model.weights, weights):
                weight.assign(counter.tensor(spec))
            return type(self.optimizer).from_config(self.optimizer.get_config())

        values = {"loss": self.loop(restart())}
        if not self.dense_gradients:
            by_loop, values = values, self.train_on_batch(restart())
            np.testing.assert_allclose(
                values["loss"], by_loop["loss"], rtol=2e-6, err_msg=self.name)
        result["losses"] = digits(values["loss"])
        if self.metrics:
            result["metrics_values"] = {name: digits(values[name]) for name in self.metrics}
        result["final"] = self.final()
        return result

    def data(self, step):
        """Inputs, targets and sample weights of one step, as Keras takes them."""
        def alone(values):
            return values[0] if len(values) == 1 else values
        x = alone([counter.tensor(spec, step) for spec in self.inputs])
        y = alone([counter.tensor(spec, step) for spec in self.targets])
        return x, y, self.sample_weights and counter.tensor(self.sample_weights, step)

    def train_on_batch(self, optimizer):
        """The loss and the metrics of each step, the way model.fit takes it."""
        self.model.compile(optimizer, loss=self.loss, loss_weights=self.loss_weights,
                           metrics=self.metrics, jit_compile=False)
        values = {}
        for step in range(STEPS):
            self.model.reset_metrics()
            x, y, sample_weight = self.data(step)
            logs = self.model.train_on_batch(x, y, sample_weight, return_dict=True)
            for name, value in logs.items():
                values.setdefault(name, []).append(value)
        return values

    def loop(self, optimizer):
        """The loss of each step, with the steps written out, to check train_on_batch."""
        functions = [
            losses.get(class_name(loss)) if isinstance(loss, str) else loss
            for loss in (self.loss if isinstance(self.loss, list) else [self.loss])
        ]
        factors = self.loss_weights or [1.0] * len(functions)
        trainable = [weight.value for weight in self.model.trainable_weights]
        values = []
        for step in range(STEPS):
            x, y, sample_weight = self.data(step)
            with tf.GradientTape() as tape:
                outputs = self.model(x, training=True)
                if len(functions) == 1:
                    outputs, y = [outputs], [y]
                loss = tf.add_n([
                    factor * function(target, output, sample_weight=sample_weight)
                    for factor, function, target, output in zip(factors, functions, y, outputs)
                ])
            gradients = tape.gradient(loss, trainable)
            if self.dense_gradients:
                gradients = [tf.convert_to_tensor(gradient) for gradient in gradients]
            optimizer.apply(gradients, self.model.trainable_weights)
            values.append(loss.numpy())
        return values

    def final(self):
        """A digest of every weight."""
        digest = {}
        for weight in self.model.weights:
            values = weight.numpy().astype(np.float64).ravel()
            digest[weight.path] = {
                "sum": digits(values.sum())[0],
                "abs_sum": digits(np.abs(values).sum())[0],
                "first": digits(values[:8]),
            }
        return digest


def class_name(loss):
    """mean_squared_error -> MeanSquaredError."""
    return "".join(word.capitalize() for word in loss.split("_"))


def describe(loss):
    """A loss as compile takes it: a name, or a class and its arguments."""
    if isinstance(loss, str):
        return loss
    # The config of Huber lacks its delta, so the arguments are added to all configs.
    config = loss.get_config() | loss._fn_kwargs
    return {"class_name": type(loss).__name__, "config": config}


def adam(rate=0.01, **arguments):
    return optimizers.Adam(rate, name="adam", **arguments)


def adamw(rate=0.01, **arguments):
    return optimizers.AdamW(rate, name="adamw", **arguments)


def sgd(rate=0.1, **arguments):
    return optimizers.SGD(rate, name="sgd", **arguments)


def rmsprop(rate=0.005, **arguments):
    return optimizers.RMSprop(rate, name="rmsprop", **arguments)


def uniform_input(*shape, low=-1.0, high=1.0):
    return [counter.uniform(shape, INPUT_SEED, low, high)]


def classes(batch, count):
    return [counter.integers((batch,), TARGET_SEED, 0, count)]


def one_hot(*shape):
    return [counter.one_hot(shape, TARGET_SEED)]


def sequential(shape, *stack, dtype="float32"):
    return keras.Sequential([keras.Input(shape, dtype=dtype, name="x"), *stack], name="model")


def mlp(activation="softmax", outputs=5, tail=()):
    return sequential(
        (20,),
        layers.Dense(32, activation="relu", name="hidden1"),
        layers.Dense(32, activation="relu", name="hidden2"),
        layers.Dense(outputs, activation=activation, name="output"),
        *tail,
    )


def network_cases():
    """Whole networks, the shapes of which matter more than their arguments."""
    def conv(filters, name):
        return layers.Conv2D(filters, 3, padding="same", activation="relu", name=name)

    yield Case(
        "large_image",
        sequential(
            (64, 64, 3),
            layers.Conv2D(32, 3, activation="relu", name="conv"),
            layers.MaxPooling2D(name="pool"),
            layers.Flatten(name="flatten"),
            layers.Dense(10, activation="softmax", name="output"),
        ),
        adam(1e-4), "mean_squared_error", uniform_input(8, 64, 64, 3, low=0.0), one_hot(8, 10),
    )
    yield Case(
        "six_convolutions",
        sequential(
            (32, 32, 3),
            conv(26, "conv1"), conv(26, "conv2"), layers.MaxPooling2D(name="pool1"),
            conv(51, "conv3"), conv(51, "conv4"), layers.MaxPooling2D(name="pool2"),
            conv(102, "conv5"), conv(102, "conv6"),
            layers.GlobalAveragePooling2D(name="mean"),
            layers.Dense(10, activation="softmax", name="output"),
        ),
        adam(1e-3), "categorical_crossentropy", uniform_input(4, 32, 32, 3, low=0.0),
        one_hot(4, 10),
    )

    def normalized(x, name, relu=True):
        x = layers.Conv2D(8, 3, padding="same", use_bias=False, name=f"{name}_conv")(x)
        x = layers.BatchNormalization(name=f"{name}_norm")(x)
        return layers.ReLU(name=f"{name}_relu")(x) if relu else x

    image = keras.Input((8, 8, 4), name="x")
    x = normalized(image, "stem")
    for block in ("block1", "block2"):
        y = normalized(normalized(x, f"{block}_1"), f"{block}_2", relu=False)
        x = layers.ReLU(name=f"{block}_relu")(layers.Add(name=f"{block}_sum")([x, y]))
    x = layers.GlobalAveragePooling2D(name="mean")(x)
    x = layers.Dense(5, activation="softmax", name="output")(x)
    yield Case("residual_batch_normalization", keras.Model(image, x, name="model"),
               adam(), "categorical_crossentropy", uniform_input(8, 8, 8, 4), one_hot(8, 5),
               metrics=["accuracy"])

    def words():
        return sequential(
            (12,),
            layers.Embedding(50, 16, name="embedding"),
            layers.LayerNormalization(name="norm"),
            layers.Dense(24, activation="relu", name="hidden"),
            layers.Flatten(name="flatten"),
            layers.Dense(3, activation="softmax", name="output"),
            dtype="int32",
        )

    ids = [counter.integers((6, 12), INPUT_SEED, 0, 50)]
    yield Case("embedding_sgd", words(), sgd(0.05), "sparse_categorical_crossentropy",
               ids, classes(6, 3))
    yield Case("embedding_adamw", words(), adamw(0.003, weight_decay=0.02),
               "sparse_categorical_crossentropy", ids, classes(6, 3), dense_gradients=True,
               note="Gradients of one id met several times are summed before the optimizer "
                    "sees them, as its formulas say.")
    yield Case("embedding_adamw_slices", words(), adamw(0.003, weight_decay=0.02),
               "sparse_categorical_crossentropy", ids, classes(6, 3),
               note="As Keras on TensorFlow runs it: the second moment of the embedding takes "
                    "the sum of the squares of the gradients of one id met several times, "
                    "not the square of their sum.")

    x = keras.Input((12,), name="x")
    trunk = layers.Dense(16, activation="relu", name="trunk")(x)
    label = layers.Dense(4, activation="softmax", name="label")(trunk)
    value = layers.Dense(3, name="value")(trunk)
    yield Case("two_outputs_loss_weights", keras.Model(x, [label, value], name="model"),
               adam(), ["sparse_categorical_crossentropy", "mean_squared_error"],
               uniform_input(8, 12),
               classes(8, 4) + [counter.uniform((8, 3), TARGET_SEED + 100)],
               loss_weights=[1.0, 0.3])

    image = keras.Input((8, 8, 3), name="x")
    fine = layers.DepthwiseConv2D(3, padding="same", depth_multiplier=2, name="depthwise1")(image)
    fine = layers.Conv2D(8, 1, activation="relu", name="pointwise1")(fine)
    coarse = layers.MaxPooling2D(name="pool")(fine)
    coarse = layers.DepthwiseConv2D(3, padding="same", name="depthwise2")(coarse)
    coarse = layers.Conv2D(12, 1, activation="relu", name="pointwise2")(coarse)
    x = layers.UpSampling2D(name="up")(coarse)
    x = layers.Concatenate(name="skip")([x, fine])
    x = layers.Conv2D(2, 3, padding="same", name="output")(x)
    yield Case("mini_unet", keras.Model(image, x, name="model"), adam(), "mean_squared_error",
               uniform_input(4, 8, 8, 3), [counter.uniform((4, 8, 8, 2), TARGET_SEED)])


def transformer_cases():
    """A small encoder: tokens and positions, two blocks, a classifier."""
    tokens = keras.Input((12,), dtype="int32", name="tokens")
    places = keras.Input((12,), dtype="int32", name="places")
    x = layers.Embedding(50, 16, name="token_table")(tokens)
    x = layers.Add(name="placed")([x, layers.Embedding(12, 16, name="place_table")(places)])
    for block in ("block1", "block2"):
        y = layers.LayerNormalization(name=f"{block}_norm1")(x)
        y = layers.MultiHeadAttention(4, 4, name=f"{block}_attention")(y, y)
        x = layers.Add(name=f"{block}_sum1")([x, y])
        y = layers.LayerNormalization(name=f"{block}_norm2")(x)
        y = layers.Dense(32, activation="gelu", name=f"{block}_hidden")(y)
        y = layers.Dense(16, name=f"{block}_narrow")(y)
        x = layers.Add(name=f"{block}_sum2")([x, y])
    x = layers.GlobalAveragePooling1D(name="mean")(layers.LayerNormalization(name="norm")(x))
    x = layers.Dense(3, activation="softmax", name="output")(x)
    ids = [counter.integers((6, 12), INPUT_SEED, 0, 50),
           counter.integers((6, 12), INPUT_SEED + 100, 0, 12)]
    yield Case("transformer", keras.Model([tokens, places], x, name="model"), adam(0.003),
               "sparse_categorical_crossentropy", ids, classes(6, 3), dense_gradients=True,
               note="Gradients of one id met several times are summed before the optimizer "
                    "sees them, as its formulas say.")


def optimizer_cases():
    """One classifier under every optimizer and schedule."""
    for name, optimizer in (
        ("sgd", sgd()),
        ("sgd_momentum", sgd(0.05, momentum=0.9)),
        ("sgd_nesterov", sgd(0.05, momentum=0.9, nesterov=True)),
        ("sgd_weight_decay", sgd(weight_decay=0.1)),
        ("sgd_clipnorm", sgd(clipnorm=0.3)),
        ("adam", adam()),
        ("adam_arguments", adam(0.02, beta_1=0.8, beta_2=0.95, epsilon=1e-3)),
        ("adam_amsgrad", adam(0.02, beta_2=0.8, amsgrad=True)),
        ("adamw", adamw(weight_decay=0.1)),
        ("rmsprop", rmsprop()),
        ("rmsprop_momentum", rmsprop(0.002, momentum=0.9)),
        ("rmsprop_centered", rmsprop(centered=True)),
        ("rmsprop_centered_momentum",
         rmsprop(0.002, rho=0.8, momentum=0.7, epsilon=1e-3, centered=True)),
        ("adam_clipnorm", adam(clipnorm=0.3)),
        ("adam_global_clipnorm", adam(global_clipnorm=0.5)),
        ("adam_clipvalue", adam(clipvalue=0.02)),
        ("adam_exponential_decay", adam(schedules.ExponentialDecay(0.02, 4, 0.5))),
        ("adam_exponential_decay_staircase",
         adam(schedules.ExponentialDecay(0.02, 4, 0.5, staircase=True))),
        ("sgd_cosine_decay", sgd(schedules.CosineDecay(0.2, 8, alpha=0.1))),
        ("sgd_cosine_decay_warmup",
         sgd(schedules.CosineDecay(0.01, 5, alpha=0.1, warmup_target=0.2, warmup_steps=3))),
        ("adamw_cosine_decay", adamw(schedules.CosineDecay(0.02, 8), weight_decay=0.1)),
        ("sgd_piecewise_constant_decay",
         sgd(schedules.PiecewiseConstantDecay([2, 6], [0.2, 0.1, 0.02]))),
        ("sgd_polynomial_decay", sgd(schedules.PolynomialDecay(0.2, 6, 0.02, power=2.0))),
        ("sgd_polynomial_decay_cycle",
         sgd(schedules.PolynomialDecay(0.2, 4, 0.02, cycle=True))),
        ("sgd_inverse_time_decay", sgd(schedules.InverseTimeDecay(0.2, 2, 0.5))),
        ("sgd_inverse_time_decay_staircase",
         sgd(schedules.InverseTimeDecay(0.2, 2, 0.5, staircase=True))),
    ):
        yield Case(f"mlp_{name}", mlp(), optimizer, "sparse_categorical_crossentropy",
                   uniform_input(16, 20), classes(16, 5))


def loss_cases():
    """One network under every loss."""
    def case(name, loss, activation, targets, **options):
        tail = options.pop("tail", ())
        batch = targets[0]["shape"][0]
        return Case(f"loss_{name}", mlp(activation, tail=tail), adam(), loss,
                    uniform_input(batch, 20), targets, **options)

    def numbers(batch=16):
        return [counter.uniform((batch, 5), TARGET_SEED, -3.0, 3.0)]

    yes_or_no = [counter.integers((16, 5), TARGET_SEED, 0, 2)]
    sample_weights = counter.uniform((16,), SAMPLE_SEED, 0.0, 2.0)

    def hidden_logits():
        """A layer that hides from the loss that probabilities came from logits."""
        return [layers.Reshape((5,), name="probabilities")]

    yield case("mean_squared_error", "mean_squared_error", None, numbers())
    # An odd batch: as many errors above as below zero would leave Adam nothing but rounding.
    yield case("mean_absolute_error", "mean_absolute_error", None, numbers(15))
    yield case("huber", "huber", None, numbers())
    yield case("huber_delta", losses.Huber(delta=0.5), None, numbers())
    yield case("binary_crossentropy", "binary_crossentropy", "sigmoid", yes_or_no)
    yield case("binary_crossentropy_from_logits",
               losses.BinaryCrossentropy(from_logits=True), None, yes_or_no)
    yield case("binary_crossentropy_label_smoothing",
               losses.BinaryCrossentropy(label_smoothing=0.1), "sigmoid", yes_or_no)
    yield case("categorical_crossentropy", "categorical_crossentropy", "softmax",
               one_hot(16, 5))
    yield case("categorical_crossentropy_from_logits",
               losses.CategoricalCrossentropy(from_logits=True), None, one_hot(16, 5))
    yield case("categorical_crossentropy_label_smoothing",
               losses.CategoricalCrossentropy(label_smoothing=0.1), "softmax", one_hot(16, 5))
    yield case("sparse_categorical_crossentropy", "sparse_categorical_crossentropy", "softmax",
               classes(16, 5))
    yield case("sparse_categorical_crossentropy_from_logits",
               losses.SparseCategoricalCrossentropy(from_logits=True), None, classes(16, 5))

    yield case("mean_squared_error_sample_weights", "mean_squared_error", None, numbers(),
               sample_weights=sample_weights)
    yield case("sparse_categorical_crossentropy_sample_weights",
               "sparse_categorical_crossentropy", "softmax", classes(16, 5),
               sample_weights=sample_weights)

    hidden = "The Reshape hides the logits, so the loss is taken from the probabilities."
    yield case("binary_crossentropy_probabilities", "binary_crossentropy", "sigmoid", yes_or_no,
               tail=hidden_logits(), note=hidden)
    yield case("categorical_crossentropy_probabilities", "categorical_crossentropy", "sigmoid",
               one_hot(16, 5), tail=hidden_logits(), note=hidden)
    yield case("sparse_categorical_crossentropy_probabilities",
               "sparse_categorical_crossentropy", "sigmoid", classes(16, 5), tail=hidden_logits(),
               note=hidden)
    yield case("categorical_crossentropy_sigmoid", "categorical_crossentropy", "sigmoid",
               one_hot(16, 5),
               note="Keras takes the inputs of the sigmoid for the logits of a softmax.")
    yield case("binary_crossentropy_softmax", "binary_crossentropy", "softmax", one_hot(16, 5),
               note="Keras takes the inputs of the softmax for the logits of a sigmoid.")


def metric_cases():
    """Metrics of each step, reset before it."""
    def case(name, model, loss, targets, metrics, **options):
        return Case(f"metrics_{name}", model, adam(), loss, uniform_input(16, 20), targets,
                    metrics=metrics, **options)

    yield case("accuracy_binary", mlp("sigmoid", 1), "binary_crossentropy",
               [counter.integers((16, 1), TARGET_SEED, 0, 2)], ["accuracy"])
    yield case("accuracy_categorical", mlp(), "categorical_crossentropy", one_hot(16, 5),
               ["accuracy"])
    yield case("accuracy_sparse", mlp(), "sparse_categorical_crossentropy", classes(16, 5),
               ["accuracy"])
    yield case("accuracy_several_binary", mlp("sigmoid"), "binary_crossentropy",
               [counter.integers((16, 5), TARGET_SEED, 0, 2)], ["accuracy", "binary_accuracy"],
               note="With more than one output, accuracy is categorical whatever the loss.")
    yield case("errors", mlp(None), "huber",
               [counter.uniform((16, 5), TARGET_SEED, -3.0, 3.0)], ["mae", "mse"])


def compute():
    """All cases of training.json, in order."""
    groups = (network_cases, transformer_cases, optimizer_cases, loss_cases, metric_cases)
    return [case.compute() for group in groups for case in group()]
