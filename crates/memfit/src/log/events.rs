//! Event files as TensorBoard reads them: records of TFRecord, each an `Event` of protocol buffers with the scalars of a step or an
//! epoch. Folders and tags are those of Keras's callback: `train` and `validation`, `epoch_loss`, `batch_loss`.

use std::fs::{self, File};
use std::io::{self, BufReader, BufWriter, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use super::{BUFFER, Done, Kind, Row, Values, cannot_write, open_file};
use crate::Error;

/// Where errors point.
const PLACE: &str = "train.tensorboard (--tensorboard)";
/// How the names of event files begin.
const PREFIX: &str = "events.out.tfevents.";
/// What the first record of a file says.
const VERSION: &[u8] = b"brain.Event:2";
/// No record that memfit writes is longer.
const LONGEST: u64 = 1 << 20;

/// The event files of a run.
pub(super) struct EventFile {
    train: Run,
    validation: Option<Run>,
    tags: Tags,
}

/// Tags of the values, by what a row is about.
struct Tags {
    step: Vec<String>,
    epoch: Vec<String>,
}

impl EventFile {
    pub(super) fn open(
        folder: &Path,
        values: &[String],
        validates: bool,
        done: Option<Done>,
    ) -> Result<EventFile, Error> {
        let tags = |prefix: &str| values.iter().map(|name| format!("{prefix}_{name}")).collect();
        let tags = Tags { step: tags("batch"), epoch: tags("epoch") };
        let train = Run::open(&folder.join("train"), done)?;
        let validation = validates.then(|| Run::open(&folder.join("validation"), done)).transpose()?;
        Ok(EventFile { train, validation, tags })
    }

    pub(super) fn write(&mut self, row: &Row<'_>) -> Result<(), Error> {
        let (tags, number, prefix) = match row.kind {
            Kind::Step if is_shown(row.step) => (&self.tags.step, row.step, "batch"),
            Kind::Step => return Ok(()),
            // Keras counts epochs from 0 here.
            Kind::Epoch => (&self.tags.epoch, row.epoch - 1, "epoch"),
        };
        let others = [
            ("learning_rate", row.learning_rate),
            ("rows_per_second", row.rows_per_second as f32),
            ("bytes_used", row.bytes_used as f32),
        ];
        self.train.write(number, |summary| {
            scalars(summary, tags, row.values);
            for (name, value) in others {
                scalar(summary, &[prefix, "_", name], value);
            }
        })?;
        match (&mut self.validation, row.validation) {
            (Some(run), Some(values)) => run.write(number, |summary| scalars(summary, tags, values)),
            (None, _) | (_, None) => Ok(()),
        }
    }

    pub(super) fn flush(&mut self) -> Result<(), Error> {
        self.train.flush()?;
        self.validation.as_mut().map_or(Ok(()), Run::flush)
    }
}

/// Whether the scalars of a step are written: all of the first ten thousand, then every tenth, then every hundredth, so that a
/// long run has files of a few megabytes.
fn is_shown(step: u64) -> bool {
    let digits = step.max(1).ilog10();
    step.is_multiple_of(10u64.pow(digits.saturating_sub(3)))
}

/// A folder whose events are one curve.
struct Run {
    path: PathBuf,
    file: BufWriter<File>,
    /// An event as it is written, and its summary: they grow to the size of the longest and stay.
    event: Vec<u8>,
    summary: Vec<u8>,
}

impl Run {
    fn open(folder: &Path, done: Option<Done>) -> Result<Run, Error> {
        let refused = |source: io::Error| {
            let problem = format!("cannot write to `{}`: {source}; choose another place", folder.display());
            Error::job(PLACE, problem)
        };
        fs::create_dir_all(folder).map_err(refused)?;
        let mut earlier = Vec::new();
        if let Some(done) = done {
            earlier = event_files(folder).map_err(refused)?;
            for path in &earlier {
                cut(path, done).map_err(|source| cannot_write(path, source))?;
            }
        }
        let path = earlier.pop().unwrap_or_else(|| folder.join(new_name()));
        let mut file = open_file(&path, PLACE)?;
        let end = file.seek(SeekFrom::End(0)).map_err(|source| cannot_write(&path, source))?;
        let file = BufWriter::with_capacity(BUFFER, file);
        let mut run = Run { path, file, event: Vec::new(), summary: Vec::new() };
        if end == 0 {
            version(&mut run.event, seconds_now());
            run.put()?;
        }
        run.flush()?;
        Ok(run)
    }

    fn write(&mut self, step: u64, fill: impl FnOnce(&mut Vec<u8>)) -> Result<(), Error> {
        self.summary.clear();
        fill(&mut self.summary);
        event(&mut self.event, seconds_now(), step, &self.summary);
        self.put()
    }

    fn put(&mut self) -> Result<(), Error> {
        write_record(&mut self.file, &self.event).map_err(|source| cannot_write(&self.path, source))
    }

    fn flush(&mut self) -> Result<(), Error> {
        self.file.flush().map_err(|source| cannot_write(&self.path, source))
    }
}

/// The first event of a file.
fn version(to: &mut Vec<u8>, seconds: f64) {
    to.clear();
    double(to, 1, seconds);
    bytes(to, 3, VERSION);
}

/// An event with a summary.
fn event(to: &mut Vec<u8>, seconds: f64, step: u64, summary: &[u8]) {
    to.clear();
    double(to, 1, seconds);
    number(to, 2, step);
    bytes(to, 5, summary);
}

/// Writes a record: its length and its bytes, each with a checksum.
fn write_record(to: &mut impl Write, event: &[u8]) -> io::Result<()> {
    let length = (event.len() as u64).to_le_bytes();
    let parts: [&[u8]; 4] = [&length, &masked(&length).to_le_bytes(), event, &masked(event).to_le_bytes()];
    parts.iter().try_for_each(|part| to.write_all(part))
}

fn seconds_now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64())
}

