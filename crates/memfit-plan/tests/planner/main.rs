//! The planner without a device: plans and refusals.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on says where it stopped")]

mod plans;
mod refusals;
