//! Bad input gets a message that names the thing, and the right exit code.

use std::fs;
use std::path::Path;

use crate::harness::{command, ended_with, errors, memfit, repository, text, write_npy};

/// A job that trains, as a base to spoil.
const JOB: &str = r#"
[[model.layers]]
class = "Input"
shape = [6]
[[model.layers]]
class = "Dense"
name = "middle"
units = 4
activation = "relu"
[[model.layers]]
class = "Dense"
name = "last"
units = 2
[train]
loss = "mean_squared_error"
optimizer = "sgd"
batch = 4
steps = 3
"#;

/// Runs a job and checks its exit code and that the message names these things.
#[track_caller]
fn expect(job: &str, arguments: &[&str], code: i32, names: &[&str]) {
    let folder = tempfile::tempdir().unwrap();
    expect_in(folder.path(), job, arguments, code, names);
}

#[track_caller]
fn expect_in(folder: &Path, job: &str, arguments: &[&str], code: i32, names: &[&str]) {
    let path = folder.join("job.toml");
    fs::write(&path, job).unwrap();
    let output = command(&arguments[..1]).arg(&path).args(&arguments[1..]).output().unwrap();
    let said = ended_with(&output, code);
    for name in names {
        assert!(said.contains(name), "`{name}` is not in: {said}");
    }
}

#[test]
fn the_base_job_trains() {
    expect(JOB, &["train", "--json"], 0, &[]);
}

#[test]
fn an_unknown_layer_is_named_with_the_nearest_known() {
    expect(
        &JOB.replace("class = \"Dense\"\nname = \"middle\"", "class = \"Dence\"\nname = \"middle\""),
        &["train"],
        2,
        &["Dence", "middle", "Dense"],
    );
}

#[test]
fn a_missing_argument_is_named() {
    expect(&JOB.replace("units = 4\n", ""), &["train"], 2, &["middle", "units"]);
}

#[test]
fn an_unknown_argument_is_named() {
    expect(&JOB.replace("units = 4\n", "units = 4\nunit = 3\n"), &["train"], 2, &["middle", "unit"]);
}

#[test]
fn a_shape_mismatch_names_layer_expected_and_got() {
    let job = JOB.replace(
        "class = \"Dense\"\nname = \"last\"\nunits = 2",
        "class = \"Conv2D\"\nname = \"last\"\nfilters = 2\nkernel_size = 3",
    );
    expect(&job, &["plan"], 2, &["last", "expected", "got"]);
}

#[test]
fn unknown_losses_optimizers_and_keys_are_named() {
    expect(
        &JOB.replace("mean_squared_error", "hinge_of_doom"),
        &["plan"],
        2,
        &["hinge_of_doom", "mean_squared_error"],
    );
    expect(&JOB.replace("\"sgd\"", "\"sdg\""), &["plan"], 2, &["sdg", "SGD"]);
    expect(&JOB.replace("batch = 4", "batch = 4\nbatches = 3"), &["plan"], 2, &["batches"]);
    expect("this is not toml [", &["plan"], 2, &["job.toml"]);
}

#[test]
fn a_missing_job_file_is_named() {
    assert!(ended_with(&memfit(&["plan", "no-such-job.toml"]), 2).contains("no-such-job.toml"));
}

#[test]
fn batch_0_and_0_steps_are_refused() {
    expect(JOB, &["train", "--batch", "0"], 2, &["batch of 0"]);
    expect(JOB, &["train", "--steps", "0"], 2, &["0 steps"]);
}

#[test]
fn a_label_out_of_range_is_named_with_its_row() {
    let job = JOB
        .replace("mean_squared_error", "sparse_categorical_crossentropy")
        .replace("steps = 3", "epochs = 1")
        .replace("units = 2", "units = 2\nactivation = \"softmax\"");
    let job = job + "\n[data]\nx = \"x.npy\"\ny = \"y.npy\"\n";
    let folder = tempfile::tempdir().unwrap();
    write_npy(&folder.path().join("x.npy"), "<f4", &[10, 6], &floats(60));
    for (wrong, words) in [(2, "is 2 in row 7"), (-1, "is -1 in row 7"), (1 << 30, "is 1073741824 in row 7")]
    {
        let labels = [0, 1, 0, 1, 0, 1, 0, wrong, 1, 0];
        let labels: Vec<u8> = labels.iter().flat_map(|label: &i32| label.to_le_bytes()).collect();
        write_npy(&folder.path().join("y.npy"), "<i4", &[10], &labels);
        expect_in(folder.path(), &job, &["train", "--json"], 2, &[words, "2 classes", "from 0 to 1"]);
    }
}

