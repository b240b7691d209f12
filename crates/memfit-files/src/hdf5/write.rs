//! Laying an HDF5 file out and writing it in one pass: first what describes it, then every array as one
//! contiguous block.
//!
//! ```text
//! superblock │ groups: header, tree, symbols, names │ headers of the arrays │ arrays
//! ```

use std::io::{self, Write};

use crate::archive::put;
use crate::{Array, Element};

use super::{NOWHERE, SIGNATURE, message};

const SUPERBLOCK_BYTES: u64 = 96;
/// Prefix, and one message with the addresses of tree and names.
const GROUP_HEADER_BYTES: u64 = 16 + 8 + 16;
/// Half of the most symbols in a node, and half of the most children of a tree's node, as h5py has them.
const LEAF_K: usize = 4;
const TREE_K: usize = 16;
const SYMBOL_BYTES: usize = 40;
const SYMBOLS_BYTES: u64 = (8 + 2 * LEAF_K * SYMBOL_BYTES) as u64;
const TREE_NODE_BYTES: u64 = (24 + (4 * TREE_K + 1) * 8) as u64;
const HEAP_BYTES: u64 = 32;
/// Says that a heap has no free block.
const HEAP_IS_FULL: u32 = 1;
/// Arrays begin on a cache line.
const ALIGNMENT: u64 = 64;

/// Groups and arrays with their addresses.
pub(crate) struct GroupTree {
    /// The root first, and every group before those within it.
    groups: Vec<Group>,
    /// Address of each array's header.
    headers: Vec<u64>,
    /// Address of each array's bytes.
    places: Vec<u64>,
    bytes: u64,
}

#[derive(Default)]
struct Group {
    /// Sorted by name, as the tree must be.
    children: Vec<(String, Child)>,
    address: u64,
    heap: u64,
}

#[derive(Clone, Copy)]
enum Child {
    Group(usize),
    Array(usize),
}

impl GroupTree {
    /// Lays out arrays whose names are paths, `layers/dense/vars/0`.
    pub(crate) fn new(arrays: &[Array]) -> GroupTree {
        let mut tree = GroupTree {
            groups: vec![Group::default()],
            headers: Vec::with_capacity(arrays.len()),
            places: Vec::with_capacity(arrays.len()),
            bytes: 0,
        };
        for (index, array) in arrays.iter().enumerate() {
            tree.insert(&array.name, index);
        }
        let mut end = SUPERBLOCK_BYTES;
        for group in &mut tree.groups {
            group.children.sort_by(|a, b| a.0.cmp(&b.0));
            group.address = end;
            let nodes: usize = group.levels().iter().sum();
            group.heap =
                end + GROUP_HEADER_BYTES + nodes as u64 * TREE_NODE_BYTES + group.leaves() * SYMBOLS_BYTES;
            end = group.heap + HEAP_BYTES + group.names_bytes();
        }
        for array in arrays {
            tree.headers.push(end);
            end += array_header(array, 0).len() as u64;
        }
        for array in arrays {
            end = end.next_multiple_of(ALIGNMENT);
            tree.places.push(end);
            end += array.bytes();
        }
        tree.bytes = end;
        tree
    }

    /// Bytes of the whole file.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The most bytes that are buffered at once while writing.
    pub(crate) fn bytes_at_once(&self) -> u64 {
        self.groups
            .iter()
            .map(|group| group.heap + HEAP_BYTES + group.names_bytes() - group.address)
            .max()
            .unwrap_or(0)
    }

    /// Writes the file; `body` writes the bytes of one array.
    pub(crate) fn write(
        &self,
        arrays: &[Array],
        to: &mut dyn Write,
        body: &mut dyn FnMut(usize, &mut dyn Write) -> io::Result<()>,
    ) -> io::Result<()> {
        let mut position = 0;
        let mut put_all = |bytes: &[u8], to: &mut dyn Write| {
            position += bytes.len() as u64;
            to.write_all(bytes)
        };
        put_all(&self.superblock(), to)?;
        for group in &self.groups {
            put_all(&self.group(group), to)?;
        }
        for (array, place) in arrays.iter().zip(&self.places) {
            put_all(&array_header(array, *place), to)?;
        }
        for (index, (array, place)) in arrays.iter().zip(&self.places).enumerate() {
            let gap = usize::try_from(place - position).expect("gaps are below the alignment");
            to.write_all(&[0; ALIGNMENT as usize][..gap])?;
            body(index, to)?;
            position = place + array.bytes();
        }
        Ok(())
    }

