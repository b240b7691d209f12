"""The nine cases: network, batch, data, and the goals. One definition in Keras; all frameworks get its graph and weights."""

from dataclasses import dataclass
from typing import Callable

MIB = 2**20
GIB = 2**30


@dataclass(frozen=True)
class Case:
    """A row of the table. `build` gets keras and gives a functional model."""

    title: str
    build: Callable
    shape: tuple
    batch: int
    goal_time: float
    goal_memory: float
    steps: int
    loss: str = "categorical_crossentropy"
    # Small enough that ten steps neither saturate nor diverge, so that losses can be compared.
    learning_rate: float = 1e-4
    classes: int = 10
    # The inputs are ids below this number; without it, numbers between 0 and 1.
    vocabulary: int = 0
    # How many FLOP/s of the machine's it reaches is printed.
    convolutions: bool = False
    quick: bool = False
    # Every framework trains the largest batch that it can inside this; time is that of an image.
    largest_in: int = 0


def large_images(side: int) -> Callable:
    def build(keras):
        layers = keras.layers
        x = inputs = keras.Input((side, side, 3))
        x = layers.Conv2D(32, 3, activation="relu")(x)
        x = layers.MaxPooling2D()(x)
        x = layers.Flatten()(x)
        return keras.Model(inputs, layers.Dense(10, activation="softmax")(x))

    return build


def convolutions(*filters: list) -> Callable:
    """Blocks of 3×3 convolutions with a pool between two blocks."""

    def build(keras):
        layers = keras.layers
        x = inputs = keras.Input((128, 128, 3))
        for place, block in enumerate(filters):
            x = layers.MaxPooling2D()(x) if place else x
            for count in block:
                x = layers.Conv2D(count, 3, padding="same", activation="relu")(x)
        x = layers.GlobalAveragePooling2D()(x)
        return keras.Model(inputs, layers.Dense(10, activation="softmax")(x))

    return build


def perceptron(keras):
    layers = keras.layers
    x = inputs = keras.Input((784,))
    x = layers.Dense(1024, activation="relu")(x)
    x = layers.Dense(1024, activation="relu")(x)
    return keras.Model(inputs, layers.Dense(10, activation="softmax")(x))


def lenet(keras):
    layers = keras.layers
    x = inputs = keras.Input((28, 28, 1))
    for filters in (32, 64):
        x = layers.Conv2D(filters, 5, padding="same", activation="relu")(x)
        x = layers.MaxPooling2D()(x)
    x = layers.Flatten()(x)
    x = layers.Dense(512, activation="relu")(x)
    return keras.Model(inputs, layers.Dense(10, activation="softmax")(x))


def application(name: str) -> Callable:
    return lambda keras: getattr(keras.applications, name)(weights=None, input_shape=(224, 224, 3))


def transformer(keras):
    """Classifies sequences; without places, which cost nothing and would be a second input."""
    layers = keras.layers
    inputs = keras.Input((256,), dtype="int32")
    x = layers.Embedding(8000, 384)(inputs)
    for _ in range(6):
        y = layers.LayerNormalization()(x)
        x = layers.Add()([x, layers.MultiHeadAttention(6, 64)(y, y)])
        y = layers.LayerNormalization()(x)
        y = layers.Dense(1536, activation="gelu")(y)
        x = layers.Add()([x, layers.Dense(384)(y)])
    x = layers.GlobalAveragePooling1D()(layers.LayerNormalization()(x))
    return keras.Model(inputs, layers.Dense(10, activation="softmax")(x))


MSE = "mean_squared_error"
CASES = {
    "large-reduced": Case(
        "large images reduced: 128×128×3, batch 32", large_images(128), (128, 128, 3), 32, 0.8, 0.4, 20, MSE, 1e-6, convolutions=True, quick=True
    ),
    "large": Case(
        "large images, 1024×1024×3, largest batch in 8 GiB", large_images(1024), (1024, 1024, 3), 0, 0.25, 0.2, 4, MSE, 1e-7, largest_in=8 * GIB,
        convolutions=True,
    ),
    "reduced": Case(
        "reduced network 64-128, 128×128, batch 32", convolutions([64], [128]), (128, 128, 3), 32, 0.85, 0.5, 12, convolutions=True, quick=True
    ),
    "six": Case(
        "six convolutions, 128×128, batch 2", convolutions([256, 256], [512, 512], [1024, 1024]), (128, 128, 3), 2, 0.9, 0.55, 6,
        convolutions=True,
    ),
    "mlp": Case("MLP 784-1024-1024-10, batch 256", perceptron, (784,), 256, 0.9, 0.5, 60, quick=True),
    "lenet": Case("LeNet-like on 28×28, batch 128", lenet, (28, 28, 1), 128, 0.7, 0.3, 30, convolutions=True, quick=True),
    "resnet50": Case(
        "ResNet-50 224, batch 8", application("ResNet50"), (224, 224, 3), 8, 0.9, 0.6, 8, learning_rate=1e-5, classes=1000, convolutions=True
    ),
    "mobilenetv2": Case(
        "MobileNetV2 224, batch 8", application("MobileNetV2"), (224, 224, 3), 8, 0.85, 0.6, 12, classes=1000, convolutions=True
    ),
    "transformer": Case(
        "6-layer transformer, d 384, 256 tokens, batch 8", transformer, (256,), 8, 0.9, 0.7, 8, vocabulary=8000
    ),
}
