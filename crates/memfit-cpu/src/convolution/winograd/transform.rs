//! Squares of vectors between pixels, points and taps: the same short sums along both axes.

use super::super::super::lanes::{Lanes, load, store};

/// A square of vectors in memory, of which `rows` x `columns` are there.
#[derive(Clone, Copy)]
pub(super) struct Grid<P> {
    pub(super) start: P,
    /// Floats from a row to the next, and from a column to the next.
    pub(super) row: isize,
    pub(super) column: isize,
    pub(super) rows: usize,
    pub(super) columns: usize,
}

/// What becomes of a result.
#[derive(Clone, Copy)]
pub(super) enum Then<L> {
    Store,
    /// Written past the caches, where it is a whole vector.
    Stream,
    /// With this added.
    Add(L),
    /// Added to what is there.
    Accumulate,
}

/// Sums along one axis, `IN` vectors to `OUT`. All of it is written out by `line!`: of loops the compiler
/// would leave some, and look up factors that are mostly 0, 1 or −1.
pub(super) trait Line<const IN: usize, const OUT: usize> {
    fn sums<L: Lanes>(x: [L; IN]) -> [L; OUT];
    /// Reads a column; what is not there is zero.
    /// # Safety
    /// `count` floats can be read of every vector that is there.
    unsafe fn load<L: Lanes>(from: *const f32, step: isize, there: usize, count: usize) -> [L; IN];
    /// The same place of every column.
    fn across<L: Lanes>(columns: &[[L; OUT]; IN], place: usize) -> [L; IN];
    /// Writes a row as far as it is there.
    /// # Safety
    /// `count` floats can be written, and read, of every vector that is there; what streams is aligned.
    unsafe fn store<L: Lanes>(
        row: [L; OUT],
        to: *mut f32,
        step: isize,
        there: usize,
        count: usize,
        then: Then<L>,
    );
}

/// Makes a [`Line`] of a matrix; the places of its columns and rows are named in front.
macro_rules! line {
    ($name:ident: $in:literal [$($from:literal)+] => $out:literal [$($to:literal)+],
     $([$($factor:expr),+]),+ $(,)?) => {
        pub(super) struct $name;

        impl Line<$in, $out> for $name {
            #[inline(always)]
            fn sums<L: Lanes>(x: [L; $in]) -> [L; $out] {
                [$({
                    let (sum, place) = (None, 0);
                    $(let (sum, place) = (plus(sum, $factor, x[place]), place + 1);)+
                    let _ = place;
                    sum.unwrap_or(L::splat(0.0))
                }),+]
            }

            #[inline(always)]
            unsafe fn load<L: Lanes>(from: *const f32, step: isize, there: usize, count: usize) -> [L; $in] {
                [$(if $from < there {
                    // SAFETY: the caller's promise.
                    unsafe { load(from.wrapping_offset($from * step), count) }
                } else {
                    L::splat(0.0)
                }),+]
            }

            #[inline(always)]
            fn across<L: Lanes>(columns: &[[L; $out]; $in], place: usize) -> [L; $in] {
                [$(columns[$from][place]),+]
            }

            #[inline(always)]
            unsafe fn store<L: Lanes>(
                row: [L; $out], to: *mut f32, step: isize, there: usize, count: usize, then: Then<L>,
            ) {
                $(if $to < there {
                    // SAFETY: the caller's promise.
                    unsafe { keep(row[$to], to.wrapping_offset($to * step), count, then) };
                })+
            }
        }
    };
}
pub(super) use line;

/// A sum with one more term; without any there is none.
#[inline(always)]
pub(super) fn plus<L: Lanes>(sum: Option<L>, factor: f32, x: L) -> Option<L> {
    match sum {
        sum if factor == 0.0 => sum,
        None if factor == 1.0 => Some(x),
        None => Some(x.mul(L::splat(factor))),
        Some(sum) if factor == 1.0 => Some(sum.add(x)),
        Some(sum) if factor == -1.0 => Some(sum.sub(x)),
        Some(sum) => Some(x.mul_add(L::splat(factor), sum)),
    }
}

/// # Safety
/// `count` floats can be written and read; what streams is aligned.
#[inline(always)]
pub(super) unsafe fn keep<L: Lanes>(value: L, to: *mut f32, count: usize, then: Then<L>) {
    // SAFETY: the caller's promise.
    unsafe {
        let value = match then {
            Then::Stream if count == L::COUNT => return value.stream(to),
            Then::Store | Then::Stream => value,
            Then::Add(term) => value.add(term),
            Then::Accumulate => value.add(load(to, count)),
        };
        store(value, to, count);
    }
}

