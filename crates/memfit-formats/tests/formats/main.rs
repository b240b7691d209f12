//! Keras configurations: what they become, and what is refused.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on says where it stopped")]

mod attention;
mod errors;
mod layers;
mod models;
mod operations;
mod precision;
mod references;
