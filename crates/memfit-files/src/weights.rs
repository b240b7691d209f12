//! A file with weights, opened: what arrays it has and where, and reading one straight into the caller's bytes.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::archive::Entry;
use crate::error::FileError;
use crate::layout::{FileKind, STATE};
use crate::section::{Problem, Section};
use crate::{Element, archive, hdf5, json, safetensors};

const CONFIG: &str = "config.json";
const WEIGHTS: &str = "model.weights.h5";
const DAMAGED: &str = "was damaged: its checksum does not match; copy the file again or save the model again";

/// Bytes that are summed at a time while an entry is checked; on the stack, since the budget is spent by then.
const AT_ONCE: usize = 16 << 10;

/// An array of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Stored {
    pub(crate) dims: Vec<usize>,
    pub(crate) element: StoredElement,
    /// Where its bytes begin in the file, or why they cannot be read in place.
    pub(crate) place: Result<u64, &'static str>,
}

/// What an array of a file holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StoredElement {
    /// What can be read.
    Known(Element),
    /// Another type, with the number of its bytes.
    Other { what: &'static str, bytes: u64 },
}

impl StoredElement {
    pub(crate) fn bytes(self) -> u64 {
        match self {
            StoredElement::Known(element) => element.bytes(),
            StoredElement::Other { bytes, .. } => bytes,
        }
    }

    fn describe(self) -> String {
        match self {
            StoredElement::Known(element) => element.name().to_owned(),
            StoredElement::Other { what, bytes } => format!("{what} of {bytes} bytes"),
        }
    }
}

/// A file with weights.
pub struct WeightsFile {
    path: PathBuf,
    file: File,
    kind: FileKind,
    /// The model's configuration, where the file has one.
    config: Option<Value>,
    arrays: BTreeMap<String, Stored>,
    /// The archive's entry with the weights, which has a checksum.
    entry: Option<Entry>,
    /// The archive's entry with the state of the run that wrote it.
    state: Option<Entry>,
}

impl WeightsFile {
    /// Opens a `.keras`, `.weights.h5` or `.safetensors` file, known by what is in it and not by its name.
    pub fn open(path: &Path) -> Result<WeightsFile, FileError> {
        let cannot = |source| FileError::system("read", path, source);
        let wrong = |problem| FileError::file(path, problem);
        let file = File::open(path).map_err(cannot)?;
        let metadata = file.metadata().map_err(cannot)?;
        if metadata.is_dir() {
            return Err(wrong("is a folder; give a .keras, .weights.h5 or .safetensors file".to_owned()));
        }
        let whole = Section::new(&file, 0, metadata.len());
        let (mut entry_of_weights, mut state) = (None, None);
        let (kind, config, arrays) = if archive::is_archive(&whole) {
            let entries = archive::entries(&file, metadata.len()).map_err(wrong)?;
            let entry = |name: &str| {
                let found = entries.iter().find(|entry| entry.name == name);
                found.ok_or_else(|| {
                    wrong(format!(
                        "has no entry `{name}`; save the model again with `model.save(\"….keras\")`"
                    ))
                })
            };
            let config = read_config(entry(CONFIG)?, &file)
                .map_err(|problem| wrong(format!("has a {CONFIG} that {problem}")))?;
            let weights = entry(WEIGHTS)?;
            let arrays = hdf5::arrays(weights.section(&file))
                .map_err(|problem| wrong(format!("has a {WEIGHTS} that {problem}")))?;
            entry_of_weights = Some(weights.clone());
            state = entries.iter().find(|entry| entry.name == STATE).cloned();
            (FileKind::Keras, Some(config), arrays)
        } else if whole.bytes(0, 8).is_ok_and(|head| head == *b"\x89HDF\r\n\x1a\n") {
            (FileKind::WeightsH5, None, hdf5::arrays(whole).map_err(wrong)?)
        } else if safetensors::is_safetensors(&whole) {
            (FileKind::Safetensors, None, safetensors::arrays(whole).map_err(wrong)?)
        } else {
            return Err(wrong(safetensors::claim(&whole).unwrap_or_else(|| {
                "is neither a .keras archive nor a .weights.h5 nor a .safetensors file; give one of these"
                    .to_owned()
            })));
        };
        if arrays.keys().any(|name| name.starts_with("model_weights/")) {
            return Err(wrong(
                "is a model in the older HDF5 form; load it in Keras 3 and save it as .keras".to_owned(),
            ));
        }
        Ok(WeightsFile { path: path.to_owned(), file, kind, config, arrays, entry: entry_of_weights, state })
    }

    /// Compares the checksum of the weights with their bytes, where the file has one. It reads all of them: ask before
    /// they are used, and not where only their shapes are.
    pub fn verify(&self) -> Result<(), FileError> {
        let Some(entry) = &self.entry else { return Ok(()) };
        let mut sum = crc32fast::Hasher::new();
        let mut buffer = [0; AT_ONCE];
        let (mut place, mut left) = (entry.start, entry.length);
        while 0 < left {
            let now = usize::try_from(left).map_or(AT_ONCE, |left| left.min(AT_ONCE));
            let read = self.file.read_exact_at(&mut buffer[..now], place);
            read.map_err(|source| FileError::system("read", &self.path, source))?;
            sum.update(&buffer[..now]);
            place += now as u64;
            left -= now as u64;
        }
        if sum.finalize() != entry.checksum {
            return Err(FileError::file(&self.path, format!("has a {WEIGHTS} that {DAMAGED}")));
        }
        Ok(())
    }

