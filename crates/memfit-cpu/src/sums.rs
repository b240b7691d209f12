//! Sums in double precision: over everything, and over the columns of a matrix. Parts are cut by shape and
//! added in order, so that the bits do not depend on the number of threads.

use std::ops::Range;

use super::lanes::{LANES_MAX, Lanes};
use super::tasks::{self, Cut, Tasks};
use super::threads::{Shared, Threads};

/// Independent running sums, so that one addition need not wait for the last.
const LANES: usize = 16;
/// Columns that are summed side by side; where there are fewer, several rows are taken as one.
pub(crate) const COLUMNS: usize = 256;
/// The most columns of a task: their sums stay near, and those of two kinds lie half a page apart, since a
/// processor takes addresses that agree within a page for the same.
const SPAN: usize = 1280;
/// The most tasks a sum over columns is cut in.
const TASKS: usize = 16;
/// Vectors of a row that are added in single precision before totals in double precision take them.
const GROUP: usize = 4;
/// Elements that are worth a task.
const TASK: usize = 1 << 14;

/// The sum of a term of every value.
#[inline(always)]
pub(crate) fn sum(values: &[f32], term: impl Fn(f64) -> f64) -> f64 {
    let (whole, rest) = values.as_chunks::<LANES>();
    let mut lanes = [0.0; LANES];
    for chunk in whole {
        for (lane, value) in lanes.iter_mut().zip(chunk) {
            *lane += term(f64::from(*value));
        }
    }
    rest.iter().fold(total(lanes), |sum, value| sum + term(f64::from(*value)))
}

/// The sum of a term of every pair of values.
#[inline(always)]
pub(crate) fn sum_pairs(a: &[f32], b: &[f32], term: impl Fn(f64, f64) -> f64) -> f64 {
    let ((whole_a, rest_a), (whole_b, rest_b)) = (a.as_chunks::<LANES>(), b.as_chunks::<LANES>());
    let mut lanes = [0.0; LANES];
    for (chunk_a, chunk_b) in whole_a.iter().zip(whole_b) {
        for (lane, (a, b)) in lanes.iter_mut().zip(chunk_a.iter().zip(chunk_b)) {
            *lane += term(f64::from(*a), f64::from(*b));
        }
    }
    let rest = rest_a.iter().zip(rest_b);
    rest.fold(total(lanes), |sum, (a, b)| sum + term(f64::from(*a), f64::from(*b)))
}

/// The sum of all lanes, pairwise.
#[inline(always)]
pub(crate) fn total(mut lanes: [f64; LANES]) -> f64 {
    let mut half = LANES / 2;
    while 0 < half {
        for lane in 0..half {
            lanes[lane] += lanes[lane + half];
        }
        half /= 2;
    }
    lanes[0]
}

/// Doubles of workspace that [`sum_parts`] needs.
pub(crate) const PARTS_WORKSPACE: usize = Cut::PARTS;

/// Work on a range of items that yields a sum.
pub(crate) trait Part: Sync {
    /// Works on a range; `#[inline(always)]`.
    fn part(&self, range: Range<usize>) -> f64;
}

/// Works on all items, of `elements` elements each, and adds what the parts yield.
pub(crate) fn sum_parts(
    threads: &Threads,
    items: usize,
    elements: usize,
    work: &impl Part,
    workspace: &mut [f64],
) -> f64 {
    let cut = Cut::parts(items, elements);
    let partials = &mut workspace[..cut.count()];
    tasks::run(threads, cut.count(), &Parts { cut, work, partials: Shared::new(partials) });
    partials.iter().sum()
}

struct Parts<'a, W> {
    cut: Cut,
    work: &'a W,
    partials: Shared<'a, f64>,
}

impl<W: Part> Tasks for Parts<'_, W> {
    #[inline(always)]
    fn task<L: Lanes>(&self, task: usize, _worker: usize) {
        let sum = self.work.part(self.cut.range(task));
        // SAFETY: every task has a partial sum of its own.
        let partial = unsafe { self.partials.slice(task..task + 1) };
        partial[0] = sum;
    }
}

