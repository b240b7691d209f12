"""Ten training steps for what a model is compiled with, for compile.json.

    .venv/bin/python references/compile_cases.py

writes compile.json beside itself: cases as in training.json, of the optimizers and their arguments, regularizers,
constraints, frozen layers, losses and metrics that training.json does not have.
"""

import pathlib

from make import write  # Sets the environment before Keras is loaded.

import keras
import tensorflow as tf
from keras import constraints, layers, losses, metrics, optimizers, regularizers
from keras.optimizers import schedules

import counter
from training_cases import (
    INPUT_SEED, SAMPLE_SEED, TARGET_SEED, Case, adam, classes, mlp, one_hot, rmsprop, sequential, sgd, uniform_input,
)


class CompileCase(Case):
    """A case that is taken from fit's own step alone: its loop knows no penalties."""

    def loop(self, optimizer):
        return self.train_on_batch(optimizer)["loss"]


def optimizer_cases():
    """One classifier under every optimizer."""
    def image():
        return sequential(
            (6, 6, 3),
            layers.Conv2D(4, 3, activation="relu", name="conv"),
            layers.Flatten(name="flatten"),
            layers.Dense(5, activation="softmax", name="output"),
        )

    for name, optimizer in (
        ("adagrad", optimizers.Adagrad(0.05)),
        ("adagrad_arguments", optimizers.Adagrad(0.05, initial_accumulator_value=0.01, epsilon=1e-3, weight_decay=0.1)),
        ("adadelta", optimizers.Adadelta(1.0)),
        ("adadelta_arguments", optimizers.Adadelta(2.0, rho=0.8, epsilon=1e-4, clipnorm=0.3)),
        ("adamax", optimizers.Adamax(0.01)),
        ("adamax_arguments", optimizers.Adamax(0.01, beta_1=0.7, beta_2=0.9, epsilon=1e-3)),
        ("nadam", optimizers.Nadam(0.01)),
        ("nadam_arguments", optimizers.Nadam(0.01, beta_1=0.7, beta_2=0.9, epsilon=1e-3)),
        ("ftrl", optimizers.Ftrl(0.1)),
        ("ftrl_arguments", optimizers.Ftrl(
            0.1, learning_rate_power=-0.4, initial_accumulator_value=0.2, l1_regularization_strength=0.01,
            l2_regularization_strength=0.02, l2_shrinkage_regularization_strength=0.03, beta=0.1)),
        ("lion", optimizers.Lion(0.003)),
        ("lion_arguments", optimizers.Lion(0.003, beta_1=0.7, beta_2=0.8, weight_decay=0.1)),
        ("adafactor", optimizers.Adafactor(0.05)),
        ("adafactor_arguments", optimizers.Adafactor(
            0.5, beta_2_decay=-0.6, epsilon_1=1e-6, epsilon_2=0.05, clip_threshold=0.5, weight_decay=0.01)),
        ("adafactor_schedule", optimizers.Adafactor(schedules.ExponentialDecay(0.1, 4, 0.5), relative_step=False)),
        ("lamb", optimizers.Lamb(0.02)),
        ("lamb_arguments", optimizers.Lamb(0.02, beta_1=0.7, beta_2=0.9, epsilon=1e-3, weight_decay=0.1)),
        ("adam_ema", adam(use_ema=True, ema_momentum=0.8, ema_overwrite_frequency=3)),
        ("sgd_accumulation", sgd(gradient_accumulation_steps=3, clipvalue=0.05)),
        ("adam_accumulation", adam(gradient_accumulation_steps=2, global_clipnorm=0.5)),
        ("nadam_accumulation_ema", optimizers.Nadam(
            0.01, gradient_accumulation_steps=3, clipnorm=0.3, use_ema=True, ema_momentum=0.5, ema_overwrite_frequency=4)),
        ("sgd_loss_scale_factor", sgd(loss_scale_factor=8.0)),
    ):
        yield CompileCase(f"mlp_{name}", mlp(), optimizer, "sparse_categorical_crossentropy",
                          uniform_input(16, 20), classes(16, 5))
        if name in ("adafactor", "lamb"):
            yield CompileCase(f"image_{name}", image(), type(optimizer).from_config(optimizer.get_config()),
                              "sparse_categorical_crossentropy", uniform_input(8, 6, 6, 3), classes(8, 5))


