//! For every error in a model, the message names the layer and ends in what to do.

use expect_test::{Expect, expect};
use memfit_formats::{Mode, Options, graph_from_keras, graph_from_layers, parse_json};
use serde_json::{Value, json};

const OPTIONS: Options = Options { mode: Mode::Training, seed: 0, precision: None };

/// The answers to models of an input and one layer, a line each.
fn check(cases: &[(Value, Value)], expected: Expect) {
    let input = |shape: &Value| json!({"class": "Input", "name": "x", "shape": shape});
    let models: Vec<Vec<Value>> =
        cases.iter().map(|(shape, layer)| vec![input(shape), layer.clone()]).collect();
    check_listed(&models, expected);
}

fn check_listed(models: &[Vec<Value>], expected: Expect) {
    compare(
        models.iter().map(|layers| graph_from_layers(layers, None, &OPTIONS).expect_err("wrong")),
        expected,
    );
}

fn check_keras(configs: &[Value], expected: Expect) {
    compare(configs.iter().map(|config| graph_from_keras(config, &OPTIONS).expect_err("wrong")), expected);
}

fn compare(errors: impl Iterator<Item = memfit_formats::FormatError>, expected: Expect) {
    expected.assert_eq(&errors.map(|error| format!("{error}\n")).collect::<String>());
}

