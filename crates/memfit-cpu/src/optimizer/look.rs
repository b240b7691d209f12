//! The first pass of rules that see a whole weight: its squares, and whether the squares of its gradient are
//! finite.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

use super::rules::Before;
use crate::sums::{Part, sum};
use memfit_device::found_inf::{is_finite, magnitude};

/// Sums a weight's squares, as decay leaves it, and looks at its gradient: means of squares that are finite
/// stay finite.
pub(super) struct Look<'a> {
    pub(super) weight: &'a [f32],
    pub(super) gradient: &'a [f32],
    pub(super) before: &'a Before,
    /// Whether a square of the gradient is not finite.
    pub(super) found_inf: AtomicBool,
}

impl Part for Look<'_> {
    #[inline(always)]
    fn part(&self, range: Range<usize>) -> f64 {
        let square = |g: &f32| {
            let g = self.before.gradient(*g);
            g * g
        };
        let squares = self.gradient[range.clone()].iter().map(square);
        if !is_finite(squares.fold(0, |most, square| most.max(magnitude(square)))) {
            self.found_inf.store(true, Ordering::Relaxed);
        }
        sum(&self.weight[range], |w| {
            let w = f64::from(self.before.weight(w as f32));
            w * w
        })
    }
}