    /// The state of the run that wrote the file, as JSON: only a checkpoint has one. Its checksum is compared, and it is neither
    /// longer nor deeper than any model's.
    pub fn state(&self) -> Result<Option<String>, FileError> {
        let Some(entry) = &self.state else { return Ok(None) };
        let text = read_text(entry, &self.file).and_then(|text| {
            json::require_modest(&text)?;
            String::from_utf8(text).map_err(|_| "is no text".to_owned())
        });
        let wrong = |problem| FileError::file(&self.path, format!("has a {STATE} that {problem}"));
        text.map(Some).map_err(wrong)
    }

    /// Where it stands.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What kind of file it is.
    pub fn kind(&self) -> FileKind {
        self.kind
    }

    /// The model's configuration, which only a `.keras` archive has.
    pub fn config(&self) -> Option<&Value> {
        self.config.as_ref()
    }

    /// Names of the arrays.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.arrays.keys().map(String::as_str)
    }

    /// Dimensions of an array, where there is one of this name.
    pub fn dims(&self, name: &str) -> Option<&[usize]> {
        self.arrays.get(name).map(|stored| stored.dims.as_slice())
    }

    /// Whether an array of 32-bit floats of these dimensions can be read; if not, why.
    pub fn check(&self, name: &str, weight: &str, dims: &[usize]) -> Result<(), FileError> {
        self.place(name, weight, dims).map(|_| ())
    }

    /// Reads an array of 32-bit floats straight into the caller's bytes. `weight` is its name in messages.
    ///
    /// # Panics
    /// Where `to` does not have the bytes of these dimensions.
    pub fn read(&self, name: &str, weight: &str, dims: &[usize], to: &mut [u8]) -> Result<(), FileError> {
        let place = self.place(name, weight, dims)?;
        let bytes = dims.iter().product::<usize>() * size_of::<f32>();
        assert_eq!(to.len(), bytes, "a weight is read into bytes of its own size");
        self.file.read_exact_at(to, place).map_err(|source| FileError::system("read", &self.path, source))
    }

    /// A single whole number, of 32 or 64 bits.
    pub fn integer(&self, name: &str) -> Result<i64, FileError> {
        let wrong = |problem: String| self.about(name, name, problem);
        let stored = self.arrays.get(name).ok_or_else(|| wrong("is missing".to_owned()))?;
        let StoredElement::Known(element @ (Element::I32 | Element::I64)) = stored.element else {
            return Err(wrong(format!("expected a whole number, got {}", stored.element.describe())));
        };
        let place = stored.place.map_err(|why| wrong(why.to_owned()))?;
        if stored.dims.iter().any(|size| *size != 1) {
            return Err(wrong(format!("expected a single number, got {:?}", stored.dims)));
        }
        let mut bytes = [0; 8];
        let width = if element == Element::I64 { 8 } else { 4 };
        let cannot = |source| FileError::system("read", &self.path, source);
        self.file.read_exact_at(&mut bytes[..width], place).map_err(cannot)?;
        Ok(match element {
            Element::I32 => i64::from(i32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])),
            Element::I64 | Element::F32 => i64::from_le_bytes(bytes),
        })
    }

    fn place(&self, name: &str, weight: &str, dims: &[usize]) -> Result<u64, FileError> {
        let wrong = |problem: String| Err(self.about(name, weight, problem));
        let Some(stored) = self.arrays.get(name) else {
            return wrong(
                "is missing; the file was cut short or belongs to another model: save it again with Keras"
                    .to_owned(),
            );
        };
        if stored.dims != dims {
            return wrong(format!(
                "expected the shape {dims:?}, got {:?}; the file belongs to another model",
                stored.dims
            ));
        }
        if stored.element != StoredElement::Known(Element::F32) {
            let got = stored.element.describe();
            return wrong(format!("expected float32, got {got}; save the model in float32"));
        }
        stored.place.or_else(|why| wrong(format!("{why}; save the model again with Keras")))
    }

    fn about(&self, place: &str, weight: &str, problem: String) -> FileError {
        FileError::Weight {
            path: self.path.clone(),
            weight: weight.to_owned(),
            place: place.to_owned(),
            problem,
        }
    }
}

fn read_config(entry: &Entry, file: &File) -> Result<Value, Problem> {
    json::parse(&read_text(entry, file)?)
}

/// The bytes of a text whose checksum is right.
fn read_text(entry: &Entry, file: &File) -> Result<Vec<u8>, Problem> {
    json::require_short(entry.length)?;
    let text = entry.section(file).bytes(0, entry.length)?;
    if crc32fast::hash(&text) != entry.checksum {
        return Err(DAMAGED.to_owned());
    }
    Ok(text)
}
