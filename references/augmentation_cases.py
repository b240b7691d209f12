"""Layers that change images at random, with ranges of one value, so that Keras has nothing to draw, for augmentation.json."""

from keras import layers

from layer_cases import one


class Fixed:
    """Outputs alone: nothing behind these layers asks for their gradient."""

    def __init__(self, case):
        self.case = case

    def compute(self):
        result = self.case.compute()
        for key in ("weight_gradients", "input_gradients", "loss"):
            result.pop(key)
        return result


def cases():
    shape = (6, 5, 2)
    for fill in ("reflect", "constant", "nearest", "wrap"):
        for how in ("bilinear", "nearest"):
            options = {"fill_mode": fill, "interpolation": how, "fill_value": 0.5}
            name = f"{fill}_{how}"
            # No pixel falls halfway between two others, where rounding decides.
            yield one(f"random_rotation_{name}", layers.RandomRotation((0.11, 0.11), **options), shape)
            yield one(f"random_translation_{name}",
                      layers.RandomTranslation((0.37, 0.37), (-0.29, -0.29), **options), shape)
            yield one(f"random_zoom_{name}", layers.RandomZoom((0.43, 0.43), (-0.31, -0.31), **options), shape)
    yield one("random_zoom_even", layers.RandomZoom((0.37, 0.37)), shape)
    yield one("random_rotation_zero", layers.RandomRotation(0.0), shape)
    yield one("random_brightness", layers.RandomBrightness((0.2, 0.2), value_range=(-1.0, 1.0)), shape)
    yield one("random_contrast_zero", layers.RandomContrast(0.0, value_range=(-0.5, 0.5)), shape)
    yield one("random_crop_whole", layers.RandomCrop(6, 5), shape)


def compute():
    """All cases of augmentation.json, in order."""
    return [Fixed(case).compute() for case in cases()]
