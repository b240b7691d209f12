//! Layers of sequences and images, noise and scales: the shape each makes and the nodes it adds.

mod further;

use serde_json::{Value, json};

/// The input's shape, the layer, the shape it makes and the nodes it adds.
pub type Row = (Value, Value, &'static [usize], &'static [&'static str]);

pub fn rows() -> Vec<Row> {
    own().into_iter().chain(further::rows()).collect()
}

fn own() -> Vec<Row> {
    let (sequence, image) = (json!([7, 4]), json!([9, 8, 6]));
    vec![
        (
            sequence.clone(),
            json!({"class": "Conv1D", "filters": 5, "kernel_size": 3, "padding": "causal"}),
            &[7, 5],
            &["reshape", "conv2d", "reshape"],
        ),
        (
            sequence.clone(),
            json!({"class": "DepthwiseConv1D", "kernel_size": [3], "depth_multiplier": 2}),
            &[5, 8],
            &["reshape", "conv2d", "reshape"],
        ),
        (
            sequence.clone(),
            json!({"class": "SeparableConv1D", "filters": 5, "kernel_size": 3, "strides": 2}),
            &[3, 5],
            &["reshape", "conv2d", "conv2d", "reshape"],
        ),
        (
            image.clone(),
            json!({"class": "SeparableConv2D", "filters": 5, "kernel_size": 3}),
            &[7, 6, 5],
            &["conv2d", "conv2d"],
        ),
        (
            sequence.clone(),
            json!({"class": "Conv1DTranspose", "filters": 5, "kernel_size": 3, "strides": 2}),
            &[15, 5],
            &["reshape", "conv2d_grad_input", "affine", "reshape"],
        ),
        (
            image.clone(),
            json!({"class": "Conv2DTranspose", "filters": 5, "kernel_size": 3, "strides": 2, "padding": "same", "use_bias": false}),
            &[18, 16, 5],
            &["conv2d_grad_input"],
        ),
        (sequence.clone(), json!({"class": "MaxPooling1D"}), &[3, 4], &["reshape", "max_pool2d", "reshape"]),
        (
            sequence.clone(),
            json!({"class": "AveragePooling1D", "pool_size": 3, "strides": 2, "padding": "same"}),
            &[4, 4],
            &["reshape", "average_pool2d", "reshape"],
        ),
        (
            sequence.clone(),
            json!({"class": "Cropping1D", "cropping": [1, 2]}),
            &[4, 4],
            &["reshape", "crop2d", "reshape"],
        ),
        (image.clone(), json!({"class": "Cropping2D", "cropping": [1, 2]}), &[7, 4, 6], &["crop2d"]),
        (sequence.clone(), json!({"class": "ZeroPadding1D"}), &[9, 4], &["reshape", "pad2d", "reshape"]),
        (
            sequence.clone(),
            json!({"class": "UpSampling1D", "size": 3}),
            &[21, 4],
            &["reshape", "up_sample2d", "reshape"],
        ),
        (json!([4]), json!({"class": "RepeatVector", "n": 3}), &[3, 4], &["reshape", "broadcast"]),
        (image.clone(), json!({"class": "Permute", "dims": [3, 1, 2]}), &[6, 9, 8], &["transpose"]),
        (image.clone(), json!({"class": "Identity"}), &[9, 8, 6], &[]),
        (image.clone(), json!({"class": "Resizing", "height": 3, "width": 20}), &[3, 20, 6], &["resize2d"]),
        (image.clone(), json!({"class": "CenterCrop", "height": 3, "width": 4}), &[3, 4, 6], &["crop2d"]),
        (image.clone(), json!({"class": "Normalization"}), &[9, 8, 6], &["batch_norm_inference"]),
        (
            image.clone(),
            json!({"class": "Normalization", "mean": 1, "variance": 4}),
            &[9, 8, 6],
            &["affine_constant"],
        ),
        (
            image.clone(),
            json!({"class": "GroupNormalization", "groups": 3}),
            &[9, 8, 6],
            &["reshape", "transpose", "layer_norm", "transpose", "reshape", "affine"],
        ),
        (
            image.clone(),
            json!({"class": "PReLU", "shared_axes": [1, 2]}),
            &[9, 8, 6],
            &["elementwise", "elementwise", "affine", "elementwise"],
        ),
        (sequence.clone(), json!({"class": "SpatialDropout1D", "rate": 0.5}), &[7, 4], &["noise"]),
        (image.clone(), json!({"class": "SpatialDropout2D", "rate": 0.5}), &[9, 8, 6], &["noise"]),
        (image.clone(), json!({"class": "GaussianDropout", "rate": 0.5}), &[9, 8, 6], &["noise"]),
        (image.clone(), json!({"class": "GaussianNoise", "stddev": 0.5}), &[9, 8, 6], &["noise"]),
        (image.clone(), json!({"class": "AlphaDropout", "rate": 0.5}), &[9, 8, 6], &["noise"]),
        (image.clone(), json!({"class": "StochasticDepth", "drop_path_rate": 0.5}), &[9, 8, 6], &["noise"]),
        (
            image,
            json!({"class": "LayerScale", "init_values": 1e-6, "projection_dim": 6}),
            &[9, 8, 6],
            &["affine"],
        ),
    ]
}