    fn insert(&mut self, path: &str, array: usize) {
        let mut group = 0;
        let mut parts = path.split('/').peekable();
        while let Some(part) = parts.next() {
            if parts.peek().is_none() {
                self.groups[group].children.push((part.to_owned(), Child::Array(array)));
                return;
            }
            // Neighbours of a path are inserted one after the other.
            let known = self.groups[group].children.iter().rev().find_map(|(name, child)| match child {
                Child::Group(inner) if name == part => Some(*inner),
                Child::Group(_) | Child::Array(_) => None,
            });
            group = known.unwrap_or_else(|| {
                let inner = self.groups.len();
                self.groups[group].children.push((part.to_owned(), Child::Group(inner)));
                self.groups.push(Group::default());
                inner
            });
        }
    }

    fn superblock(&self) -> Vec<u8> {
        let root = &self.groups[0];
        let mut block = SIGNATURE.to_vec();
        put(&mut block, 0u32, 5);
        put(&mut block, 8u32, 1);
        put(&mut block, 8u32, 1);
        put(&mut block, 0u32, 1);
        put(&mut block, LEAF_K as u64, 2);
        put(&mut block, TREE_K as u64, 2);
        put(&mut block, 0u32, 4);
        put(&mut block, 0u32, 8);
        put(&mut block, NOWHERE, 8);
        put(&mut block, self.bytes, 8);
        put(&mut block, NOWHERE, 8);
        self.symbol(&mut block, 0, root.address, Some(root));
        block
    }

    /// An entry of a symbol table: where the name stands, where the object, and for a group its tree and names again.
    fn symbol(&self, block: &mut Vec<u8>, name: u64, address: u64, group: Option<&Group>) {
        put(block, name, 8);
        put(block, address, 8);
        put(block, u32::from(group.is_some()), 8);
        put(block, group.map_or(0, Group::tree), 8);
        put(block, group.map_or(0, |group| group.heap), 8);
    }

    fn group(&self, group: &Group) -> Vec<u8> {
        let mut block = Vec::new();
        header_prefix(&mut block, 1, 24);
        message_prefix(&mut block, message::SYMBOL_TABLE, 16);
        put(&mut block, group.tree(), 8);
        put(&mut block, group.heap, 8);
        let offsets = group.name_offsets();
        self.tree_nodes(group, &offsets, &mut block);
        for symbols in group.children.chunks(2 * LEAF_K).zip(offsets.chunks(2 * LEAF_K)) {
            let start = block.len();
            block.extend(b"SNOD");
            put(&mut block, 1u32, 2);
            put(&mut block, symbols.0.len() as u64, 2);
            for ((_, child), offset) in symbols.0.iter().zip(symbols.1) {
                match *child {
                    Child::Group(inner) => {
                        let inner = &self.groups[inner];
                        self.symbol(&mut block, *offset, inner.address, Some(inner));
                    }
                    Child::Array(index) => self.symbol(&mut block, *offset, self.headers[index], None),
                }
            }
            block.resize(start + SYMBOLS_BYTES as usize, 0);
        }
        block.extend(b"HEAP");
        put(&mut block, 0u32, 4);
        put(&mut block, group.names_bytes(), 8);
        put(&mut block, HEAP_IS_FULL, 8);
        put(&mut block, group.heap + HEAP_BYTES, 8);
        put(&mut block, 0u32, 8);
        for (name, _) in &group.children {
            block.extend(name.as_bytes());
            put(&mut block, 0u32, padded(name) as usize - name.len());
        }
        block
    }

    /// The tree over the symbol nodes: its root first, its lowest level last.
    fn tree_nodes(&self, group: &Group, offsets: &[u64], block: &mut Vec<u8>) {
        let levels = group.levels();
        let mut first = group.tree();
        for (depth, count) in levels.iter().enumerate() {
            let height = levels.len() - 1 - depth;
            let below = first + *count as u64 * TREE_NODE_BYTES;
            let children = levels.get(depth + 1).map_or(group.leaves() as usize, |count| *count);
            let child_bytes = if height == 0 { SYMBOLS_BYTES } else { TREE_NODE_BYTES };
            // Symbols below one child of this level.
            let span = 2 * LEAF_K * (2 * TREE_K).pow(height as u32);
            let last_name = |child: usize| match (child * span).min(offsets.len()) {
                0 => 0,
                names => offsets[names - 1],
            };
            for node in 0..*count {
                let start = block.len();
                let own = node * 2 * TREE_K..((node + 1) * 2 * TREE_K).min(children);
                let sibling = |index: Option<usize>| match index {
                    Some(index) if index < *count => first + index as u64 * TREE_NODE_BYTES,
                    Some(_) | None => NOWHERE,
                };
                block.extend(b"TREE");
                put(block, 0u32, 1);
                put(block, height as u64, 1);
                put(block, own.len() as u64, 2);
                put(block, sibling(node.checked_sub(1)), 8);
                put(block, sibling(Some(node + 1)), 8);
                put(block, last_name(own.start), 8);
                for child in own {
                    put(block, below + child as u64 * child_bytes, 8);
                    put(block, last_name(child + 1), 8);
                }
                block.resize(start + TREE_NODE_BYTES as usize, 0);
            }
            first = below;
        }
    }
}

