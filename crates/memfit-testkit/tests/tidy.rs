//! The rules that a machine can check: every file says what lives in it, dependencies go down, the map is
//! true.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test that cannot go on says where it stopped"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use memfit_testkit::device_graphs::device_graphs;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn sources() -> Vec<PathBuf> {
    fn walk(folder: &Path, found: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() && path.file_name().is_some_and(|name| name != "target") {
                walk(&path, found);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                found.push(path);
            }
        }
    }
    let mut found = Vec::new();
    walk(&root().join("crates"), &mut found);
    walk(&root().join("examples"), &mut found);
    found.sort();
    assert!(found.len() > 40, "the walk finds the sources");
    found
}

#[test]
fn every_file_opens_with_what_lives_in_it() {
    for path in sources() {
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.starts_with("//! "), "{} does not open with a `//!` sentence", path.display());
    }
}

#[test]
fn every_file_is_in_the_module_tree() {
    for path in sources() {
        let stem = path.file_stem().unwrap().to_str().unwrap().to_owned();
        let folder = path.parent().unwrap();
        let folder_name = folder.file_name().unwrap().to_str().unwrap();
        let is_root = ["lib", "main", "build"].contains(&stem.as_str());
        // Each file right in one of these folders is a program of its own; what is deeper would silently be left out of its program.
        let is_program =
            ["tests", "examples", "benches"].contains(&folder_name) && !folder.join("mod.rs").exists();
        if is_root || is_program {
            continue;
        }
        let (name, parents) = if stem == "mod" {
            let above = folder.parent().unwrap();
            let twin = above.with_extension("rs");
            (
                folder_name.to_owned(),
                vec![above.join("mod.rs"), above.join("lib.rs"), above.join("main.rs"), twin],
            )
        } else {
            let twin = folder.with_extension("rs");
            (stem, vec![folder.join("mod.rs"), folder.join("lib.rs"), folder.join("main.rs"), twin])
        };
        let declared = parents.iter().filter_map(|parent| fs::read_to_string(parent).ok()).any(|text| {
            text.lines().any(|line| {
                let line = line.trim();
                let line = line.strip_prefix("pub(crate) ").or(line.strip_prefix("pub ")).unwrap_or(line);
                line == format!("mod {name};")
            })
        });
        assert!(declared, "{} is in no module", path.display());
    }
}

/// Graphs are rewritten before they run, so a row of the op table may lose the op it was written for to another rewrite.
#[test]
fn every_op_runs_in_some_graph_of_the_device_tests() {
    let text = fs::read_to_string(root().join("crates/memfit-ir/src/signature/ops.rs")).unwrap();
    // The name is the first argument of what opens a signature.
    let named = |opening: &str| {
        let parts = text.split(opening).skip(1).filter_map(|rest| rest.split_once('"'));
        parts.map(|(name, _)| name.to_owned()).filter(|name| !name.is_empty()).collect::<Vec<_>>()
    };
    let names: BTreeSet<String> = [named(" op(\""), named(" conv(\"")].concat().into_iter().collect();
    assert!(names.len() > 60, "the names of the ops are found");
    let graphs = device_graphs();
    let seen: BTreeSet<String> =
        graphs.iter().flat_map(|(_, graph)| &graph.nodes).map(|node| node.op.name().to_owned()).collect();
    let missing: Vec<&String> = names.difference(&seen).collect();
    assert!(missing.is_empty(), "no graph runs {missing:?}");
}

/// A fused op is named where it is defined, where a fusion or a move makes it, and in one file of tests, beside its kernels.
const FILES_OF_FUSED_OP: usize = 3;

/// `cargo test -p memfit-testkit --test tidy fused -- --nocapture` prints the files of each.
#[test]
fn a_fused_op_is_named_in_its_kernels_and_three_other_files() {
    let text = fs::read_to_string(root().join("crates/memfit-ir/src/fused/mod.rs")).unwrap();
    let variants = text.split("pub enum Fused {").nth(1).unwrap().split("\n}").next().unwrap();
    let names = variants.lines().filter_map(|line| {
        let line = line.trim_start();
        let is_variant = line.starts_with(|first: char| first.is_ascii_uppercase());
        is_variant.then(|| line.split(['(', ',']).next().unwrap())
    });
    let names: Vec<&str> = names.collect();
    assert!(names.len() > 10, "the names of the fused ops are found");
    let root = root().canonicalize().unwrap();
    let files: Vec<(String, BTreeSet<String>)> = sources()
        .into_iter()
        .map(|path| {
            let text = fs::read_to_string(&path).unwrap();
            let words = text.split(|letter: char| !letter.is_alphanumeric() && letter != '_');
            let path = path.canonicalize().unwrap().strip_prefix(&root).unwrap().display().to_string();
            (path, words.map(str::to_owned).collect())
        })
        .collect();
    for name in names {
        let named = files.iter().filter(|(_, words)| words.contains(name)).map(|(path, _)| path);
        let is_kernel =
            |path: &&String| ["memfit-cpu/src", "memfit-cuda/src"].iter().any(|of| path.contains(of));
        let (kernels, others): (Vec<&String>, Vec<&String>) = named.partition(is_kernel);
        println!("{name}\n  kernels {kernels:?}\n  others  {others:?}");
        assert!(others.len() <= FILES_OF_FUSED_OP, "{name} is named in {others:?}");
    }
}

