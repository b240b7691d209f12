//! Every layer: the shapes it makes, the weights it has and the nodes it adds.

mod spatial_rows;

use memfit_formats::{Mode, Options, graph_from_layers, layers};
use memfit_ir::{Binary, Chain, Conv2D, DType, Graph, Kind, Link, Op, Pads, Pool2D, Unary};
use serde_json::{Value, json};

const TRAINING: Options = Options { mode: Mode::Training, seed: 1, precision: None };
const INFERENCE: Options = Options { mode: Mode::Inference, seed: 1, precision: None };

fn one(shape: Value, layer: Value, options: &Options) -> Graph {
    let layers = [json!({"class": "Input", "name": "x", "shape": shape}), layer];
    graph_from_layers(&layers, None, options).unwrap_or_else(|error| panic!("{}: {error}", layers[1]))
}

fn merge(shapes: &[Value], mut layer: Value) -> Graph {
    let names: Vec<String> = (0..shapes.len()).map(|index| format!("x{index}")).collect();
    let mut layers: Vec<Value> = names
        .iter()
        .zip(shapes)
        .map(|(name, shape)| json!({"class": "Input", "name": name, "shape": shape}))
        .collect();
    layer["inputs"] = json!(names);
    layers.push(layer);
    graph_from_layers(&layers, None, &TRAINING).unwrap_or_else(|error| panic!("{error}"))
}

fn output(graph: &Graph) -> &[usize] {
    &graph.tensors[graph.outputs[0].0].shape.dims
}

fn ops(graph: &Graph) -> Vec<&'static str> {
    graph.nodes.iter().map(|node| node.op.name()).collect()
}

fn weights(graph: &Graph) -> Vec<(String, Vec<usize>, bool)> {
    graph
        .tensors
        .iter()
        .filter_map(|tensor| match tensor.kind {
            Kind::Weight { trainable } => Some((tensor.name.clone(), tensor.shape.dims.clone(), trainable)),
            Kind::Input
            | Kind::Optimizer
            | Kind::Gradient
            | Kind::Flow
            | Kind::Activation
            | Kind::Statistic => None,
        })
        .collect()
}

