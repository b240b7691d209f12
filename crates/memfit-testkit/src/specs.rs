//! Values by formula, as `references/` describes them: a reference file says how to draw a tensor, not what is in it.

use memfit_ir::random;
use serde_json::Value;

/// Draws the values of a tensor from its spec; `step` is added to the seed.
pub fn draw(spec: &Value, step: u64) -> Vec<f64> {
    let shape: Vec<usize> = spec["shape"]
        .as_array()
        .expect("a spec has a shape")
        .iter()
        .map(|size| size.as_u64().expect("sizes are whole") as usize)
        .collect();
    let count: usize = shape.iter().product();
    let seed = spec["seed"].as_u64().expect("a spec has a seed") + step;
    let number = |key: &str| spec[key].as_f64().expect("a spec has its range");
    match spec["kind"].as_str().expect("a spec has a kind") {
        "uniform" => {
            let (low, high) = (number("low"), number("high"));
            (0..count as u64).map(|index| f64::from(random::uniform(seed, index, low, high))).collect()
        }
        "integers" => {
            let (low, high) = (number("low") as i64, number("high") as i64);
            (0..count as u64).map(|index| random::integer(seed, index, low, high) as f64).collect()
        }
        "one_hot" => {
            let classes = *shape.last().expect("one-hot has an axis of classes");
            (0..(count / classes) as u64)
                .flat_map(|row| {
                    let class = random::integer(seed, row, 0, classes as i64) as usize;
                    (0..classes).map(move |index| if index == class { 1.0 } else { 0.0 })
                })
                .collect()
        }
        other => panic!("unknown kind of spec: {other}"),
    }
}

/// The file of references, or nothing where the tests run without it.
pub fn references(name: &str) -> Vec<Value> {
    let path = format!("{}/../../references/{name}", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(&path).expect("reference files are part of the project");
    let cases: Value = serde_json::from_str(&text).expect("reference files are JSON");
    cases.as_array().expect("a reference file is a list of cases").clone()
}

/// A list of numbers.
pub fn numbers(value: &Value) -> Vec<f64> {
    value
        .as_array()
        .expect("a list of numbers")
        .iter()
        .map(|number| number.as_f64().expect("a number"))
        .collect()
}
