//! The part of HDF5 that h5py writes for Keras: groups as symbol tables, contiguous arrays.

mod messages;
mod read;
mod write;

pub(crate) use read::arrays;
pub(crate) use write::GroupTree;

const SIGNATURE: [u8; 8] = *b"\x89HDF\r\n\x1a\n";
/// An address of nothing.
const NOWHERE: u64 = u64::MAX;

/// Kinds of messages in an object's header.
mod message {
    pub(super) const DATASPACE: u64 = 0x01;
    pub(super) const LINK_INFO: u64 = 0x02;
    pub(super) const DATATYPE: u64 = 0x03;
    pub(super) const FILL_VALUE: u64 = 0x05;
    pub(super) const LINK: u64 = 0x06;
    pub(super) const EXTERNAL: u64 = 0x07;
    pub(super) const LAYOUT: u64 = 0x08;
    pub(super) const FILTERS: u64 = 0x0b;
    pub(super) const CONTINUATION: u64 = 0x10;
    pub(super) const SYMBOL_TABLE: u64 = 0x11;
}
