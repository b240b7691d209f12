"""Ten training steps under mixed dtype policies, for precision.json."""

import keras
from keras import layers, losses, optimizers

import counter
from layer_cases import digits
from training_cases import INPUT_SEED, STEPS, TARGET_SEED, Case


class PrecisionCase(Case):
    """A model built and trained under a policy; compile adds dynamic loss scaling for f16."""

    def __init__(self, policy, name, build, *args, **options):
        keras.config.set_dtype_policy(policy)
        self.policy = policy
        super().__init__(f"{policy}_{name}", build(), *args, **options)

    def loop(self, optimizer):
        """Loss scaling is part of compile, so that there is nothing to check against."""
        return self.train_on_batch(optimizer)["loss"]

    def compute(self):
        keras.config.set_dtype_policy(self.policy)
        result = super().compute()
        result["policy"] = self.policy
        if self.scales:
            result["loss_scales"] = digits(self.scales)
        return result

    def train_on_batch(self, optimizer):
        """As in fit, with the loss scale before each step and behind the last."""
        self.model.compile(optimizer, loss=self.loss, loss_weights=self.loss_weights,
                           metrics=self.metrics, jit_compile=False)
        scaled = self.model.optimizer
        dynamic = isinstance(scaled, optimizers.LossScaleOptimizer)
        if dynamic:
            scaled.build(self.model.trainable_variables)
        self.scales = []
        values = {}
        for step in range(STEPS):
            if dynamic:
                self.scales.append(float(scaled.dynamic_scale))
            self.model.reset_metrics()
            x, y, sample_weight = self.data(step)
            logs = self.model.train_on_batch(x, y, sample_weight, return_dict=True)
            for name, value in logs.items():
                values.setdefault(name, []).append(value)
        if dynamic:
            self.scales.append(float(scaled.dynamic_scale))
        return values


def mlp():
    return keras.Sequential([
        layers.Input((20,), name="x"),
        layers.Dense(32, activation="relu", name="hidden"),
        layers.Dense(5, activation="softmax", dtype="float32", name="head"),
    ])


def regression():
    return keras.Sequential([
        layers.Input((20,), name="x"),
        layers.Dense(16, activation="tanh", use_bias=False, name="hidden"),
        layers.Dense(3, use_bias=False, name="head"),
    ])


def convolutions():
    return keras.Sequential([
        layers.Input((12, 12, 3), name="x"),
        layers.Rescaling(0.5, name="rescale"),
        layers.Conv2D(8, 3, activation="relu", name="conv1"),
        layers.MaxPooling2D(name="pool"),
        layers.Conv2D(12, 3, padding="same", activation="relu", name="conv2"),
        layers.Flatten(name="flat"),
        layers.Dense(5, name="dense"),
        layers.Activation("softmax", dtype="float32", name="probabilities"),
    ])


def batch_normalization():
    x = layers.Input((8, 8, 3), name="x")
    y = layers.Conv2D(8, 3, padding="same", use_bias=False, name="conv1")(x)
    y = layers.ReLU(name="relu1")(layers.BatchNormalization(name="bn1")(y))
    z = layers.Conv2D(8, 3, padding="same", use_bias=False, name="conv2")(y)
    z = layers.BatchNormalization(name="bn2")(z)
    y = layers.ReLU(name="relu2")(layers.Add(name="add")([y, z]))
    y = layers.GlobalAveragePooling2D(name="pooled")(y)
    return keras.Model(x, layers.Dense(5, dtype="float32", name="head")(y))


def layer_normalization():
    x = layers.Input((20,), name="x")
    y = layers.Dense(24, name="dense1")(x)
    y = layers.LayerNormalization(name="norm")(y)
    y = layers.Dense(24, activation="gelu", name="dense2")(y)
    y = layers.Concatenate(name="both")([y, x])
    return keras.Model(x, layers.Dense(3, name="head")(y))


def embedding():
    ids = layers.Input((6,), dtype="int32", name="ids")
    y = layers.Embedding(50, 8, name="table")(ids)
    y = layers.Dense(12, activation="silu", name="dense")(layers.Flatten(name="flat")(y))
    return keras.Model(ids, layers.Dense(5, dtype="float32", name="head")(y))


def cases(policy):
    """The same models under one policy or the other."""
    from_logits = losses.SparseCategoricalCrossentropy(from_logits=True)
    rows = [counter.uniform((16, 20), INPUT_SEED)]
    classes = [counter.integers((16,), TARGET_SEED, 0, 5)]
    numbers = [counter.uniform((16, 3), TARGET_SEED)]

    def case(name, build, *args, **options):
        return PrecisionCase(policy, name, build, *args, **options)

    yield case("mlp", mlp, optimizers.Adam(0.01), "sparse_categorical_crossentropy", rows, classes,
               metrics=["accuracy"])
    yield case("convolutions", convolutions, optimizers.SGD(0.05, momentum=0.9),
               "sparse_categorical_crossentropy", [counter.uniform((8, 12, 12, 3), INPUT_SEED)],
               [counter.integers((8,), TARGET_SEED, 0, 5)])
    yield case("batch_normalization", batch_normalization, optimizers.SGD(0.05), from_logits,
               [counter.uniform((8, 8, 8, 3), INPUT_SEED)],
               [counter.integers((8,), TARGET_SEED, 0, 5)])
    yield case("layer_normalization", layer_normalization,
               optimizers.AdamW(0.005, global_clipnorm=0.5), "mean_squared_error", rows, numbers,
               loss_weights=[0.25])
    yield case("embedding", embedding, optimizers.SGD(0.1), from_logits,
               [counter.integers((16, 6), INPUT_SEED, 0, 50)], classes)


def overflows():
    """A loss so heavy that the first gradients of activations do not fit f16.

    Keras has the gradients of weights in f16 too. Without biases, with small inputs and few rows
    they are smaller than those of activations, so that keeping them in f32 skips the same steps.
    """
    return PrecisionCase(
        "mixed_float16", "overflow", regression, optimizers.Adam(
            keras.optimizers.schedules.ExponentialDecay(0.01, 2, 0.5)),
        "mean_squared_error", [counter.uniform((2, 20), INPUT_SEED, -0.25, 0.25)],
        [counter.uniform((2, 3), TARGET_SEED)], loss_weights=[300.0],
        note="Scales that are halved mark the steps that were skipped.")


def compute():
    """All cases of precision.json, in order."""
    made = [case.compute() for policy in ("mixed_float16", "mixed_bfloat16") for case in cases(policy)]
    made.append(overflows().compute())
    keras.config.set_dtype_policy("float32")
    return made