/// Elements whose columns repeat: `columns` of them, or several periods side by side where they are few.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Columns {
    /// Elements in all.
    pub(crate) elements: usize,
    /// Columns to sum to.
    pub(crate) columns: usize,
    /// Columns that are summed apart: a multiple of `columns`.
    pub(crate) width: usize,
}

/// What is summed, `N` sums for each column.
pub(crate) trait Terms<const N: usize>: Sync {
    /// Rows whose terms are added in single precision before totals in double precision take them: more than
    /// one where terms are rounded products, so that a few more roundings cost no digits.
    const ROWS: usize = 1;

    /// The terms of `count` neighbouring elements, at most a vector of them, the first in this row and column
    /// of the width; zeros after them. `#[inline(always)]`.
    ///
    /// # Safety
    /// The elements lie inside what is summed.
    unsafe fn terms<L: Lanes>(&self, row: usize, element: usize, column: usize, count: usize) -> [L; N];

    /// Whether several rows are added up in registers, one vector of columns after the other: the fastest for
    /// one operand, where [`Terms::prefetch`] asks for it in time. Several operands are read row by row.
    const IN_REGISTERS: bool = false;

    /// Prefetches the cache line of an element that is summed soon, or lies past the last;
    /// `#[inline(always)]`.
    fn prefetch(&self, _element: usize) {}
}

impl Columns {
    /// Sums of `elements` elements in `columns` columns, a few columns side by side.
    pub(crate) fn folded(elements: usize, columns: usize) -> Columns {
        Columns { elements, columns, width: Columns::width(columns) }
    }

    /// Sums of `elements` elements in `columns` columns, every row by itself.
    pub(crate) fn plain(elements: usize, columns: usize) -> Columns {
        Columns { elements, columns, width: columns }
    }

    /// The width to which columns are folded.
    pub(crate) fn width(columns: usize) -> usize {
        columns * (COLUMNS / columns.max(1)).max(1)
    }

    /// Doubles of workspace that `N` sums over columns of this width need, whatever the elements.
    pub(crate) fn workspace(width: usize, sums: usize) -> usize {
        most_parts(width) * sums * width
    }

    /// Sums `N` kinds of terms; `finish` receives the sums of each column.
    pub(crate) fn sum<const N: usize>(
        &self,
        threads: &Threads,
        terms: &impl Terms<N>,
        workspace: &mut [f64],
        mut finish: impl FnMut(usize, [f64; N]),
    ) {
        let rows = self.elements.div_ceil(self.width.max(1));
        let parts = most_parts(self.width).min(self.elements.div_ceil(TASK)).max(1);
        let blocks = self.width.div_ceil(SPAN);
        let partials = &mut workspace[..parts * N * self.width];
        let work = ColumnParts {
            of: *self,
            rows: rows.div_ceil(parts),
            blocks,
            terms,
            partials: Shared::new(partials),
        };
        tasks::run(threads, parts * blocks, &work);
        let columns = self.columns;
        for part in 0..parts {
            let (totals, part_sums) = partials.split_at_mut(part * N * self.width);
            for kind in 0..N {
                let row = &mut part_sums[kind * self.width..][..self.width];
                // What was summed side by side comes together, row by row as memory lies.
                let (sums, periods) = row.split_at_mut(columns);
                for period in periods.chunks_exact(columns.max(1)) {
                    add(sums, period);
                }
                if 0 < part {
                    add(&mut totals[kind * self.width..][..columns], sums);
                }
            }
        }
        for column in 0..columns {
            let mut sums = [0.0; N];
            for (kind, sum) in sums.iter_mut().enumerate() {
                *sum = partials[kind * self.width + column];
            }
            finish(column, sums);
        }
    }
}

fn add(totals: &mut [f64], terms: &[f64]) {
    totals.iter_mut().zip(terms).for_each(|(total, term)| *total += term);
}

/// Into how many parts the rows of a matrix are cut at most: fewer where columns make tasks enough.
fn most_parts(width: usize) -> usize {
    (TASKS / width.div_ceil(SPAN).max(1)).max(1)
}

struct ColumnParts<'a, T, const N: usize> {
    of: Columns,
    /// Rows of a part.
    rows: usize,
    blocks: usize,
    terms: &'a T,
    partials: Shared<'a, f64>,
}