#[test]
fn a_size_that_is_none_is_refused() {
    expect(JOB, &["plan", "--budget", "-2GiB"], 2, &["`-2GiB` is below zero"]);
    expect(JOB, &["plan", "--budget", "0%"], 2, &["above 0%"]);
    expect(&format!("{JOB}\n[memory]\nbudget = \"120%\""), &["plan"], 2, &["up to 100%"]);
    expect(JOB, &["train", "--budget", "50%", "--json"], 0, &[]);
    expect(&format!("{JOB}\n[memory]\nbudget = \"50%\""), &["plan"], 0, &[]);
    expect(JOB, &["plan", "--budget", "2 parsecs"], 2, &["2 parsecs"]);
    expect(&format!("{JOB}\n[memory]\nbudget = \"much\""), &["plan"], 2, &["much"]);
}

#[test]
fn costs_that_are_neither_are_refused() {
    expect(JOB, &["plan", "--costs", "guessed"], 2, &["guessed", "measured", "analytic"]);
    expect(&format!("{JOB}\n[memory]\ncosts = \"guessed\""), &["plan"], 2, &["guessed", "analytic"]);
    expect(&format!("{JOB}\n[memory]\ncosts = \"analytic\""), &["plan"], 0, &[]);
}

#[test]
fn a_budget_of_0_and_one_below_the_program_are_answered() {
    expect(JOB, &["plan", "--budget", "0"], 3, &["budget is 0 B", "fits   at"]);
    expect(JOB, &["train", "--budget", "1MiB"], 3, &["budget is 1.00 MiB", "fits   at", "program itself"]);
}

#[test]
fn a_batch_normalisation_that_forbids_the_split_says_so() {
    let job = JOB
        .replace("[6]", "[64, 64, 3]")
        .replace(
            "class = \"Dense\"\nname = \"last\"",
            "class = \"BatchNormalization\"\n[[model.layers]]\nclass = \"Dense\"\nname = \"last\"",
        )
        .replace("batch = 4", "batch = 256");
    expect(
        &job,
        &["plan", "--budget", "40MiB"],
        3,
        &["BatchNormalization", "allow_batchnorm_split", "--batch"],
    );
    let allowed = format!("{job}\n[memory]\nallow_batchnorm_split = true");
    expect(&allowed, &["train", "--budget", "40MiB", "--steps", "1", "--json"], 0, &[]);
}

#[test]
fn a_read_only_report_path_is_refused_before_training() {
    expect(JOB, &["train", "--report", "/proc/report.html"], 2, &["/proc/report.html"]);
    expect(JOB, &["train", "--report", "no/such/folder/report.html"], 2, &["no/such/folder"]);
}

// ---- data

fn floats(count: usize) -> Vec<u8> {
    (0..count).flat_map(|i| ((i % 7) as f32 * 0.1).to_le_bytes()).collect()
}

fn with_files() -> (tempfile::TempDir, String) {
    let folder = tempfile::tempdir().unwrap();
    write_npy(&folder.path().join("x.npy"), "<f4", &[10, 6], &floats(60));
    write_npy(&folder.path().join("y.npy"), "<f4", &[10, 2], &floats(20));
    let job = JOB.replace("steps = 3", "epochs = 2") + "\n[data]\nx = \"x.npy\"\ny = \"y.npy\"\n";
    (folder, job)
}

#[test]
fn files_train_with_a_short_last_batch() {
    let (folder, job) = with_files();
    expect_in(folder.path(), &job, &["train", "--json"], 0, &[]);
}

#[test]
fn a_truncated_file_is_named_with_what_is_missing() {
    let (folder, job) = with_files();
    write_npy(&folder.path().join("x.npy"), "<f4", &[10, 6], &floats(59));
    expect_in(folder.path(), &job, &["train"], 2, &["x.npy", "expected 368 bytes", "got 364"]);
    fs::write(folder.path().join("x.npy"), b"\x93NUM").unwrap();
    expect_in(folder.path(), &job, &["train"], 2, &["x.npy"]);
}

