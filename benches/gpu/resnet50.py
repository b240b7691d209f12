"""Writes the configuration of Keras's ResNet-50, without weights, to resnet50.json beside this file."""

import os

import keras

here = os.path.dirname(os.path.abspath(__file__))
model = keras.applications.ResNet50(weights=None, input_shape=(224, 224, 3), classes=1000)
with open(os.path.join(here, "resnet50.json"), "w", encoding="utf-8") as file:
    file.write(model.to_json())
