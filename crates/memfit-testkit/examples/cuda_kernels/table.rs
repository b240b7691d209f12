//! The table of what every kernel takes, and how it is compared with what was found.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use crate::measured::Figures;
use crate::{CAPABILITIES, Capability};

/// Differences that are printed.
const SHOWN: usize = 40;

/// A kernel: the file of its text, its name, and a hash of the defines before the text.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key {
    pub(crate) file: String,
    pub(crate) entry: String,
    pub(crate) defines: u64,
}

/// Figures of kernels by compute capability.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Table(BTreeMap<Key, BTreeMap<Capability, Figures>>);

fn path() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/cuda_kernels/kernels.tsv")
}

/// The first lines, up to the kernels.
fn head(version: &str) -> String {
    let columns: Vec<String> = CAPABILITIES.iter().map(|(major, minor)| format!("{major}.{minor}")).collect();
    format!(
        "# NVRTC {version}: registers, bytes spilled and bytes of shared memory by compute capability; UPDATE_EXPECT=1 tools/cuda-kernels\nfile\tkernel\tdefines\t{}\n",
        columns.join("\t")
    )
}

impl Table {
    pub(crate) fn set(&mut self, key: Key, of: Capability, figures: Figures) {
        self.0.entry(key).or_default().insert(of, figures);
    }

    /// Kernels, counted for each capability.
    pub(crate) fn compiled(&self) -> usize {
        self.0.values().map(BTreeMap::len).sum()
    }

    /// Bytes that kernels spill, where they do, with their names.
    pub(crate) fn spills(&self) -> impl Iterator<Item = (u64, String)> {
        self.0.iter().flat_map(|(key, row)| {
            row.iter().filter(|(_, figures)| 0 < figures.spilled).map(move |((major, minor), figures)| {
                (
                    figures.spilled,
                    format!(
                        "{} of {}, defines {:016x}, for {major}.{minor}",
                        key.entry, key.file, key.defines
                    ),
                )
            })
        })
    }

    fn text(&self, version: &str) -> String {
        let mut text = head(version);
        for (Key { file, entry, defines }, row) in &self.0 {
            let cells = CAPABILITIES.iter().map(|of| row.get(of).map_or("-".to_owned(), cell));
            text += &format!("{file}\t{entry}\t{defines:016x}\t{}\n", cells.collect::<Vec<_>>().join("\t"));
        }
        text
    }

    /// Nothing where a line is not of this form.
    fn parsed(text: &str) -> Option<Table> {
        let mut table = Table::default();
        for line in text.lines().skip(2) {
            let mut columns = line.split('\t');
            let (file, entry) = (columns.next()?.to_owned(), columns.next()?.to_owned());
            let key = Key { file, entry, defines: u64::from_str_radix(columns.next()?, 16).ok()? };
            for of in CAPABILITIES {
                let cell = columns.next()?;
                if cell != "-" {
                    table.set(key.clone(), of, figures(cell)?);
                }
            }
        }
        Some(table)
    }
}

/// `registers`, or `registers/spilled/shared`.
fn cell(figures: &Figures) -> String {
    let Figures { registers, spilled, shared } = figures;
    if spilled + shared == 0 { registers.to_string() } else { format!("{registers}/{spilled}/{shared}") }
}

fn figures(cell: &str) -> Option<Figures> {
    let numbers: Vec<u64> = cell.split('/').map(|number| number.parse().ok()).collect::<Option<_>>()?;
    match numbers[..] {
        [registers] => Some(Figures { registers, spilled: 0, shared: 0 }),
        [registers, spilled, shared] => Some(Figures { registers, spilled, shared }),
        _ => None,
    }
}

/// Compares what was found with the table, or writes it. Found may be a part of all kernels or capabilities; where it is the whole, the
/// table has nothing else.
pub(crate) fn compare(found: &Table, version: &str, is_whole: bool) -> Result<String, String> {
    let text = fs::read_to_string(path()).unwrap_or_default();
    let expected = Table::parsed(&text).ok_or(format!("{} is not a table of kernels", path().display()))?;
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        let mut table = if is_whole { Table::default() } else { expected };
        for (key, row) in &found.0 {
            row.iter().for_each(|(of, figures)| table.set(key.clone(), *of, *figures));
        }
        return fs::write(path(), table.text(version))
            .map(|()| format!("the table has {} kernels now", table.0.len()))
            .map_err(|error| format!("the table cannot be written: {error}"));
    }
    if !text.starts_with(&head(version)) {
        return Ok(format!(
            "the table is not of NVRTC {version}: everything was compiled, and no figure compared"
        ));
    }
    let mut differences = Vec::new();
    for (key, row) in &found.0 {
        for (of, figures) in row {
            let known = expected.0.get(key).and_then(|row| row.get(of));
            if known != Some(figures) {
                differences.push(difference(key, *of, known.map_or("none".to_owned(), cell), cell(figures)));
            }
        }
    }
    if is_whole {
        let gone = expected.0.keys().filter(|key| !found.0.contains_key(*key));
        differences.extend(gone.map(|key| format!("  {} of {}: no graph launches it", key.entry, key.file)));
    }
    if differences.is_empty() {
        return Ok(format!("{} kernels are as the table says", found.0.len()));
    }
    let count = differences.len();
    differences.truncate(SHOWN);
    Err(format!(
        "{count} figures differ from the table (registers/spilled/shared); where that is meant, UPDATE_EXPECT=1 tools/cuda-kernels\n{}",
        differences.join("\n")
    ))
}

fn difference(key: &Key, (major, minor): Capability, before: String, now: String) -> String {
    format!(
        "  {} of {}, defines {:016x}, for {major}.{minor}: {before} -> {now}",
        key.entry, key.file, key.defines
    )
}
