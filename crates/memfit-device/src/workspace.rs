//! Workspace as data: the line above what a kernel needs at any number of rows.

/// A line (fixed part and gradient) that is nowhere below `need` for up to `most` rows, and lowest at an
/// ordinary batch. The need never falls as rows are added.
pub fn line_above(need: impl Fn(usize) -> u64, ordinary: usize, most: usize) -> (u64, u64) {
    if need(1) == need(most) {
        return (need(1), 0);
    }
    let mut samples = vec![(0usize, 0)];
    while let Some((rows, _)) = samples.last().copied().filter(|(rows, _)| *rows < most) {
        let next = (rows + (rows / 8).max(1)).min(most);
        samples.push((next, need(next)));
    }
    // Between two samples the need may be that of the later one already.
    let steps = samples.windows(2).map(|pair| (pair[0].0 as u64 + 1, pair[1].1));
    let per_row = steps.clone().map(|(rows, bytes)| bytes.div_ceil(rows)).chain([0]);
    let lines = per_row.map(|per_row| {
        let missing = steps.clone().map(|(rows, bytes)| bytes.saturating_sub(per_row * rows));
        (missing.max().unwrap_or(0), per_row)
    });
    lines
        .min_by_key(|(fixed, per_row)| fixed + per_row * ordinary as u64)
        .expect("there is at least a level line")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A batch of ordinary size, and more rows than any batch has.
    const ROWS_ORDINARY: usize = 256;
    const ROWS_MOST: usize = 1 << 22;

    /// The line above a need at an ordinary batch, which must cover every smaller and larger one.
    fn check(need: impl Fn(usize) -> u64) -> u64 {
        let (fixed, per_row) = line_above(&need, ROWS_ORDINARY, ROWS_MOST);
        let line = |rows: usize| fixed + per_row * rows as u64;
        for rows in (1..3000).chain([5000, 77_777, 1 << 20, ROWS_MOST]) {
            assert!(need(rows) <= line(rows), "{rows} rows need {}, not {}", need(rows), line(rows));
        }
        line(ROWS_ORDINARY)
    }

    #[test]
    fn a_line_lies_above_every_need_and_close_at_an_ordinary_batch() {
        for (ordinary, most) in [
            (check(|_| 0), 0),
            (check(|_| 4096), 4096),
            (check(|rows| 8 * rows as u64), 9 * 256),
            (check(|rows| 100 + 8 * rows as u64), 100 + 10 * 256),
            (check(|rows| (64 * rows as u64).min(1000)), 1000),
            (check(|rows| (rows as u64 / 1024).min(8) << 16), 9 << 14),
        ] {
            assert!(ordinary <= most, "{ordinary}, not {most}");
        }
    }
}