/// A name as TensorFlow makes it: the time, and who writes.
fn new_name() -> String {
    format!("{PREFIX}{:010.0}.memfit.{}.0.v2", seconds_now().floor(), std::process::id())
}

/// The event files of a folder, by their names.
fn event_files(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let entries = fs::read_dir(folder)?.filter_map(Result::ok);
    let is_ours =
        |path: &PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(PREFIX));
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.path()).filter(is_ours).collect();
    files.sort();
    Ok(files)
}

/// Cuts off a file where the first event stands that was not done, or a record that is not whole.
fn cut(path: &Path, done: Done) -> io::Result<()> {
    let file = File::options().read(true).write(true).open(path)?;
    let mut reader = BufReader::with_capacity(BUFFER, &file);
    let (mut kept, mut event) = (0, Vec::new());
    while let Some(length) = read_record(&mut reader, &mut event)? {
        let belongs = match place_of(&event) {
            Some((Kind::Step, step)) => done.has(Kind::Step, 0, step),
            Some((Kind::Epoch, epoch)) => done.has(Kind::Epoch, epoch + 1, 0),
            None => true,
        };
        if !belongs {
            break;
        }
        kept += length;
    }
    file.set_len(kept)
}

/// Reads a record and returns its bytes in the file; none where no whole one is left.
fn read_record(from: &mut impl Read, event: &mut Vec<u8>) -> io::Result<Option<u64>> {
    let mut head = [0; 12];
    if !fill(from, &mut head)? {
        return Ok(None);
    }
    let length = u64::from_le_bytes(head[..8].try_into().expect("eight bytes"));
    if masked(&head[..8]).to_le_bytes() != head[8..] || LONGEST < length {
        return Ok(None);
    }
    event.resize(length as usize, 0);
    let mut sum = [0; 4];
    if !fill(from, event)? || !fill(from, &mut sum)? || masked(event).to_le_bytes() != sum {
        return Ok(None);
    }
    Ok(Some(12 + length + 4))
}

/// Fills a buffer; false where the file ends before.
fn fill(from: &mut impl Read, to: &mut [u8]) -> io::Result<bool> {
    match from.read_exact(to) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
        Err(error) => Err(error),
    }
}

/// What an event of memfit is about, and its step: `time step summary { value { tag …`.
fn place_of(event: &[u8]) -> Option<(Kind, u64)> {
    let rest = event.get(9..)?.strip_prefix(&[2 << 3])?;
    let (step, rest) = take_varint(rest)?;
    let (_, rest) = take_varint(rest.strip_prefix(&[5 << 3 | 2])?)?;
    let (_, rest) = take_varint(rest.strip_prefix(&[1 << 3 | 2])?)?;
    let (length, rest) = take_varint(rest.strip_prefix(&[1 << 3 | 2])?)?;
    let tag = rest.get(..usize::try_from(length).ok()?)?;
    if tag.starts_with(b"batch_") {
        Some((Kind::Step, step))
    } else if tag.starts_with(b"epoch_") {
        Some((Kind::Epoch, step))
    } else {
        None
    }
}

fn take_varint(mut from: &[u8]) -> Option<(u64, &[u8])> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (byte, rest) = from.split_first()?;
        from = rest;
        value |= u64::from(byte & 0x7F) << shift;
        if byte & 0x80 == 0 {
            return Some((value, from));
        }
    }
    None
}

fn scalars(summary: &mut Vec<u8>, tags: &[String], values: Values<'_>) {
    for (tag, value) in tags.iter().zip(values.all()) {
        scalar(summary, &[tag], value as f32);
    }
}

