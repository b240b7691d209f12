//! Layers of volumes, masks and a few ops: the shape each makes and the nodes it adds.

use serde_json::json;

use super::Row;

pub fn rows() -> Vec<Row> {
    let volume = json!([4, 6, 5, 2]);
    vec![
        (
            volume.clone(),
            json!({"class": "Conv3D", "filters": 3, "kernel_size": [2, 3, 3], "strides": [1, 2, 1], "padding": "same"}),
            &[4, 3, 5, 3],
            &["conv3d"],
        ),
        (
            volume.clone(),
            json!({"class": "Conv3DTranspose", "filters": 3, "kernel_size": 3, "strides": 2}),
            &[9, 13, 11, 3],
            &["conv3d_grad_input", "affine"],
        ),
        (
            volume.clone(),
            json!({"class": "MaxPooling3D", "pool_size": [1, 2, 2]}),
            &[4, 3, 2, 2],
            &["reshape", "max_pool2d", "reshape", "max_pool2d", "reshape"],
        ),
        (
            volume.clone(),
            json!({"class": "AveragePooling3D", "pool_size": [2, 1, 1]}),
            &[2, 6, 5, 2],
            &["reshape", "average_pool2d", "reshape"],
        ),
        (
            volume.clone(),
            json!({"class": "GlobalAveragePooling3D"}),
            &[2],
            &["reshape", "global_average_pool2d"],
        ),
        (
            volume.clone(),
            json!({"class": "GlobalMaxPooling3D", "keepdims": true}),
            &[1, 1, 1, 2],
            &["reshape", "global_max_pool2d", "reshape"],
        ),
        (
            volume.clone(),
            json!({"class": "UpSampling3D", "size": [1, 2, 1]}),
            &[4, 12, 5, 2],
            &["reshape", "broadcast", "reshape"],
        ),
        (
            volume.clone(),
            json!({"class": "ZeroPadding3D", "padding": [[1, 0], [0, 0], [2, 1]]}),
            &[5, 6, 8, 2],
            &["pad_axis", "pad_axis"],
        ),
        (
            volume.clone(),
            json!({"class": "Cropping3D", "cropping": [[1, 0], [0, 0], [2, 1]]}),
            &[3, 6, 2, 2],
            &["slice", "slice"],
        ),
        (volume, json!({"class": "SpatialDropout3D", "rate": 0.2}), &[4, 6, 5, 2], &["noise"]),
        (json!([3, 4]), json!({"class": "UnitNormalization"}), &[3, 4], SCALED),
        (
            json!([3, 4]),
            json!({"class": "RMSNormalization"}),
            &[3, 4],
            &["elementwise", "sum_to", "elementwise", "broadcast", "elementwise", "affine"],
        ),
        (
            json!([3, 4]),
            json!({"class": "Masking", "mask_value": 2}),
            &[3, 4],
            &["mask", "reshape", "broadcast", "elementwise", "mask"],
        ),
        (json!([3, 4]), json!({"class": "ActivityRegularization", "l2": 0.1}), &[3, 4], &[]),
    ]
}

const SCALED: &[&str] = &["elementwise", "sum_to", "elementwise", "broadcast", "elementwise"];