#[test]
fn shapes_and_nodes_are_as_keras_has_them() {
    let image = [9, 8, 6];
    let cases: &[(Value, Value, &[usize], &[&str])] = &[
        (json!([5]), json!({"class": "Dense", "units": 4}), &[4], &["dense"]),
        (
            json!([3, 5]),
            json!({"class": "Dense", "units": 4, "activation": "relu"}),
            &[3, 4],
            &["dense", "elementwise"],
        ),
        (
            json!([5]),
            json!({"class": "Dense", "units": 4, "activation": "softmax"}),
            &[4],
            &["dense", "softmax"],
        ),
        (json!(image), json!({"class": "Conv2D", "filters": 4, "kernel_size": 3}), &[7, 6, 4], &["conv2d"]),
        (
            json!(image),
            json!({"class": "Conv2D", "filters": 4, "kernel_size": [3, 2], "padding": "same"}),
            &[9, 8, 4],
            &["conv2d"],
        ),
        (
            json!(image),
            json!({"class": "Conv2D", "filters": 4, "kernel_size": 3, "strides": 2, "padding": "same"}),
            &[5, 4, 4],
            &["conv2d"],
        ),
        (
            json!(image),
            json!({"class": "Conv2D", "filters": 4, "kernel_size": 3, "dilation_rate": 2}),
            &[5, 4, 4],
            &["conv2d"],
        ),
        (
            json!(image),
            json!({"class": "Conv2D", "filters": 4, "kernel_size": 1, "groups": 2}),
            &[9, 8, 4],
            &["conv2d"],
        ),
        (
            json!(image),
            json!({"class": "DepthwiseConv2D", "kernel_size": 3, "depth_multiplier": 2}),
            &[7, 6, 12],
            &["conv2d"],
        ),
        (json!(image), json!({"class": "MaxPooling2D"}), &[4, 4, 6], &["max_pool2d"]),
        (
            json!(image),
            json!({"class": "MaxPooling2D", "pool_size": 3, "strides": 2, "padding": "same"}),
            &[5, 4, 6],
            &["max_pool2d"],
        ),
        (
            json!(image),
            json!({"class": "AveragePooling2D", "pool_size": [2, 3], "strides": 1}),
            &[8, 6, 6],
            &["average_pool2d"],
        ),
        (json!(image), json!({"class": "GlobalAveragePooling2D"}), &[6], &["global_average_pool2d"]),
        (
            json!(image),
            json!({"class": "GlobalMaxPooling2D", "keepdims": true}),
            &[1, 1, 6],
            &["global_max_pool2d", "reshape"],
        ),
        (json!(image), json!({"class": "Flatten"}), &[432], &["reshape"]),
        (json!([7]), json!({"class": "Flatten"}), &[7], &["reshape"]),
        (json!([]), json!({"class": "Flatten"}), &[1], &["reshape"]),
        (json!(image), json!({"class": "Reshape", "target_shape": [-1, 4]}), &[108, 4], &["reshape"]),
        (json!(image), json!({"class": "Reshape", "target_shape": [72, 6]}), &[72, 6], &["reshape"]),
        (json!([5]), json!({"class": "Dropout", "rate": 0.4}), &[5], &["dropout"]),
        (json!([5]), json!({"class": "Dropout", "rate": 0}), &[5], &[]),
        (
            json!(image),
            json!({"class": "BatchNormalization"}),
            &[9, 8, 6],
            &["batch_norm_statistics", "batch_norm", "batch_norm_moving"],
        ),
        (
            json!(image),
            json!({"class": "BatchNormalization", "axis": 3}),
            &[9, 8, 6],
            &["batch_norm_statistics", "batch_norm", "batch_norm_moving"],
        ),
        (
            json!(image),
            json!({"class": "BatchNormalization", "trainable": false}),
            &[9, 8, 6],
            &["batch_norm_inference"],
        ),
        (json!(image), json!({"class": "LayerNormalization"}), &[9, 8, 6], &["layer_norm"]),
        (
            json!(image),
            json!({"class": "LayerNormalization", "axis": [1, 2, 3]}),
            &[9, 8, 6],
            &["layer_norm"],
        ),
        (json!([5]), json!({"class": "Activation", "activation": "gelu"}), &[5], &["elementwise"]),
        (json!([5]), json!({"class": "Activation", "activation": "linear"}), &[5], &[]),
        (json!([5]), json!({"class": "ReLU"}), &[5], &["elementwise"]),
        (json!([5]), json!({"class": "LeakyReLU"}), &[5], &["elementwise"]),
        (json!([5]), json!({"class": "ELU"}), &[5], &["elementwise"]),
        (json!([3, 5]), json!({"class": "Softmax", "axis": 2}), &[3, 5], &["softmax"]),
        (
            json!(image),
            json!({"class": "ZeroPadding2D", "padding": [[1, 2], [3, 0]]}),
            &[12, 11, 6],
            &["pad2d"],
        ),
        (json!(image), json!({"class": "ZeroPadding2D", "padding": [1, 2]}), &[11, 12, 6], &["pad2d"]),
        (
            json!(image),
            json!({"class": "UpSampling2D", "size": [2, 3], "interpolation": "bilinear"}),
            &[18, 24, 6],
            &["up_sample2d"],
        ),
        (json!([5]), json!({"class": "Rescaling", "scale": 0.5}), &[5], &["elementwise"]),
        (json!([5]), json!({"class": "Embedding", "input_dim": 9, "output_dim": 2}), &[5, 2], &["embedding"]),
        (
            json!([7, 3]),
            json!({"class": "GlobalAveragePooling1D"}),
            &[3],
            &["reshape", "global_average_pool2d"],
        ),
        (
            json!([7, 3]),
            json!({"class": "GlobalMaxPooling1D", "keepdims": true}),
            &[1, 3],
            &["reshape", "global_max_pool2d", "reshape"],
        ),
        (
            json!([7, 3]),
            json!({"class": "EinsumDense", "equation": "abc,cd->abd", "output_shape": [null, 4], "activation": "relu"}),
            &[7, 4],
            &["dense", "elementwise"],
        ),
        (json!([7, 3]), json!({"class": "Attention"}), &[7, 3], SINGLE_HEAD),
        (
            json!([7, 3]),
            json!({"class": "MultiHeadAttention", "num_heads": 2, "key_dim": 4, "output_shape": 5}),
            &[7, 5],
            PROJECTED,
        ),
        (
            json!([7, 3]),
            json!({"class": "GroupQueryAttention", "num_query_heads": 4, "num_key_value_heads": 2, "head_dim": 4}),
            &[7, 3],
            PROJECTED,
        ),
        (
            json!([3, 5]),
            json!({"class": "Softmax", "axis": 1}),
            &[3, 5],
            &["transpose", "softmax", "transpose"],
        ),
        (json!([7, 3]), json!({"class": "LSTM", "units": 4}), &[4], LAST_STATE),
        (
            json!([7, 3]),
            json!({"class": "GRU", "units": 4, "return_sequences": true}),
            &[7, 4],
            &["dense", "recurrent"],
        ),
        (json!([7, 3]), json!({"class": "SimpleRNN", "units": 4, "go_backwards": true}), &[4], LAST_STATE),
        (
            json!([7, 3]),
            json!({"class": "Bidirectional", "layer": {"class": "GRU", "units": 4, "return_sequences": true}}),
            &[7, 8],
            &["dense", "recurrent", "dense", "recurrent", "concat"],
        ),
        (
            json!([7, 3]),
            json!({"class": "TimeDistributed", "layer": {"class": "Dense", "units": 4}}),
            &[7, 4],
            &["dense"],
        ),
        (
            json!([8, 2]),
            json!({"class": "AdaptiveAveragePooling1D", "output_size": 4}),
            &[4, 2],
            &["reshape", "average_pool2d", "reshape"],
        ),
        (
            json!([8, 2]),
            json!({"class": "AdaptiveMaxPooling1D", "output_size": 4}),
            &[4, 2],
            &["reshape", "max_pool2d", "reshape"],
        ),
        (
            json!([9, 8, 6]),
            json!({"class": "AdaptiveAveragePooling2D", "output_size": [3, 2]}),
            &[3, 2, 6],
            &["reshape", "average_pool2d", "reshape", "average_pool2d", "reshape"],
        ),
        (
            json!([9, 8, 6]),
            json!({"class": "AdaptiveMaxPooling2D", "output_size": [3, 2]}),
            &[3, 2, 6],
            &["reshape", "max_pool2d", "reshape", "max_pool2d", "reshape"],
        ),
        (
            json!([4, 6, 3, 2]),
            json!({"class": "AdaptiveAveragePooling3D", "output_size": [2, 3, 1]}),
            &[2, 3, 1, 2],
            &[
                "reshape",
                "average_pool2d",
                "reshape",
                "average_pool2d",
                "reshape",
                "average_pool2d",
                "reshape",
            ],
        ),
        (
            json!([4, 6, 3, 2]),
            json!({"class": "AdaptiveMaxPooling3D", "output_size": [2, 3, 1]}),
            &[2, 3, 1, 2],
            &["reshape", "max_pool2d", "reshape", "max_pool2d", "reshape", "max_pool2d", "reshape"],
        ),
        (json!([7, 3]), json!({"class": "RNN", "cell": {"class": "LSTMCell", "units": 4}}), &[4], LAST_STATE),
        (json!(image), json!({"class": "RandomFlip"}), &image, &["augment"]),
        (json!(image), json!({"class": "RandomCrop", "height": 4, "width": 5}), &[4, 5, 6], &["augment"]),
        (json!(image), json!({"class": "RandomRotation", "factor": 0.1}), &image, &["augment"]),
        (
            json!(image),
            json!({"class": "RandomTranslation", "height_factor": 0.1, "width_factor": [-0.1, 0.2]}),
            &image,
            &["augment"],
        ),
        (json!(image), json!({"class": "RandomZoom", "height_factor": 0.1}), &image, &["augment"]),
        (json!(image), json!({"class": "RandomContrast", "factor": 0.1}), &image, &["augment"]),
        (json!(image), json!({"class": "RandomBrightness", "factor": 0.1}), &image, &["augment"]),
    ];
    let spatial = spatial_rows::rows();
    for (shape, layer, dims, names) in cases.iter().chain(&spatial) {
        let graph = one(shape.clone(), layer.clone(), &TRAINING);
        assert_eq!((output(&graph), ops(&graph).as_slice()), (*dims, *names), "{layer}");
        assert_eq!(graph.inputs.len(), 1, "{layer}");
    }
    let covered = |name: &str| {
        cases.iter().chain(&spatial).any(|(_, layer, ..)| layer["class"] == name) || MERGING.contains(&name)
    };
    let missing: Vec<_> = layers().iter().map(|row| row.name).filter(|name| !covered(name)).collect();
    // The one reads nothing, the other what an Embedding before it has: `models.rs` has it.
    assert_eq!(missing, ["InputLayer", "TiedDense"]);
}

