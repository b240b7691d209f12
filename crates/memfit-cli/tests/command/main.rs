//! The command as its users run it.
#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test that cannot go on says where it stopped"
)]

mod harness;

mod answers;
mod bad_input;
mod budgets;
mod curves;
mod devices;
mod edges;
mod guard;
mod huge;
mod keras;
mod killed;
mod layers;
mod mutated;
mod options;
mod precision;
mod readme;
mod region;
mod replay;
mod threads;
mod train;
mod validation;
