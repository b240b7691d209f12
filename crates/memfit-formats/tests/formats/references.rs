//! Every configuration in references/ loads, with Keras's weights and as many outputs as Keras computed.

use std::path::Path;

use memfit_formats::{Mode, Options, graph_from_keras, model_from_keras, parse_json};
use serde_json::Value;

/// Cases that are refused by name, and what the answer says.
const REFUSED: [(&str, &str); 1] =
    [("batch_normalization_axis_1", "argument `axis` is 1, which is not supported")];

fn cases(file: &str) -> Vec<Value> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../references").join(file);
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    parse_json(&text).unwrap().as_array().unwrap().clone()
}

fn check(case: &Value, mode: Mode) {
    let name = case["name"].as_str().unwrap();
    let graph = match graph_from_keras(&case["config"], &Options { mode, seed: 0, precision: None }) {
        Ok(graph) => graph,
        Err(error) => {
            let refused = REFUSED.iter().find(|(known, _)| *known == name);
            let (_, text) = refused.unwrap_or_else(|| panic!("{name}: {error}"));
            assert!(error.to_string().contains(text), "{name}: {error}");
            return;
        }
    };
    assert!(REFUSED.iter().all(|(known, _)| *known != name), "{name} is no longer refused");
    let weights: Vec<(String, u64)> = graph
        .initial
        .iter()
        .map(|(id, _)| &graph.tensors[id.0])
        .map(|tensor| (tensor.name.clone(), tensor.shape.elements_per_row() as u64))
        .collect();
    let elements =
        |shape: &Value| shape.as_array().unwrap().iter().map(|d| d.as_u64().unwrap()).product::<u64>();
    let expected: Vec<(String, u64)> = case["weights"]
        .as_array()
        .unwrap()
        .iter()
        .map(|weight| {
            // A sequential model's own name is not part of the names here.
            let (path, model) = (weight["path"].as_str().unwrap(), case["config"]["config"]["name"].as_str());
            let is_named = case["config"]["class_name"] == "Sequential";
            let prefix = model.filter(|_| is_named).map(|model| format!("{model}/")).unwrap_or_default();
            let own = path.strip_prefix(&prefix).unwrap_or(path);
            (own.to_owned(), elements(&weight["shape"]))
        })
        .collect();
    assert_eq!(weights, expected, "{name}");
    let rows = case["inputs"][0]["shape"][0].as_u64().unwrap() as usize;
    for (input, expected) in graph.inputs.iter().zip(case["inputs"].as_array().unwrap()) {
        let shape = &graph.tensors[input.0].shape;
        assert_eq!(shape.elements(rows) as u64, elements(&expected["shape"]), "{name}");
    }
    let outputs = case["outputs_inference"].as_array().into_iter().flatten();
    for (output, values) in graph.outputs.iter().zip(outputs) {
        let shape = &graph.tensors[output.0].shape;
        assert_eq!(shape.elements(rows), values.as_array().unwrap().len(), "{name}");
    }
}

#[test]
fn layer_cases_load() {
    for case in cases("layers.json") {
        check(&case, Mode::Training);
        check(&case, Mode::Inference);
    }
}

#[test]
fn cases_of_functions_and_recurrent_layers_load() {
    let files = ["operations.json", "recurrent.json", "further.json"];
    for case in files.into_iter().flat_map(cases) {
        check(&case, Mode::Training);
        check(&case, Mode::Inference);
    }
}

#[test]
fn weights_within_layers_are_stored_where_keras_stores_them() {
    for case in cases("wrapped.json") {
        let options = Options { mode: Mode::Training, seed: 0, precision: None };
        let model = model_from_keras(&case["config"], &options)
            .unwrap_or_else(|error| panic!("{}: {error}", case["name"]));
        let ours: Vec<(&str, Vec<usize>)> =
            model.weights.iter().map(|stored| (stored.place.as_str(), stored.dims.clone())).collect();
        let dims = |shape: &Value| {
            shape.as_array().unwrap().iter().map(|size| size.as_u64().unwrap() as usize).collect::<Vec<_>>()
        };
        let places = case["places"].as_array().unwrap().iter().map(|place| place.as_str().unwrap());
        let shapes = case["weights"].as_array().unwrap().iter().map(|weight| dims(&weight["shape"]));
        assert_eq!(ours, places.zip(shapes).collect::<Vec<_>>(), "{}", case["name"]);
    }
}

#[test]
fn training_cases_load() {
    for case in cases("training.json") {
        check(&case, Mode::Training);
    }
}
