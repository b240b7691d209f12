//! The texts that the CUDA lowering makes, each once, with the kernels of it that are launched.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use memfit_cuda::work::{Source, Work};
use memfit_cuda::{compiler, kernels, kernels_synthetic, lowered};
use memfit_ir::{DType, Graph, Kind, Problem, Shape, SyntheticValues, Values, random};
use memfit_testkit::corpus;
use memfit_testkit::device_graphs::device_graphs;
use memfit_testkit::op_cases::ROWS;

/// A text as the compiler gets it.
pub(crate) struct Text {
    /// The file in `kernels` that it ends with.
    pub(crate) file: String,
    pub(crate) defines: String,
    /// Of the defines.
    pub(crate) hash: u64,
    pub(crate) whole: String,
    pub(crate) entries: BTreeSet<&'static str>,
    /// Whether it is launched where factors are rounded to TF32 alone.
    pub(crate) tf32_only: bool,
    /// A graph that launches it.
    pub(crate) graph: String,
}

struct Launched {
    entries: BTreeSet<&'static str>,
    tf32_only: bool,
    graph: String,
}

type Sources = BTreeMap<Source, Launched>;

/// Texts of a file of kernels that are compiled where only the op table is asked for.
const VARIANTS: usize = 24;

/// All of them, in order. Of the op table alone, f16 is left out where bf16 has the same, and every file has some variants at most.
pub(crate) fn texts(op_table_only: bool) -> Vec<Text> {
    let mut sources = Sources::new();
    for (name, graph) in device_graphs() {
        add(&mut sources, &name, &graph, ROWS);
    }
    add_synthetic(&mut sources);
    if op_table_only {
        let twin = |source: &Source| Source { defines: source.defines.replace("f16", "bf16"), ..*source };
        let is_twin = |source: &Source| !source.defines.contains("bf16") && source.defines.contains("f16");
        let known: BTreeSet<Source> = sources.keys().cloned().collect();
        sources.retain(|source, _| !is_twin(source) || !known.contains(&twin(source)));
    } else {
        for entry in corpus::entries() {
            let file = corpus::folder().join(format!("{}.txt", entry.name));
            let text = fs::read_to_string(file).expect("a problem of the corpus");
            let problem = Problem::from_text(&text).expect("a problem of the corpus is one");
            add(&mut sources, entry.name, &problem.graph, problem.batch);
        }
    }
    let files = files();
    let mut texts: Vec<Text> =
        sources.into_iter().map(|(source, launched)| text(&files, &source, launched)).collect();
    if op_table_only {
        let mut counts: BTreeMap<String, usize> = BTreeMap::new();
        texts.iter().for_each(|text| *counts.entry(text.file.clone()).or_default() += 1);
        let mut seen: BTreeMap<String, usize> = BTreeMap::new();
        texts.retain(|text| {
            let place = seen.entry(text.file.clone()).or_default();
            *place += 1;
            // Evenly over all variants of the file.
            (*place - 1).is_multiple_of(counts[&text.file].div_ceil(VARIANTS))
        });
    }
    texts
}

/// The kernels that a device compiles before a graph runs; a step, whether it overwrites sums or adds to them, launches no others.
fn add(sources: &mut Sources, name: &str, graph: &Graph, rows: usize) {
    for tf32 in [false, true] {
        for kernel in kernels(graph, rows, tf32) {
            launch(sources, name, kernel.source, kernel.entry, tf32);
        }
        for fresh in [false, true] {
            let work = graph.nodes.iter().flat_map(|node| lowered(graph, node, rows, fresh, tf32).work);
            for kernel in work.filter_map(Work::into_kernel) {
                let known = sources.get(&kernel.source).is_some_and(|of| of.entries.contains(kernel.entry));
                assert!(known, "{name}: `{}` would be compiled while training runs", kernel.entry);
            }
        }
    }
}

/// The kernels that draw synthetic rows, which are floats or whole numbers.
fn add_synthetic(sources: &mut Sources) {
    for dtype in [DType::F32, DType::I32] {
        let mut graph = Graph::default();
        let layer = graph.layer("input");
        let id = graph.tensor("x", Shape::rows([4]), dtype, Kind::Input, layer);
        let values =
            [Values::Uniform { low: 0.0, high: 1.0 }, Values::Integers { low: 0, high: 4 }, Values::OneHot];
        for values in values {
            for kernel in kernels_synthetic(&graph.tensors[id.0], SyntheticValues { values, seed: 0 }) {
                launch(sources, "synthetic rows", kernel.source, kernel.entry, false);
            }
        }
    }
}

fn launch(sources: &mut Sources, name: &str, source: Source, entry: &'static str, tf32: bool) {
    let unseen = || Launched { entries: BTreeSet::new(), tf32_only: true, graph: name.to_owned() };
    let launched = sources.entry(source).or_insert_with(unseen);
    launched.entries.insert(entry);
    launched.tf32_only &= tf32;
}

fn text(files: &[(String, String)], source: &Source, launched: Launched) -> Text {
    let file = files.iter().find(|(_, text)| source.text.ends_with(text.as_str()));
    let Launched { entries, tf32_only, graph } = launched;
    Text {
        file: file.map(|(name, _)| name.clone()).expect("a text ends with a file of kernels"),
        defines: source.defines.clone(),
        hash: random::purpose(&source.defines),
        whole: compiler::text(source),
        entries,
        tf32_only,
        graph,
    }
}

/// The names of the files of kernels, and their texts.
fn files() -> Vec<(String, String)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../memfit-cuda/src/kernels");
    let entries = fs::read_dir(folder).expect("the folder of kernels is there");
    let files = entries.map(|entry| entry.expect("a folder can be read").path());
    let mut files: Vec<(String, String)> = files
        .map(|path| {
            let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            (name, fs::read_to_string(&path).expect("a file of kernels is a text"))
        })
        .collect();
    files.sort();
    files
}
