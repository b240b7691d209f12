"""Values of metrics over several batches, for metrics.json.

    .venv/bin/python references/metric_cases.py

writes metrics.json beside itself: each metric as Keras writes it, specs of predictions, targets and weights, and its value behind each
batch, without weights and with them.
"""

import pathlib

from make import write  # Sets the environment before Keras is loaded.

import keras
from keras import metrics

import counter

# Rows of the batches; the last is shorter, as at the end of an epoch.
BATCHES = [9, 9, 4]
PREDICTION_SEED, TARGET_SEED, WEIGHT_SEED = 5000, 6000, 7000


def probabilities(*dims):
    return counter.uniform([BATCHES[0], *dims], PREDICTION_SEED, 0.0, 1.0)


def values(*dims):
    return counter.uniform([BATCHES[0], *dims], PREDICTION_SEED)


def labels(*dims, classes=2):
    return counter.integers([BATCHES[0], *dims], TARGET_SEED, 0, classes)


def one_hot(*dims):
    return counter.one_hot([BATCHES[0], *dims], TARGET_SEED)


def targets(*dims):
    return counter.uniform([BATCHES[0], *dims], TARGET_SEED)


def weights(whole=False, dims=()):
    if whole:
        return counter.integers([BATCHES[0], *dims], WEIGHT_SEED, 0, 4)
    return counter.uniform([BATCHES[0], *dims], WEIGHT_SEED, 0.0, 2.0)