impl Group {
    fn tree(&self) -> u64 {
        self.address + GROUP_HEADER_BYTES
    }

    /// How many symbol nodes.
    fn leaves(&self) -> u64 {
        self.children.len().div_ceil(2 * LEAF_K) as u64
    }

    /// How many nodes the tree has on each level, the root's first.
    fn levels(&self) -> Vec<usize> {
        let mut levels = vec![(self.leaves() as usize).div_ceil(2 * TREE_K).max(1)];
        while 1 < levels[0] {
            levels.insert(0, levels[0].div_ceil(2 * TREE_K));
        }
        levels
    }

    /// Names follow the empty one, each padded to a multiple of 8.
    fn name_offsets(&self) -> Vec<u64> {
        let starts = self.children.iter().scan(8, |end, (name, _)| {
            let start = *end;
            *end += padded(name);
            Some(start)
        });
        starts.collect()
    }

    fn names_bytes(&self) -> u64 {
        8 + self.children.iter().map(|(name, _)| padded(name)).sum::<u64>()
    }
}

fn padded(name: &str) -> u64 {
    (name.len() as u64 + 1).next_multiple_of(8)
}

fn header_prefix(block: &mut Vec<u8>, messages: u32, bytes: u64) {
    put(block, 1u32, 2);
    put(block, messages, 2);
    put(block, 1u32, 4);
    put(block, bytes, 8);
}

fn message_prefix(block: &mut Vec<u8>, kind: u64, bytes: u64) {
    put(block, kind, 2);
    put(block, bytes, 2);
    put(block, 0u32, 4);
}

/// The header of an array whose bytes begin at `place`.
fn array_header(array: &Array, place: u64) -> Vec<u8> {
    let mut messages = Vec::new();
    let axes = array.dims.len() as u64;
    message_prefix(&mut messages, message::DATASPACE, 8 + 8 * axes);
    put(&mut messages, 1u32, 1);
    put(&mut messages, axes, 7);
    for size in &array.dims {
        put(&mut messages, *size as u64, 8);
    }
    let integer = |messages: &mut Vec<u8>, bytes: u32| {
        message_prefix(messages, message::DATATYPE, 16);
        // Version 1, class 0; little-endian, with a sign; precision in bits.
        put(messages, 0x0810u32, 4);
        put(messages, bytes, 4);
        put(messages, u64::from(bytes * 8) << 16, 8);
    };
    match array.element {
        Element::I32 => integer(&mut messages, 4),
        Element::I64 => integer(&mut messages, 8),
        Element::F32 => {
            message_prefix(&mut messages, message::DATATYPE, 24);
            // Version 1, class 1; little-endian, mantissa without its first bit, sign at bit 31.
            put(&mut messages, 0x001f_2011u32, 4);
            put(&mut messages, 4u32, 4);
            // 32 bits from bit 0; exponent: 8 bits from bit 23; mantissa: 23 bits from bit 0; bias.
            put(&mut messages, 32u32 << 16, 4);
            put(&mut messages, 0x1700_0817u32, 4);
            put(&mut messages, 127u32, 8);
        }
    }
    message_prefix(&mut messages, message::FILL_VALUE, 8);
    // Version 2; space taken late, written where set; defined, and empty.
    put(&mut messages, 0x0102_0202u32, 8);
    message_prefix(&mut messages, message::LAYOUT, 24);
    // Version 3, class 1: contiguous.
    put(&mut messages, 0x0103u32, 2);
    put(&mut messages, place, 8);
    put(&mut messages, array.bytes(), 8);
    put(&mut messages, 0u32, 6);
    let mut header = Vec::new();
    header_prefix(&mut header, 4, messages.len() as u64);
    header.append(&mut messages);
    header
}