const LAST_STATE: &[&str] = &["dense", "recurrent", "slice", "reshape"];
const SINGLE_HEAD: &[&str] = &["reshape", "reshape", "reshape", "attention", "reshape"];

/// Three projections, what happens between them, and the projection back.
const PROJECTED: &[&str] =
    &["dense", "reshape", "dense", "reshape", "dense", "reshape", "attention", "reshape", "dense"];

/// Shapes of the operands, the layer, the shape it makes and the nodes it adds.
type MergeCase<'a> = (&'a [Value], Value, &'a [usize], &'a [&'a str]);

const MERGING: [&str; 9] = [
    "Add",
    "Subtract",
    "Multiply",
    "Average",
    "Maximum",
    "Concatenate",
    "CustomScaleLayer",
    "Minimum",
    "Dot",
];

#[test]
fn merging_layers_broadcast_their_operands() {
    let cases: &[MergeCase<'_>] = &[
        (&[json!([3, 4, 2]), json!([3, 4, 2])], json!({"class": "Add"}), &[3, 4, 2], &["elementwise"]),
        (&[json!([5]), json!([5])], json!({"class": "Subtract"}), &[5], &["elementwise"]),
        (
            &[json!([1, 1, 2]), json!([3, 4, 2])],
            json!({"class": "Multiply"}),
            &[3, 4, 2],
            &["broadcast", "elementwise"],
        ),
        (
            &[json!([3, 1]), json!([1, 4])],
            json!({"class": "Maximum"}),
            &[3, 4],
            &["broadcast", "broadcast", "elementwise"],
        ),
        (
            &[json!([3, 4, 2]), json!([2])],
            json!({"class": "Add"}),
            &[3, 4, 2],
            &["reshape", "broadcast", "elementwise"],
        ),
        (&[json!([5]), json!([5]), json!([5])], json!({"class": "Average"}), &[5], &["elementwise"]),
        (
            &[json!([5]), json!([5])],
            json!({"class": "CustomScaleLayer", "scale": 0.5}),
            &[5],
            &["elementwise"],
        ),
        (&[json!([3, 4]), json!([3, 5])], json!({"class": "Concatenate"}), &[3, 9], &["concat"]),
        (&[json!([3, 4]), json!([2, 4])], json!({"class": "Concatenate", "axis": 1}), &[5, 4], &["concat"]),
    ];
    for (shapes, layer, dims, names) in cases {
        let graph = merge(shapes, layer.clone());
        assert_eq!((output(&graph), ops(&graph).as_slice()), (*dims, *names), "{layer}");
    }
}

#[test]
fn an_average_is_one_chain() {
    let graph = merge(&[json!([5]), json!([5]), json!([5])], json!({"class": "Average"}));
    let links = vec![
        Link::Binary(Binary::Add, 0, 1),
        Link::Binary(Binary::Add, 3, 2),
        Link::Unary(Unary::Scale(1.0 / 3.0), 4),
    ];
    assert_eq!(graph.nodes[0].op, Op::Elementwise(Chain { inputs: 3, links }));
}

#[test]
fn weights_have_keras_names_order_and_shapes() {
    let cases = [
        (json!({"class": "Dense", "units": 4}), vec![("kernel", vec![6, 4], true), ("bias", vec![4], true)]),
        (json!({"class": "Dense", "units": 4, "use_bias": false}), vec![("kernel", vec![6, 4], true)]),
        (
            json!({"class": "Dense", "units": 4, "trainable": false}),
            vec![("kernel", vec![6, 4], false), ("bias", vec![4], false)],
        ),
        (
            json!({"class": "Conv2D", "filters": 4, "kernel_size": [3, 2], "groups": 2}),
            vec![("kernel", vec![3, 2, 3, 4], true), ("bias", vec![4], true)],
        ),
        (
            json!({"class": "DepthwiseConv2D", "kernel_size": 3, "depth_multiplier": 2}),
            vec![("kernel", vec![3, 3, 1, 12], true), ("bias", vec![12], true)],
        ),
        (
            json!({"class": "BatchNormalization"}),
            vec![
                ("gamma", vec![6], true),
                ("beta", vec![6], true),
                ("moving_mean", vec![6], false),
                ("moving_variance", vec![6], false),
            ],
        ),
        (
            json!({"class": "LayerNormalization", "center": false, "axis": [2, 3]}),
            vec![("gamma", vec![8, 6], true)],
        ),
        (
            json!({"class": "Embedding", "input_dim": 9, "output_dim": 2}),
            vec![("embeddings", vec![9, 2], true)],
        ),
    ];
    for (mut layer, expected) in cases {
        layer["name"] = json!("it");
        let graph = one(json!([9, 8, 6]), layer.clone(), &TRAINING);
        let expected: Vec<_> =
            expected.into_iter().map(|(name, dims, learns)| (format!("it/{name}"), dims, learns)).collect();
        assert_eq!(weights(&graph), expected, "{layer}");
        let initialized: Vec<_> = graph.initial.iter().map(|(id, _)| &graph.tensors[id.0].name).collect();
        assert_eq!(initialized, expected.iter().map(|(name, ..)| name).collect::<Vec<_>>(), "{layer}");
    }
}

#[test]
fn the_margin_of_same_padding_is_tensorflows() {
    // Image of 6×7, span 3, stride 2: 3 and 4 windows, so 1 row below, 1 column on each side.
    let pads = Pads { top: 0, bottom: 1, left: 1, right: 1 };
    let layer = json!({"class": "Conv2D", "filters": 1, "kernel_size": 3, "strides": 2, "padding": "same"});
    let conv = Conv2D { kernel: [3, 3], strides: [2, 2], dilation: [1, 1], groups: 1, pads };
    assert_eq!(one(json!([6, 7, 1]), layer, &TRAINING).nodes[0].op, Op::Conv2D(conv));
    let layer = json!({"class": "MaxPooling2D", "pool_size": 3, "strides": 2, "padding": "same"});
    let pool = Pool2D { window: [3, 3], strides: [2, 2], pads };
    assert_eq!(one(json!([6, 7, 1]), layer, &TRAINING).nodes[0].op, Op::MaxPool2D(pool));
    // Strides beyond the window leave no margin.
    let layer = json!({"class": "AveragePooling2D", "pool_size": 1, "strides": 4, "padding": "same"});
    let pool = Pool2D { window: [1, 1], strides: [4, 4], pads: Pads::default() };
    assert_eq!(one(json!([6, 7, 1]), layer, &TRAINING).nodes[0].op, Op::AveragePool2D(pool));
}

#[test]
fn each_activation_is_its_function() {
    let general =
        |negative_slope, max_value, threshold| Unary::ReluGeneral { negative_slope, max_value, threshold };
    for (layer, function) in [
        (json!({"class": "Activation", "activation": "relu"}), Unary::Relu),
        (json!({"class": "Activation", "activation": "relu6"}), general(0.0, 6.0, 0.0)),
        (json!({"class": "Activation", "activation": "leaky_relu"}), Unary::LeakyRelu(0.2)),
        (json!({"class": "Activation", "activation": "elu"}), Unary::Elu(1.0)),
        (json!({"class": "Activation", "activation": "gelu"}), Unary::Gelu),
        (json!({"class": "Activation", "activation": "silu"}), Unary::Silu),
        (json!({"class": "Activation", "activation": "swish"}), Unary::Silu),
        (json!({"class": "Activation", "activation": "sigmoid"}), Unary::Sigmoid),
        (json!({"class": "Activation", "activation": "tanh"}), Unary::Tanh),
        (json!({"class": "Activation", "activation": "softplus"}), Unary::Softplus),
        (json!({"class": "ReLU"}), Unary::Relu),
        (json!({"class": "ReLU", "negative_slope": 0.1}), Unary::LeakyRelu(0.1)),
        (
            json!({"class": "ReLU", "max_value": 2, "negative_slope": 0.25, "threshold": 0.5}),
            general(0.25, 2.0, 0.5),
        ),
        (json!({"class": "ReLU", "threshold": 0.5}), general(0.0, f32::INFINITY, 0.5)),
        (json!({"class": "LeakyReLU"}), Unary::LeakyRelu(0.3)),
        (json!({"class": "ELU", "alpha": 0.5}), Unary::Elu(0.5)),
    ] {
        let graph = one(json!([5]), layer.clone(), &TRAINING);
        assert_eq!(graph.nodes[0].op, Op::Elementwise(Chain::unary(function)), "{layer}");
    }
}

#[test]
fn inference_leaves_dropout_out_and_follows_the_averages() {
    assert_eq!(ops(&one(json!([5]), json!({"class": "Dropout", "rate": 0.4}), &INFERENCE)), [""; 0]);
    let graph = one(json!([5]), json!({"class": "BatchNormalization"}), &INFERENCE);
    assert_eq!(ops(&graph), ["batch_norm_inference"]);
    assert_eq!(graph.nodes[0].inputs.len(), 5);
}

#[test]
fn batch_normalisation_moves_its_averages_in_a_node_of_its_own() {
    let graph = one(json!([5]), json!({"class": "BatchNormalization", "momentum": 0.7}), &TRAINING);
    let [statistics, _, moving] = &graph.nodes[..] else { panic!("{graph}") };
    assert_eq!(moving.op, Op::BatchNormMoving { momentum: 0.7 });
    assert_eq!(moving.inputs, statistics.outputs);
    let updated: Vec<_> = moving.updates.iter().map(|id| graph.tensors[id.0].name.as_str()).collect();
    assert_eq!(updated, ["batch_normalization/moving_mean", "batch_normalization/moving_variance"]);
}

#[test]
fn inputs_are_f32_or_i32_as_declared() {
    for (declared, fed) in [
        ("float32", DType::F32),
        ("float16", DType::F32),
        ("int32", DType::I32),
        ("int64", DType::I32),
        ("uint8", DType::I32),
    ] {
        let layers = [
            json!({"class": "Input", "shape": [4], "dtype": declared}),
            json!({"class": "Embedding", "input_dim": 9, "output_dim": 2}),
        ];
        let graph = graph_from_layers(&layers, None, &TRAINING).unwrap();
        assert_eq!(graph.tensors[graph.inputs[0].0].dtype, fed, "{declared}");
        assert_eq!(graph.tensors[graph.inputs[0].0].kind, Kind::Input);
    }
}
