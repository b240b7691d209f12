"""What the tests share. They need Keras with a backend; without it none is collected."""

import os

import pytest

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")

try:
    import keras
except ImportError:
    collect_ignore_glob = ["test_*.py"]


@pytest.fixture(autouse=True)
def seeded():
    keras.backend.clear_session()
    keras.utils.set_random_seed(7)
