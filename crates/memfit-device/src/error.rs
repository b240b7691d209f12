//! What can keep a device from being opened or sealed: answers that a user can act on.

use std::fmt;
use std::path::PathBuf;

use memfit_ir::Bytes;

use crate::process::LimitedBy;

/// Why there is no device.
#[derive(Debug)]
pub enum DeviceError {
    /// The threads cannot be started.
    Threads {
        /// How many were wanted.
        count: usize,
        /// What the system said.
        reason: String,
    },
    /// The environment names vector instructions that this machine does not have.
    Vectors {
        /// Which, and those it has.
        reason: String,
    },
    /// The arena is larger than what this process may still take.
    NoRoom {
        /// The arena's size.
        arena: Bytes,
        /// What the process holds already.
        resident: Bytes,
        /// What it may hold in all.
        available: Bytes,
        /// Who says so.
        by: LimitedBy,
    },
    /// There is no room on the disk for what is to be copied out.
    Store {
        /// The folder that was named.
        folder: PathBuf,
        /// What is wanted there.
        bytes: Bytes,
        /// What the system said.
        reason: std::io::Error,
    },
    /// Another device than the CPU cannot be used, for a reason that its crate gives.
    Unusable(Box<dyn std::error::Error + Send + Sync>),
    /// A GPU has less memory left than the plan needs.
    DeviceFull {
        /// The arena's size.
        arena: Bytes,
        /// What is left.
        free: Bytes,
        /// What others hold.
        others: Bytes,
    },
    /// An allocator gave less memory than the arena needs.
    TooLittle {
        /// The arena's size.
        arena: Bytes,
        /// What there is.
        given: Bytes,
    },
    /// The system, or an allocator, refuses the arena.
    Refused {
        /// The arena's size.
        arena: Bytes,
        /// What was said.
        reason: std::io::Error,
    },
}

impl fmt::Display for DeviceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DeviceError::Threads { count, reason } => {
                write!(f, "cannot start {count} threads ({reason}); ask for fewer, at least 1")
            }
            DeviceError::Vectors { reason } => write!(f, "{reason}; name one of these, or unset it"),
            DeviceError::NoRoom { arena, resident, available, by } => write!(
                f,
                "the arena needs {arena} beside the {resident} this process holds, and {by} leaves it {available}; \
                 lower the budget to {available} or raise that limit"
            ),
            DeviceError::Store { folder, bytes, reason } => write!(
                f,
                "cannot take {bytes} in `{}` ({reason}); name a folder on a disk with room, or a smaller size",
                folder.display()
            ),
            DeviceError::Unusable(error) => write!(f, "{error}"),
            DeviceError::DeviceFull { arena, free, others } => write!(
                f,
                "the device has {free} left, the plan needs {arena}; other processes hold {others}; \
                 end them or lower the budget"
            ),
            DeviceError::Refused { arena, reason } => {
                write!(f, "an arena of {arena} is refused ({reason}); lower the budget")
            }
            DeviceError::TooLittle { arena, given } => write!(
                f,
                "the arena needs {arena} ({} bytes), and its allocator gave {given} ({} bytes); give that much, or lower the budget",
                arena.0, given.0
            ),
        }
    }
}

impl std::error::Error for DeviceError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            DeviceError::Refused { reason, .. } | DeviceError::Store { reason, .. } => Some(reason),
            DeviceError::Unusable(error) => Some(&**error),
            DeviceError::Threads { .. }
            | DeviceError::Vectors { .. }
            | DeviceError::NoRoom { .. }
            | DeviceError::TooLittle { .. }
            | DeviceError::DeviceFull { .. } => None,
        }
    }
}
