//! Whole models: listed, nested, shared, deep, and the text of one graph.

use expect_test::expect;
use memfit_formats::{Mode, Options, graph_from_keras, graph_from_layers};
use memfit_ir::{Graph, Initializer, Kind, Node, Op, TensorId, random};
use serde_json::{Value, json};

const TRAINING: Options = Options { mode: Mode::Training, seed: 1, precision: None };

fn listed(layers: &[Value]) -> Graph {
    graph_from_layers(layers, None, &TRAINING).unwrap_or_else(|error| panic!("{error}"))
}

/// Who reads what, without the details of each op.
fn outline(graph: &Graph) -> String {
    let names = |ids: &[TensorId]| {
        ids.iter().map(|id| graph.tensors[id.0].name.as_str()).collect::<Vec<_>>().join(", ")
    };
    let line = |node: &Node| {
        let written = [node.outputs.as_slice(), node.updates.as_slice()].concat();
        format!("{}({}) -> {}\n", node.op.name(), names(&node.inputs), names(&written))
    };
    graph.nodes.iter().map(line).collect()
}

#[test]
fn a_small_graph_as_text() {
    let graph = listed(&[
        json!({"class": "Input", "name": "x", "shape": [8, 8, 3]}),
        json!({"class": "Conv2D", "filters": 4, "kernel_size": 3, "padding": "same", "activation": "relu"}),
        json!({"class": "MaxPooling2D"}),
        json!({"class": "BatchNormalization"}),
        json!({"class": "Flatten"}),
        json!({"class": "Dropout", "rate": 0.5, "seed": 7}),
        json!({"class": "Dense", "units": 10, "activation": "softmax"}),
    ]);
    expect![[r#"
        feed   x f32[batch,8,8,3]
        piece  conv2d Conv2D { kernel: [3, 3], strides: [1, 1], dilation: [1, 1], groups: 1, pads: Pads { top: 1, bottom: 1, left: 1, right: 1 } } (x, conv2d/kernel, conv2d/bias) -> conv2d:conv2d f32[batch,8,8,4]
        piece  elementwise relu(a) (conv2d:conv2d) -> conv2d:elementwise f32[batch,8,8,4]
        piece  max_pool2d Pool2D { window: [2, 2], strides: [2, 2], pads: Pads { top: 0, bottom: 0, left: 0, right: 0 } } (conv2d:elementwise) -> max_pooling2d:max_pool2d f32[batch,4,4,4], max_pooling2d:argmax u8[batch,4,4,4]
        piece  batch_norm_statistics(max_pooling2d:max_pool2d) -> batch_normalization:mean f32[4], batch_normalization:variance f32[4]
        piece  batch_norm Norm { epsilon: 0.001, scale: true, center: true } (max_pooling2d:max_pool2d, batch_normalization/gamma, batch_normalization/beta, batch_normalization:mean, batch_normalization:variance) -> batch_normalization:batch_norm f32[batch,4,4,4]
        piece  batch_norm_moving { momentum: 0.99 } (batch_normalization:mean, batch_normalization:variance) => batch_normalization/moving_mean f32[4], batch_normalization/moving_variance f32[4]
        piece  reshape [64] (batch_normalization:batch_norm) -> flatten:reshape f32[batch,64]
        piece  dropout { rate: 0.5, seed: 7 } (flatten:reshape) -> dropout:dropout f32[batch,64]
        piece  dense(dropout:dropout, dense/kernel, dense/bias) -> dense:dense f32[batch,10]
        piece  softmax(dense:dense) -> dense:softmax f32[batch,10]
        output dense:softmax f32[batch,10]
    "#]].assert_eq(&graph.to_string());
}

#[test]
fn repeated_layers_are_copies_in_a_row() {
    let graph = listed(&[
        json!({"class": "Input", "shape": [4]}),
        json!({"class": "Dense", "units": 4, "repeat": 2}),
        json!({"class": "Dense", "units": 4, "name": "block", "repeat": 3}),
        json!({"class": "Dense", "units": 4, "name": "dense_2"}),
        json!({"class": "Dense", "units": 4}),
        json!({"class": "Add", "inputs": ["block", "dense_3"]}),
    ]);
    let names =
        ["input_layer", "dense", "dense_1", "block_1", "block_2", "block_3", "dense_2", "dense_3", "add"];
    assert_eq!(graph.layers, names);
    let add = graph.nodes.last().unwrap();
    let read: Vec<_> = add.inputs.iter().map(|id| graph.tensors[id.0].name.as_str()).collect();
    assert_eq!(read, ["block_3:dense", "dense_3:dense"]);
}

#[test]
fn layers_may_be_listed_before_what_feeds_them() {
    let graph = listed(&[
        json!({"class": "Input", "name": "x", "shape": [4]}),
        json!({"class": "ReLU", "name": "last", "inputs": ["first"]}),
        json!({"class": "Dense", "name": "first", "units": 3, "inputs": ["x"]}),
        json!({"class": "Add", "inputs": ["first", "last"]}),
    ]);
    let names: Vec<_> = graph.nodes.iter().map(|node| graph.layers[node.layer.0].as_str()).collect();
    assert_eq!(names, ["first", "last", "add"]);
}

#[test]
fn seeds_follow_the_weights_name_and_dropouts_its_layers() {
    let layers = [
        json!({"class": "Input", "shape": [4]}),
        json!({"class": "Dense", "name": "a", "units": 4}),
        json!({"class": "Dropout", "name": "drop", "rate": 0.5}),
    ];
    let graph = listed(&layers);
    let Initializer::Uniform { seed, .. } = graph.initial[0].1 else { panic!("{:?}", graph.initial[0]) };
    assert_eq!(seed, random::derive(1, random::purpose("a/kernel")));
    assert_eq!(graph.nodes[1].op, Op::Dropout { rate: 0.5, seed: random::purpose("drop") });
    let other = graph_from_layers(&layers, None, &Options { mode: Mode::Training, seed: 2, precision: None })
        .unwrap();
    assert_ne!(graph.initial, other.initial);
}

/// Models that Keras wrote down; `keras/make.py` is the script.
#[test]
fn structures_of_keras_are_read() {
    let cases: Vec<Value> = serde_json::from_str(include_str!("../keras/models.json")).unwrap();
    for case in &cases {
        let graph =
            graph_from_keras(&case["config"], &TRAINING).unwrap_or_else(|e| panic!("{}: {e}", case["name"]));
        let dims = |id: &TensorId| json!(graph.tensors[id.0].shape.dims);
        assert_eq!(Value::from_iter(graph.inputs.iter().map(dims)), case["inputs"], "{}", case["name"]);
        assert_eq!(Value::from_iter(graph.outputs.iter().map(dims)), case["outputs"], "{}", case["name"]);
        let mut weights: Vec<(String, Value)> = graph
            .initial
            .iter()
            .map(|(id, _)| {
                let tensor = &graph.tensors[id.0];
                let parts: Vec<&str> = tensor.name.split('/').collect();
                let path = parts[parts.len() - 2..].join("/");
                let trainable = tensor.kind == Kind::Weight { trainable: true };
                let weight = json!({"path": path, "shape": tensor.shape.dims, "trainable": trainable});
                (path, weight)
            })
            .collect();
        weights.sort_by(|a, b| a.0.cmp(&b.0));
        let weights: Vec<Value> = weights.into_iter().map(|(_, weight)| weight).collect();
        assert_eq!(json!(weights), case["weights"], "{}", case["name"]);
    }
}

#[test]
fn a_nested_model_called_twice_has_its_weights_once() {
    let cases: Vec<Value> = serde_json::from_str(include_str!("../keras/models.json")).unwrap();
    let case = cases.iter().find(|case| case["name"] == "nested_shared_operators").unwrap();
    let graph = graph_from_keras(&case["config"], &TRAINING).unwrap();
    expect![[r#"
        conv2d(x, inner/conv/kernel, inner/conv/bias) -> inner/conv:conv2d
        batch_norm_statistics(inner/conv:conv2d) -> inner/norm:mean, inner/norm:variance
        batch_norm(inner/conv:conv2d, inner/norm/gamma, inner/norm/beta, inner/norm:mean, inner/norm:variance) -> inner/norm:batch_norm
        batch_norm_moving(inner/norm:mean, inner/norm:variance) -> inner/norm/moving_mean, inner/norm/moving_variance
        conv2d(inner/norm:batch_norm, inner/conv/kernel, inner/conv/bias) -> inner/conv:conv2d
        batch_norm_statistics(inner/conv:conv2d) -> inner/norm:mean, inner/norm:variance
        batch_norm(inner/conv:conv2d, inner/norm/gamma, inner/norm/beta, inner/norm:mean, inner/norm:variance) -> inner/norm:batch_norm
        batch_norm_moving(inner/norm:mean, inner/norm:variance) -> inner/norm/moving_mean, inner/norm/moving_variance
        elementwise(inner/norm:batch_norm, inner/norm:batch_norm) -> add:elementwise
        elementwise(add:elementwise, x) -> multiply:elementwise
        elementwise(multiply:elementwise, x) -> subtract:elementwise
        dropout(subtract:elementwise) -> drop:dropout
    "#]].assert_eq(&outline(&graph));
}

#[test]
fn five_thousand_layers_load() {
    let mut layers = vec![json!({"class": "Input", "shape": [4]})];
    layers.push(json!({"class": "Dense", "units": 4, "activation": "relu", "repeat": 5000}));
    let graph = listed(&layers);
    assert_eq!(graph.layers.len(), 5001);

    let dense = |index: usize| {
        let history = if index == 0 { json!(["x", 0, 0]) } else { json!([format!("d{}", index - 1), 0, 0]) };
        let tensor = json!({"class_name": "__keras_tensor__", "config": {"keras_history": history}});
        json!({"class_name": "Dense", "config": {"name": format!("d{index}"), "units": 4},
               "inbound_nodes": [{"args": [tensor], "kwargs": {}}]})
    };
    let input = json!({"class_name": "InputLayer", "config": {"name": "x", "batch_shape": [null, 4]}});
    // Listed backwards, so that the walk from the first layer visits every layer.
    let layers: Vec<Value> = (0..5000).rev().map(dense).chain([input]).collect();
    let config = json!({"class_name": "Functional", "config": {"name": "deep", "layers": layers,
        "input_layers": ["x", 0, 0], "output_layers": ["d4999", 0, 0]}});
    let graph = graph_from_keras(&config, &TRAINING).unwrap();
    assert_eq!(graph.nodes.len(), 5000);
}

#[test]
fn weights_stand_where_keras_stores_them() {
    let layers = [
        json!({"class": "Input", "shape": [8, 8, 3]}),
        json!({"class": "Conv2D", "filters": 4, "kernel_size": 3}),
        json!({"class": "Conv2D", "filters": 4, "kernel_size": 1, "name": "a"}),
        json!({"class": "DepthwiseConv2D", "kernel_size": 1, "name": "b", "inputs": ["conv2d"], "use_bias": false}),
        json!({"class": "Conv2D", "filters": 4, "kernel_size": 1, "name": "c", "inputs": ["conv2d"], "use_bias": false}),
        // Keras holds branches in the order in which a walk back from the outputs meets them.
        json!({"class": "Add", "inputs": ["c", "b", "a"]}),
        json!({"class": "BatchNormalization"}),
    ];
    let options = Options { mode: Mode::Training, seed: 0, precision: None };
    let model = memfit_formats::model_from_layers(&layers, None, &options).unwrap();
    let stored: Vec<(&str, &str, &[usize])> = model
        .weights
        .iter()
        .map(|weight| {
            (model.graph.tensors[weight.tensor.0].name.as_str(), weight.place.as_str(), &weight.dims[..])
        })
        .collect();
    assert_eq!(
        stored,
        [
            ("conv2d/kernel", "layers/conv2d/vars/0", &[3, 3, 3, 4][..]),
            ("conv2d/bias", "layers/conv2d/vars/1", &[4]),
            ("c/kernel", "layers/conv2d_1/vars/0", &[1, 1, 4, 4]),
            ("b/kernel", "layers/depthwise_conv2d/vars/0", &[1, 1, 4, 1]),
            ("a/kernel", "layers/conv2d_2/vars/0", &[1, 1, 4, 4]),
            ("a/bias", "layers/conv2d_2/vars/1", &[4]),
            ("batch_normalization/gamma", "layers/batch_normalization/vars/0", &[4]),
            ("batch_normalization/beta", "layers/batch_normalization/vars/1", &[4]),
            ("batch_normalization/moving_mean", "layers/batch_normalization/vars/2", &[4]),
            ("batch_normalization/moving_variance", "layers/batch_normalization/vars/3", &[4]),
        ]
    );
    let read_again = memfit_formats::model_from_keras(&model.config, &options).unwrap();
    assert_eq!(read_again.layers.len(), 7);
    let places = |model: &memfit_formats::KerasModel| -> Vec<String> {
        model.weights.iter().map(|weight| weight.place.clone()).collect()
    };
    assert_eq!(places(&read_again), places(&model));
}

#[test]
fn logits_read_the_table_of_the_embedding_they_name() {
    let layers = |tied: Value| {
        [
            json!({"class": "Input", "name": "words", "shape": [5], "dtype": "int32"}),
            json!({"class": "Embedding", "name": "token", "input_dim": 11, "output_dim": 4}),
            tied,
        ]
    };
    let graph = listed(&layers(json!({"class": "TiedDense", "name": "logits", "embedding": "token"})));
    assert_eq!(
        outline(&graph),
        "embedding(words, token/embeddings) -> token:embedding\n\
         dense_grad_input(token:embedding, token/embeddings) -> logits:dense_grad_input\n"
    );
    assert_eq!(graph.tensors[graph.outputs[0].0].shape.dims, [5, 11]);
    let wrong = layers(json!({"class": "TiedDense", "embedding": "tokens"}));
    let error = graph_from_layers(&wrong, None, &TRAINING).expect_err("there is no such embedding");
    assert!(error.to_string().contains("tokens"), "{error}");
}
