//! Functions of `keras.ops`, recurrent and random layers that are refused: by name, with what to do.

use expect_test::{Expect, expect};
use memfit_formats::{Mode, Options, graph_from_keras, graph_from_layers};
use serde_json::{Value, json};

const OPTIONS: Options = Options { mode: Mode::Training, seed: 0, precision: None };

/// The answer to a functional model that calls one function on its input of 4 by 6.
fn answer(class: &str, config: Value, others: &[Value]) -> String {
    let tensor = |name: &str| json!({"class_name": "__keras_tensor__", "config": {"shape": [null, 4, 6], "keras_history": [name, 0, 0]}});
    let mut config = config.as_object().unwrap().clone();
    config.insert("name".to_owned(), json!("step"));
    let args: Vec<Value> = std::iter::once(tensor("x")).chain(others.iter().cloned()).collect();
    let model = json!({"class_name": "Functional", "config": {
        "name": "m",
        "layers": [
            {"module": "keras.layers", "class_name": "InputLayer", "inbound_nodes": [],
             "config": {"batch_shape": [null, 4, 6], "name": "x"}},
            {"module": "keras.src.ops.numpy", "class_name": class, "config": config,
             "inbound_nodes": [{"args": args, "kwargs": {}}]},
        ],
        "input_layers": [["x", 0, 0]],
        "output_layers": [["step", 0, 0]],
    }});
    match graph_from_keras(&model, &OPTIONS) {
        Ok(graph) => format!("accepted: {:?}", graph.tensors[graph.outputs[0].0].shape.dims),
        Err(error) => error.to_string(),
    }
}

fn check(answers: &[String], expected: Expect) {
    expected.assert_eq(&format!("{}\n", answers.join("\n")));
}