#[test]
fn a_wrong_dtype_shape_or_number_of_rows_is_named() {
    let (folder, job) = with_files();
    write_npy(&folder.path().join("x.npy"), "<c8", &[10, 6], &floats(120));
    expect_in(folder.path(), &job, &["train"], 2, &["x.npy", "c8"]);
    write_npy(&folder.path().join("x.npy"), "<f4", &[10, 5], &floats(50));
    expect_in(folder.path(), &job, &["train"], 2, &["x.npy", "6", "5"]);
    write_npy(&folder.path().join("x.npy"), "<f4", &[9, 6], &floats(54));
    expect_in(folder.path(), &job, &["train"], 2, &["9", "10"]);
    fs::remove_file(folder.path().join("x.npy")).unwrap();
    expect_in(folder.path(), &job, &["train"], 2, &["x.npy"]);
}

#[test]
fn a_nan_names_the_step_and_where_it_came_from() {
    let (folder, job) = with_files();
    let mut data = floats(60);
    data[4 * 40..4 * 41].copy_from_slice(&f32::NAN.to_le_bytes());
    write_npy(&folder.path().join("x.npy"), "<f4", &[10, 6], &data);
    // Element 40 is in row 6: the second batch of four, its third row.
    expect_in(folder.path(), &job, &["train", "--no-shuffle", "--json"], 2, &["step 2", "row 2", "input"]);
}

#[test]
fn a_layer_that_overflows_is_named() {
    let job = JOB
        .replace(
            "units = 4\nactivation = \"relu\"",
            "units = 4\nbias_initializer = { class_name = \"Constant\", config = { value = 1e38 } }",
        )
        .replace(
            "units = 2",
            "units = 2\nkernel_initializer = { class_name = \"Constant\", config = { value = 1e38 } }",
        );
    expect(&job, &["train"], 2, &["step 1", "layer `last`"]);
}

#[test]
fn a_keras_file_that_is_broken_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let job = "[model]\nfile = \"m.json\"\n[train]\nloss = \"mse\"\nbatch = 2\nsteps = 1\n";
    fs::write(folder.path().join("m.json"), "{\"class_name\": ").unwrap();
    expect_in(folder.path(), job, &["plan"], 2, &["m.json", "JSON"]);
    fs::write(folder.path().join("m.json"), "{\"a\": 1}").unwrap();
    expect_in(folder.path(), job, &["plan"], 2, &["Keras"]);
    fs::remove_file(folder.path().join("m.json")).unwrap();
    expect_in(folder.path(), job, &["plan"], 2, &["m.json"]);
}

#[test]
fn help_teaches() {
    let text = text(&memfit(&["--help"]));
    for word in ["train", "plan", "batch", "Exit codes", "Examples"] {
        assert!(text.contains(word), "{text}");
    }
    let examples = repository().join("examples");
    for name in text.split_whitespace().filter_map(|word| word.strip_prefix("examples/")) {
        assert!(examples.join(name).exists(), "the help names {name}");
    }
}

// ---- pack

#[test]
fn pack_speaks_minimallocs_csv_and_says_what_cannot_fit() {
    let folder = tempfile::tempdir().unwrap();
    let (file, output) = (folder.path().join("in.csv"), folder.path().join("out.csv"));
    fs::write(&file, "id,lower,upper,size\nb1,0,3,4\nb2,3,9,4\nb3,0,9,4\nb4,9,21,4\nb5,0,21,4\n").unwrap();
    let pack = |arguments: &[&str]| command(&["pack"]).arg(&file).args(arguments).output().unwrap();
    let fits = pack(&["--capacity", "12", "--json", "--output", output.to_str().unwrap()]);
    assert_eq!(fits.status.code(), Some(0));
    let answer: serde_json::Value = serde_json::from_slice(&fits.stdout).unwrap();
    assert_eq!(
        (&answer["height"], &answer["bound"], &answer["optimal"]),
        (&12.into(), &12.into(), &true.into())
    );
    assert!(answer["seconds"].is_f64());
    let written = fs::read_to_string(&output).unwrap();
    assert_eq!(written.lines().next(), Some("id,lower,upper,size,offset"));
    assert_eq!(written.lines().count(), 6);

    let reason = ended_with(&pack(&["--capacity", "11"]), 3);
    assert!(reason.contains("b1, b3, b5"), "{reason}");

    fs::write(&file, "id,lower,upper,size\nb1,0,three,4\n").unwrap();
    let message = ended_with(&pack(&[]), 2);
    assert!(message.contains("three") && message.contains('2'), "{message}");
}