#[test]
fn unknown_layers_are_named_with_the_nearest() {
    check(
        &[
            (json!([5]), json!({"class": "Dence", "name": "head", "units": 1})),
            (json!([5]), json!({"class": "Hashing", "num_bins": 1})),
        ],
        expect![[r#"
            layer `head`: the class `Dence` is not supported; did you mean `Dense`?
            layer `hashing`: the class `Hashing` is not supported; apply it to the data beforehand, and let the model begin after it
        "#]],
    );
}

#[test]
fn arguments_are_checked_by_the_table() {
    let normal = json!({"class_name": "RandomNormal", "config": {"stddev": -1}});
    check(
        &[
            (json!([5]), json!({"class": "Dense"})),
            (json!([5]), json!({"class": "Dense", "unit": 4})),
            (json!([5]), json!({"class": "Dense", "units": -4})),
            (json!([5]), json!({"class": "Dense", "units": "four"})),
            (json!([5]), json!({"class": "Dense", "units": 1, "kernel_initializer": normal})),
            (json!([5]), json!({"class": "Dropout", "rate": 1})),
            (json!([5, 5, 1]), json!({"class": "MaxPooling2D", "pool_size": [1, 2, 3]})),
            (json!([5, 5, 1]), json!({"class": "ZeroPadding2D", "padding": [1]})),
        ],
        expect![[r#"
            layer `dense` (Dense), argument `units` is missing; give a whole number from 1 to 2147483647
            layer `dense` (Dense), argument `unit` is not known; did you mean `units`?
            layer `dense` (Dense), argument `units` is -4; give a whole number from 1 to 2147483647
            layer `dense` (Dense), argument `units` is "four"; give a whole number from 1 to 2147483647
            layer `dense` (Dense), argument `kernel_initializer.stddev` is -1; give a number from 0
            layer `dropout` (Dropout), argument `rate` is 1; give a number from 0 to below 1
            layer `max_pooling2d` (MaxPooling2D), argument `pool_size` is [1,2,3]; give one or two whole numbers from 1 to 65535
            layer `zero_padding2d` (ZeroPadding2D), argument `padding` is [1]; give a margin, two margins [height, width], or [[top, bottom], [left, right]]
        "#]],
    );
}

#[test]
fn what_keras_has_and_memfit_has_not_is_refused_by_name() {
    let image = json!([5, 5, 1]);
    let conv = |argument: &str, value: Value| {
        let mut layer = json!({"class": "Conv2D", "filters": 1, "kernel_size": 1});
        layer[argument] = value;
        (image.clone(), layer)
    };
    let policy = json!({"class_name": "DTypePolicy", "config": {"name": "float64"}});
    let adapted = json!({"class": "Embedding", "input_dim": 2, "output_dim": 2, "lora_rank": 4});
    check(
        &[
            conv("data_format", json!("channels_first")),
            conv("padding", json!("causal")),
            conv("kernel_regularizer", json!("orthogonal_regularizer")),
            conv("dtype", policy),
            conv("activation", json!("squareplus")),
            conv("kernel_initializer", json!("identity")),
            (image.clone(), json!({"class": "Softmax", "axis": 0})),
            (image.clone(), json!({"class": "BatchNormalization", "axis": 1})),
            (image.clone(), json!({"class": "LayerNormalization", "axis": [1]})),
            (json!([null, 5]), json!({"class": "Flatten"})),
            (json!([5]), adapted),
        ],
        expect![[r#"
            layer `conv2d` (Conv2D), argument `data_format` is channels_first, which is not supported; use channels_last
            layer `conv2d` (Conv2D), argument `padding` is causal, which is not supported; use valid or same
            layer `conv2d` (Conv2D), argument `kernel_regularizer` is orthogonal, which is not supported; use L1, L2 or L1L2: the weight is no matrix
            layer `conv2d` (Conv2D), argument `dtype` is float64, which is not supported; use float32, mixed_float16 or mixed_bfloat16
            layer `conv2d` (Conv2D), argument `activation` is squareplus, which is not supported; use one of linear, relu, relu6, leaky_relu, elu, gelu, silu, swish, sigmoid, tanh, softplus, hard_sigmoid, hard_silu, hard_swish, selu, mish, softmax
            layer `conv2d` (Conv2D), argument `kernel_initializer` is identity, which is not supported; use one of Zeros, Ones, Constant, RandomUniform, RandomNormal, TruncatedNormal, VarianceScaling, GlorotUniform, GlorotNormal, HeUniform, HeNormal, LecunUniform, LecunNormal, Orthogonal
            layer `softmax` (Softmax), argument `axis` is 0, which is not supported; use an axis after the batch
            layer `batch_normalization` (BatchNormalization), argument `axis` is 1, which is not supported; use -1, the last axis
            layer `layer_normalization` (LayerNormalization), argument `axis` is [1], which is not supported; use -1 or all axes from one to the last
            layer `x` (InputLayer), argument `shape` is [-1, 5], which is not supported; use a number for every dimension but the batch
            layer `embedding` (Embedding), argument `lora_rank` is 4, which is not supported; use null
        "#]],
    );
}

#[test]
fn shapes_that_do_not_suit_are_refused_with_the_layer() {
    check(
        &[
            (json!([5]), json!({"class": "Conv2D", "name": "conv", "filters": 1, "kernel_size": 1})),
            (json!([5, 5, 3]), json!({"class": "Conv2D", "filters": 4, "kernel_size": 1, "groups": 2})),
            (json!([5, 5, 3]), json!({"class": "Conv2D", "filters": 4, "kernel_size": 7})),
            (json!([99, 99, 1]), json!({"class": "MaxPooling2D", "pool_size": 17})),
            (json!([5, 3]), json!({"class": "Reshape", "target_shape": [4, -1]})),
            (json!([]), json!({"class": "Dense", "units": 1})),
            (json!([4096]), json!({"class": "Dense", "name": "huge", "units": 2147483647})),
            (json!([65536, 65536, 65536]), json!({"class": "Flatten"})),
        ],
        expect![[r#"
            layer `conv` (Conv2D), input: expected an image [batch,height,width,channels], got f32[batch,5]; change the layer or what feeds it
            layer `conv2d` (Conv2D), conv2d: expected a kernel over 3 channels in 2 groups, got f32[batch,5,5,3], f32[1,1,1,4], f32[4]; change the layer or what feeds it
            layer `conv2d` (Conv2D), conv2d: expected an image of at least 7×7, got f32[batch,5,5,3], f32[7,7,3,4], f32[4]; change the layer or what feeds it
            layer `max_pooling2d` (MaxPooling2D), max_pool2d: expected a window of at most 256 pixels, since an argmax is one byte, got f32[batch,99,99,1]; change the layer or what feeds it
            layer `reshape` (Reshape), input: expected elements that fill [4, -1], with at most one -1, got f32[batch,5,3]; change the layer or what feeds it
            layer `dense` (Dense), input: expected at least one axis after the batch, got f32[batch]; change the layer or what feeds it
            layer `huge` (Dense) makes a tensor of [4096,2147483647], over 1099511627776 elements a row; make it smaller
            layer `x` (InputLayer) makes a tensor of [batch,65536,65536,65536], over 1099511627776 elements a row; make it smaller
        "#]],
    );
}

#[test]
fn operands_that_do_not_suit_each_other_are_refused() {
    let input = |name: &str, shape: Value| json!({"class": "Input", "name": name, "shape": shape});
    let merge = |class: &str, axis: i64| match class {
        "Concatenate" => json!({"class": class, "inputs": ["a", "b"], "axis": axis}),
        _ => json!({"class": class, "inputs": ["a", "b"]}),
    };
    check_listed(
        &[
            vec![input("a", json!([3])), input("b", json!([4])), merge("Add", 0)],
            vec![input("a", json!([3, 2])), input("b", json!([3, 4])), merge("Concatenate", 1)],
            vec![input("a", json!([3])), input("b", json!([4])), merge("Concatenate", 0)],
            vec![input("a", json!([3])), json!({"class": "Add"})],
            vec![
                json!({"class": "Input", "shape": [3], "dtype": "uint8"}),
                json!({"class": "Rescaling", "name": "scale", "scale": 0.5}),
                json!({"class": "Reshape", "name": "column", "target_shape": [3, 1]}),
                json!({"class": "Embedding", "name": "table", "inputs": ["input_layer"], "input_dim": 4, "output_dim": 2}),
                json!({"class": "Multiply", "inputs": ["column", "table"]}),
            ],
        ],
        expect![[r#"
            layer `add` (Add), input: expected dimensions that stretch to those before it, [3], got f32[batch,4]; change the layer or what feeds it
            layer `concatenate` (Concatenate), concat: expected shapes alike but in axis 0, got f32[batch,3,2], f32[batch,3,4]; change the layer or what feeds it
            layer `concatenate` (Concatenate), argument `axis` is 0, which is not supported; use an axis after the batch that the tensors have
            layer `add` (Add) takes two or more inputs, got 1; feed it as many
            layer `scale` (Rescaling) computes with float32 and got i32[batch,3]; give it an input of its own, declared as float32: integers are converted while they are read
        "#]],
    );
}

#[test]
fn connections_that_lead_nowhere_are_refused() {
    let x = || json!({"class": "Input", "name": "x", "shape": [3]});
    let dense =
        |name: &str, inputs: &str| json!({"class": "Dense", "units": 3, "name": name, "inputs": [inputs]});
    check_listed(
        &[
            vec![],
            vec![json!({"class": "Dense", "units": 1})],
            vec![x(), dense("hidden", "y")],
            vec![x(), dense("a", "c"), dense("b", "a"), dense("c", "b")],
            vec![x(), dense("a", "x"), dense("b", "x")],
            vec![x(), dense("a", "x"), dense("a", "a")],
            vec![x(), json!({"class": "Dense", "units": 1, "repeat": 0})],
            vec![x(), json!({"units": 1})],
            vec![x(), json!({"class": "Input", "shape": [1], "inputs": ["x"]})],
            vec![x(), json!({"class": "Dense", "units": 1, "inputs": [1]})],
        ],
        expect![[r#"
            the model has no Input; begin it with one, as in Input(shape=(28, 28, 1))
            the model has no Input; begin it with one, as in Input(shape=(28, 28, 1))
            layer `hidden` refers to layer `y`, which is not in the model; use one of x, hidden
            these layers feed each other in a circle: b -> c -> a -> b; break it
            layer `a` leads to no output; name it among the outputs or remove it
            two layers are named `a`; give each its own name
            layer `layers[1]` (Dense), argument `repeat` is 0; give a whole number from 1 to 100000
            layer `layers[1]` (layer), argument `class` is missing; give the name of a layer class
            layer `input_layer` (InputLayer) takes no input, got 1; feed it as many
            layer `layers[1]` (Dense), argument `inputs` is [1]; give a list of names of layers
        "#]],
    );
    let outputs = ["hiden".to_owned()];
    let error = graph_from_layers(&[x(), dense("hidden", "x")], Some(&outputs), &OPTIONS).unwrap_err();
    let expected = "`outputs` refers to layer `hiden`, which is not in the model; did you mean `hidden`?";
    assert_eq!(error.to_string(), expected);
}

#[test]
fn what_is_not_a_keras_model_is_refused() {
    let error = parse_json("{\"class_name\": ").unwrap_err();
    let expected = "not JSON: EOF while parsing a value at line 1 column 15; \
                    give the text that `model.to_json()` returns";
    assert_eq!(error.to_string(), expected);
    let sequential =
        |layer: Value| json!({"class_name": "Sequential", "config": {"name": "m", "layers": [layer]}});
    check_keras(
        &[
            json!([1, 2]),
            json!({"class_name": "MyModel", "config": {}}),
            json!({"class_name": "Sequential", "config": {"name": "m"}}),
            sequential(json!({"class_name": "Dense", "config": {"name": "d", "units": 1}})),
            sequential(json!({"class_name": "Dense", "module": "mine", "config": {"name": "d", "units": 1}})),
            sequential(
                json!({"class_name": "Cumsum", "module": "keras.src.ops.numpy", "config": {"name": "d"}}),
            ),
        ],
        expect![[r#"
            not a Keras 3 model: the configuration is no object with `class_name` and `config`; give what `model.to_json()` of Keras 3 returns
            not a Keras 3 model: its class is `MyModel`, not Sequential or Functional; give what `model.to_json()` of Keras 3 returns
            not a Keras 3 model: a Sequential has no list of `layers`; give what `model.to_json()` of Keras 3 returns
            the model has no Input; begin it with one, as in Input(shape=(28, 28, 1))
            layer `d`: the class `Dense` is not supported; build the model from Keras's own layers
            layer `d`: the class `Cumsum` is not supported; of `keras.ops`, use functions of elements, of axes, of shapes, slices, matmul and einsum; else layers
        "#]],
    );
}

#[test]
fn functional_models_with_loose_ends_are_refused() {
    let model = |history: Value, output: Value| {
        let tensor = json!({"class_name": "__keras_tensor__", "config": {"keras_history": history}});
        let input = json!({"name": "x", "batch_shape": [null, 3]});
        json!({"class_name": "Functional", "config": {
            "name": "m",
            "layers": [
                {"class_name": "InputLayer", "config": input, "inbound_nodes": []},
                {"class_name": "Dense", "config": {"name": "hidden", "units": 1},
                 "inbound_nodes": [{"args": [tensor], "kwargs": {}}]},
            ],
            "input_layers": ["x", 0, 0],
            "output_layers": output,
        }})
    };
    let with = |key: &str, value: Value| {
        let mut config = model(json!(["x", 0, 0]), json!(["hidden", 0, 0]));
        config["config"]["layers"][1]["inbound_nodes"][0][key] = value;
        config
    };
    let mut legacy = model(json!(["x", 0, 0]), json!(["hidden", 0, 0]));
    legacy["config"]["layers"][1]["inbound_nodes"] = json!([[["x", 0, 0, {}]]]);
    let mut unfed = model(json!(["x", 0, 0]), json!(["hidden", 0, 0]));
    unfed["config"]["input_layers"] = json!([]);
    check_keras(
        &[
            model(json!(["z", 0, 0]), json!(["hidden", 0, 0])),
            model(json!(["x", 1, 0]), json!(["hidden", 0, 0])),
            model(json!(["x", 0, 2]), json!(["hidden", 0, 0])),
            model(json!(["hidden", 0, 0]), json!(["hidden", 0, 0])),
            model(json!(["x", 0, 0]), json!(["hidden", 2, 0])),
            model(json!("x"), json!(["hidden", 0, 0])),
            with("args", json!([2.0])),
            with("kwargs", json!({"mask": [1]})),
            legacy,
            unfed,
        ],
        expect![[r#"
            layer `hidden` refers to layer `z`, which is not in the model; use one of x, hidden
            layer `hidden` refers to call 1 of layer `x`, which is not in the model; write the configuration again with `model.to_json()`
            layer `hidden` refers to output 2 of a layer that has 1, which is not in the model; write the configuration again with `model.to_json()`
            these layers feed each other in a circle: hidden -> hidden; break it
            the model's output refers to call 2 of layer `hidden`, which is not in the model; write the configuration again with `model.to_json()`
            not a Keras 3 model: layer `hidden` refers to "x" and not to a tensor; give what `model.to_json()` of Keras 3 returns
            layer `hidden` (Dense), argument `call` is 2.0, which is not supported; use a Rescaling layer to scale or to shift
            layer `hidden` (Dense), argument `mask` is [1], which is not supported; use a call on tensors alone
            not a Keras 3 model: `hidden` has a call without `args` and `kwargs`; give what `model.to_json()` of Keras 3 returns
            not a Keras 3 model: `x` is not among the `input_layers`; give what `model.to_json()` of Keras 3 returns
        "#]],
    );
}
