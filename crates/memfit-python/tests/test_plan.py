"""Plans, refusals, and what importing costs."""

import subprocess
import sys
import time

import keras
import pytest

import memfit
import models


def test_a_plan_tells_its_figures():
    model, _, _ = models.convolution()
    plan = memfit.plan(model, batch_size=64, budget="100MiB", costs="analytic")
    assert plan.fits and plan.budget == 100 << 20 and plan.batch == 64
    assert plan.bytes_bound <= plan.bytes_peak <= plan.bytes_arena
    assert 0 < plan.bytes_baseline and plan.bytes_runtime + plan.bytes_arena <= plan.budget
    assert "not counted by the budget" in str(plan) and "smallest" in str(plan)
    page = plan._repr_html_()
    assert page.startswith("<iframe") and "Planned, and not run yet" in page
    assert "Final loss" not in page


def test_what_does_not_fit_is_refused_with_what_would():
    model, x, y = models.convolution()
    before = model.get_weights()
    for call in [memfit.plan, lambda model, **rest: memfit.fit(model, x, y, verbose=0, **rest)]:
        with pytest.raises(memfit.DoesNotFit) as caught:
            call(model, batch_size=24, budget="1MiB")
        refusal = caught.value
        assert refusal.budget == 1 << 20 < refusal.smallest
        assert refusal.peak_layer and isinstance(refusal.hints, list)
        assert 'budget="' in str(refusal) and "--budget" not in str(refusal)
        assert memfit.plan(model, batch_size=24, budget=refusal.smallest + (4 << 20)).fits
    assert all((value == old).all() for value, old in zip(model.get_weights(), before))


def test_batches_and_curves():
    model, _, _ = models.convolution()
    batches = memfit.largest_batch(model, budget="64MiB")
    assert 0 < int(batches) and str(int(batches)) in str(batches)
    curve = memfit.sweep(model, batch_size=64, costs="analytic")
    assert curve.points[0]["time_relative"] == 1.0 and len(str(curve).splitlines()) == len(curve) + 1
    assert "<iframe" in curve._repr_html_()


def test_what_is_missing_is_said():
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
    with pytest.raises(memfit.Error, match="model.compile"):
        memfit.plan(model)
    model = keras.Sequential([keras.layers.Dense(1)])
    model.compile("adam", "mse")
    with pytest.raises(memfit.Error, match="keras.Input"):
        memfit.plan(model)
    with pytest.raises(memfit.Error, match="expected a Keras model"):
        memfit.plan("model.keras")
    model, _, _ = models.dense()
    with pytest.raises(memfit.Error, match="budget"):
        memfit.plan(model, budget="3 potatoes")


def test_there_is_a_device():
    device = memfit.devices()[0]
    assert device.name == "cpu" and 0 < device.threads and 1 << 20 < device.bytes_available


def test_importing_is_light():
    code = (
        "import sys, time; start = time.perf_counter(); import memfit; seconds = time.perf_counter() - start; "
        "print(seconds, memfit._engine.resident_peak(), 'keras' in sys.modules)"
    )
    runs = [subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True) for _ in range(3)]
    seconds, held, keras_too = min((run.stdout.split() for run in runs), key=lambda words: float(words[0]))
    assert float(seconds) < 0.15 and int(held) < 60 << 20 and keras_too == "False"


def test_the_first_plan_times_little_and_later_ones_go_on(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    model, _, _ = models.convolution()
    budget = memfit.plan(model, batch_size=4096, costs="analytic").bytes_smallest_budget + (4 << 20)
    plans = [memfit.plan(model, batch_size=4096, budget=budget, allow_batchnorm_split=True) for _ in range(3)]
    first, shares = plans[0], [plan.share_measured for plan in plans]
    assert first.costs == "measured" and "measured on this machine" in str(first)
    assert 0 < shares[0] and sorted(shares) == shares
    # A twentieth of a second, and more only where the machine is too busy for that; not the seconds that training takes.
    assert first.seconds_measuring < 1.5
    whole = next((plan for plan in plans if plan.share_measured == 1.0), None)
    assert whole is None or "estimated in proportion" not in str(whole)


def test_resnet50_is_planned_in_half_a_second():
    model = keras.applications.ResNet50(weights=None, classes=10)
    model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
    memfit.plan(model, batch_size=64, budget="3GiB", allow_batchnorm_split=True)
    start = time.perf_counter()
    plan = memfit.plan(model, batch_size=64, budget="3GiB", allow_batchnorm_split=True)
    print(plan, time.perf_counter() - start)
    assert plan.fits
