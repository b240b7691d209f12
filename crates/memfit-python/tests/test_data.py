"""Rows in every form that Keras takes give the same training."""

import keras
import numpy as np
import pytest

import memfit
import models

STEPS = {"epochs": 2, "verbose": 0, "shuffle": False}


class Numbered(keras.utils.PyDataset):
    def __init__(self, x, y):
        super().__init__()
        self.x, self.y, self.ended = x, y, 0

    def __len__(self):
        return 3

    def __getitem__(self, index):
        rows = slice(8 * index, 8 * index + 8)
        return self.x[rows], self.y[rows]

    def on_epoch_end(self):
        self.ended += 1


def endless(x, y):
    while True:
        for start in range(0, 24, 8):
            yield x[start : start + 8], y[start : start + 8]


def expected():
    model, x, y = models.dense()
    return memfit.fit(model, x, y, batch_size=8, **STEPS).history["loss"], x, y


def check(x, y=None, **arguments):
    losses, *_ = expected()
    keras.utils.set_random_seed(7)
    model, _, _ = models.dense()
    found = memfit.fit(model, x, y, **{**STEPS, **arguments}).history["loss"]
    np.testing.assert_allclose(found, losses, rtol=1e-6)


@pytest.fixture
def rows():
    keras.utils.set_random_seed(7)
    _, x, y = models.dense()
    keras.utils.set_random_seed(7)
    return x, y


def test_other_element_types_and_strides(rows):
    x, y = rows
    wide = np.zeros((24, 12), dtype=np.float64)
    wide[:, ::2] = x
    check(wide[:, ::2], y.astype("int16").reshape(-1, 1), batch_size=8)


def test_a_memory_map(rows, tmp_path):
    x, y = rows
    np.save(tmp_path / "x.npy", x)
    check(np.load(tmp_path / "x.npy", mmap_mode="r"), y, batch_size=8)


def test_a_dataset_by_number(rows):
    dataset = Numbered(*rows)
    check(dataset)
    assert dataset.ended == 2


def test_a_generator(rows):
    check(endless(*rows), steps_per_epoch=3)


def test_a_list_of_batches_that_is_iterated_again(rows):
    x, y = rows

    class Loader:
        def __iter__(self):
            return ((x[start : start + 8], y[start : start + 8]) for start in range(0, 24, 8))

    check(Loader())


def test_tensorflow_datasets(rows):
    tensorflow = pytest.importorskip("tensorflow")
    check(tensorflow.data.Dataset.from_tensor_slices(rows).batch(8))


def test_torch_loaders(rows):
    torch = pytest.importorskip("torch")
    pairs = torch.utils.data.TensorDataset(*map(torch.from_numpy, rows))
    check(torch.utils.data.DataLoader(pairs, batch_size=8))


def test_named_inputs():
    model, (left, right), y = models.two_inputs()
    theirs = models.twin(model)
    named = {"right": right, "left": left}
    mine = memfit.fit(model, named, y, batch_size=8, **STEPS).history["loss"]
    np.testing.assert_allclose(mine, theirs.fit(named, y, batch_size=8, **STEPS).history["loss"], atol=1e-4)
    with pytest.raises(memfit.Error, match="left is missing"):
        memfit.fit(model, {"right": right}, y, verbose=0)


def test_a_larger_batch_than_planned_is_named(rows):
    x, y = rows
    with pytest.raises(memfit.Error, match="batch_size=16"):
        check(iter([(x[:8], y[:8]), (x[8:], y[8:])]))


def test_rows_that_do_not_suit_are_named(rows):
    x, y = rows
    model, _, _ = models.dense()
    for bad, word in [((x[:, :5], y), "rows of"), ((x, y[:20]), "rows"), ((x, y + 0.5), "whole")]:
        with pytest.raises(memfit.Error, match=word):
            memfit.fit(model, *bad, verbose=0)
