//! Attention layers: their weights, who sees whom, and what is refused.

use std::path::Path;

use expect_test::{Expect, expect};
use memfit_formats::{FormatError, Mode, Options, graph_from_keras, graph_from_layers, parse_json};
use memfit_ir::{Attention, Graph, Initializer, Op, Tensor};
use serde_json::{Value, json};

const TRAINING: Options = Options { mode: Mode::Training, seed: 1, precision: None };

fn listed(mut layer: Value) -> Result<Graph, FormatError> {
    layer["name"] = json!("a");
    let layers = [
        json!({"class": "Input", "name": "x", "shape": [5, 6]}),
        json!({"class": "Input", "name": "y", "shape": [7, 6]}),
        json!({"class": "Input", "name": "z", "shape": [3]}),
        layer,
    ];
    // An input that the layer does not read is an output itself.
    let outputs = ["x", "y", "z", "a"].map(str::to_owned);
    graph_from_layers(&layers, Some(&outputs), &TRAINING)
}

/// A configuration that Keras wrote, with a call of its attention layer changed.
fn called(case: &str, change: impl Fn(&mut Value)) -> Result<Graph, FormatError> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../references/layers.json");
    let cases = parse_json(&std::fs::read_to_string(path).unwrap()).unwrap();
    let case = cases.as_array().unwrap().iter().find(|known| known["name"] == case).unwrap();
    let mut config = case["config"].clone();
    let layers = config["config"]["layers"].as_array_mut().unwrap();
    let layer = layers.iter_mut().find(|layer| layer["config"]["name"] == "attention").unwrap();
    change(&mut layer["inbound_nodes"]);
    graph_from_keras(&config, &TRAINING)
}

fn check(answers: impl IntoIterator<Item = Result<Graph, FormatError>>, expected: Expect) {
    let lines = answers.into_iter().map(|answer| match answer {
        Ok(_) => "accepted\n".to_owned(),
        Err(error) => format!("{error}\n"),
    });
    expected.assert_eq(&lines.collect::<String>());
}

fn attention(graph: &Graph) -> &Attention {
    let found = graph
        .nodes
        .iter()
        .find_map(|node| if let Op::Attention(kind) = &node.op { Some(kind) } else { None });
    found.unwrap()
}

