//! Measured costs in a file of the user's cache folder: one JSON object a line. Where it cannot be read,
//! costs are measured again.

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};

use memfit_device::{Backend, Line, Table};
use memfit_ir::Bytes;
use serde::{Deserialize, Serialize};

/// A file larger than this is replaced by an empty one.
const FILE_MOST: u64 = 4 << 20;

/// No line is longer. So reading a file in another format takes little memory.
const LINE_MOST: u64 = 4 << 10;

/// One line.
#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    key: String,
    nanos_fixed: f64,
    nanos_per_row: f64,
}

/// The file for this device and its vectors, this many threads and this build, whose kernels may be faster than another's; none where
/// the user has no such folder.
pub(crate) fn path(setup: &dyn Backend, files: Bytes) -> Option<PathBuf> {
    let folder =
        |variable: &str| std::env::var_os(variable).map(PathBuf::from).filter(|path| path.is_absolute());
    let folder = folder("XDG_CACHE_HOME").or_else(|| Some(folder("HOME")?.join(".cache")))?;
    // The cache folder is created where it is missing. A home that does not exist is not.
    folder.parent().filter(|home| home.is_dir())?;
    let plain = |letter: char| if letter.is_ascii_alphanumeric() { letter.to_ascii_lowercase() } else { '-' };
    let hardware: String = setup.hardware().chars().take(64).map(plain).collect();
    let (version, build, threads) = (env!("CARGO_PKG_VERSION"), files.0 >> 12, setup.threads());
    Some(folder.join("memfit").join(format!("costs-{version}-{build:x}-{hardware}-{threads}-threads.jsonl")))
}

/// Those of the wanted entries that the file has. A file that is not there, or not ours, has none.
pub(crate) fn read(path: &Path, wanted: &BTreeSet<String>) -> Table {
    let mut table = Table::new();
    for_each_entry(path, |entry| {
        if wanted.contains(&entry.key) {
            table.insert(entry.key, line(entry.nanos_fixed, entry.nanos_per_row));
        }
        Ok(())
    })
    .unwrap_or_default();
    table
}

/// Adds entries to the file: a new file is written beside it and takes its place, so that no reader ever sees
/// half a file. Where that cannot be done, nothing is cached.
pub(crate) fn add(path: &Path, table: &Table) {
    let temporary = path.with_extension(format!("{}.tmp", std::process::id()));
    let written = path
        .parent()
        .map_or(Ok(()), fs::create_dir_all)
        .and_then(|()| write(path, &temporary, table))
        .and_then(|()| fs::rename(&temporary, path));
    if written.is_err() {
        // Where the file was never written there is nothing to remove.
        let _ = fs::remove_file(&temporary);
    }
}

fn write(path: &Path, temporary: &Path, table: &Table) -> io::Result<()> {
    let file = OpenOptions::new().write(true).create(true).truncate(true).open(temporary)?;
    let mut file = BufWriter::new(file);
    let put = |file: &mut BufWriter<File>, entry: &Entry| {
        serde_json::to_writer(&mut *file, entry)?;
        file.write_all(b"\n")
    };
    for_each_entry(
        path,
        |entry| if table.contains_key(&entry.key) { Ok(()) } else { put(&mut file, &entry) },
    )?;
    for (key, Line { nanos_fixed, nanos_per_row }) in table {
        let (nanos_fixed, nanos_per_row) = (*nanos_fixed, *nanos_per_row);
        put(&mut file, &Entry { key: key.clone(), nanos_fixed, nanos_per_row })?;
    }
    file.flush()
}

/// Every line that is an entry, one at a time.
fn for_each_entry(path: &Path, mut each: impl FnMut(Entry) -> io::Result<()>) -> io::Result<()> {
    let Ok(file) = File::open(path) else { return Ok(()) };
    if !file.metadata().is_ok_and(|data| data.is_file() && data.len() <= FILE_MOST) {
        return Ok(());
    }
    let mut reader = BufReader::new(file);
    let mut text = Vec::new();
    loop {
        text.clear();
        match (&mut reader).take(LINE_MOST).read_until(b'\n', &mut text) {
            Ok(0) | Err(_) => return Ok(()),
            Ok(_) => {}
        }
        if let Ok(entry) = serde_json::from_slice::<Entry>(&text)
            && line(entry.nanos_fixed, entry.nanos_per_row).is_sane()
        {
            each(entry)?;
        }
    }
}