#[test]
fn a_disk_that_cannot_be_written_is_named() {
    expect(JOB, &["plan", "--disk", "nowhere"], 2, &["folder", "colon"]);
}

#[test]
fn host_memory_on_the_cpu_is_refused_and_a_disk_is_named() {
    expect(JOB, &["plan", "--host", "1GiB"], 2, &["memory.host", "CPU", "same budget", "--disk FOLDER:SIZE"]);
    expect(JOB, &["train", "--host", "1GiB"], 2, &["memory.host", "--disk FOLDER:SIZE"]);
    let job = format!("{JOB}\n[memory]\nhost = \"1GiB\"");
    expect(&job, &["plan"], 2, &["memory.host", "--disk FOLDER:SIZE"]);
}

/// Convolutions whose activations and whose last kernel both grow with the image.
const IMAGES: &str = r#"
[[model.layers]]
class = "Input"
shape = [64, 64, 3]
[[model.layers]]
class = "Conv2D"
filters = 64
kernel_size = 3
padding = "same"
[[model.layers]]
class = "BatchNormalization"
[[model.layers]]
class = "Flatten"
[[model.layers]]
class = "Dense"
units = 10
[train]
loss = "mean_squared_error"
optimizer = "adam"
batch = 16
steps = 1
"#;

#[test]
fn a_refusal_says_why_and_every_hint_it_gives_fits() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("job.toml");
    let plan = |job: &str, arguments: &[&str]| {
        fs::write(&file, job).unwrap();
        let output = command(&["plan"]).arg(&file).arg("--json").args(arguments).output().unwrap();
        let answer: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        (output.status.code().unwrap(), answer, errors(&output))
    };
    let (code, answer, printed) = plan(IMAGES, &["--budget", "68MiB"]);
    assert_eq!((code, &answer["fits"]), (3, &false.into()), "{printed}");
    for words in ["peak   step", "held   program", "reason at this step", "most   ", "fits   at"] {
        assert!(printed.contains(words), "`{words}` is not in: {printed}");
    }
    let needed = answer["needed"].as_array().unwrap();
    let sum: u64 = needed.iter().map(|one| one["bytes"].as_u64().unwrap()).sum();
    let held: u64 = answer["held"].as_object().unwrap().values().map(|bytes| bytes.as_u64().unwrap()).sum();
    assert_eq!(sum + answer["needed_others"]["bytes"].as_u64().unwrap(), held);
    assert!(needed.iter().any(|one| one["why"] == "written" || one["why"] == "read"), "{answer}");

    let hints = answer["hints"].as_array().unwrap();
    let hint = |kind: &str| {
        let found = hints.iter().find(|hint| hint["kind"] == kind);
        let found = found.unwrap_or_else(|| panic!("no hint `{kind}` in {hints:#?}"));
        let text = found["text"].as_str().unwrap();
        // The words for people name the option; those for programs have its value beside them.
        let (_, words) = text.split_once(" instead of ").unwrap_or(("", text));
        assert!(printed.contains(words), "{printed}: {words}");
        (text.to_owned(), found["budget"].as_u64().unwrap(), found["value"].clone())
    };
    let fits = |job: &str, budget: u64, more: &[&str]| {
        assert!(budget <= 68 << 20, "{budget}");
        let budget = budget.to_string();
        let (code, _, printed) = plan(job, &[&["--budget", &budget], more].concat());
        assert_eq!(code, 0, "{more:?} {job}: {printed}");
    };
    let (_, budget, batch) = hint("batch");
    assert!(printed.contains(&format!("`--batch {batch}` instead of")), "{printed}");
    fits(IMAGES, budget, &["--batch", &batch.to_string()]);
    let (_, budget, _) = hint("optimizer");
    fits(&IMAGES.replace("adam", "sgd"), budget, &[]);
    let (text, budget, _) = hint("image_size");
    let size = text.split_once("images of ").unwrap().1.split_once('x').unwrap().0;
    assert!(text.contains("dense/kernel becomes"), "{text}");
    fits(&IMAGES.replace("[64, 64, 3]", &format!("[{size}, {size}, 3]")), budget, &[]);
}
