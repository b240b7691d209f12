//! The command on hostile input, in a process that may map a limited number of bytes: an error that names the
//! part, within seconds.

use std::fs;
use std::path::Path;
use std::process::Output;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::harness::{command_after, ended_with, reference, text};

/// What the process may map, in KiB. It maps half of that to say hello: its threads have stacks.
const MOST_KIB: u64 = 1 << 20;
const LONGEST: Duration = Duration::from_secs(20);

fn limited(folder: &Path, arguments: &[&str]) -> Output {
    let start = Instant::now();
    let mut command = command_after(&format!("ulimit -v {MOST_KIB}"), arguments);
    let output = command.current_dir(folder).output().unwrap();
    assert!(start.elapsed() < LONGEST, "{arguments:?} took {:?}", start.elapsed());
    output
}

/// The answer to input that is refused: exit code 2, words, no panic.
fn refusal(folder: &Path, arguments: &[&str]) -> String {
    let said = ended_with(&limited(folder, arguments), 2);
    assert!(said.starts_with("error: "), "{said}");
    said
}

fn input(dims: &[Option<u64>]) -> Value {
    json!({"class_name": "InputLayer", "config": {"name": "in", "batch_shape": dims}, "inbound_nodes": []})
}

fn layer(class: &str, name: &str, mut arguments: Value) -> Value {
    arguments["name"] = json!(name);
    json!({"class_name": class, "name": name, "config": arguments})
}

fn sequential(layers: &[Value]) -> String {
    json!({"class_name": "Sequential", "config": {"name": "model", "layers": layers}}).to_string()
}

fn node(layer: &str, call: u64) -> Value {
    let history = json!([layer, call, 0]);
    json!({"args": [{"class_name": "__keras_tensor__", "config": {"keras_history": history}}], "kwargs": {}})
}

fn functional(layers: &[Value], output: &str, call: u64) -> Value {
    json!({"class_name": "Functional", "config": {
        "name": "model", "layers": layers, "input_layers": [["in", 0, 0]], "output_layers": [[output, call, 0]],
    }})
}

/// Models that each call the inner one twice: the number of calls grows beyond what any machine can finish.
fn doubling(levels: usize) -> String {
    let dense = layer("Dense", "inner", json!({"units": 4}));
    let mut inner = dense;
    for level in 0..levels {
        inner["name"] = json!("inner");
        inner["config"]["name"] = json!("inner");
        inner["inbound_nodes"] = json!([node("in", 0), node("inner", 0)]);
        // Keras counts the calls of a functional model from 1 here.
        inner = functional(&[input(&[None, Some(4)]), inner], "inner", if level == 0 { 1 } else { 2 });
    }
    inner.to_string()
}