/// A value of a summary: its tag, given in parts, and its number.
fn scalar(summary: &mut Vec<u8>, tag: &[&str], value: f32) {
    let length: usize = tag.iter().map(|part| part.len()).sum();
    let tag_bytes = 1 + varint_bytes(length as u64) + length;
    varint(summary, 1 << 3 | 2);
    varint(summary, (tag_bytes + 1 + 4) as u64);
    varint(summary, 1 << 3 | 2);
    varint(summary, length as u64);
    for part in tag {
        summary.extend(part.as_bytes());
    }
    varint(summary, 2 << 3 | 5);
    summary.extend(value.to_le_bytes());
}

fn double(to: &mut Vec<u8>, field: u64, value: f64) {
    varint(to, field << 3 | 1);
    to.extend(value.to_le_bytes());
}

fn number(to: &mut Vec<u8>, field: u64, value: u64) {
    varint(to, field << 3);
    varint(to, value);
}

fn bytes(to: &mut Vec<u8>, field: u64, value: &[u8]) {
    varint(to, field << 3 | 2);
    varint(to, value.len() as u64);
    to.extend(value);
}

fn varint(to: &mut Vec<u8>, mut value: u64) {
    while 0x80 <= value {
        to.push(value as u8 | 0x80);
        value >>= 7;
    }
    to.push(value as u8);
}

fn varint_bytes(value: u64) -> usize {
    (u64::BITS - (value | 1).leading_zeros()).div_ceil(7) as usize
}

/// A checksum as TFRecord stores it.
fn masked(bytes: &[u8]) -> u32 {
    crc32c(bytes).rotate_right(15).wrapping_add(0xA282_EAD8)
}

/// CRC-32C (Castagnoli), a byte at a time: a record has a few hundred.
fn crc32c(bytes: &[u8]) -> u32 {
    const TABLE: [u32; 256] = {
        let mut table = [0; 256];
        let mut index = 0;
        while index < 256 {
            let mut sum = index as u32;
            let mut bit = 0;
            while bit < 8 {
                sum = if sum & 1 == 1 { sum >> 1 ^ 0x82F6_3B78 } else { sum >> 1 };
                bit += 1;
            }
            table[index] = sum;
            index += 1;
        }
        table
    };
    !bytes.iter().fold(!0, |sum: u32, byte| sum >> 8 ^ TABLE[((sum ^ u32::from(*byte)) & 0xFF) as usize])
}

/// The events of a folder's files without their times.
#[cfg(test)]
pub(super) fn without_times(folder: &Path) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    for path in event_files(folder).expect("the folder is there") {
        let mut reader = BufReader::new(File::open(path).expect("the file is there"));
        let mut event = Vec::new();
        while let Ok(Some(_)) = read_record(&mut reader, &mut event) {
            all.push(event[9..].to_vec());
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksums_are_castagnoli_s() {
        // From RFC 3720, B.4, and the usual check of all checksums.
        assert_eq!(crc32c(b"123456789"), 0xE306_9283);
        assert_eq!(crc32c(&[0; 32]), 0x8A91_36AA);
        assert_eq!(crc32c(&[0xFF; 32]), 0x62A8_AB43);
    }

    #[test]
    fn records_are_those_that_tensorflow_writes() {
        // `TFRecordWriter` with `Event(wall_time=1.5, file_version="brain.Event:2")` and `Event(wall_time=2.5, step=300, …)`.
        let wanted = "1800000000000000a37f4b2209000000000000f83f1a0d627261696e2e4576656e743a322a28646c\
            3d000000000000006049f1ec09000000000000044010ac022a2f0a110a0a65706f63685f6c6f7373150000803e\
            0a1a0a1365706f63685f6c6561726e696e675f72617465156f12833a3f415a23";
        let (mut file, mut one, mut summary) = (Vec::new(), Vec::new(), Vec::new());
        version(&mut one, 1.5);
        write_record(&mut file, &one).unwrap();
        scalars(&mut summary, &["epoch_loss".to_owned()], Values { loss: 0.25, metrics: &[] });
        scalar(&mut summary, &["epoch", "_", "learning_rate"], 0.001);
        event(&mut one, 2.5, 300, &summary);
        write_record(&mut file, &one).unwrap();
        let hex: String = file.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, wanted);
        assert_eq!(place_of(&one), Some((Kind::Epoch, 300)));
    }

    #[test]
    fn long_runs_show_fewer_steps() {
        let shown = |from: u64, to: u64| (from..to).filter(|step| is_shown(*step)).count();
        assert_eq!(shown(1, 10_000), 9_999);
        assert_eq!(shown(10_000, 100_000), 9_000);
        assert_eq!(shown(100_000, 1_000_000), 9_000);
    }

    #[test]
    fn numbers_have_the_length_that_is_counted() {
        for value in [0, 1, 127, 128, 16_383, 16_384, u64::MAX] {
            let mut bytes = Vec::new();
            varint(&mut bytes, value);
            assert_eq!(bytes.len(), varint_bytes(value), "{value}");
            assert_eq!(take_varint(&bytes), Some((value, &[][..])));
        }
    }
}