#[test]
fn dependencies_go_down() {
    // A crate may use the crates listed after its name, and no others of this workspace.
    let allowed: BTreeMap<&str, &[&str]> = BTreeMap::from([
        ("memfit-ir", &[][..]),
        ("memfit-pack", &[]),
        ("memfit-grad", &["memfit-ir"]),
        ("memfit-plan", &["memfit-ir", "memfit-pack"]),
        ("memfit-device", &["memfit-ir"]),
        ("memfit-cpu", &["memfit-ir", "memfit-device"]),
        ("memfit-cuda", &["memfit-ir", "memfit-device"]),
        ("memfit-reference", &["memfit-ir", "memfit-device"]),
        ("memfit-run", &["memfit-ir", "memfit-device"]),
        ("memfit-data", &["memfit-ir"]),
        ("memfit-formats", &["memfit-ir"]),
        ("memfit-files", &[]),
        (
            "memfit",
            &[
                "memfit-ir",
                "memfit-pack",
                "memfit-grad",
                "memfit-plan",
                "memfit-device",
                "memfit-cpu",
                "memfit-cuda",
                "memfit-run",
                "memfit-data",
                "memfit-formats",
                "memfit-files",
            ],
        ),
        ("memfit-cli", &["memfit"]),
        ("memfit-python", &["memfit"]),
    ]);
    for (name, allowed) in allowed {
        let manifest = fs::read_to_string(root().join("crates").join(name).join("Cargo.toml")).unwrap();
        let dependencies = manifest.split("[dependencies]").nth(1).unwrap_or_default();
        let dependencies = dependencies.split("\n[").next().unwrap_or_default();
        for line in dependencies.lines().filter(|line| line.starts_with("memfit")) {
            let used = line.split(['.', ' ', '=']).next().unwrap();
            assert!(allowed.contains(&used), "{name} must not depend on {used}");
        }
        if ["memfit-ir", "memfit-pack", "memfit-plan"].contains(&name) {
            let guests =
                dependencies.lines().filter(|line| !line.starts_with("memfit") && line.contains('='));
            assert_eq!(guests.count(), 0, "{name} stays free of other people's crates");
        }
    }
}

#[test]
fn every_path_the_map_names_exists() {
    for page in ["ARCHITECTURE.md", "CONTRIBUTING.md", "README.md"] {
        let text = fs::read_to_string(root().join(page)).unwrap();
        let named = text.split('`').skip(1).step_by(2).filter(|word| {
            let known = ["crates/", "examples/", "benches/", "references/", ".ci/", "docs/", "tools/"];
            known.iter().any(|start| word.starts_with(start)) && !word.contains([' ', '<', '*', '…'])
        });
        let mut count = 0;
        for path in named {
            count += 1;
            assert!(root().join(path).exists(), "{page} names `{path}`, which does not exist");
        }
        assert!(count > 0, "{page} names where things are");
    }
}

#[test]
fn only_devices_are_unsafe_and_only_the_command_prints() {
    for path in sources() {
        let text = fs::read_to_string(&path).unwrap();
        let place = path.to_string_lossy();
        let is_device =
            ["memfit-device", "memfit-cpu", "memfit-cuda"].iter().any(|name| place.contains(name));
        let code = text.lines().filter(|line| !line.trim_start().starts_with("//"));
        for line in code {
            let is_rule = place.ends_with("tidy.rs");
            assert!(
                is_device || is_rule || !line.contains("unsafe {"),
                "{place}: unsafe outside the devices"
            );
        }
    }
}

/// The calls from a training step to a kernel of the CPU: the file and the function that makes each, and its text.
const CALLS: [(&str, &str, &str); 6] = [
    ("memfit-run/src/runner.rs", "step", "self.begin("),
    ("memfit-run/src/runner.rs", "begin", ".run()"),
    ("memfit-run/src/step.rs", "run", "self.do_step("),
    ("memfit-run/src/step.rs", "do_step", "self.device.launch("),
    ("memfit-cpu/src/device.rs", "launch", "launch::launch("),
    ("memfit-cpu/src/launch.rs", "launch", "dense::forward("),
];

#[test]
fn from_a_step_to_a_kernel_are_six_calls() {
    for (file, function, call) in CALLS {
        let text = fs::read_to_string(root().join("crates").join(file)).unwrap();
        let begins =
            text.find(&format!("fn {function}(")).unwrap_or_else(|| panic!("{file} has no {function}"));
        // The function ends where a brace closes at its own indentation.
        let indent = text[..begins].rsplit('\n').next().unwrap().len()
            - text[..begins].rsplit('\n').next().unwrap().trim_start().len();
        let end = format!("\n{}}}\n", " ".repeat(indent));
        let body = text[begins..].split(&end).next().unwrap();
        assert!(body.contains(call), "{function} in {file} does not call {call}");
    }
    // The kernel is where the workspace is handed to the product itself.
    let kernel = fs::read_to_string(root().join("crates/memfit-cpu/src/dense.rs")).unwrap();
    assert!(kernel.contains("fn forward<") && kernel.contains("gemm::gemm("));
}