#[test]
fn what_a_function_cannot_do_is_refused() {
    let slice = |start: Value, stop: Value, step: Value| json!({"class_name": "__slice__", "config": {"start": start, "stop": stop, "step": step}});
    let all = slice(Value::Null, Value::Null, Value::Null);
    check(
        &[
            answer("Cumsum", json!({"axis": 1}), &[]),
            answer("Sum", json!({"axis": null, "keepdims": false}), &[]),
            answer("Mean", json!({"axis": [0, 1], "keepdims": false}), &[]),
            answer("Transpose", json!({"axes": [1, 0, 2]}), &[]),
            answer("Reshape", json!({"newshape": [4, -1]}), &[]),
            answer("Reshape", json!({"newshape": [-1, 24]}), &[]),
            answer("Add", json!({}), &[json!({"class_name": "__numpy__", "config": {}})]),
            answer("Power", json!({}), &[json!(3)]),
            answer("GetItem", json!({}), &[json!([all, slice(Value::Null, Value::Null, json!(2))])]),
            answer("GetItem", json!({}), &[json!([0])]),
            answer("GetItem", json!({}), &[json!([all, -1])]),
            answer("Einsum", json!({"subscripts": "bij->bji"}), &[]),
            answer("Cast", json!({"dtype": "int32"}), &[]),
        ],
        expect![[r#"
            layer `step`: the class `Cumsum` is not supported; of `keras.ops`, use functions of elements, of axes, of shapes, slices, matmul and einsum; else layers
            layer `step` (Sum), argument `axis` is null, which is not supported; use axes after the batch that the tensor has
            layer `step` (Mean), argument `axis` is [0,1], which is not supported; use axes after the batch that the tensor has
            layer `step` (Transpose), argument `axes` is [1,0,2], which is not supported; use all axes, with the batch in front
            layer `step` (Reshape), argument `newshape` is [4,-1], which is not supported; use the batch as -1, then the row's own elements
            accepted: [24]
            layer `step` (Add), argument `call` is {"class_name":"__numpy__","config":{}}, which is not supported; use numbers and tensors of the model
            accepted: [4, 6]
            layer `step` (GetItem), argument `call` is {"class_name":"__slice__","config":{"start":null,"stop":null,"step":2}}, which is not supported; use a number or a slice with step 1 that takes something
            layer `step` (GetItem), argument `call` is 0, which is not supported; use `:` for the batch
            accepted: [6]
            layer `step` (Einsum), argument `subscripts` is "bij->bji", which is not supported; use two tensors as in "bij,bjk->bik", each letter in two of the three, the batch in front
            layer `step` (Cast), argument `dtype` is "int32", which is not supported; use float32; a layer's policy chooses other types
        "#]],
    );
}

#[test]
fn what_recurrent_and_random_layers_cannot_do_is_refused() {
    let answer = |layer: Value, shape: Value| {
        let input = json!({"class": "Input", "shape": shape});
        match graph_from_layers(&[input, layer], None, &OPTIONS) {
            Ok(graph) => format!("accepted: {:?}", graph.tensors[graph.outputs[0].0].shape.dims),
            Err(error) => error.to_string(),
        }
    };
    check(
        &[
            answer(json!({"class": "LSTM", "units": 3}), json!([5, 2])),
            answer(json!({"class": "LSTM", "units": 3, "recurrent_dropout": 0.2}), json!([5, 2])),
            answer(json!({"class": "LSTM", "units": 3, "return_state": true}), json!([5, 2])),
            answer(json!({"class": "GRU", "units": 3, "stateful": true}), json!([5, 2])),
            answer(json!({"class": "SimpleRNN", "units": 3, "activation": "gelu"}), json!([5, 2])),
            answer(json!({"class": "GRU", "units": 3}), json!([5])),
            answer(json!({"class": "Bidirectional", "layer": {"class": "Dense", "units": 3}}), json!([5, 2])),
            answer(json!({"class": "Bidirectional", "layer": {"class": "GRU", "units": 3}}), json!([5, 2])),
            answer(
                json!({"class": "TimeDistributed", "layer": {"class": "Embedding", "input_dim": 3, "output_dim": 3}}),
                json!([5, 8, 8, 2]),
            ),
            answer(
                json!({"class": "TimeDistributed", "layer": {"class": "Bidirectional", "layer": {"class": "GRU", "units": 3, "return_state": true}}}),
                json!([5, 8, 2]),
            ),
            answer(json!({"class": "TimeDistributed", "layer": {"class": "Add"}}), json!([5, 2])),
            answer(json!({"class": "RNN", "cell": {"class": "LSTM", "units": 3}}), json!([5, 2])),
            answer(
                json!({"class": "RNN", "go_backwards": true, "cell": {"class_name": "StackedRNNCells", "config": {"cells": [
                    {"class": "LSTMCell", "units": 3}, {"class": "GRUCell", "units": 3}]}}}),
                json!([5, 2]),
            ),
            answer(json!({"class": "AdaptiveMaxPooling2D", "output_size": 2}), json!([5, 2])),
            answer(
                json!({"class": "SpectralNormalization", "layer": {"class": "Dense", "units": 2}}),
                json!([5]),
            ),
            answer(json!({"class": "RandomCrop", "height": 9, "width": 4}), json!([8, 8, 2])),
            answer(
                json!({"class": "RandomZoom", "height_factor": 0.2, "fill_mode": "mirror"}),
                json!([8, 8, 2]),
            ),
            answer(json!({"class": "ConvLSTM2D"}), json!([8, 2])),
        ],
        expect![[r#"
            accepted: [3]
            layer `lstm` (LSTM), argument `recurrent_dropout` is 0.2, which is not supported; use 0: `dropout` is for the layer's input
            accepted: [3]
            layer `gru` (GRU), argument `stateful` is true, which is not supported; use null
            layer `simple_rnn` (SimpleRNN), argument `activation` is gelu(a), which is not supported; use tanh, sigmoid, relu or linear
            layer `gru` (GRU), input: expected a sequence [batch,steps,features], got f32[batch,5]; change the layer or what feeds it
            layer `bidirectional` (Bidirectional), argument `layer` is Dense, which is not supported; use LSTM, GRU or SimpleRNN
            accepted: [6]
            accepted: [5, 8, 8, 2, 3]
            layer `time_distributed` (TimeDistributed), argument `layer` is Bidirectional, which is not supported; use a layer with one output
            layer `time_distributed` (TimeDistributed), argument `layer` is Add, which is not supported; use a layer of one input
            layer `rnn` (RNN), argument `cell` is LSTM, which is not supported; use `LSTMCell`
            layer `rnn` (RNN), argument `go_backwards` is true, which is not supported; use false for several cells, or a layer for each
            layer `adaptive_max_pooling2d` (AdaptiveMaxPooling2D), input: expected 2 axes and channels after the batch, got f32[batch,5,2]; change the layer or what feeds it
            layer `spectral_normalization`: the class `SpectralNormalization` is not supported; give its layer `kernel_constraint="unit_norm"`, which bounds it too, or leave it out
            layer `random_crop` (RandomCrop), input: expected an image of at least 9×4, got f32[batch,8,8,2]; change the layer or what feeds it
            layer `random_zoom` (RandomZoom), argument `fill_mode` is mirror, which is not supported; use reflect or constant or nearest or wrap
            layer `conv_lstm2d`: the class `ConvLSTM2D` is not supported; put convolutions in TimeDistributed, and an LSTM after them
        "#]],
    );
}
