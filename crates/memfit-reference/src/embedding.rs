//! Entries of a table by number, and their gradient.

use super::call::Call;

/// The entry of every id; NaN where there is none.
pub(crate) fn forward(call: &Call) -> Vec<f64> {
    let (table, width) = (call.input(1), call.last(1));
    let entry = |id: &f64| match entry(*id, table.len() / width) {
        Some(entry) => table[entry * width..(entry + 1) * width].to_vec(),
        None => vec![f64::NAN; width],
    };
    call.input(0).iter().flat_map(entry).collect()
}

/// `dy` of every id added up in its entry; without an entry it is dropped.
pub(crate) fn grad(call: &Call) -> Vec<f64> {
    let (dy, width) = (call.input(1), call.last(1));
    let mut dtable = vec![0.0; call.updates[0].len()];
    for (id, dy) in call.input(0).iter().zip(dy.chunks(width)) {
        if let Some(entry) = entry(*id, dtable.len() / width) {
            for (to, dy) in dtable[entry * width..].iter_mut().zip(dy) {
                *to += dy;
            }
        }
    }
    dtable
}

/// The entry that an id names. Floats are cut to whole numbers; NaN has no entry.
fn entry(id: f64, entries: usize) -> Option<usize> {
    let id = id.trunc();
    (0.0 <= id && id < entries as f64).then_some(id as usize)
}