#[test]
fn hostile_configurations_are_refused_by_the_layer() {
    let folder = tempfile::tempdir().unwrap();
    let rows = || input(&[None, Some(4)]);
    let image = || input(&[None, Some(8), Some(8), Some(3)]);
    let dense = |units: Value| sequential(&[rows(), layer("Dense", "wide", json!({"units": units}))]);
    let chain = |class: &str, arguments: Value| sequential(&[image(), layer(class, "odd", arguments)]);
    let circle = |from: &str| {
        let mut a = layer("Dense", "a", json!({"units": 4}));
        let mut b = layer("Dense", "b", json!({"units": 4}));
        a["inbound_nodes"] = json!([node(from, 0)]);
        b["inbound_nodes"] = json!([node("a", 0)]);
        functional(&[rows(), a, b], "b", 0).to_string()
    };
    let open = r#"{"class_name": "Sequential", "config": {"name": "s", "layers": ["#;
    let many: String = (0..1_000_000)
        .map(|index| format!(r#",{{"class_name":"ReLU","config":{{"name":"r{index}"}}}}"#))
        .collect();
    let cases = [
        ("1e6 brackets", "[".repeat(1_000_000), "more than 120 deep"),
        ("1e5 models in models", open.repeat(100_000), "more than 120 deep"),
        ("30 models in models", format!("{}{}{}", open.repeat(30), rows(), "]}}".repeat(30)), "Input"),
        ("1e6 layers", format!("{open}{}{many}]}}}}", rows()), "more than 1000000 objects"),
        ("2^30 calls", doubling(30), "more than 200000 times"),
        ("units", dense(json!(1_000_000_000_000_000_000_u64)), "layer `wide` (Dense), argument `units`"),
        ("negative units", dense(json!(-3)), "layer `wide` (Dense), argument `units`"),
        ("half a unit", dense(json!(4.5)), "argument `units` is 4.5"),
        ("no number", dense(json!("NaN")), "argument `units` is \"NaN\""),
        ("NaN", dense(json!("?")).replace("\"?\"", "NaN"), "not JSON"),
        ("1e400", dense(json!("?")).replace("\"?\"", "1e400"), "not JSON"),
        (
            "a long name",
            sequential(&[rows(), layer("Dense", &"d".repeat(1 << 20), json!({"units": 1}))]),
            "4096 bytes",
        ),
        (
            "twice",
            sequential(&[
                rows(),
                layer("Dense", "d", json!({"units": 1})),
                layer("Dense", "d", json!({"units": 1})),
            ]),
            "two layers are named `d`",
        ),
        ("a circle", circle("b"), "in a circle: b -> a -> b"),
        ("itself", circle("a"), "in a circle: a -> a"),
        ("missing", circle("missing"), "layer `a` refers to layer `missing`"),
        ("rows", sequential(&[input(&[None, Some(2_147_483_647), Some(2_147_483_647)])]), "layer `in`"),
        (
            "stride 0",
            chain("Conv2D", json!({"filters": 4, "kernel_size": 3, "strides": 0})),
            "argument `strides` is 0",
        ),
        (
            "a wide window",
            chain("Conv2D", json!({"filters": 2_147_483_647, "kernel_size": 65_535, "padding": "same"})),
            "makes a tensor of",
        ),
        ("rate", chain("Dropout", json!({"rate": -1})), "argument `rate` is -1"),
        (
            "margins",
            chain("ZeroPadding2D", json!({"padding": [[0, u64::MAX], [0, 0]]})),
            "argument `padding`",
        ),
    ];
    for (name, text, word) in cases {
        fs::write(folder.path().join("model.json"), text).unwrap();
        let printed = refusal(folder.path(), &["summary", "model.json"]);
        assert!(printed.contains("model.json") && printed.contains(word), "{name}: {printed}");
    }
}

#[test]
fn a_model_file_cut_off_or_damaged_is_refused_by_its_part() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.keras");
    let bytes = fs::read(reference("image.keras")).unwrap();
    let train = ["train", "model.keras", "--steps", "1", "--batch", "2"];
    for length in (0..bytes.len()).step_by(4096).chain([bytes.len() - 1]) {
        fs::write(&path, &bytes[..length]).unwrap();
        let printed = refusal(folder.path(), &train);
        assert!(printed.contains("model.keras"), "{length} bytes: {printed}");
    }
    let data = bytes.windows(8).position(|window| window == b"\x89HDF\r\n\x1a\n").unwrap();
    for place in [data + 2000, data + 6000, data + 9000] {
        let mut damaged = bytes.clone();
        damaged[place] ^= 0x10;
        fs::write(&path, &damaged).unwrap();
        let printed = refusal(folder.path(), &train);
        assert!(printed.contains("model.weights.h5"), "{printed}");
    }
}

#[test]
fn weights_of_another_model_are_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let job = |units: u64, weights: &str| {
        format!(
            "[model]\n{weights}layers = [{{class = \"Input\", shape = [4]}}, {{class = \"Dense\", units = {units}}}]\n\
             [train]\nloss = \"mse\"\noptimizer = \"sgd\"\nbatch = 2\nsteps = 1\n"
        )
    };
    fs::write(folder.path().join("write.toml"), job(3, "")).unwrap();
    for kind in ["w.keras", "w.weights.h5", "w.safetensors"] {
        text(&limited(folder.path(), &["train", "write.toml", "--output", kind]));
        fs::write(folder.path().join("read.toml"), job(5, &format!("weights = \"{kind}\"\n"))).unwrap();
        let printed = refusal(folder.path(), &["train", "read.toml"]);
        assert!(
            printed.contains("[4, 5]") && printed.contains("[4, 3]") && printed.contains("dense/kernel"),
            "{printed}"
        );
    }
    let printed = refusal(folder.path(), &["train", "w.safetensors"]);
    assert!(printed.contains("w.safetensors"), "{printed}");
}

#[test]
fn an_npy_file_that_claims_too_much_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    fs::copy(reference("schedule.keras"), folder.path().join("model.keras")).unwrap();
    let head = |version: u8, length: &[u8], text: &str| {
        [b"\x93NUMPY", &[version, 0][..], length, text.as_bytes()].concat()
    };
    let plain = |shape: &str| {
        let text = format!("{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}\n");
        head(1, &u16::try_from(text.len()).unwrap().to_le_bytes(), &text)
    };
    let deep = format!("{{'descr': {}", "(".repeat(4000));
    let cases = [
        ("no bytes", Vec::new()),
        ("magic alone", b"\x93NUMPY".to_vec()),
        ("a version of tomorrow", head(9, &[0xff; 4], "")),
        ("a header of 4 GiB", head(2, &[0xff; 4], "{}")),
        ("a deep header", head(2, &u32::try_from(deep.len()).unwrap().to_le_bytes(), &deep)),
        ("rows without end", plain("(18446744073709551615, 4)")),
        ("more rows than numbers", plain("(184467440737095516150, 4)")),
        ("fewer than none", plain("(-4, 4)")),
        ("an overflow", plain("(4611686018427387904, 4)")),
        ("nothing after it", plain("(1000000000000, 4)")),
        ("no shape", plain("()")),
        ("objects", head(1, &[60, 0], "{'descr': '|O', 'fortran_order': False, 'shape': (3, 4), } \n")),
    ];
    for (name, bytes) in cases {
        fs::write(folder.path().join("x.npy"), bytes).unwrap();
        fs::write(folder.path().join("y.npy"), plain("(3, 1)")).unwrap();
        let printed =
            refusal(folder.path(), &["train", "model.keras", "--data", "x.npy,y.npy", "--batch", "2"]);
        assert!(printed.contains("x.npy"), "{name}: {printed}");
    }
}

#[test]
fn what_is_no_model_at_all_is_an_answer() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    fs::write(at("model.keras"), b"hello").unwrap();
    fs::write(at("binary.toml"), [0xff; 64]).unwrap();
    fs::write(at("deep.toml"), format!("a = {}", "[".repeat(1_000_000))).unwrap();
    // As large as a data set, and without a byte on the disk.
    let large = fs::File::create(at("large.toml")).unwrap();
    large.set_len(8 << 30).unwrap();
    for name in ["model.keras", "binary.toml", "deep.toml", "large.toml", "missing.toml", "."] {
        let printed = refusal(folder.path(), &["train", name]);
        assert!(printed.contains(name), "{printed}");
    }
}
