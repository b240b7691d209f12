//! Builders beside the table of Keras's reader, and models by builders beside the same ones in files.

use memfit_formats::{Expects, LayerClass, Mode, layers};
use serde_json::{Value, json};

use super::builders::{ActivationName, BUILDERS};
use crate::prelude::*;
use crate::{Job, ModelFile};

/// Arguments of the table that builders leave out: those with one value, and one that Keras writes and does not read.
const LEFT_OUT: [&str; 4] = ["data_format", "renorm_momentum", "score_mode", "layer"];

/// Whether an argument is given in the type that its row of the table takes.
fn suits(kind: &str, expects: &Expects) -> bool {
    match expects {
        Expects::Maybe(inner) => suits(kind, inner),
        Expects::Size => kind == "size",
        Expects::Single => kind == "single",
        Expects::Pair => kind == "pair",
        Expects::Flag => kind == "flag",
        Expects::Number { .. } | Expects::ShareAtInference => kind == "number",
        Expects::Axis => kind == "axis",
        Expects::Axes => kind == "axes",
        Expects::Seed => kind == "seed",
        Expects::Activation => kind == "activation",
        Expects::Gate => kind == "gate",
        Expects::Initializer => kind == "initializer",
        Expects::Regularizer => kind == "regularizer",
        Expects::Constraint => kind == "constraint",
        Expects::OneOf(_) => ["padding", "interpolation", "merge"].contains(&kind),
        Expects::Dims | Expects::DimsOrOne => kind == "dims",
        Expects::Margins => kind == "margins",
        Expects::Numbers => kind == "numbers",
        Expects::Layer => kind == "layer",
        Expects::Triple
        | Expects::Sides
        | Expects::Ends
        | Expects::Range
        | Expects::Text
        | Expects::Cells
        | Expects::Policy
        | Expects::Nothing => false,
    }
}

fn row(class: &str) -> &'static LayerClass {
    layers().iter().find(|row| row.name == class).unwrap_or_else(|| panic!("{class} is in the table"))
}

#[test]
fn builders_have_the_arguments_and_defaults_of_the_table() {
    assert!(20 <= BUILDERS.len());
    for builder in BUILDERS {
        let (class, table) = (builder.class, row(builder.class));
        let offered: Vec<_> = table.arguments.iter().filter(|argument| !argument.is_refused()).collect();
        for (place, (name, kind)) in builder.needed.iter().enumerate() {
            assert_eq!(table.arguments[place].name, *name, "{class}: positions are Keras's");
            assert!(suits(kind, &table.arguments[place].expects), "{class}.{name}: {kind}");
        }
        for (name, kind, default) in builder.options {
            let argument = offered.iter().find(|argument| argument.name == *name);
            let argument = argument.unwrap_or_else(|| panic!("{class} has no argument `{name}`"));
            assert!(suits(kind, &argument.expects), "{class}.{name}: {kind}");
            let value = |text: &str| -> Value { serde_json::from_str(text).unwrap() };
            let of_table = argument.default.unwrap_or_else(|| panic!("{class}.{name} must be given"));
            assert_eq!(value(default), value(of_table), "{class}.{name}");
        }
        let names = builder.needed.iter().map(|(name, _)| *name);
        let names: Vec<&str> = names.chain(builder.options.iter().map(|(name, ..)| *name)).collect();
        for argument in offered {
            let is_there = names.contains(&argument.name) || LEFT_OUT.contains(&argument.name);
            assert!(is_there, "{class} lacks `{}`", argument.name);
            assert!(argument.default.is_some() || names.contains(&argument.name), "{class}: required");
        }
    }
}

fn text(job: &Job) -> String {
    ModelFile::open(job, Mode::Training).unwrap().model.graph.to_text()
}

fn of_model(model: &Model) -> String {
    text(&model.job().unwrap())
}

/// The same model by builders and as the layers of a job file.
#[track_caller]
fn check(model: impl Into<Model>, listed: Value, outputs: Option<&[&str]>) {
    let mut job = Job::for_config(Value::Null, &[]).unwrap();
    job.caller.config = None;
    job.model.layers = Some(listed.as_array().unwrap().clone());
    job.model.outputs = outputs.map(|names| names.iter().map(|name| (*name).to_owned()).collect());
    assert_eq!(of_model(&model.into()), text(&job));
}

