//! Finding every array of an HDF5 file: a walk over its groups that trusts no number it reads.

use std::collections::{BTreeMap, HashSet};

use crate::section::{Cursor, Problem, Section};
use crate::weights::Stored;

use super::messages::Header;
use super::{NOWHERE, SIGNATURE};

/// Models are nested by hand, so a file that goes deeper is damaged.
const MOST_LEVELS: usize = 64;
/// More objects than any model has; a damaged file that says more is not followed.
const MOST_OBJECTS: usize = 4_000_000;
/// The most bytes of the messages of one header.
const LONGEST_HEADER: u64 = 1 << 20;
/// The most bytes of the names of one group; the names of all groups around it are held at once.
const LONGEST_NAMES: u64 = 4 << 20;
/// Bytes of all paths. Names may overlap in a file, so that a short one could describe long paths.
const MOST_PATH_BYTES: usize = 256 << 20;

/// Every array by its path, `layers/dense/vars/0`.
pub(crate) fn arrays(section: Section<'_>) -> Result<BTreeMap<String, Stored>, Problem> {
    let root = superblock(&section)?;
    let undescribed = section.length();
    let mut walk = Walk { section, seen: HashSet::new(), found: BTreeMap::new(), undescribed, path_bytes: 0 };
    walk.object(root, "", 0)?;
    Ok(walk.found)
}

/// The address of the root group.
fn superblock(section: &Section<'_>) -> Result<u64, Problem> {
    let head = section.bytes(0, section.length().min(100))?;
    let mut cursor = Cursor::new(&head);
    if cursor.take(8)? != SIGNATURE {
        return Err("is no HDF5 file".to_owned());
    }
    let version = cursor.number(1)?;
    if 1 < version {
        return Err(format!(
            "has a superblock of version {version} (libver=\"latest\"); save it again with Keras, which writes version 0"
        ));
    }
    cursor.skip(4)?;
    if (cursor.number(1)?, cursor.number(1)?) != (8, 8) {
        return Err("has addresses of other than 8 bytes; save it again with Keras".to_owned());
    }
    cursor.skip(if version == 0 { 9 } else { 13 })?;
    let base = cursor.number(8)?;
    if base != 0 {
        return Err("does not begin with its superblock; save it again with Keras".to_owned());
    }
    cursor.skip(8)?;
    let end = cursor.number(8)?;
    if section.length() < end {
        return Err(format!("is cut off: it should have {end} bytes and has {}", section.length()));
    }
    cursor.skip(8 + 8)?;
    cursor.number(8)
}

struct Walk<'a> {
    section: Section<'a>,
    /// Headers that were visited, so that no circle is followed.
    seen: HashSet<u64>,
    found: BTreeMap<String, Stored>,
    /// Bytes of the file that describe nothing yet. None describes two things, so that reading comes to an end.
    undescribed: u64,
    /// Bytes of the paths of what was found.
    path_bytes: usize,
}

