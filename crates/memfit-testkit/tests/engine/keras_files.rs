//! Files that Keras wrote go on here as they would there, and files written here come back bit for bit.

use std::fs;
use std::path::{Path, PathBuf};

use memfit::{Event, Job, Observer, OneOrMany, Shuffle, evaluate, fit, predict};
use memfit_files::WeightsFile;
use memfit_testkit::specs::draw;
use serde_json::Value;
use tempfile::TempDir;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../references/keras")
}

fn cases() -> Vec<Value> {
    let text = fs::read_to_string(folder().join("cases.json")).unwrap();
    serde_json::from_str::<Value>(&text).unwrap().as_array().unwrap().clone()
}

/// Rows of an array as a .npy file.
fn write_rows(path: &Path, spec: &Value, from: usize) {
    let dims: Vec<usize> =
        spec["shape"].as_array().unwrap().iter().map(|size| size.as_u64().unwrap() as usize).collect();
    let row: usize = dims[1..].iter().product();
    let values = draw(spec, 0);
    let mut bytes = memfit_data::npy_header((dims[0] - from) as u64, &dims[1..]);
    bytes.extend(values[from * row..].iter().flat_map(|value| (*value as f32).to_le_bytes()));
    fs::write(path, bytes).unwrap();
}

/// A job on a case's file with the rows from `from` on, targets too where wanted.
fn job(case: &Value, scratch: &TempDir, from: usize, with_targets: bool) -> Job {
    let name = case["name"].as_str().unwrap();
    let mut job = Job::for_model(&folder().join(format!("{name}.keras")));
    let inputs = case["inputs"].as_array().unwrap().iter();
    let targets = case["targets"].as_array().unwrap().iter().filter(|_| with_targets);
    let paths = inputs.chain(targets).enumerate().map(|(index, spec)| {
        let path = scratch.path().join(format!("{index}-{from}.npy"));
        write_rows(&path, spec, from);
        path
    });
    job.data.x = OneOrMany::Many(paths.collect());
    job.data.shuffle = Some(Shuffle::Off);
    job.train.batch = case["batch"].as_u64().unwrap() as usize;
    job
}

#[derive(Default)]
struct Losses {
    losses: Vec<f64>,
    iteration: u64,
}

impl Observer for Losses {
    fn event(&mut self, event: Event<'_>) {
        match event {
            Event::Step { record, .. } => self.losses.push(record.loss),
            Event::Resumed { iteration } => self.iteration = iteration,
            Event::Lowered { .. }
            | Event::Planned(_)
            | Event::Piece { .. }
            | Event::Epoch { .. }
            | Event::GoesOn { .. }
            | Event::Checkpoint { .. }
            | Event::Begun { .. }
            | Event::Saved { .. } => {}
        }
    }
}

fn floats(value: &Value) -> Vec<f64> {
    value.as_array().unwrap().iter().map(|value| value.as_f64().unwrap()).collect()
}

fn assert_close(what: &str, ours: &[f64], theirs: &[f64], tolerance: f64) {
    assert_eq!(ours.len(), theirs.len(), "{what}");
    for (ours, theirs) in ours.iter().zip(theirs) {
        assert!((ours - theirs).abs() <= tolerance * (1.0 + theirs.abs()), "{what}: {ours} and {theirs}");
    }
}

fn read_npy(path: &Path) -> Vec<f64> {
    let bytes = fs::read(path).unwrap();
    let start = 10 + usize::from(u16::from_le_bytes([bytes[8], bytes[9]]));
    let (floats, rest) = bytes[start..].as_chunks::<4>();
    assert!(rest.is_empty());
    floats.iter().map(|bytes| f64::from(f32::from_le_bytes(*bytes))).collect()
}

#[test]
fn predictions_are_those_of_keras() {
    for case in cases() {
        let scratch = tempfile::tempdir().unwrap();
        let expected = case["predictions"].as_array().unwrap();
        // Micro-batches of 4 and a smaller last one, and all rows at once.
        for batch in [5, 64] {
            let outputs: Vec<PathBuf> =
                (0..expected.len()).map(|index| scratch.path().join(format!("p{index}.npy"))).collect();
            let mut job = job(&case, &scratch, 0, false);
            job.train.batch = batch;
            let ran = predict(&job, &outputs, None).unwrap();
            assert_eq!(ran.rows, case["rows"].as_u64().unwrap());
            for (path, expected) in outputs.iter().zip(expected) {
                assert_close(&case["name"].to_string(), &read_npy(path), &floats(expected), 1e-5);
            }
        }
    }
}

#[test]
fn evaluation_is_that_of_keras() {
    for case in cases() {
        let scratch = tempfile::tempdir().unwrap();
        let mut job = job(&case, &scratch, 0, true);
        job.train.batch = 5;
        let evaluation = evaluate(&job, None).unwrap();
        assert_close(&case["name"].to_string(), &[evaluation.loss], &[case["loss"].as_f64().unwrap()], 1e-5);
    }
}

#[test]
fn training_goes_on_as_in_keras() {
    for case in cases() {
        let scratch = tempfile::tempdir().unwrap();
        let half = case["rows"].as_u64().unwrap() as usize / 2;
        let mut seen = Losses::default();
        fit(&job(&case, &scratch, half, true), None, &mut seen).unwrap();
        assert_eq!(seen.iteration, 3, "{}", case["name"]);
        // Dropout draws other numbers here than there.
        if case["name"] != "dropout" {
            assert_close(&case["name"].to_string(), &seen.losses, &floats(&case["losses"]), 1e-4);
        }
    }
}