def weight_cases():
    """Regularizers, constraints and frozen layers."""
    def regular():
        return sequential(
            (20,),
            layers.Dense(16, activation="relu", kernel_regularizer=regularizers.L1(0.02),
                         bias_regularizer="l2", name="hidden1"),
            layers.Dense(16, activation="relu", kernel_regularizer=regularizers.L1L2(0.01, 0.03), name="hidden2"),
            layers.Dense(5, activation="softmax", kernel_regularizer=regularizers.L2(0.05), name="output"),
        )

    def penalised_image():
        return sequential(
            (6, 6, 3),
            layers.DepthwiseConv2D(3, depth_multiplier=2, depthwise_regularizer="l2", name="depthwise"),
            layers.Conv2D(4, 3, activation="relu", kernel_regularizer=regularizers.L1L2(0.01, 0.01),
                          kernel_constraint=constraints.UnitNorm(axis=[0, 1, 2]), name="conv"),
            layers.BatchNormalization(gamma_regularizer="l1", beta_constraint="non_neg", name="norm"),
            layers.Flatten(name="flatten"),
            layers.Dense(5, activation="softmax", name="output"),
        )

    def constrained():
        return sequential(
            (20,),
            layers.Dense(16, activation="relu", kernel_constraint=constraints.MaxNorm(0.7, axis=0),
                         bias_constraint="non_neg", name="hidden1"),
            layers.Dense(16, activation="relu", kernel_constraint=constraints.UnitNorm(axis=1), name="hidden2"),
            layers.Dense(5, activation="softmax",
                         kernel_constraint=constraints.MinMaxNorm(0.8, 1.2, rate=0.7, axis=0), name="output"),
        )

    def frozen():
        return sequential(
            (6, 6, 3),
            layers.Conv2D(4, 3, activation="relu", kernel_regularizer="l2", trainable=False, name="conv1"),
            layers.BatchNormalization(trainable=False, name="norm1"),
            layers.Conv2D(4, 3, activation="relu", name="conv2"),
            layers.BatchNormalization(trainable=False, name="norm2"),
            layers.Flatten(name="flatten"),
            layers.Dense(5, activation="softmax", name="output"),
        )

    loss = "sparse_categorical_crossentropy"
    yield CompileCase("regularizers", regular(), adam(), loss, uniform_input(16, 20), classes(16, 5))
    yield CompileCase("regularizers_clipnorm", regular(), sgd(clipnorm=0.3, gradient_accumulation_steps=2), loss,
                      uniform_input(16, 20), classes(16, 5))
    yield CompileCase("regularizers_image", penalised_image(), sgd(0.05), loss, uniform_input(8, 6, 6, 3), classes(8, 5))
    yield CompileCase("constraints", constrained(), adam(0.05), loss, uniform_input(16, 20), classes(16, 5))
    yield CompileCase("frozen", frozen(), adam(), loss, uniform_input(8, 6, 6, 3), classes(8, 5))


def loss_cases():
    """One network under the losses that training.json does not have."""
    def case(name, loss, activation, targets, **options):
        batch = targets[0]["shape"][0]
        return CompileCase(f"loss_{name}", mlp(activation), sgd(options.pop("rate", 0.05)), loss,
                           uniform_input(batch, 20), targets, **options)

    numbers = [counter.uniform((16, 5), TARGET_SEED, -3.0, 3.0)]
    positive = [counter.uniform((16, 5), TARGET_SEED, 0.1, 3.0)]
    shares = [counter.uniform((16, 5), TARGET_SEED, 0.0, 1.0)]
    yes_or_no = [counter.integers((16, 5), TARGET_SEED, 0, 2)]
    weights = counter.uniform((16,), SAMPLE_SEED, 0.0, 2.0)
    yield case("poisson", "poisson", "softplus", positive)
    yield case("log_cosh", losses.LogCosh(), None, numbers)
    yield case("hinge", "hinge", "tanh", yes_or_no)
    yield case("squared_hinge", "squared_hinge", "tanh", yes_or_no, sample_weights=weights)
    yield case("categorical_hinge", "categorical_hinge", None, one_hot(16, 5))
    yield case("mean_absolute_percentage_error", "mean_absolute_percentage_error", None, positive, rate=0.0001)
    yield case("mean_squared_logarithmic_error", "mean_squared_logarithmic_error", None, positive)
    yield case("kl_divergence", "kl_divergence", "softmax", shares)
    yield case("cosine_similarity", losses.CosineSimilarity(), None, numbers, sample_weights=weights)
    yield case("binary_focal_crossentropy", "binary_focal_crossentropy", "sigmoid", yes_or_no)
    yield case("binary_focal_crossentropy_arguments", losses.BinaryFocalCrossentropy(
        apply_class_balancing=True, alpha=0.3, gamma=1.5, from_logits=True, label_smoothing=0.1), None, yes_or_no)


def compute():
    """All cases of compile.json, in order."""
    groups = (optimizer_cases, weight_cases, loss_cases)
    return [case.compute() for group in groups for case in group()]


if __name__ == "__main__":
    keras.utils.set_random_seed(0)
    tf.config.experimental.enable_op_determinism()
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    write(pathlib.Path(__file__).resolve().parent / "compile.json", compute())
