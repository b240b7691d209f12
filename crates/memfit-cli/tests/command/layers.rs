//! `memfit layers`: what is listed is what models are read by.

use std::process::Output;

use serde_json::Value;

use crate::harness::memfit;

fn layers(arguments: &[&str]) -> Output {
    memfit(&[&["layers"], arguments].concat())
}

#[test]
fn every_class_is_listed_with_its_arguments_and_limits() {
    let output = layers(&["--json"]);
    assert!(output.status.success());
    let listed: Value = serde_json::from_slice(&output.stdout).unwrap();
    let names: Vec<&str> =
        listed.as_array().unwrap().iter().filter_map(|row| row["class"].as_str()).collect();
    assert!(names.is_sorted() && names.contains(&"Conv2D") && names.contains(&"Resizing"), "{names:?}");
    let text = String::from_utf8(layers(&["groupnorm"]).stdout).unwrap();
    assert!(text.starts_with("GroupNormalization (one input)\n"), "{text}");
    assert!(text.contains("beta_regularizer") && text.contains("L1L2"), "{text}");
    let text = String::from_utf8(layers(&["lstm"]).stdout).unwrap();
    assert!(text.contains("stateful") && text.contains("not supported"), "{text}");
}

#[test]
fn what_training_refuses_is_not_offered() {
    let text = String::from_utf8(layers(&["lstm"]).stdout).unwrap();
    let line = |name: &str| {
        let mut lines = text.lines().map(str::trim_start);
        lines.find(|line| line.split_whitespace().next() == Some(name)).unwrap().to_owned()
    };
    assert!(line("recurrent_dropout").contains("0 in training"), "{text}");
    for name in ["activation", "recurrent_activation"] {
        assert!(line(name).contains("tanh, sigmoid, relu or linear"), "{text}");
    }
}

#[test]
fn a_name_that_no_class_has_is_bad_input() {
    let output = layers(&["nosuchlayer"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8(output.stderr).unwrap().contains("`memfit layers` lists all"));
}
