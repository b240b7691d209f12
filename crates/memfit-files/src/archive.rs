//! Zip archives whose entries are stored as they are, as Keras writes them: found without reading them, and written in one
//! pass. Compressed entries are refused: their bytes could not be read in place.

use std::fs::File;
use std::io::{self, Write};

use crate::section::{Cursor, Problem, Section};

const LOCAL: u32 = 0x0403_4b50;
const CENTRAL: u32 = 0x0201_4b50;
const END: u32 = 0x0605_4b50;
const END_64: u32 = 0x0606_4b50;
const LOCATOR_64: u32 = 0x0706_4b50;

const LOCAL_BYTES: u64 = 30;
const CENTRAL_BYTES: u64 = 46;
const END_BYTES: u64 = 22;
const LOCATOR_BYTES: u64 = 20;
const END_64_BYTES: u64 = 56;
/// A comment may follow the end of the archive.
const LONGEST_COMMENT: u64 = u16::MAX as u64;
/// Sizes in 64 bits: id, length, then the two sizes and in the directory the offset.
const LOCAL_EXTRA: u64 = 4 + 16;
const CENTRAL_EXTRA: u64 = 4 + 24;
/// A model has three entries, and perhaps vocabularies.
const MOST_ENTRIES: u64 = 10_000;
const SATURATED_16: u64 = u16::MAX as u64;
const SATURATED_32: u64 = u32::MAX as u64;
/// Midnight of the first day that the format knows: an archive depends on nothing but its contents.
const NEW_YEAR_1980: u32 = 0x0021_0000;
/// Version 4.5 of the format, which has sizes in 64 bits.
const VERSION: u16 = 45;

/// Where an entry of an archive stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) name: String,
    pub(crate) start: u64,
    pub(crate) length: u64,
    /// CRC-32 of its bytes.
    pub(crate) checksum: u32,
}

impl Entry {
    pub(crate) fn section<'a>(&self, file: &'a File) -> Section<'a> {
        Section::new(file, self.start, self.length)
    }
}

/// Whether a file begins as an archive does.
pub(crate) fn is_archive(whole: &Section<'_>) -> bool {
    whole.bytes(0, 4).is_ok_and(|bytes| bytes == LOCAL.to_le_bytes())
}

/// The entries of an archive, all of them stored as they are.
pub(crate) fn entries(file: &File, length: u64) -> Result<Vec<Entry>, Problem> {
    let whole = Section::new(file, 0, length);
    let directory = find_directory(&whole)?;
    if MOST_ENTRIES < directory.count {
        return Err(format!("has {} entries, more than any model", directory.count));
    }
    let bytes = whole.bytes(directory.start, directory.length)?;
    let mut cursor = Cursor::new(&bytes);
    (0..directory.count).map(|_| read_entry(&whole, &mut cursor)).collect()
}

struct Directory {
    start: u64,
    length: u64,
    count: u64,
}

fn find_directory(whole: &Section<'_>) -> Result<Directory, Problem> {
    let tail_length = whole.length().min(END_BYTES + LONGEST_COMMENT);
    let tail_start = whole.length() - tail_length;
    let tail = whole.bytes(tail_start, tail_length)?;
    let signature = END.to_le_bytes();
    let found = tail.windows(4).rposition(|window| window == signature);
    let end = found.ok_or("is no whole zip archive; it was cut off or is something else".to_owned())?;
    let mut cursor = Cursor::new(&tail[end..]);
    cursor.skip(10)?;
    let (count, length, start) = (cursor.number(2)?, cursor.number(4)?, cursor.number(4)?);
    let comment = cursor.small(2)?;
    cursor.skip(comment)?;
    let end = tail_start + end as u64;
    if count < SATURATED_16 && length < SATURATED_32 && start < SATURATED_32 {
        return Ok(Directory { start, length, count });
    }
    let locator = end.checked_sub(LOCATOR_BYTES).ok_or("has no 64-bit directory".to_owned())?;
    let bytes = whole.bytes(locator, LOCATOR_BYTES)?;
    let mut cursor = Cursor::new(&bytes);
    if cursor.number(4)? != u64::from(LOCATOR_64) {
        return Ok(Directory { start, length, count });
    }
    cursor.skip(4)?;
    let bytes = whole.bytes(cursor.number(8)?, END_64_BYTES)?;
    let mut cursor = Cursor::new(&bytes);
    if cursor.number(4)? != u64::from(END_64) {
        return Err("has a damaged 64-bit directory".to_owned());
    }
    cursor.skip(28)?;
    let (count, length, start) = (cursor.number(8)?, cursor.number(8)?, cursor.number(8)?);
    Ok(Directory { start, length, count })
}

