//! Configurations with a value or two replaced by hostile ones: an answer each time, never a panic. Every mutation follows from a
//! fixed seed, so that a failure can be run again.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use memfit::{Bytes, Costs, Job, layer_table, prepare_without_hints};
use serde_json::{Value, json};

const FILES: [&str; 8] =
    ["augmentation", "compile", "layers", "operations", "precision", "recurrent", "spatial", "training"];
/// Mutations of each configuration.
const ROUNDS: usize = 24;
/// Of the configurations that are accepted, one in this many is planned too.
const PLANNED: usize = 16;

/// A small generator of our own.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) % limit as u64) as usize
    }
}

/// Unexpected values: other types, edges of types, what overflows when it is multiplied.
fn hostile(random: &mut Random, old: &Value) -> Value {
    let choices = [
        Value::Null,
        json!(true),
        json!(0),
        json!(-1),
        json!(-7),
        json!(1),
        json!(3),
        json!(65_535),
        json!(2_147_483_647),
        json!(1_099_511_627_776_u64),
        json!(1_000_000_000_000_000_000_u64),
        json!(i64::MIN),
        json!(u64::MAX),
        json!(0.5),
        json!(-0.5),
        json!(1e300),
        json!(1e-300),
        json!(""),
        json!("NaN"),
        json!("layer\u{0}/../x"),
        json!([]),
        json!({}),
        json!([2_147_483_647, 2_147_483_647]),
        json!([65_535, 65_535, 65_535]),
        json!([null, 2_147_483_647, 2_147_483_647, 3]),
        json!([[[]]]),
        json!([old]),
        json!({"class_name": "Dense", "config": {"name": "dense", "units": 3}}),
    ];
    choices[random.below(choices.len())].clone()
}

fn count(value: &Value) -> usize {
    1 + match value {
        Value::Array(items) => items.iter().map(count).sum(),
        Value::Object(fields) => fields.values().map(count).sum(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => 0,
    }
}

/// Replaces, removes or doubles the value of this number in the order of the text; says where it stood.
fn mutate(value: &mut Value, number: &mut usize, random: &mut Random) -> Option<String> {
    if *number == 0 {
        *value = hostile(random, value);
        return Some(String::new());
    }
    *number -= 1;
    match value {
        Value::Array(items) => {
            for index in 0..items.len() {
                if *number == 0 && random.below(4) == 0 {
                    let item = items.remove(index);
                    if random.below(2) == 0 {
                        items.extend([item.clone(), item]);
                    }
                    return Some(format!("[{index}] removed or doubled"));
                }
                if let Some(path) = mutate(&mut items[index], number, random) {
                    return Some(format!("[{index}]{path}"));
                }
            }
            None
        }
        Value::Object(fields) => {
            let keys: Vec<String> = fields.keys().cloned().collect();
            for key in keys {
                if *number == 0 && random.below(8) == 0 {
                    fields.remove(&key);
                    return Some(format!(".{key} removed"));
                }
                if let Some(path) = mutate(fields.get_mut(&key).unwrap(), number, random) {
                    return Some(format!(".{key}{path}"));
                }
            }
            None
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
    }
}

fn job(case: &Value, config: Value) -> Job {
    let mut job = Job::for_config(config, &[]).expect("no settings");
    job.train.loss = case.get("loss").filter(|loss| !loss.is_number()).cloned().unwrap_or(json!("mse"));
    job.train.optimizer = case.get("optimizer").cloned().unwrap_or(json!("adam"));
    job.train.batch = 3;
    job.train.steps = Some(1);
    job.memory.budget = Some(Bytes(64 << 20).into());
    job.memory.costs = Costs::Analytic;
    job
}

#[test]
fn a_hostile_value_anywhere_in_a_model_is_an_answer() {
    let mut random = Random(11);
    let (mut accepted, mut refused, mut failures) = (0, 0, Vec::new());
    for file in FILES {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../references/{file}.json"));
        let cases: Vec<Value> = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
        for case in &cases {
            for _ in 0..ROUNDS {
                let mut job = job(case, case["config"].clone());
                let mut targets = vec![job.caller.config.as_mut().unwrap()];
                targets.extend([&mut job.train.loss, &mut job.train.optimizer]);
                let target = if random.below(10) == 0 { 1 + random.below(2) } else { 0 };
                let place: Vec<Option<String>> = (0..1 + random.below(2))
                    .map(|_| {
                        let mut number = random.below(count(targets[target]));
                        mutate(targets[target], &mut number, &mut random)
                    })
                    .collect();
                let outcome = catch_unwind(AssertUnwindSafe(|| {
                    let table = layer_table(&job).map(|_| ());
                    if table.is_ok() && random.below(PLANNED) == 0 {
                        return prepare_without_hints(&job, Some(1)).map(|_| ());
                    }
                    table
                }));
                match outcome {
                    Ok(Ok(())) => accepted += 1,
                    Ok(Err(error)) => {
                        assert!(!error.to_string().is_empty());
                        refused += 1;
                    }
                    Err(_) => failures.push(format!("{file} {}, part {target}: {place:?}", case["name"])),
                }
            }
        }
    }
    assert!(failures.is_empty(), "{} panicked:\n{}", failures.len(), failures.join("\n"));
    assert!(1000 < accepted && 1000 < refused, "{accepted} accepted, {refused} refused");
}