#[test]
fn a_sequential_model_is_that_of_a_job_file() {
    let model = Sequential::new(Input::shape([12, 12, 3]))
        .add(Conv2D::new(4, 3).activation(Relu).padding("same").kernel_initializer("he_normal"))
        .add(BatchNormalization::new().momentum(0.9))
        .add(MaxPooling2D::new((2, 2)))
        .add(SeparableConv2D::new(4, [3, 1]).strides(2))
        .add(Layer::new("SpatialDropout2D").arg("rate", 0.25))
        .add(Flatten::new().name("flat"))
        .add(Dense::new(5).activation(LeakyReLU::new().negative_slope(0.1)).kernel_regularizer("l2"))
        .add(Dense::new(5).trainable(false).use_bias(false));
    let listed = json!([
        {"class": "Input", "shape": [12, 12, 3]},
        {"class": "Conv2D", "filters": 4, "kernel_size": 3, "activation": "relu", "padding": "same",
         "kernel_initializer": "he_normal"},
        {"class": "BatchNormalization", "momentum": 0.9},
        {"class": "MaxPooling2D", "pool_size": 2},
        {"class": "SeparableConv2D", "filters": 4, "kernel_size": [3, 1], "strides": 2},
        {"class": "SpatialDropout2D", "rate": 0.25},
        {"class": "Flatten", "name": "flat"},
        {"class": "Dense", "units": 5, "kernel_regularizer": "l2",
         "activation": {"class_name": "LeakyReLU", "config": {"negative_slope": 0.1}}},
        {"class": "Dense", "units": 5, "trainable": false, "use_bias": false},
    ]);
    check(&model, listed, None);
}

#[test]
fn sequences_and_layers_within_layers_are_those_of_a_job_file() {
    let model = Sequential::new(Input::new([7]).dtype("int32").name("words"))
        .add(Embedding::new(11, 6).mask_zero(true))
        .add(Bidirectional::new(LSTM::new(4).return_sequences(true)))
        .add(TimeDistributed::new(Dense::new(3)))
        .add(GRU::new(3).reset_after(false));
    let listed = json!([
        {"class": "Input", "shape": [7], "dtype": "int32", "name": "words"},
        {"class": "Embedding", "input_dim": 11, "output_dim": 6, "mask_zero": true},
        {"class": "Bidirectional", "layer": {"class": "LSTM", "units": 4, "return_sequences": true}},
        {"class": "TimeDistributed", "layer": {"class": "Dense", "units": 3}},
        {"class": "GRU", "units": 3, "reset_after": false},
    ]);
    check(&model, listed, None);
}

#[test]
fn a_functional_model_is_that_of_a_job_file() {
    let (x, x2) = (Input::shape([4]), Input::shape([3]));
    let y = Dense::new(3).activation(Tanh).call(&x);
    let z = Add::new().call(&[&y, &x2]);
    let model = Model::new(&[x, x2], &[z, y]);
    let listed = json!([
        {"class": "Input", "shape": [4]},
        {"class": "Input", "shape": [3]},
        {"class": "Dense", "units": 3, "activation": "tanh", "inputs": ["input_layer"]},
        {"class": "Add", "inputs": ["dense", "input_layer_1"]},
    ]);
    check(model, listed, Some(&["add", "dense"]));
}

