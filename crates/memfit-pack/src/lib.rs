//! Placing lifetimes at offsets: what lives at the same time must not share a byte.
//!
//! An [`Item`] has a half-open life, a size and an alignment. [`pack`] gives every item an offset so that
//! everything together is as low as it can find, [`bound`] says how low it could be at best, and [`validate`]
//! checks a packing without knowing how it was made. [`irreducible`] names the items to blame when a capacity
//! is too small, and [`csv`] reads and writes the files of the minimalloc benchmarks. This crate knows
//! nothing of tensors or graphs, reads no clock and prints nothing.
//!
//! Packing goes from quick to thorough and stops as soon as the bound or the goal is met: parts that never
//! meet are packed apart; a portfolio of greedy placements gives an answer in milliseconds; changing the
//! order of the best kind of these lowers it a little; and a search over packings from the bottom up,
//! restarted often and led by where it got stuck before, lowers it much, or proves that nothing is lower.
//! What the search takes of the heap is known before it begins ([`bytes_of_search`]), so that it can be
//! charged to a budget.
//!
//! ```
//! use memfit_pack::{Effort, Item, pack, validate};
//!
//! let items = [
//!     Item::new(0, 4, 100).aligned(64),
//!     Item::new(1, 3, 50).aligned(64),
//!     Item::new(3, 6, 60).aligned(64),
//! ];
//! let packing = pack(&items, Effort::nodes(1_000));
//! assert_eq!(packing.height, 164); // the second and the third share offset 0, the first is at 64
//! assert!(packing.bound <= packing.height);
//! assert_eq!(validate(&items, &packing), Ok(()));
//! ```

mod bound;
pub mod csv;
mod effort;
mod greedy;
mod instance;
mod irreducible;
mod item;
mod pack;
mod packing;
mod random;
mod range_max;
mod search;
mod validate;

pub use bound::bound;
pub use effort::Effort;
pub use irreducible::{Irreducible, irreducible};
pub use item::{Gap, Item, Window};
pub use pack::{bytes_of_search, pack, pack_while};
pub use packing::Packing;
pub use validate::{Overlap, validate};
