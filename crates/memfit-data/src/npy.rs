//! Rows from .npy files, one file for each field, read in ranges straight into the given bytes.
//!
//! Files are read by position and never mapped, so nothing of them stays resident.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::thread::ScopedJoinHandle;

use memfit_ir::Bytes;

use crate::convert::{Misfit, Stored};
use crate::header::{self, Header};
use crate::source::{Field, Source, require_rows, runs};
use crate::{DataError, RowOrder};

/// Bytes that pass through the buffer at a time where elements are converted.
const BUFFER: usize = 64 << 10;
/// Bytes from which on two threads read.
const MUCH: usize = 16 << 20;

/// Rows from .npy files.
#[derive(Debug)]
pub struct Npy {
    rows: u64,
    fields: Vec<Field>,
    files: Vec<Opened>,
    /// Empty where no file needs converting.
    buffer: Box<[u8]>,
}

#[derive(Debug)]
struct Opened {
    path: PathBuf,
    file: File,
    stored: Stored,
    /// Where the data begins.
    data: u64,
}

impl Npy {
    /// Opens one file for each field and checks that they suit the fields and each other.
    pub fn open(files: Vec<(PathBuf, Field)>) -> Result<Npy, DataError> {
        let mut first: Option<(u64, PathBuf)> = None;
        let (mut fields, mut opened) = (Vec::new(), Vec::new());
        for (path, field) in files {
            field.require_writable();
            let (file, rows) = open(&path, &field)?;
            match &first {
                Some((other_rows, other)) if *other_rows != rows => {
                    let (other, other_rows) = (other.clone(), *other_rows);
                    return Err(DataError::RowsDiffer { path, rows, other, other_rows });
                }
                Some(_) => {}
                None => first = Some((rows, path)),
            }
            fields.push(field);
            opened.push(file);
        }
        let converts = fields.iter().zip(&opened).any(|(field, file)| !file.stored.is_native(field.dtype));
        let buffer = vec![0; if converts { BUFFER } else { 0 }].into_boxed_slice();
        Ok(Npy { rows: first.map_or(0, |(rows, _)| rows), fields, files: opened, buffer })
    }
}

impl Source for Npy {
    fn rows(&self) -> Option<u64> {
        Some(self.rows)
    }

    fn fields(&self) -> &[Field] {
        &self.fields
    }

    fn read(&mut self, field: usize, start: u64, count: usize, to: &mut [u8]) -> Result<(), DataError> {
        require_rows(Some(self.rows), start, count)?;
        let (field, file) = (&self.fields[field], &self.files[field]);
        field.require_size(count, to);
        let size = file.stored.size();
        let first = start * field.elements() as u64;
        let position = file.data + first * size as u64;
        if file.stored.is_native(field.dtype) {
            return on_two_threads(to, to.len() / 2, |place, to| file.read(to, position + place as u64));
        }
        let stretch = BUFFER / size;
        for (index, to) in to.chunks_mut(stretch * 4).enumerate() {
            let from = &mut self.buffer[..to.len() / 4 * size];
            let before = index * stretch;
            file.read(from, position + (before * size) as u64)?;
            let converted = file.stored.convert(from, field.dtype, to);
            converted.map_err(|misfit| file.misfit(field, first + before as u64, misfit))?;
        }
        Ok(())
    }

    fn read_scattered(
        &mut self,
        field: usize,
        order: RowOrder<'_>,
        count: usize,
        to: &mut [u8],
    ) -> Result<(), DataError> {
        let row_bytes = self.fields[field].bytes(1).to_usize();
        if self.files[field].stored.is_native(self.fields[field].dtype) {
            self.fields[field].require_size(count, to);
            let file = &self.files[field];
            let rows = self.rows;
            let gather = |first: usize, to: &mut [u8]| {
                for (index, row, run) in runs(order, first, first + to.len() / row_bytes.max(1)) {
                    require_rows(Some(rows), row, run)?;
                    let place = (index - first) * row_bytes;
                    let position = file.data + row * row_bytes as u64;
                    file.read(&mut to[place..place + run * row_bytes], position)?;
                }
                Ok(())
            };
            return on_two_threads(to, count / 2 * row_bytes, |place, to| {
                gather(place / row_bytes.max(1), to)
            });
        }
        for (index, row, run) in runs(order, 0, count) {
            self.read(field, row, run, &mut to[index * row_bytes..(index + run) * row_bytes])?;
        }
        Ok(())
    }

