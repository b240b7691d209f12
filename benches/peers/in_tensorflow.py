"""Runs in a process of its own: trains a case with TensorFlow, the Keras model in one `tf.function`."""

import os

os.environ.update(TF_CPP_MIN_LOG_LEVEL="3", CUDA_VISIBLE_DEVICES="", KERAS_BACKEND="tensorflow")
import keras
import tensorflow as tf

from training import Prepared


def main() -> None:
    tf.config.threading.set_intra_op_parallelism_threads(len(os.sched_getaffinity(0)))
    tf.config.threading.set_inter_op_parallelism_threads(1)
    prepared = Prepared()
    model = keras.models.load_model(prepared.folder / "model.keras")
    loss_of = keras.losses.get(prepared.options["loss"])
    optimizer = keras.optimizers.Adam(prepared.options["learning_rate"])
    optimizer.build(model.trainable_variables)
    x, y = (tf.constant(array) for array in prepared.batch)
    prepared.batch = None

    @tf.function(jit_compile=prepared.options["variant"] == "xla")
    def step(x, y):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(loss_of(y, model(x, training=True)))
        optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)
        return loss

    prepared.train(lambda: float(step(x, y)))


if __name__ == "__main__":
    main()