fn read_entry(whole: &Section<'_>, cursor: &mut Cursor<'_>) -> Result<Entry, Problem> {
    if cursor.number(4)? != u64::from(CENTRAL) {
        return Err("has a damaged directory".to_owned());
    }
    cursor.skip(6)?;
    let method = cursor.number(2)?;
    cursor.skip(4)?;
    let checksum = u32::try_from(cursor.number(4)?).expect("4 bytes were read");
    let (mut stored, mut length) = (cursor.number(4)?, cursor.number(4)?);
    let (name, extra, comment) = (cursor.small(2)?, cursor.small(2)?, cursor.small(2)?);
    cursor.skip(8)?;
    let mut local = cursor.number(4)?;
    let name = String::from_utf8_lossy(cursor.take(name)?).into_owned();
    let mut extras = Cursor::new(cursor.take(extra)?);
    cursor.skip(comment)?;
    while extras.rest().len() >= 4 {
        let (id, bytes) = (extras.number(2)?, extras.small(2)?);
        let mut field = Cursor::new(extras.take(bytes)?);
        // Only those that do not fit into 32 bits stand here, in this order.
        for value in [&mut length, &mut stored, &mut local] {
            if id == 1 && *value == SATURATED_32 {
                *value = field.number(8)?;
            }
        }
    }
    if method != 0 {
        return Err(format!(
            "has its entry `{name}` compressed; Keras stores it as it is: save the model again, or pack it with `zip -0`"
        ));
    }
    if stored != length {
        return Err(format!("says two sizes of its entry `{name}`"));
    }
    let header = whole.bytes(local, LOCAL_BYTES)?;
    let mut header = Cursor::new(&header);
    if header.number(4)? != u64::from(LOCAL) {
        return Err(format!("has no entry `{name}` where its directory says"));
    }
    header.skip(22)?;
    let start = local + LOCAL_BYTES + header.number(2)? + header.number(2)?;
    if !whole.holds(start, length) {
        return Err(format!("ends within its entry `{name}`"));
    }
    Ok(Entry { name, start, length, checksum })
}

/// Bytes of an archive with such entries: name and length of each.
pub(crate) fn archive_bytes<'a>(entries: impl Iterator<Item = (&'a str, u64)>) -> u64 {
    let each = entries.map(|(name, length)| {
        let name = name.len() as u64;
        LOCAL_BYTES + LOCAL_EXTRA + name + length + CENTRAL_BYTES + CENTRAL_EXTRA + name
    });
    each.sum::<u64>() + END_64_BYTES + LOCATOR_BYTES + END_BYTES
}

/// Writes an archive, one entry after the other.
pub(crate) struct ArchiveWriter<'a> {
    file: &'a File,
    position: u64,
    done: Vec<Entry>,
}