    fn bytes(&self) -> Bytes {
        Bytes(self.buffer.len() as u64)
    }
}

/// Opens a file and checks it against its field; also returns its rows.
fn open(path: &Path, field: &Field) -> Result<(Opened, u64), DataError> {
    let failed = |source: io::Error| {
        let path = path.to_owned();
        let is_missing = source.kind() == io::ErrorKind::NotFound;
        if is_missing { DataError::Missing { path } } else { DataError::Read { path, source } }
    };
    let mut file = File::open(path).map_err(failed)?;
    let length = file.metadata().map_err(failed)?.len();
    if length == 0 {
        return Err(DataError::NotNpy { path: path.to_owned(), reason: "it has no bytes".to_owned() });
    }
    let Header { description, shape, data } = header::read(&mut file, path)?;
    let stored = Stored::from_description(&description).ok_or_else(|| DataError::ElementType {
        path: path.to_owned(),
        field: field.name.clone(),
        found: description,
        wanted: field.dtype,
    })?;
    let [rows, row @ ..] = shape.as_slice() else {
        return Err(DataError::NoRows { path: path.to_owned() });
    };
    if !same_elements(row, &field.dims) {
        return Err(DataError::Shape {
            path: path.to_owned(),
            field: field.name.clone(),
            expected: field.dims.clone(),
            got: row.to_vec(),
        });
    }
    if *rows == 0 {
        return Err(DataError::Empty { path: path.to_owned() });
    }
    let expected = rows
        .checked_mul(field.elements() as u64)
        .and_then(|elements| elements.checked_mul(stored.size() as u64))
        .and_then(|bytes| bytes.checked_add(data))
        .unwrap_or(u64::MAX);
    if length < expected {
        return Err(DataError::Truncated { path: path.to_owned(), expected, got: length });
    }
    Ok((Opened { path: path.to_owned(), file, stored, data }, *rows))
}

/// Reads a large range on two threads; the second one starts at `half`. Data that the system has cached is
/// copied, and nothing else computes during that time.
fn on_two_threads(
    to: &mut [u8],
    half: usize,
    read: impl Fn(usize, &mut [u8]) -> Result<(), DataError> + Sync,
) -> Result<(), DataError> {
    if to.len() < MUCH {
        return read(0, to);
    }
    let (first, second) = to.split_at_mut(half);
    let (here, there) = std::thread::scope(|scope| {
        let other = std::thread::Builder::new().spawn_scoped(scope, || read(half, second));
        let here = read(0, first);
        let join = |other: ScopedJoinHandle<'_, _>| {
            other.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        (here, other.ok().map(join))
    });
    // If no thread can be started, the rest is read here.
    here.and_then(|()| there.unwrap_or_else(|| read(half, &mut to[half..])))
}

/// Whether rows have the wanted dimensions; axes of 1 at the end move no element and may differ.
pub(crate) fn same_elements(row: &[u64], dims: &[usize]) -> bool {
    let dims: Vec<u64> = dims.iter().map(|size| *size as u64).collect();
    without_ones(row) == without_ones(&dims)
}

fn without_ones(dims: &[u64]) -> &[u64] {
    let end = dims.iter().rposition(|size| *size != 1).map_or(0, |last| last + 1);
    &dims[..end]
}

impl Opened {
    fn read(&self, to: &mut [u8], position: u64) -> Result<(), DataError> {
        self.file.read_exact_at(to, position).map_err(|source| {
            let path = self.path.clone();
            if source.kind() != io::ErrorKind::UnexpectedEof {
                return DataError::Read { path, source };
            }
            // It was long enough when it was opened.
            let got = self.file.metadata().map_or(0, |metadata| metadata.len());
            DataError::Truncated { path, expected: position + to.len() as u64, got }
        })
    }

    /// The error for a number that does not fit. The range that was read begins with this element of the
    /// file.
    fn misfit(&self, field: &Field, first: u64, misfit: Misfit) -> DataError {
        let (path, name) = (self.path.clone(), field.name.clone());
        let row = |element: usize| (first + element as u64) / field.elements().max(1) as u64;
        match misfit {
            Misfit::NotWhole { element, value } => {
                DataError::NotWhole { path, field: name, row: row(element), value }
            }
            Misfit::OutOfRange { element, value } => {
                DataError::OutOfRange { path, field: name, row: row(element), value }
            }
        }
    }
}