fn line(nanos_fixed: f64, nanos_per_row: f64) -> Line {
    Line { nanos_fixed, nanos_per_row }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(entries: &[(&str, f64, f64)]) -> Table {
        entries.iter().map(|(key, fixed, per_row)| ((*key).to_owned(), line(*fixed, *per_row))).collect()
    }

    fn all(path: &Path) -> Table {
        let mut table = Table::new();
        for_each_entry(path, |entry| {
            table.insert(entry.key, line(entry.nanos_fixed, entry.nanos_per_row));
            Ok(())
        })
        .unwrap();
        table
    }

    #[test]
    fn what_is_written_is_read_to_the_bit_and_only_what_is_wanted() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("not/there/yet/costs.jsonl");
        let first =
            table(&[("dense (f32[batch,3])", 1234.5625, 0.0625), ("a \"quoted\" one", 98765432.1875, 0.0)]);
        add(&path, &first);
        assert_eq!(all(&path), first);
        add(&path, &table(&[("another", 5.0, 6.0), ("a \"quoted\" one", 1.0, 2.0)]));
        let wanted = ["another", "a \"quoted\" one", "missing"].map(str::to_owned).into();
        assert_eq!(read(&path, &wanted), table(&[("another", 5.0, 6.0), ("a \"quoted\" one", 1.0, 2.0)]));
        assert_eq!(all(&path).len(), 3);
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1, "nothing is left beside it");
    }

    #[test]
    fn a_broken_file_loses_what_is_broken_and_is_mended() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("costs.jsonl");
        let whole = table(&[("one", 1.0, 2.0), ("two", 3.0, 4.0)]);
        add(&path, &whole);
        let text = fs::read(&path).unwrap();
        let insane = br#"{"key":"one","nanos_fixed":-5.0,"nanos_per_row":1.0}"#;
        let foreign = br#"{"key":"one","other":1}"#;
        let long = [b"[".repeat(100_000), b"\n".to_vec(), text.clone()].concat();
        for (broken, left) in [
            (&text[..text.len() - 9], 1),
            (&text[..7], 0),
            (&[0xFF, 0, b'\n', 0xFE], 0),
            (&[], 0),
            (insane, 0),
            (foreign, 0),
            (&long, 2),
        ] {
            fs::write(&path, broken).unwrap();
            assert_eq!(all(&path).len(), left);
            add(&path, &whole);
            assert_eq!(all(&path), whole);
            assert_eq!(fs::read(&path).unwrap(), text, "what was broken is gone");
        }
    }

    #[test]
    fn a_file_that_cannot_be_read_or_written_is_no_error() {
        let folder = tempfile::tempdir().unwrap();
        add(folder.path(), &table(&[("one", 1.0, 2.0)]));
        assert_eq!(all(folder.path()), Table::new());
        let (file, below) = (folder.path().join("file"), folder.path().join("file/below"));
        fs::write(&file, "").unwrap();
        add(&below, &table(&[("one", 1.0, 2.0)]));
        assert_eq!(read(&below, &["one".to_owned()].into()), Table::new());
    }

    #[test]
    fn two_at_once_never_leave_half_a_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("costs.jsonl");
        let keys: Vec<String> = (0..200).map(|key| format!("key {key}")).collect();
        let lines: Table = keys.iter().map(|key| (key.clone(), line(1.0, 2.0))).collect();
        add(&path, &lines);
        std::thread::scope(|scope| {
            let reader = scope.spawn(|| (0..200).all(|_| all(&path).len() == 200));
            for _ in 0..50 {
                add(&path, &lines);
            }
            assert!(reader.join().unwrap(), "a reader always sees a whole file");
        });
    }
}
