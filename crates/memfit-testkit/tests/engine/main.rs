//! The engine as a whole: graphs, plans and kernels against references. Tests that need a process of their own, those that travel to a GPU
//! and the rules of the house have binaries of their own.
#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test that cannot go on says where it stopped"
)]

mod augmentation;
mod checker;
mod corpus;
mod costs;
mod emulated;
mod fused;
mod fused_updates;
mod gradients;
mod keras_files;
mod metrics;
mod networks;
mod oracle;
mod pinned;
mod poison;
mod properties;
mod reference_device;
mod references;
mod regions;
mod rewrites;
mod signature;
mod text;
mod ways;
