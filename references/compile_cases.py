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


def compute():
    """All cases of compile.json, in order."""
    groups = (optimizer_cases,)
    return [case.compute() for group in groups for case in group()]


if __name__ == "__main__":
    keras.utils.set_random_seed(0)
    tf.config.experimental.enable_op_determinism()
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    write(pathlib.Path(__file__).resolve().parent / "compile.json", compute())