impl<T: Terms<N>, const N: usize> Tasks for ColumnParts<'_, T, N> {
    #[inline(always)]
    fn task<L: Lanes>(&self, task: usize, _worker: usize) {
        let (part, first) = (task / self.blocks, task % self.blocks * SPAN);
        let columns = SPAN.min(self.of.width - first);
        let end = ((part + 1) * self.rows).min(self.of.elements.div_ceil(self.of.width));
        // Room for a whole vector after the last column.
        let mut totals = [[0.0; SPAN + LANES_MAX]; N];
        let mut near = [[0.0; SPAN + LANES_MAX]; N];
        let mut row = part * self.rows;
        while row < end {
            let next = end.min(row - row % T::ROWS + T::ROWS);
            if T::IN_REGISTERS {
                self.rows::<L>(row..next, first, columns, &mut totals);
            } else if T::ROWS == 1 {
                self.row::<L, f64>(row, first, columns, &mut totals);
            } else {
                (row..next).for_each(|row| self.row::<L, f32>(row, first, columns, &mut near));
                add_near::<L, N>(&mut near, &mut totals, columns);
            }
            row = next;
        }
        for (kind, totals) in totals.iter().enumerate() {
            let start = (part * N + kind) * self.of.width + first;
            // SAFETY: every task has partial sums of its own.
            unsafe { self.partials.slice(start..start + columns) }.copy_from_slice(&totals[..columns]);
        }
    }
}

impl<T: Terms<N>, const N: usize> ColumnParts<'_, T, N> {
    /// Adds the terms of some columns of a row to their totals.
    #[inline(always)]
    fn row<L: Lanes, F: Total>(
        &self,
        row: usize,
        first: usize,
        columns: usize,
        totals: &mut [[F; SPAN + LANES_MAX]; N],
    ) {
        let start = row * self.of.width + first;
        let columns = columns.min(self.of.elements.saturating_sub(start));
        let mut totals = totals.each_mut().map(|totals| totals.as_mut_ptr());
        let mut column = 0;
        while column < columns {
            let left = L::COUNT.min(columns - column);
            // SAFETY: `left` elements are left in this row.
            let terms = unsafe { self.terms.terms::<L>(row, start + column, first + column, left) };
            for kind in 0..N {
                // SAFETY: a vector's worth of totals is left.
                unsafe { F::add(totals[kind], terms[kind]) };
                totals[kind] = totals[kind].wrapping_add(L::COUNT);
            }
            column += L::COUNT;
        }
    }

    /// Adds the terms of some columns of a few rows, at most `T::ROWS`, to their totals. Rows are added up in
    /// registers, so that each element and each total is read from memory once.
    #[inline(always)]
    fn rows<L: Lanes>(
        &self,
        rows: Range<usize>,
        first: usize,
        columns: usize,
        totals: &mut [[f64; SPAN + LANES_MAX]; N],
    ) {
        // Only the very last row may end before its columns do.
        let last = (rows.end - 1) * self.of.width + first;
        let limit = columns.min(self.of.elements.saturating_sub(last));
        let mut totals = totals.each_mut().map(|totals| totals.as_mut_ptr());
        let mut column = 0;
        // Reads go down a few rows at a time, which the hardware prefetcher does not follow; so the next rows
        // are prefetched, line by line where they are this task's from end to end.
        let next = rows.end * self.of.width + first;
        let ahead = |column: usize, at: usize| match self.blocks {
            1 => next + column * T::ROWS + at * L::COUNT,
            _ => next + at * self.of.width + column,
        };
        while column < columns {
            (0..T::ROWS).for_each(|at| self.terms.prefetch(ahead(column, at)));
            let count = L::COUNT.min(columns - column);
            let left = count.min(limit.saturating_sub(column));
            let sums = if rows.len() == T::ROWS && left == L::COUNT {
                self.together::<L>(rows.start, T::ROWS, first + column, [L::COUNT; 2])
            } else {
                self.together::<L>(rows.start, rows.len(), first + column, [count, left])
            };
            for kind in 0..N {
                // SAFETY: a vector's worth of totals is left.
                unsafe { sums[kind].add_to(totals[kind]) };
                totals[kind] = totals[kind].wrapping_add(L::COUNT);
            }
            column += L::COUNT;
        }
    }

    /// The terms of neighbouring elements in some rows, added up in their order; the last row has a count of
    /// its own.
    #[inline(always)]
    fn together<L: Lanes>(
        &self,
        row: usize,
        rows: usize,
        column: usize,
        [count, last]: [usize; 2],
    ) -> [L; N] {
        let mut sums = [L::splat(0.0); N];
        for at in row..row + rows {
            let count = if at + 1 == row + rows { last } else { count };
            if count == 0 {
                break;
            }
            // SAFETY: `count` elements are left in this row.
            let terms = unsafe { self.terms.terms::<L>(at, at * self.of.width + column, column, count) };
            for (sum, term) in sums.iter_mut().zip(terms) {
                *sum = sum.add(term);
            }
        }
        sums
    }
}