#[test]
fn weights_have_the_names_and_shapes_of_keras() {
    let layer = json!({"class": "MultiHeadAttention", "num_heads": 2, "key_dim": 3, "value_dim": 4,
        "output_shape": [7], "inputs": ["x", "y"]});
    let graph = listed(layer).unwrap();
    let weights = graph.initial.iter().map(|(id, start)| {
        let Tensor { name, shape, .. } = &graph.tensors[id.0];
        match start {
            // Connections are counted as in the matrix that the kernel is, not as in a convolution's filter.
            Initializer::Uniform { high, .. } => format!("{name} {shape} within {high:.4}\n"),
            Initializer::Constant(value) => format!("{name} {shape} {value}\n"),
            Initializer::Normal { .. }
            | Initializer::Ones { .. }
            | Initializer::Orthogonal { .. }
            | Initializer::TruncatedNormal { .. } => panic!("{name}: {start:?}"),
        }
    });
    expect![[r#"
        a/query/kernel [6,2,3] within 0.7071
        a/query/bias [2,3] 0
        a/key/kernel [6,2,3] within 0.7071
        a/key/bias [2,3] 0
        a/value/kernel [6,2,4] within 0.6547
        a/value/bias [2,4] 0
        a/attention_output/kernel [2,4,7] within 0.6325
        a/attention_output/bias [7] 0
    "#]]
    .assert_eq(&weights.collect::<String>());
    assert!((attention(&graph).scale - 1.0 / 3f32.sqrt()).abs() < 1e-7);
}

#[test]
fn a_causal_mask_comes_with_the_call_or_from_the_list() {
    let list =
        |causal: bool| listed(json!({"class": "Attention", "inputs": ["x"], "use_causal_mask": causal}));
    let keras = |causal: Value| {
        called("attention_causal", move |nodes| nodes[0]["kwargs"]["use_causal_mask"] = causal.clone())
    };
    for (graph, causal) in [
        (list(true), true),
        (list(false), false),
        (keras(json!(true)), true),
        (keras(json!(false)), false),
        (keras(Value::Null), false),
    ] {
        assert_eq!(attention(&graph.unwrap()).causal, causal);
    }
}

#[test]
fn what_would_need_all_scores_or_a_mask_is_refused_by_name() {
    let multi_head = |argument: &str, value: Value| {
        let mut layer = json!({"class": "MultiHeadAttention", "num_heads": 2, "key_dim": 3, "inputs": ["x"]});
        layer[argument] = value;
        listed(layer)
    };
    let with = |argument: &'static str, value: Value| {
        called("multi_head_attention_self", move |nodes| nodes[0]["kwargs"][argument] = value.clone())
    };
    let tensor = json!({"class_name": "__keras_tensor__", "config": {"shape": [null, 5, 5], "dtype": "bool",
        "keras_history": ["x0", 0, 0]}});
    let by_place = tensor.clone();
    check(
        [
            multi_head("attention_axes", json!([2])),
            multi_head("use_gate", json!(true)),
            multi_head("sliding_window", json!(4)),
            multi_head("inputs", json!(["z"])),
            multi_head("inputs", json!(["x", "z"])),
            multi_head("inputs", json!(["x", "y", "x"])),
            listed(json!({"class": "Attention", "use_scale": true, "inputs": ["x"]})),
            listed(json!({"class": "Attention", "score_mode": "concat", "inputs": ["x"]})),
            listed(
                json!({"class": "GroupQueryAttention", "num_query_heads": 4, "num_key_value_heads": 3, "head_dim": 2, "inputs": ["x"]}),
            ),
            with("return_attention_scores", json!(true)),
            with("attention_mask", tensor.clone()),
            with("query_mask", tensor),
            called("multi_head_attention_self", |nodes| {
                let query = nodes[0]["kwargs"]["query"].clone();
                nodes[0]["args"] = json!([query, query, null, by_place]);
                nodes[0]["kwargs"] = json!({});
            }),
            called("multi_head_attention_shared", |nodes| {
                nodes[0]["kwargs"]["use_causal_mask"] = json!(true)
            }),
        ],
        expect![[r#"
            layer `a` (MultiHeadAttention), argument `attention_axes` is [2], which is not supported; use 1, the axis of steps
            layer `a` (MultiHeadAttention), argument `use_gate` is true, which is not supported; use null
            layer `a` (MultiHeadAttention), argument `sliding_window` is 4, which is not supported; use null
            layer `a` (MultiHeadAttention), input: expected a sequence [batch,steps,features], got f32[batch,3]; change the layer or what feeds it
            layer `a` (MultiHeadAttention), input: expected a sequence [batch,steps,features], got f32[batch,3]; change the layer or what feeds it
            layer `a` (MultiHeadAttention), attention: expected q[queries,heads,width], k[keys,key heads,width] and v[keys,key heads,…], got f32[batch,5,2,3], f32[batch,5,2,3], f32[batch,7,2,3]; change the layer or what feeds it
            layer `a` (Attention), argument `use_scale` is true, which is not supported; use null
            layer `a` (Attention), argument `score_mode` is concat, which is not supported; use dot
            layer `a` (GroupQueryAttention), argument `num_key_value_heads` is 3, which is not supported; use a divisor of 4, the number of query heads
            layer `attention` (MultiHeadAttention), argument `return_attention_scores` is true, which is not supported; use a call on tensors alone
            layer `attention` (MultiHeadAttention), argument `attention_mask` is {"class_name":"__keras_tensor__","config":{"shape":[null,5,5],"dtype":"bool","ke…, which is not supported; use a call on tensors alone
            layer `attention` (MultiHeadAttention), argument `mask` is another tensor, which is not supported; use the mask that an Embedding or Masking layer makes
            layer `attention` (MultiHeadAttention), argument `call` is {"class_name":"__keras_tensor__","config":{"shape":[null,5,5],"dtype":"bool","ke…, which is not supported; use a query, a value and a key alone
            layer `attention` (MultiHeadAttention), argument `use_causal_mask` is true and false, which is not supported; use the same for all calls
        "#]],
    );
}

#[test]
fn equations_that_are_no_dense_layer_are_refused_by_name() {
    let einsum = |equation: &str, output: Value, bias: Value| {
        let mut layer = json!({"class": "EinsumDense", "inputs": ["x"]});
        layer["equation"] = json!(equation);
        layer["output_shape"] = output;
        layer["bias_axes"] = bias;
        listed(layer)
    };
    check(
        [
            einsum("abc,bd->adc", json!([null, 4]), Value::Null),
            einsum("abc,cd->abd", json!([null, null]), Value::Null),
            einsum("abc,cde->abde", json!([2]), Value::Null),
            einsum("abc,cd->abd", json!([null, 4]), json!("bd")),
        ],
        expect![[r#"
            layer `a` (EinsumDense), argument `equation` is abc,bd->adc, which is not supported; use a product over the last axes, as in `abc,cd->abd` or `abcd,cde->abe`
            layer `a` (EinsumDense), argument `output_shape` is [-1, -1], which is not supported; use sizes for the axes `d`
            layer `a` (EinsumDense), argument `output_shape` is [2], which is not supported; use sizes for the axes `de`
            layer `a` (EinsumDense), argument `bias_axes` is bd, which is not supported; use `d`, or null
        "#]],
    );
}

#[test]
fn causal_attention_stays_causal_when_it_is_written_down() {
    let layers = [
        json!({"class": "Input", "name": "x", "shape": [5, 8]}),
        json!({"class": "MultiHeadAttention", "num_heads": 2, "key_dim": 4, "inputs": ["x", "x"], "use_causal_mask": true}),
    ];
    let model = memfit_formats::model_from_layers(&layers, None, &TRAINING).unwrap();
    let again = memfit_formats::model_from_keras(&model.config, &TRAINING).unwrap();
    assert!(model.graph.to_text().contains("causal"));
    assert_eq!(again.graph.to_text(), model.graph.to_text());
}