impl Walk<'_> {
    /// Bytes that describe something.
    fn description(&mut self, address: u64, bytes: u64) -> Result<Vec<u8>, Problem> {
        let left = self.undescribed.checked_sub(bytes);
        self.undescribed = left.ok_or("describes more than it holds".to_owned())?;
        self.section.bytes(address, bytes)
    }

    fn object(&mut self, address: u64, path: &str, level: usize) -> Result<(), Problem> {
        if MOST_LEVELS < level || MOST_OBJECTS < self.seen.len() {
            return Err(format!("is damaged at `{path}`: it goes on without end"));
        }
        if !self.seen.insert(address) {
            return Err(format!("is damaged at `{path}`: it leads in a circle"));
        }
        let header = self.header(address).map_err(|problem| within(path, problem))?;
        match header.group {
            Some((tree, heap)) => self.group(tree, heap, path, level),
            None => {
                if let Some(stored) = header.stored(&self.section) {
                    self.path_bytes += path.len();
                    if MOST_PATH_BYTES < self.path_bytes {
                        return Err("has names that are too long".to_owned());
                    }
                    self.found.insert(path.to_owned(), stored);
                }
                Ok(())
            }
        }
    }

    fn header(&mut self, address: u64) -> Result<Header, Problem> {
        let prefix = self.description(address, 16)?;
        let mut cursor = Cursor::new(&prefix);
        if cursor.number(1)? != 1 {
            return Err(
                "has no header of version 1 (libver=\"latest\"?); save it again with Keras".to_owned()
            );
        }
        cursor.skip(1)?;
        let mut left = cursor.small(2)?;
        cursor.skip(4)?;
        let mut header = Header::default();
        let mut parts = vec![(address + 16, cursor.number(4)?)];
        let mut total: u64 = 0;
        while let Some((start, length)) = parts.pop() {
            total = total.saturating_add(length);
            if LONGEST_HEADER < total {
                return Err("has a header that is too long".to_owned());
            }
            let bytes = self.description(start, length)?;
            let mut cursor = Cursor::new(&bytes);
            while 0 < left && 8 <= cursor.rest().len() {
                let (kind, size, flags) = (cursor.number(2)?, cursor.small(2)?, cursor.number(1)?);
                cursor.skip(3)?;
                let body = start + (bytes.len() - cursor.rest().len()) as u64;
                header.add(kind, flags, cursor.take(size)?, body)?;
                left -= 1;
            }
            parts.append(&mut header.continued);
        }
        Ok(header)
    }

    fn group(&mut self, tree: u64, heap: u64, path: &str, level: usize) -> Result<(), Problem> {
        let names = self.heap(heap).map_err(|problem| within(path, problem))?;
        let mut nodes = Vec::new();
        self.leaves(tree, None, &mut nodes).map_err(|problem| within(path, problem))?;
        for node in nodes {
            let entries = self.symbols(node).map_err(|problem| within(path, problem))?;
            for (name, address) in entries {
                let name = name_at(&names, name).map_err(|problem| within(path, problem))?;
                let inner = if path.is_empty() { name } else { format!("{path}/{name}") };
                // A soft link has no header: Keras follows none either.
                if address != NOWHERE {
                    self.object(address, &inner, level + 1)?;
                }
            }
        }
        Ok(())
    }

    /// The names of a group, one after the other.
    fn heap(&mut self, address: u64) -> Result<Vec<u8>, Problem> {
        let bytes = self.description(address, 32)?;
        let mut cursor = Cursor::new(&bytes);
        if cursor.take(4)? != b"HEAP" {
            return Err("has no names".to_owned());
        }
        cursor.skip(4)?;
        let length = cursor.number(8)?;
        cursor.skip(8)?;
        if LONGEST_NAMES < length {
            return Err(format!("has {length} bytes of names in one group, over {LONGEST_NAMES}"));
        }
        self.description(cursor.number(8)?, length)
    }

    /// Addresses of the symbol nodes below a node of the tree, which stands one level below its parent.
    fn leaves(&mut self, address: u64, expected: Option<u64>, nodes: &mut Vec<u64>) -> Result<(), Problem> {
        let bytes = self.description(address, 24)?;
        let mut cursor = Cursor::new(&bytes);
        if cursor.take(4)? != b"TREE" || cursor.number(1)? != 0 {
            return Err("has no tree of names".to_owned());
        }
        let (level, count) = (cursor.number(1)?, cursor.number(2)?);
        if expected.is_some_and(|expected| expected != level) || MOST_OBJECTS < nodes.len() {
            return Err("has a tree that does not end".to_owned());
        }
        let children = self.description(address + 24, (2 * count + 1) * 8)?;
        let mut cursor = Cursor::new(&children);
        for _ in 0..count {
            cursor.skip(8)?;
            let child = cursor.number(8)?;
            // Each is read once: a tree that meets itself would grow without end.
            if !self.seen.insert(child) {
                return Err("has a tree that leads in a circle".to_owned());
            }
            if level == 0 {
                nodes.push(child);
            } else {
                self.leaves(child, Some(level - 1), nodes)?;
            }
        }
        Ok(())
    }

    /// Names (as offsets into the heap) and addresses of a symbol node.
    fn symbols(&mut self, address: u64) -> Result<Vec<(u64, u64)>, Problem> {
        let bytes = self.description(address, 8)?;
        let mut cursor = Cursor::new(&bytes);
        if cursor.take(4)? != b"SNOD" {
            return Err("has no symbols where its tree says".to_owned());
        }
        cursor.skip(2)?;
        let count = cursor.number(2)?;
        let bytes = self.description(address + 8, count * 40)?;
        let mut cursor = Cursor::new(&bytes);
        (0..count)
            .map(|_| {
                let (name, header) = (cursor.number(8)?, cursor.number(8)?);
                let soft_link = cursor.number(4)? == 2;
                cursor.skip(20)?;
                Ok((name, if soft_link { NOWHERE } else { header }))
            })
            .collect()
    }
}

fn name_at(names: &[u8], offset: u64) -> Result<String, Problem> {
    let text = usize::try_from(offset).ok().and_then(|offset| names.get(offset..));
    let text = text.and_then(|text| text.split(|byte| *byte == 0).next()).unwrap_or_default();
    match std::str::from_utf8(text) {
        Ok(name) if !name.is_empty() && !name.contains('/') => Ok(name.to_owned()),
        Ok(_) | Err(_) => Err("has a damaged name".to_owned()),
    }
}

fn within(path: &str, problem: Problem) -> Problem {
    if path.is_empty() { problem } else { format!("is damaged at `{path}`: it {problem}") }
}
