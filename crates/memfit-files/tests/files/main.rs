//! Files of models and weights: round trips, and hostile ones.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on says where it stopped")]

mod bad_input;
mod round_trip;