impl<'a> ArchiveWriter<'a> {
    pub(crate) fn new(file: &'a File) -> ArchiveWriter<'a> {
        ArchiveWriter { file, position: 0, done: Vec::new() }
    }

    /// Writes an entry of a length that is known. Its checksum, which is not, is put in front when it ends.
    pub(crate) fn entry(
        &mut self,
        name: &str,
        length: u64,
        body: impl FnOnce(&mut dyn Write) -> io::Result<()>,
    ) -> io::Result<()> {
        use std::os::unix::fs::FileExt;

        let start = self.position;
        self.put(&local_header(name, length, 0))?;
        let before = self.position;
        let mut sum = Summing { file: self.file, sum: crc32fast::Hasher::new(), bytes: 0 };
        body(&mut sum)?;
        assert_eq!(sum.bytes, length, "an entry has the length that was laid out for it");
        let checksum = sum.sum.finalize();
        self.position = before + length;
        self.file.write_all_at(&local_header(name, length, checksum), start)?;
        self.done.push(Entry { name: name.to_owned(), start, length, checksum });
        Ok(())
    }

    /// Writes the directory and returns the archive's length.
    pub(crate) fn finish(mut self) -> io::Result<u64> {
        let start = self.position;
        for entry in std::mem::take(&mut self.done) {
            self.put(&central_header(&entry))?;
            self.done.push(entry);
        }
        let (length, count) = (self.position - start, self.done.len() as u64);
        let mut end = Vec::new();
        let end_64 = self.position;
        put(&mut end, END_64, 4);
        put(&mut end, END_64_BYTES - 12, 8);
        put(&mut end, VERSION, 2);
        put(&mut end, VERSION, 2);
        put(&mut end, 0u32, 8);
        put(&mut end, count, 8);
        put(&mut end, count, 8);
        put(&mut end, length, 8);
        put(&mut end, start, 8);
        put(&mut end, LOCATOR_64, 4);
        put(&mut end, 0u32, 4);
        put(&mut end, end_64, 8);
        put(&mut end, 1u32, 4);
        put(&mut end, END, 4);
        put(&mut end, 0u32, 4);
        put(&mut end, count, 2);
        put(&mut end, count, 2);
        put(&mut end, length.min(SATURATED_32), 4);
        put(&mut end, start.min(SATURATED_32), 4);
        put(&mut end, 0u32, 2);
        self.put(&end)?;
        Ok(self.position)
    }

    fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.position += bytes.len() as u64;
        self.file.write_all(bytes)
    }
}

/// Writes to a file and sums what it wrote.
struct Summing<'a> {
    file: &'a File,
    sum: crc32fast::Hasher,
    bytes: u64,
}

impl Write for Summing<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.file.write(bytes)?;
        self.sum.update(&bytes[..written]);
        self.bytes += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

fn local_header(name: &str, length: u64, checksum: u32) -> Vec<u8> {
    let mut header = Vec::new();
    put(&mut header, LOCAL, 4);
    common(&mut header, checksum, name);
    put(&mut header, LOCAL_EXTRA, 2);
    header.extend(name.as_bytes());
    put(&mut header, 1u32, 2);
    put(&mut header, LOCAL_EXTRA - 4, 2);
    put(&mut header, length, 8);
    put(&mut header, length, 8);
    header
}

fn central_header(entry: &Entry) -> Vec<u8> {
    let mut header = Vec::new();
    put(&mut header, CENTRAL, 4);
    put(&mut header, VERSION, 2);
    common(&mut header, entry.checksum, &entry.name);
    put(&mut header, CENTRAL_EXTRA, 2);
    // Comment, disk, two kinds of attributes.
    put(&mut header, 0u32, 10);
    put(&mut header, SATURATED_32, 4);
    header.extend(entry.name.as_bytes());
    put(&mut header, 1u32, 2);
    put(&mut header, CENTRAL_EXTRA - 4, 2);
    put(&mut header, entry.length, 8);
    put(&mut header, entry.length, 8);
    put(&mut header, entry.start, 8);
    header
}

/// The fields of both headers: version, flags, method, date, checksum, sizes and the length of the name. The
/// sizes themselves follow in a field of 64 bits.
fn common(header: &mut Vec<u8>, checksum: u32, name: &str) {
    put(header, VERSION, 2);
    put(header, 0u32, 4);
    put(header, NEW_YEAR_1980, 4);
    put(header, checksum, 4);
    put(header, SATURATED_32, 4);
    put(header, SATURATED_32, 4);
    put(header, name.len() as u64, 2);
}

/// Appends a little-endian number of `width` bytes.
pub(crate) fn put(bytes: &mut Vec<u8>, number: impl Into<u64>, width: usize) {
    let number = number.into().to_le_bytes();
    bytes.extend((0..width).map(|place| number.get(place).copied().unwrap_or(0)));
}
