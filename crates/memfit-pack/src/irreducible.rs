//! When nothing fits: a few items that are to blame.

use crate::{Effort, Item, pack};

/// Items that do not fit together, though they do without any one of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Irreducible {
    /// Indices of the items in rising order.
    pub items: Vec<usize>,
    /// Whether it is certain that they do not fit; otherwise the effort found no packing.
    pub proven: bool,
}

/// A set of items that does not fit in `capacity` while every smaller part of it does, or nothing
/// if all items fit.
///
/// The effort is spent again for each set that is tried, which is about as many as there are items
/// in the answer times a logarithm.
///
/// ```
/// use memfit_pack::{Effort, Item, irreducible};
///
/// let items = [Item::new(0, 2, 30), Item::new(1, 3, 50), Item::new(1, 2, 40), Item::new(5, 9, 80)];
/// let blame = irreducible(&items, 85, Effort::nodes(1_000)).unwrap();
/// assert_eq!((blame.items, blame.proven), (vec![1, 2], true));
/// assert_eq!(irreducible(&items, 120, Effort::nodes(1_000)), None);
/// ```
pub fn irreducible(items: &[Item], capacity: u64, effort: Effort) -> Option<Irreducible> {
    let fits = |indices: &[usize]| {
        let chosen: Vec<Item> = indices.iter().map(|&index| items[index].clone()).collect();
        pack(&chosen, effort.until(capacity)).height <= capacity
    };
    let all: Vec<usize> = (0..items.len()).collect();
    if fits(&all) {
        return None;
    }
    let mut to_blame = drop_what_is_not_needed(live_at_worst(items, capacity).unwrap_or(all), &fits);
    to_blame.sort_unstable();
    let chosen: Vec<Item> = to_blame.iter().map(|&index| items[index].clone()).collect();
    let proven = pack(&chosen, effort.until(capacity)).bound > capacity;
    Some(Irreducible { items: to_blame, proven })
}

/// The items live at the fullest time, the largest last, if these alone exceed the capacity.
/// Items that rest at times are left out, which makes the set smaller but no less certain.
fn live_at_worst(items: &[Item], capacity: u64) -> Option<Vec<usize>> {
    let whole = || items.iter().enumerate().filter(|(_, item)| item.gaps.is_empty() && !item.is_nothing());
    let mut births: Vec<&Item> = whole().map(|(_, item)| item).collect();
    let mut deaths = births.clone();
    births.sort_by_key(|item| item.lower);
    deaths.sort_by_key(|item| item.upper);
    let mut deaths = deaths.into_iter().peekable();
    let (mut load, mut load_worst, mut worst) = (0_u64, 0, 0);
    for born in births {
        while let Some(dead) = deaths.next_if(|item| item.upper <= born.lower) {
            load -= dead.size;
        }
        load += born.size;
        if load > load_worst {
            (load_worst, worst) = (load, born.lower);
        }
    }
    if load_worst <= capacity {
        return None;
    }
    let live = whole().filter(|(_, item)| item.lower <= worst && worst < item.upper);
    let mut indices: Vec<usize> = live.map(|(index, _)| index).collect();
    indices.sort_by_key(|&index| (items[index].size, index));
    Some(indices)
}

/// Takes away as much as possible so that what is left still does not fit: first by halves, then
/// smaller and smaller runs, at last one by one.
fn drop_what_is_not_needed(mut indices: Vec<usize>, fits: &impl Fn(&[usize]) -> bool) -> Vec<usize> {
    let mut run = indices.len().div_ceil(2);
    loop {
        let mut begin = 0;
        while begin < indices.len() {
            let end = (begin + run).min(indices.len());
            let rest: Vec<usize> = [&indices[..begin], &indices[end..]].concat();
            if fits(&rest) {
                begin = end;
            } else {
                indices = rest;
            }
        }
        if run <= 1 {
            return indices;
        }
        run = run.div_ceil(2);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Seven that fragment: no time holds more than 4, yet no packing is lower than 5.
    fn fragmenting() -> Vec<Item> {
        let lives = [(1, 5, 2), (7, 8, 2), (6, 8, 2), (2, 3, 2), (3, 6, 1), (4, 7, 1), (5, 7, 1)];
        lives.map(|(lower, upper, size)| Item::new(lower, upper, size)).to_vec()
    }

    #[test]
    fn exactly_the_items_that_fragment_are_blamed() {
        let mut items = vec![Item::new(0, 1, 4), Item::new(9, 12, 3)];
        items.extend(fragmenting());
        items.push(Item::new(10, 11, 1));
        assert_eq!(crate::bound(&items), 4);
        let blame = irreducible(&items, 4, Effort::nodes(10_000));
        assert_eq!(blame, Some(Irreducible { items: (2..9).collect(), proven: true }));
        assert_eq!(irreducible(&items, 5, Effort::nodes(10_000)), None);
    }

    #[test]
    fn with_too_little_effort_nothing_is_proven() {
        let blame = irreducible(&fragmenting(), 4, Effort::GREEDY).unwrap();
        assert!(!blame.proven);
    }
}
