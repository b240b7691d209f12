//! Compiles every kernel that the CUDA lowering makes for the op table and the corpus, and holds what each takes against a table.
//! `tools/cuda-kernels` runs it with a compiler; `UPDATE_EXPECT=1 tools/cuda-kernels` writes the table again.
#![expect(clippy::print_stdout, reason = "an example prints")]

mod measured;
mod table;
mod texts;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Instant;

use measured::{Cache, Figures};
use memfit_cuda::compiler;
use memfit_cuda::libraries::{self, Library};
use table::{Key, Table};
use texts::Text;

/// A compute capability.
type Capability = (i32, i32);

const CAPABILITIES: [Capability; 7] = [(7, 5), (8, 0), (8, 6), (8, 9), (9, 0), (10, 0), (12, 0)];

/// Kernels with the most spills that are named.
const NAMED: usize = 8;

const HELP: &str = "\
Compiles every CUDA kernel with NVRTC, for GPUs that need not be there, and compares registers, spills and shared memory of each with
crates/memfit-testkit/examples/cuda_kernels/kernels.tsv.

usage: tools/cuda-kernels [--archs LIST] [--op-table-only] [--cache FOLDER]

  --archs LIST      compute capabilities, such as 8.0,9.0 (default: 7.5,8.0,8.6,8.9,9.0,10.0,12.0). As on a device, 9.0 is compiled as
                    sm_90a, the only one with wgmma; on all others the same texts have other code. Kernels in TF32 begin at 8.0
  --op-table-only   a quick look at the op table's kernels, without the corpus: of texts that differ in the half type alone that of bf16,
                    and of every file of kernels at most 24 texts, evenly over all of them
  --cache FOLDER    where results are kept (default: $XDG_CACHE_HOME/memfit/cuda-kernels or ~/.cache/memfit/cuda-kernels)

  UPDATE_EXPECT=1 in the environment writes the table again. Look at the difference: more registers or spills are slower kernels.
";

struct Options {
    capabilities: Vec<Capability>,
    op_table_only: bool,
    cache: Option<PathBuf>,
}

/// What compiling came to.
#[derive(Default)]
struct Outcome {
    figures: Table,
    failures: Vec<String>,
    cached: usize,
}

fn main() -> ExitCode {
    let options = match options() {
        Ok(Some(options)) => options,
        Ok(None) => {
            print!("{HELP}");
            return ExitCode::SUCCESS;
        }
        Err(words) => {
            println!("error: {words}\n\n{HELP}");
            return ExitCode::from(2);
        }
    };
    let found = libraries::find(Library::Compiler);
    let Some(version) = found.version.clone() else {
        println!("skipped: no NVRTC; {}", Library::Compiler.remedy());
        return ExitCode::SUCCESS;
    };
    let start = Instant::now();
    let texts = texts::texts(options.op_table_only);
    let cache = Cache::new(options.cache.clone(), &version);
    let outcome = compile_all(&texts, &options.capabilities, &cache);
    let kernels: usize = texts.iter().map(|text| text.entries.len()).sum();
    let compiled: usize = outcome.figures.compiled();
    show_spills(&outcome.figures);
    let mut words = outcome.failures.clone();
    if words.is_empty() {
        let is_whole = !options.op_table_only && options.capabilities == CAPABILITIES;
        match table::compare(&outcome.figures, &version, is_whole) {
            Ok(said) => println!("{said}"),
            Err(differences) => words.push(differences),
        }
    }
    for failure in &words {
        println!("{failure}");
    }
    println!(
        "cuda-kernels: {} texts, {kernels} kernels, {compiled} compiled for {} capabilities with NVRTC {version} ({} texts from the cache), {} texts fail, {:.1} s",
        texts.len(),
        options.capabilities.len(),
        outcome.cached,
        outcome.failures.len(),
        start.elapsed().as_secs_f64()
    );
    if words.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// What the command line says; nothing where it asks for help.
fn options() -> Result<Option<Options>, String> {
    let mut options = Options { capabilities: CAPABILITIES.to_vec(), op_table_only: false, cache: None };
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().ok_or(format!("{argument} takes a value"));
        match argument.as_str() {
            "--help" | "-h" => return Ok(None),
            "--op-table-only" => options.op_table_only = true,
            "--cache" => options.cache = Some(value()?.into()),
            "--archs" => {
                options.capabilities = value()?.split(',').map(capability).collect::<Result<_, String>>()?;
            }
            other => return Err(format!("unknown argument {other}")),
        }
    }
    Ok(Some(options))
}

/// `9.0`, also as `9.0a`.
fn capability(text: &str) -> Result<Capability, String> {
    let numbers = text.trim().trim_end_matches('a').split_once('.');
    let known = numbers.and_then(|(major, minor)| Some((major.parse().ok()?, minor.parse().ok()?)));
    known
        .filter(|known| CAPABILITIES.contains(known))
        .ok_or(format!("{text} is not among the compute capabilities of the table"))
}

/// Compiles on all processors, as a device does before its first step.
fn compile_all(texts: &[Text], capabilities: &[Capability], cache: &Cache) -> Outcome {
    let is_launched = |text: &Text, of: Capability| !text.tf32_only || compiler::has_tf32(of);
    let work: Vec<(&Text, Capability)> = texts
        .iter()
        .flat_map(|text| capabilities.iter().map(move |of| (text, *of)))
        .filter(|(text, of)| is_launched(text, *of))
        .collect();
    let (next, outcome) = (AtomicUsize::new(0), Mutex::new(Outcome::default()));
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                while let Some((text, of)) = work.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let (result, cached) = cache.measure(&text.whole, &compiler::architecture(*of));
                    let mut outcome = outcome.lock().unwrap_or_else(PoisonError::into_inner);
                    outcome.cached += usize::from(cached);
                    note(&mut outcome, text, *of, result);
                }
            });
        }
    });
    outcome.into_inner().unwrap_or_else(PoisonError::into_inner)
}

fn note(
    outcome: &mut Outcome,
    text: &Text,
    of: Capability,
    result: Result<BTreeMap<String, Figures>, String>,
) {
    let (major, minor) = of;
    let first = |words: &str| {
        words.lines().filter(|line| line.contains("error")).take(3).collect::<Vec<_>>().join("\n  ")
    };
    match result {
        Err(words) => outcome.failures.push(format!(
            "{} does not compile for {major}.{minor} (first seen in {}):\n  {}\n  {}",
            text.file,
            text.graph,
            first(&words),
            text.defines.trim_end().replace('\n', "\n  ")
        )),
        Ok(figures) => {
            for entry in &text.entries {
                let key = Key { file: text.file.clone(), entry: (*entry).to_owned(), defines: text.hash };
                match figures.get(*entry) {
                    Some(figures) => outcome.figures.set(key, of, *figures),
                    None => outcome
                        .failures
                        .push(format!("{} has no kernel `{entry}` for {major}.{minor}", text.file)),
                }
            }
        }
    }
}

fn show_spills(figures: &Table) {
    let mut spills: Vec<(u64, String)> = figures.spills().collect();
    spills.sort_by(|a, b| b.cmp(a));
    if !spills.is_empty() {
        println!("{} compiled kernels spill registers; the most:", spills.len());
    }
    for (bytes, kernel) in spills.iter().take(NAMED) {
        println!("  {bytes:6} bytes  {kernel}");
    }
}
