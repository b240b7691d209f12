//! The orders in which the greedy placements take the blocks.

use std::cmp::Reverse;

use crate::instance::Instance;

/// What comes first. Ties go to the larger, then to the earlier, then to the lower index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// The longest life: what encloses others comes before what it encloses, as in a stack.
    Length,
    /// The largest size.
    Size,
    /// The largest size times life.
    Area,
    /// The earliest birth; among these the latest death.
    Birth,
    /// The latest death; among these the earliest birth.
    Death,
    /// The fullest section, as if what has little room had to choose first.
    Load,
}

impl Order {
    pub(crate) const ALL: [Order; 6] =
        [Order::Length, Order::Area, Order::Size, Order::Load, Order::Birth, Order::Death];

    /// The indices of all blocks in this order.
    pub(crate) fn of(self, instance: &Instance) -> Vec<u32> {
        let load_of = if self == Order::Load { load_most(instance) } else { Vec::new() };
        let sections = instance.sections as u64;
        let blocks = &instance.blocks;
        let key = |index: u32| {
            let block = &blocks[index as usize];
            let area = u128::from(block.size) * u128::from(block.length());
            let first = match self {
                Order::Length => u128::from(block.length()),
                Order::Size => u128::from(block.size),
                Order::Area => area,
                Order::Birth => u128::from(sections - u64::from(block.first)),
                Order::Death => u128::from(block.end),
                Order::Load => u128::from(load_of[index as usize]),
            };
            (Reverse(first), Reverse(area), Reverse(block.size), block.first, index)
        };
        let mut order: Vec<u32> = (0..blocks.len() as u32).collect();
        order.sort_by_cached_key(|&index| key(index));
        order
    }
}

/// The load of the fullest section of each block.
fn load_most(instance: &Instance) -> Vec<u64> {
    let mut fullest = crate::range_max::RangeMax::new(instance.sections);
    for (section, load) in instance.loads().into_iter().enumerate() {
        fullest.raise(section, section + 1, load);
    }
    let load = |block: &crate::instance::Block| fullest.largest(block.first as usize, block.end as usize);
    instance.blocks.iter().map(load).collect()
}