#[test]
fn a_layer_that_is_called_twice_shares_its_weights_as_in_keras() {
    let shared = Dense::new(3);
    let (a, b) = (Input::new([4]).name("a").tensor(), Input::new([4]).name("b").tensor());
    let out = Subtract::new().call(&[&shared.call(&a), &shared.call(&b)]);
    let model = Model::new(&[a, b], &[out]);
    assert_eq!(model.layers().unwrap().parameters(), (15, 15));
    let tensor = |name: &str, call: usize| json!({"class_name": "__keras_tensor__", "config": {"shape": [null, 4], "keras_history": [name, call, 0]}});
    let node = |args: Value| json!({"args": args, "kwargs": {}});
    let input = |name: &str| {
        json!({"class_name": "InputLayer", "name": name, "inbound_nodes": [],
            "config": {"name": name, "batch_shape": [null, 4]}})
    };
    let keras = json!({"class_name": "Functional", "config": {
        "name": "functional",
        "layers": [
            input("a"),
            input("b"),
            {"class_name": "Dense", "name": "dense", "config": {"name": "dense", "units": 3},
             "inbound_nodes": [node(json!([tensor("a", 0)])), node(json!([tensor("b", 0)]))]},
            {"class_name": "Subtract", "name": "subtract", "config": {"name": "subtract"},
             "inbound_nodes": [node(json!([[tensor("dense", 0), tensor("dense", 1)]]))]},
        ],
        "input_layers": [["a", 0, 0], ["b", 0, 0]],
        "output_layers": [["subtract", 0, 0]],
    }});
    assert_eq!(of_model(&model), of_model(&Model::from_json(&keras.to_string()).unwrap()));
}

#[test]
fn states_and_causal_attention_come_with_the_call() {
    let x = Input::shape([6, 8]);
    let encoded = LSTM::new(8).return_sequences(true).return_state(true).call(&x);
    let decoded =
        LSTM::new(8).return_sequences(true).call(&[&encoded, &encoded.output(1), &encoded.output(2)]);
    let attended = MultiHeadAttention::new(2, 4).use_causal_mask(true).call(&[&decoded, &decoded]);
    let model = Model::new(&[x], &[attended]);
    let text = of_model(&model);
    assert!(text.contains("causal"), "{text}");
    assert_eq!(model.layers().unwrap().rows.len(), 4);
}

#[test]
fn a_clone_or_a_changed_layer_is_another_layer() {
    let x = Input::shape([4]);
    let layer = Dense::new(4);
    let (same, other) = (layer.call(&layer.call(&x)), layer.clone().call(&x));
    let out = Add::new().call(&[&same, &other, &layer.use_bias(false).call(&x)]);
    assert_eq!(Model::new(&[x], &[out]).layers().unwrap().parameters().0, 20 + 20 + 16);
}

#[test]
fn what_is_wrong_is_said_when_the_model_is_read() {
    let answer = |model: Model| model.layers().unwrap_err().to_string();
    let model = |inputs: &[&KerasTensor], outputs: &[&KerasTensor]| {
        let all = |tensors: &[&KerasTensor]| tensors.iter().copied().cloned().collect::<Vec<_>>();
        Model::new(&all(inputs), &all(outputs))
    };
    let (x, other) = (Input::shape([4]), Input::new([4]).name("other").tensor());
    let y = Dense::new(3).call(&x);
    let cases = [
        (model(&[], &[&y]), "at least one input"),
        (model(&[&y], &[&y]), "and not what a layer gives"),
        (model(&[&x], &[&Add::new().call(&[&x, &other])]), "an input (other) that is not among"),
        (model(&[&x, &x], &[&y]), "given twice"),
        (model(&[&x, &other], &[&y]), "other"),
        (model(&[&x], &[&Layer::new("Dens").call(&x)]), "did you mean `Dense`?"),
        (model(&[&x], &[&Dense::new(3).arg("unit", 2).call(&x)]), "did you mean `units`?"),
        (Sequential::new(y.clone()).model(), "begins with what `Input::shape` gives"),
        (Sequential::new(x.clone()).add(Conv2D::new(3, 3)).model(), "conv2d"),
    ];
    for (model, wanted) in cases {
        let found = answer(model);
        assert!(found.contains(wanted), "{found} has no `{wanted}`");
    }
}

#[test]
fn every_activation_is_one_of_the_readers() {
    for activation in ActivationName::ALL {
        let model = Sequential::new(Input::shape([4])).add(Dense::new(3).activation(activation));
        assert!(model.model().layers().is_ok(), "{activation:?}");
    }
}

#[test]
fn a_long_chain_of_calls_takes_no_stack() {
    let mut y = Input::shape([2]);
    for _ in 0..100_000 {
        y = Layer::new("Identity").call(&y);
    }
    drop(y);
}