def cases():
    """Name, metric, predictions, targets, and whether weights are whole numbers, or the axes on which samples have their own."""
    binary = (probabilities(1), labels(1))
    several = (probabilities(6), labels(6))
    classes = (probabilities(6), one_hot(6))
    numbers = (probabilities(6), labels(classes=6))
    pixels = (probabilities(3, 2, 5), labels(3, 2, classes=5))
    yield "binary_accuracy", metrics.BinaryAccuracy(), *several
    yield "binary_accuracy_threshold", metrics.BinaryAccuracy(threshold=0.7), *several
    yield "accuracy_object", metrics.Accuracy(), labels(3, classes=3), labels(3, classes=3)
    yield "categorical_accuracy", metrics.CategoricalAccuracy(), *classes
    yield "sparse_categorical_accuracy", metrics.SparseCategoricalAccuracy(), *numbers
    yield "sparse_categorical_accuracy_pixels", metrics.SparseCategoricalAccuracy(), *pixels
    yield "top_k", metrics.TopKCategoricalAccuracy(k=2), *classes
    yield "sparse_top_k", metrics.SparseTopKCategoricalAccuracy(k=3), *numbers
    yield "top_5", metrics.TopKCategoricalAccuracy(), *classes
    yield "root_mean_squared_error", metrics.RootMeanSquaredError(), values(4, 3), targets(4, 3)
    yield "cosine_similarity", metrics.CosineSimilarity(), values(4, 3), targets(4, 3)
    for one in (metrics.MeanSquaredError, metrics.MeanAbsoluteError, metrics.MeanAbsolutePercentageError,
                metrics.MeanSquaredLogarithmicError, metrics.LogCoshError):
        yield one.__name__, one(), values(4, 3), targets(4, 3)
    for one in (metrics.Hinge, metrics.SquaredHinge):
        yield one.__name__, one(), values(5), labels(5)
    yield "CategoricalHinge", metrics.CategoricalHinge(), values(5), one_hot(5)
    yield "KLDivergence", metrics.KLDivergence(), probabilities(5), counter.uniform([BATCHES[0], 5], TARGET_SEED, 0.0, 1.0)
    yield "Poisson", metrics.Poisson(), probabilities(5), labels(5, classes=4)
    yield "binary_crossentropy", metrics.BinaryCrossentropy(label_smoothing=0.1), *several
    yield "binary_crossentropy_logits", metrics.BinaryCrossentropy(from_logits=True), values(5), labels(5)
    yield "categorical_crossentropy", metrics.CategoricalCrossentropy(), *classes
    yield "sparse_categorical_crossentropy", metrics.SparseCategoricalCrossentropy(from_logits=True), *pixels
    yield "wrapped_function", metrics.MeanMetricWrapper(keras.losses.mean_squared_error, name="wrapped"), *several
    for one in (metrics.TruePositives, metrics.FalsePositives, metrics.TrueNegatives, metrics.FalseNegatives):
        yield one.__name__, one(), *several
        yield one.__name__ + "_threshold", one(thresholds=0.3), *binary
    for one in (metrics.Precision, metrics.Recall):
        yield one.__name__, one(), *binary
        yield one.__name__ + "_several", one(), *several
        yield one.__name__ + "_threshold", one(thresholds=[0.8]), *several
        yield one.__name__ + "_class", one(class_id=2), *several
        yield one.__name__ + "_top_k", one(top_k=2), *classes
        yield one.__name__ + "_top_k_class_threshold", one(top_k=3, class_id=1, thresholds=0.4), *several
        yield one.__name__ + "_pixels", one(), probabilities(3, 2, 2), labels(3, 2, 2), None
    for curve in ("ROC", "PR"):
        for method in ("interpolation", "minoring", "majoring"):
            yield f"auc_{curve}_{method}", metrics.AUC(curve=curve, summation_method=method), *several
        yield f"auc_{curve}_few", metrics.AUC(num_thresholds=5, curve=curve), *binary
    yield "auc_thresholds", metrics.AUC(thresholds=[0.9, 0.1, 0.35]), *several
    yield "auc_even_thresholds", metrics.AUC(thresholds=[0.25, 0.5, 0.75]), *several
    yield "auc_labels", metrics.AUC(multi_label=True, num_labels=6), *several
    yield "auc_labels_pr", metrics.AUC(multi_label=True, curve="PR", num_thresholds=30), *several
    yield "auc_logits", metrics.AUC(from_logits=True), values(3), labels(3)
    for one, key in ((metrics.SensitivityAtSpecificity, "specificity"), (metrics.SpecificityAtSensitivity, "sensitivity"),
                     (metrics.PrecisionAtRecall, "recall"), (metrics.RecallAtPrecision, "precision")):
        yield one.__name__, one(**{key: 0.5}), *several
        yield one.__name__ + "_class", one(**{key: 0.7}, num_thresholds=20, class_id=1), *several
        yield one.__name__ + "_one", one(**{key: 0.4}, num_thresholds=1), *several
    for average in ("micro", "macro", "weighted"):
        yield f"f1_{average}", metrics.F1Score(average=average), *classes
        yield f"fbeta_{average}", metrics.FBetaScore(average=average, beta=2.0, threshold=0.4), *several
    yield "f1_each", metrics.F1Score(), *classes
    yield "fbeta_each", metrics.FBetaScore(beta=0.5, threshold=0.6), *several
    yield "precision_thresholds", metrics.Precision(thresholds=[0.2, 0.5, 0.9]), *several
    yield "false_negatives_thresholds", metrics.FalseNegatives(thresholds=[0.3, 0.6]), *binary
    yield "accuracy_of_samples", metrics.SparseCategoricalAccuracy(), *pixels, (3, 2)
    yield "crossentropy_of_samples", metrics.SparseCategoricalCrossentropy(from_logits=True), *pixels, (3, 2)
    yield "error_of_samples", metrics.MeanAbsoluteError(), values(4, 3), targets(4, 3), (4,)
    yield "mean_iou", metrics.MeanIoU(num_classes=5, sparse_y_pred=False), *numbers_of_one(5), True
    yield "mean_iou_pixels", metrics.MeanIoU(num_classes=5, sparse_y_pred=False, ignore_class=2), *pixels, None
    yield "mean_iou_numbers", metrics.MeanIoU(num_classes=3), counter.uniform([BATCHES[0], 1], PREDICTION_SEED, 0.0, 3.0), \
        labels(1, classes=3), True
    yield "iou", metrics.IoU(num_classes=5, target_class_ids=[0, 3], sparse_y_pred=False), *numbers_of_one(5), True
    yield "one_hot_mean_iou", metrics.OneHotMeanIoU(num_classes=6), *classes, True
    yield "one_hot_iou", metrics.OneHotIoU(num_classes=6, target_class_ids=[1]), *classes, True
    yield "binary_iou", metrics.BinaryIoU(), *binary, True
    yield "binary_iou_pixels", metrics.BinaryIoU(target_class_ids=[1], threshold=0.6), probabilities(3, 2, 1), labels(3, 2, 1), None


def numbers_of_one(classes):
    return probabilities(classes), labels(classes=classes)


def compute():
    found = []
    for name, metric, prediction, target, *whole in cases():
        # Where Keras takes no weight a row, there are none.
        of_samples = whole[0] if whole and isinstance(whole[0], tuple) else ()
        weight = None if whole == [None] else weights(whole == [True], of_samples)
        case = {"name": name, "metric": keras.saving.serialize_keras_object(metric), "prediction": prediction, "target": target,
                "sample_weights": weight, "batches": BATCHES, "plain": run(metric, prediction, target, None)}
        if weight is not None:
            case["weighted"] = run(metric, prediction, target, weight)
        found.append(case)
    return found


def run(metric, prediction, target, weight):
    metric.reset_state()
    behind = []
    for step, rows in enumerate(BATCHES):
        p, t = (counter.tensor(spec, step)[:rows] for spec in (prediction, target))
        w = None if weight is None else counter.tensor(weight, step)[:rows]
        # As fit hands them over: targets are floats where they are no class numbers.
        t = t.astype("float32") if t.shape == p.shape else t
        p = p.astype("float32")
        metric.update_state(t, p, w)
        result = keras.ops.convert_to_numpy(metric.result())
        behind.append([float(one) for one in result] if result.ndim else float(result))
    return behind


if __name__ == "__main__":
    write(pathlib.Path(__file__).resolve().parent / "metrics.json", compute())
