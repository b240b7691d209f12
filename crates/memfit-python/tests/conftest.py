"""What the tests share. They need a Keras backend; without one they are skipped."""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")

import pytest

keras = pytest.importorskip("keras")


@pytest.fixture(autouse=True)
def seeded():
    keras.backend.clear_session()
    keras.utils.set_random_seed(7)