/// Adds the sums of a few rows to the totals, and resets them.
#[inline(always)]
fn add_near<L: Lanes, const N: usize>(
    near: &mut [[f32; SPAN + LANES_MAX]; N],
    totals: &mut [[f64; SPAN + LANES_MAX]; N],
    columns: usize,
) {
    for (near, totals) in near.iter_mut().zip(totals) {
        let mut column = 0;
        while column < columns {
            // SAFETY: a vector's worth of both is left.
            unsafe {
                let near = near.as_mut_ptr().add(column);
                L::load(near).add_to(totals.as_mut_ptr().add(column));
                L::splat(0.0).store(near);
            }
            column += L::COUNT;
        }
    }
}

/// Totals in single or double precision.
trait Total: Copy {
    /// Adds a vector; `#[inline(always)]`.
    ///
    /// # Safety
    /// A vector's worth of totals can be read and written.
    unsafe fn add<L: Lanes>(to: *mut Self, terms: L);
}

impl Total for f32 {
    #[inline(always)]
    unsafe fn add<L: Lanes>(to: *mut f32, terms: L) {
        // SAFETY: the caller's promise.
        unsafe { L::load(to).add(terms).store(to) }
    }
}

impl Total for f64 {
    #[inline(always)]
    unsafe fn add<L: Lanes>(to: *mut f64, terms: L) {
        // SAFETY: the caller's promise.
        unsafe { terms.add_to(to) }
    }
}

/// `N` sums over the elements of one row, whose number is passed on to the terms.
///
/// # Safety
/// The elements lie inside what is summed.
#[inline(always)]
pub(crate) unsafe fn sum_row<L: Lanes, const N: usize>(
    terms: &impl Terms<N>,
    row: usize,
    elements: Range<usize>,
) -> [f64; N] {
    let (start, count) = (elements.start, elements.len());
    let mut totals = [[0.0; LANES_MAX]; N];
    let mut at = 0;
    while at + GROUP * L::COUNT <= count {
        // SAFETY: `GROUP` whole vectors are left.
        let of = |at: usize| unsafe { terms.terms::<L>(row, start + at, at, L::COUNT) };
        let [a, b, c, d] = [of(at), of(at + L::COUNT), of(at + 2 * L::COUNT), of(at + 3 * L::COUNT)];
        for kind in 0..N {
            let sum = a[kind].add(b[kind]).add(c[kind].add(d[kind]));
            // SAFETY: there is room for every vector.
            unsafe { sum.add_to(totals[kind].as_mut_ptr()) };
        }
        at += GROUP * L::COUNT;
    }
    while at < count {
        // SAFETY: at least one element is left, and no more are read than there are.
        let sums = unsafe { terms.terms::<L>(row, start + at, at, L::COUNT.min(count - at)) };
        for kind in 0..N {
            // SAFETY: as above.
            unsafe { sums[kind].add_to(totals[kind].as_mut_ptr()) };
        }
        at += L::COUNT;
    }
    let mut sums = [0.0; N];
    for kind in 0..N {
        sums[kind] = total(totals[kind]);
    }
    sums
}

/// Adds to an update, or overwrites it.
pub(crate) fn add_or_overwrite(update: &mut f32, value: f64, overwrite: bool) {
    let before = if overwrite { 0.0 } else { f64::from(*update) };
    *update = (before + value) as f32;
}