/// Takes a square through the sums along both axes; what is not there is zero, and is not written.
///
/// # Safety
/// `count` floats, at most a vector, can be read or written at every place of a grid that is there; what
/// streams is aligned.
#[inline(always)]
pub(super) unsafe fn square<L: Lanes, T: Line<IN, OUT>, const IN: usize, const OUT: usize>(
    from: Grid<*const f32>,
    to: Grid<*mut f32>,
    count: usize,
    then: Then<L>,
) {
    // SAFETY: the caller's promise. Compiled twice, so that whole vectors ask nothing.
    unsafe {
        if count == L::COUNT {
            part::<L, T, IN, OUT>(from, to, L::COUNT, then);
        } else {
            part::<L, T, IN, OUT>(from, to, count, then);
        }
    }
}

/// # Safety
/// As for `square`.
#[inline(always)]
unsafe fn part<L: Lanes, T: Line<IN, OUT>, const IN: usize, const OUT: usize>(
    from: Grid<*const f32>,
    to: Grid<*mut f32>,
    count: usize,
    then: Then<L>,
) {
    // SAFETY: the caller's promise.
    unsafe {
        let columns = columns::<L, T, IN, OUT>(from, count);
        rows::<L, T, IN, OUT>(&columns, to, count, then);
    }
}

/// The sums along columns.
///
/// # Safety
/// `count` floats, at most a vector, can be read at every place that is there.
#[inline(always)]
unsafe fn columns<L: Lanes, T: Line<IN, OUT>, const IN: usize, const OUT: usize>(
    from: Grid<*const f32>,
    count: usize,
) -> [[L; OUT]; IN] {
    let mut columns = [[L::splat(0.0); OUT]; IN];
    for (column, sums) in columns.iter_mut().enumerate().take(from.columns) {
        let start = from.start.wrapping_offset(column as isize * from.column);
        // SAFETY: the caller's promise.
        *sums = T::sums(unsafe { T::load(start, from.row, from.rows, count) });
    }
    columns
}

/// Writes the sums along rows.
///
/// # Safety
/// As for `square`.
#[inline(always)]
unsafe fn rows<L: Lanes, T: Line<IN, OUT>, const IN: usize, const OUT: usize>(
    columns: &[[L; OUT]; IN],
    to: Grid<*mut f32>,
    count: usize,
    then: Then<L>,
) {
    for row in 0..OUT.min(to.rows) {
        let sums = T::sums(T::across(columns, row));
        let start = to.start.wrapping_offset(row as isize * to.row);
        // SAFETY: the caller's promise.
        unsafe { T::store(sums, start, to.column, to.columns, count, then) };
    }
}

/// Takes a square through the sums along both axes, and hands its rows back.
///
/// # Safety
/// `count` floats, at most a vector, can be read at every place that is there.
#[inline(always)]
pub(super) unsafe fn taken<L: Lanes, T: Line<IN, OUT>, const IN: usize, const OUT: usize>(
    from: Grid<*const f32>,
    count: usize,
) -> [[L; OUT]; OUT] {
    // SAFETY: the caller's promise.
    let columns = unsafe { columns::<L, T, IN, OUT>(from, count) };
    let mut rows = [[L::splat(0.0); OUT]; OUT];
    for (row, sums) in rows.iter_mut().enumerate() {
        *sums = T::sums(T::across(&columns, row));
    }
    rows
}

/// Takes a square whose columns are given through the sums along both axes.
///
/// # Safety
/// `count` floats, at most a vector, can be written at every place that is there.
#[inline(always)]
pub(super) unsafe fn given<L: Lanes, T: Line<IN, OUT>, const IN: usize, const OUT: usize>(
    from: &[[L; IN]; IN],
    to: Grid<*mut f32>,
    count: usize,
) {
    let mut columns = [[L::splat(0.0); OUT]; IN];
    for (sums, column) in columns.iter_mut().zip(from) {
        *sums = T::sums(*column);
    }
    // SAFETY: the caller's promise. Compiled twice, so that whole vectors ask nothing.
    unsafe {
        if count == L::COUNT {
            rows::<L, T, IN, OUT>(&columns, to, L::COUNT, Then::Store);
        } else {
            rows::<L, T, IN, OUT>(&columns, to, count, Then::Store);
        }
    }
}
