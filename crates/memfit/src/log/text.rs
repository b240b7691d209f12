//! Rows of CSV or JSON, one a step and one an epoch.

use std::fs::File;
use std::io::{self, BufRead, BufReader, BufWriter, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::{BUFFER, Done, Kind, Row, cannot_write, open_file};
use crate::Error;

/// Where errors point.
const PLACE: &str = "train.log (--log)";

/// No row that memfit writes is longer.
const LONGEST: u64 = 1 << 20;

/// Columns before and after those of the values.
const FIRST: [&str; 3] = ["kind", "epoch", "step"];
const LAST: [&str; 3] = ["learning_rate", "rows_per_second", "bytes_used"];

/// How rows are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Format {
    Csv,
    Jsonl,
}

impl Format {
    /// The form that a file's name says.
    pub(super) fn of(path: &Path) -> Result<Format, Error> {
        match path.extension().and_then(|extension| extension.to_str()) {
            Some("csv") => Ok(Format::Csv),
            Some("jsonl") => Ok(Format::Jsonl),
            Some(_) | None => {
                let problem = format!("`{}` must end in .csv or .jsonl", path.display());
                Err(Error::job(PLACE, problem))
            }
        }
    }
}

/// A file of rows.
pub(super) struct TextLog {
    path: PathBuf,
    format: Format,
    /// Names of the values, and of those of the validation.
    names: Vec<String>,
    file: BufWriter<File>,
}

impl TextLog {
    pub(super) fn open(
        path: &Path,
        values: &[String],
        validates: bool,
        done: Option<Done>,
    ) -> Result<TextLog, Error> {
        let format = Format::of(path)?;
        let validated = values.iter().filter(|_| validates).map(|name| format!("val_{name}"));
        let names: Vec<String> = values.iter().cloned().chain(validated).collect();
        let mut file = open_file(path, PLACE)?;
        let cannot = |source| cannot_write(path, source);
        let header = match format {
            Format::Csv => header(&names),
            Format::Jsonl => String::new(),
        };
        let kept = done.map_or(Ok(0), |done| kept(&file, format, &header, done)).map_err(cannot)?;
        file.set_len(kept).and_then(|()| file.seek(SeekFrom::End(0))).map_err(cannot)?;
        let mut file = BufWriter::with_capacity(BUFFER, file);
        if kept == 0 {
            file.write_all(header.as_bytes()).and_then(|()| file.flush()).map_err(cannot)?;
        }
        Ok(TextLog { path: path.to_owned(), format, names, file })
    }

    pub(super) fn write(&mut self, row: &Row<'_>) -> Result<(), Error> {
        let written = match self.format {
            Format::Csv => csv_row(&mut self.file, self.names.len(), row),
            Format::Jsonl => json_row(&mut self.file, &self.names, row),
        };
        written.map_err(|source| cannot_write(&self.path, source))
    }

    pub(super) fn flush(&mut self) -> Result<(), Error> {
        self.file.flush().map_err(|source| cannot_write(&self.path, source))
    }
}

/// The first line of a CSV file.
fn header(names: &[String]) -> String {
    let quote = |name: &str| {
        let plain = !name.contains(['"', ',', '\n', '\r']);
        if plain { name.to_owned() } else { format!("\"{}\"", name.replace('"', "\"\"")) }
    };
    let names = FIRST.into_iter().chain(names.iter().map(String::as_str)).chain(LAST);
    names.map(quote).collect::<Vec<_>>().join(",") + "\n"
}

fn csv_row(to: &mut impl Write, columns: usize, row: &Row<'_>) -> io::Result<()> {
    write!(to, "{},{},{}", row.kind.name(), row.epoch, row.step)?;
    let values = row.values.all().chain(row.validation.into_iter().flat_map(|values| values.all()));
    let mut written = 0;
    for value in values {
        write!(to, ",{value:?}")?;
        written += 1;
    }
    // A step has no validation.
    for _ in written..columns {
        write!(to, ",")?;
    }
    writeln!(to, ",{:?},{:?},{}", row.learning_rate, row.rows_per_second, row.bytes_used)
}

fn json_row(to: &mut impl Write, names: &[String], row: &Row<'_>) -> io::Result<()> {
    write!(to, "{{\"kind\":\"{}\",\"epoch\":{},\"step\":{}", row.kind.name(), row.epoch, row.step)?;
    let values = row.values.all().chain(row.validation.into_iter().flat_map(|values| values.all()));
    // What is not finite is no number of JSON: it is null there.
    for (name, value) in names.iter().zip(values) {
        write!(to, ",{}:{}", Value::from(name.as_str()), Value::from(value))?;
    }
    // The shortest text that is this number in 32 bits.
    let rate = row.learning_rate;
    let rate = if rate.is_finite() { format!("{rate:?}") } else { "null".to_owned() };
    let speed = Value::from(row.rows_per_second);
    writeln!(to, ",\"learning_rate\":{rate},\"rows_per_second\":{speed},\"bytes_used\":{}}}", row.bytes_used)
}

/// The length of a file up to the last row of what was done; 0 where it is another log.
fn kept(file: &File, format: Format, header: &str, done: Done) -> io::Result<u64> {
    let mut lines = BufReader::with_capacity(BUFFER, file);
    let (mut kept, mut line) = (0, Vec::new());
    let mut is_first = true;
    loop {
        line.clear();
        let bytes = lines.by_ref().take(LONGEST).read_until(b'\n', &mut line)?;
        // A line that was cut off is no row, and neither is one without end.
        if bytes == 0 || line.last() != Some(&b'\n') {
            return Ok(kept);
        }
        let is_header = format == Format::Csv && std::mem::take(&mut is_first);
        let belongs = if is_header {
            line == header.as_bytes()
        } else {
            place_of(&line, format).is_some_and(|(kind, epoch, step)| done.has(kind, epoch, step))
        };
        if !belongs {
            return Ok(kept);
        }
        kept += bytes as u64;
    }
}

/// Kind, epoch and step of a row.
fn place_of(line: &[u8], format: Format) -> Option<(Kind, u64, u64)> {
    let line = std::str::from_utf8(line).ok()?;
    let (kind, epoch, step) = match format {
        Format::Csv => {
            let mut cells = line.trim_end().split(',');
            (cells.next()?.to_owned(), cells.next()?.parse().ok()?, cells.next()?.parse().ok()?)
        }
        Format::Jsonl => {
            let row: Value = serde_json::from_str(line).ok()?;
            (row["kind"].as_str()?.to_owned(), row["epoch"].as_u64()?, row["step"].as_u64()?)
        }
    };
    let kind = [Kind::Step, Kind::Epoch].into_iter().find(|known| known.name() == kind)?;
    Some((kind, epoch, step))
}