#[test]
fn another_optimizer_begins_with_new_state() {
    let case = &cases()[0];
    let scratch = tempfile::tempdir().unwrap();
    let mut job = job(case, &scratch, 0, true);
    job.train.optimizer = Value::from("rmsprop");
    let mut seen = Losses::default();
    fit(&job, None, &mut seen).unwrap();
    assert_eq!(seen.iteration, 0);
}

#[test]
fn an_optimizers_state_goes_through_a_file_bit_for_bit() {
    // Averages become the weights when training ends, so that going on is not the same as not having stopped.
    for case in cases().into_iter().filter(|case| case["name"] != "averaged" && case["name"] != "dropout") {
        let scratch = tempfile::tempdir().unwrap();
        let mut whole = Losses::default();
        fit(&job(&case, &scratch, 0, true), None, &mut whole).unwrap();
        let batch = case["batch"].as_u64().unwrap() as usize;
        let mut first = job(&case, &scratch, 0, true);
        first.train.steps = Some(1);
        first.train.output = Some(scratch.path().join("stopped.keras"));
        fit(&first, None, &mut memfit::Quiet).unwrap();
        let mut second = job(&case, &scratch, batch, true);
        second.model.file = first.train.output;
        let mut rest = Losses::default();
        fit(&second, None, &mut rest).unwrap();
        assert_eq!(rest.iteration, 4, "{}", case["name"]);
        assert_eq!(rest.losses, whole.losses[1..], "{}", case["name"]);
    }
}

fn bytes_of(file: &WeightsFile, name: &str) -> Vec<u8> {
    let dims = file.dims(name).unwrap().to_vec();
    let mut bytes = vec![0; dims.iter().product::<usize>() * 4];
    file.read(name, name, &dims, &mut bytes).unwrap();
    bytes
}

#[test]
fn a_file_written_here_is_read_back_bit_for_bit() {
    for case in cases() {
        let scratch = tempfile::tempdir().unwrap();
        let name = case["name"].as_str().unwrap();
        let train = |model: Option<&Path>, weights: Option<&Path>, output: &str| {
            let mut job = job(&case, &scratch, 0, true);
            // A rate of 0 moves no weight: what is written is what was read.
            job.train.optimizer = serde_json::json!({"class": "SGD", "learning_rate": 0.0});
            job.train.steps = Some(1);
            if let Some(model) = model {
                job.model.file = Some(model.to_owned());
            }
            job.model.weights = weights.map(Path::to_owned);
            job.train.output = Some(scratch.path().join(output));
            fit(&job, None, &mut memfit::Quiet).unwrap();
            WeightsFile::open(&scratch.path().join(output)).unwrap()
        };
        let keras = train(None, None, "a.keras");
        let again = train(Some(keras.path()), None, "b.keras");
        let h5 = train(None, Some(again.path()), "c.weights.h5");
        let safetensors = train(None, Some(h5.path()), "d.safetensors");
        let last = train(None, Some(safetensors.path()), "e.keras");
        let original = WeightsFile::open(&folder().join(format!("{name}.keras"))).unwrap();
        let weights: Vec<&str> = original.names().filter(|place| place.starts_with("layers/")).collect();
        assert_eq!(weights.len(), case["weights"].as_array().unwrap().len());
        assert_eq!(safetensors.names().count(), weights.len());
        let moving = |place: &str| {
            place.contains("batch_normalization") && (place.ends_with('2') || place.ends_with('3'))
        };
        for place in weights.into_iter().filter(|place| !moving(place)) {
            let bytes = bytes_of(&original, place);
            for file in [&keras, &again, &h5, &last] {
                assert_eq!(bytes_of(file, place), bytes, "{name} {place}");
            }
        }
        let taken = keras.integer("optimizer/vars/0").unwrap();
        assert_eq!(again.integer("optimizer/vars/0").unwrap(), taken + 1, "it went on");
    }
}

#[test]
fn weights_of_another_file_are_named_where_they_do_not_suit() {
    let case = &cases()[0];
    let scratch = tempfile::tempdir().unwrap();
    let mut with = job(case, &scratch, 0, true);
    with.model.weights = Some(folder().join("image.weights.h5"));
    fit(&with, None, &mut memfit::Quiet).unwrap();
    with.model.weights = Some(folder().join("words.keras"));
    let error = fit(&with, None, &mut memfit::Quiet).unwrap_err();
    assert_eq!(error.exit_code(), 2);
    let text = error.to_string();
    assert!(text.contains("words.keras") && text.contains("`first/kernel`"), "{text}");
}

#[test]
fn damaged_models_are_answers() {
    let scratch = tempfile::tempdir().unwrap();
    let mut state = 3u64;
    let mut below = |limit: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((state >> 33) % limit as u64) as usize
    };
    for case in cases() {
        let name = case["name"].as_str().unwrap();
        let whole = fs::read(folder().join(format!("{name}.keras"))).unwrap();
        for round in 0..150 {
            let mut bytes = whole.clone();
            if round % 2 == 0 {
                bytes.truncate(below(bytes.len()));
            }
            for _ in 0..1 + round % 5 {
                let place = below(bytes.len().max(1)).min(bytes.len().saturating_sub(1));
                if let Some(byte) = bytes.get_mut(place) {
                    *byte ^= 1 << below(8);
                }
            }
            let path = scratch.path().join(format!("{name}-{round}.keras"));
            fs::write(&path, &bytes).unwrap();
            // Where the damage hits numbers alone, the model opens; else it is an error that names the file.
            if let Err(error) = memfit::layer_table(&Job::for_model(&path)) {
                assert!(error.to_string().contains(name), "{error}");
            }
        }
    }
}
