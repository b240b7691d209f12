//! What a text takes of a device when it is compiled, remembered from run to run.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use memfit_cuda::compiler;
use memfit_ir::random;

/// What a kernel takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Figures {
    /// Of a thread.
    pub(crate) registers: u64,
    /// Bytes that a thread stores and loads because it has too few registers.
    pub(crate) spilled: u64,
    /// Bytes of a block.
    pub(crate) shared: u64,
}

/// What the compiler said of texts, in a folder.
pub(crate) struct Cache {
    folder: Option<PathBuf>,
    version: String,
}

impl Cache {
    /// In this folder, or in the user's.
    pub(crate) fn new(folder: Option<PathBuf>, version: &str) -> Cache {
        let folder = folder.or_else(|| Some(compiler::cache_folder()?.join("cuda-kernels")));
        if let Some(folder) = &folder {
            // Without a folder everything is compiled.
            let _ = fs::create_dir_all(folder);
        }
        Cache { folder, version: version.to_owned() }
    }

    /// The figures of each kernel of a text, or the compiler's words; and whether they were known.
    pub(crate) fn measure(
        &self,
        text: &str,
        architecture: &str,
    ) -> (Result<BTreeMap<String, Figures>, String>, bool) {
        let mut options = compiler::options(architecture).to_vec();
        options.push("--ptxas-options=-v".to_owned());
        let all = [self.version.as_str(), &options.join(" "), text].join("\n");
        let name = format!("{:016x}-{}-{architecture}", random::purpose(&all), text.len());
        let path = self.folder.as_ref().map(|folder| folder.join(name));
        let known = path.as_ref().and_then(|path| fs::read_to_string(path).ok());
        if let Some(log) = known {
            return (Ok(figures(&log)), true);
        }
        let result = compiler::compile_with(text, &options).map(|(_, log)| {
            if let Some(path) = path {
                // Nothing is lost but time where this fails. A file is whole or not there.
                let temporary = path.with_extension(format!("{}.tmp", std::process::id()));
                let written = fs::write(&temporary, &log).and_then(|()| fs::rename(&temporary, &path));
                let _ = written;
            }
            figures(&log)
        });
        (result, false)
    }
}

/// Reads what `ptxas -v` prints: of each kernel its name, then the spills of it and of functions that it calls, then what it uses.
fn figures(log: &str) -> BTreeMap<String, Figures> {
    let mut found: BTreeMap<String, Figures> = BTreeMap::new();
    let mut name = String::new();
    for line in log.lines() {
        if let Some((_, rest)) = line.split_once("Compiling entry function '") {
            name = rest.split('\'').next().unwrap_or_default().to_owned();
            found.insert(name.clone(), Figures::default());
        }
        let Some(kernel) = found.get_mut(&name) else { continue };
        kernel.spilled +=
            number_before(line, " bytes spill stores") + number_before(line, " bytes spill loads");
        kernel.registers = kernel.registers.max(number_before(line, " registers"));
        kernel.shared = kernel.shared.max(number_before(line, " bytes smem"));
    }
    found
}

/// The number that stands before some words; 0 where they are not there.
fn number_before(line: &str, words: &str) -> u64 {
    let number = line.split_once(words).and_then(|(before, _)| before.rsplit([' ', ',']).next());
    number.and_then(|number| number.parse().ok()).unwrap_or(0)
}
