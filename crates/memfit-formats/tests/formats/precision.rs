//! Dtype policies: what of a graph becomes half, where types meet, and what is refused.

use memfit_formats::{Mode, Options, Precision, graph_from_keras, graph_from_layers};
use memfit_ir::{DType, Graph, Kind, Op};
use serde_json::{Value, json};

fn options(precision: Option<Precision>) -> Options {
    Options { mode: Mode::Training, seed: 0, precision }
}

fn listed(layers: &[Value], precision: Option<Precision>) -> Graph {
    graph_from_layers(layers, None, &options(precision)).unwrap()
}

/// The type of what each layer gives, with its name.
fn types(graph: &Graph) -> Vec<String> {
    let named = |layer: usize| {
        let last = graph.nodes.iter().rev().find(|node| node.layer.0 == layer && !node.outputs.is_empty())?;
        Some(format!("{} {}", graph.layers[layer], graph.tensors[last.outputs[0].0].dtype))
    };
    (0..graph.layers.len()).filter_map(named).collect()
}

fn casts(graph: &Graph) -> usize {
    graph.nodes.iter().filter(|node| matches!(node.op, Op::Cast(_))).count()
}

#[test]
fn a_job_s_policy_holds_for_every_layer_that_has_none_of_its_own() {
    let layers = [
        json!({"class": "Input", "shape": [6, 6, 2]}),
        json!({"class": "Conv2D", "filters": 3, "kernel_size": 3, "activation": "relu"}),
        json!({"class": "BatchNormalization"}),
        json!({"class": "Flatten"}),
        json!({"class": "Dense", "units": 4, "activation": "softmax", "dtype": "float32"}),
    ];
    let plain = listed(&layers, None);
    assert_eq!((casts(&plain), plain.tensors.iter().any(|t| t.dtype == DType::BF16)), (0, false));
    let mixed = listed(&layers, Some(Precision::MixedBfloat16));
    assert_eq!(types(&mixed), ["conv2d bf16", "batch_normalization bf16", "flatten bf16", "dense f32"]);
    assert_eq!(casts(&mixed), 2, "one after the input, one before the head");
    for tensor in &mixed.tensors {
        let is_weight = matches!(tensor.kind, Kind::Weight { .. } | Kind::Input);
        assert!(!is_weight || tensor.dtype == DType::F32, "{} is {}", tensor.name, tensor.dtype);
        let is_statistic = tensor.name.ends_with(":mean") || tensor.name.ends_with(":variance");
        assert!(!is_statistic || tensor.dtype == DType::F32, "{} is {}", tensor.name, tensor.dtype);
    }
}

#[test]
fn integers_are_not_cast_and_rows_of_a_table_are() {
    let layers = [
        json!({"class": "Input", "shape": [5], "dtype": "int32"}),
        json!({"class": "Embedding", "input_dim": 9, "output_dim": 2}),
        json!({"class": "Flatten"}),
    ];
    let graph = listed(&layers, Some(Precision::MixedFloat16));
    assert_eq!(graph.tensors[graph.inputs[0].0].dtype, DType::I32);
    assert_eq!(graph.tensors[graph.outputs[0].0].dtype, DType::F16);
    assert_eq!(casts(&graph), 1);
}

/// A Keras configuration whose layers have these policies.
fn keras(policies: &[&str]) -> Value {
    let mut layers = vec![json!({
        "module": "keras.layers", "class_name": "InputLayer",
        "config": {"batch_shape": [null, 4], "dtype": "float32", "name": "x"}
    })];
    for (index, policy) in policies.iter().enumerate() {
        let dtype = json!({"module": "keras", "class_name": "DTypePolicy", "config": {"name": policy}});
        let config = json!({"name": format!("dense{index}"), "units": 4, "dtype": dtype});
        layers.push(json!({"module": "keras.layers", "class_name": "Dense", "config": config}));
    }
    json!({"module": "keras", "class_name": "Sequential", "config": {"name": "model", "layers": layers}})
}

#[test]
fn a_file_keeps_its_policies_and_a_job_replaces_the_one_that_most_layers_have() {
    let (f32, f16, bf16) = (DType::F32, DType::F16, DType::BF16);
    let mixed = ["mixed_float16", "mixed_float16", "float32"];
    for (policies, precision, wanted) in [
        (["float32"; 3], None, [f32; 3]),
        (["float32"; 3], Some(Precision::MixedFloat16), [f16; 3]),
        (mixed, None, [f16, f16, f32]),
        (mixed, Some(Precision::MixedBfloat16), [bf16, bf16, f32]),
        (mixed, Some(Precision::Float32), [f32; 3]),
    ] {
        let graph = graph_from_keras(&keras(&policies), &options(precision)).unwrap();
        let got: Vec<DType> = graph
            .nodes
            .iter()
            .filter(|node| node.op == Op::Dense)
            .map(|node| graph.tensors[node.outputs[0].0].dtype)
            .collect();
        assert_eq!(got, wanted, "{policies:?} under {precision:?}");
    }
}

#[test]
fn other_policies_are_refused_by_name() {
    for policy in ["float64", "float16", "bfloat16", "int8"] {
        let error = graph_from_keras(&keras(&[policy]), &options(None)).unwrap_err().to_string();
        assert!(error.contains(&format!("is {policy}, which is not supported")), "{error}");
        let error = policy.parse::<Precision>().unwrap_err().to_string();
        assert!(error.contains(policy) && error.contains("mixed_bfloat16"), "{error}");
    }
}
