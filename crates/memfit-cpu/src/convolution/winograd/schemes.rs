//! The sums of both schemes, as matrices.

use super::super::super::lanes::{Lanes, load};
use super::transform::{Line, Then, keep, line, plus};

/// A Winograd transform along one axis: `OUTPUTS` outputs from `POINTS` pixels with `TAPS` taps.
pub(super) trait Scheme<const POINTS: usize, const OUTPUTS: usize, const TAPS: usize>: Sync {
    /// Transforms pixels to points.
    type Input: Line<POINTS, POINTS>;
    /// Transforms products at points to outputs.
    type Output: Line<POINTS, OUTPUTS>;
    /// Transforms taps to points.
    type Filter: Line<TAPS, POINTS>;
    /// Transforms gradients of outputs to points: `Output` transposed.
    type OutputGradient: Line<OUTPUTS, POINTS>;
    /// Transforms gradients at points to those of taps: `Filter` transposed.
    type TapGradient: Line<POINTS, TAPS>;
}

/// Three taps: the points 0, 1, −1 and infinity. Rounds no worse than the plain sum.
pub(super) struct Three;

impl Scheme<4, 2, 3> for Three {
    type Input = ThreeInput;
    type Output = ThreeOutput;
    type Filter = ThreeFilter;
    type OutputGradient = ThreeOutputGradient;
    type TapGradient = ThreeTapGradient;
}

line!(ThreeInput: 4 [0 1 2 3] => 4 [0 1 2 3],
    [1.0, 0.0, -1.0, 0.0],
    [0.0, 1.0, 1.0, 0.0],
    [0.0, -1.0, 1.0, 0.0],
    [0.0, -1.0, 0.0, 1.0],
);
line!(ThreeOutput: 4 [0 1 2 3] => 2 [0 1],
    [1.0, 1.0, 1.0, 0.0],
    [0.0, 1.0, -1.0, 1.0],
);
line!(ThreeOutputGradient: 2 [0 1] => 4 [0 1 2 3],
    [1.0, 0.0],
    [1.0, 1.0],
    [1.0, -1.0],
    [0.0, 1.0],
);
line!(ThreeFilter: 3 [0 1 2] => 4 [0 1 2 3],
    [1.0, 0.0, 0.0],
    [0.5, 0.5, 0.5],
    [0.5, -0.5, 0.5],
    [0.0, 0.0, 1.0],
);
line!(ThreeTapGradient: 4 [0 1 2 3] => 3 [0 1 2],
    [1.0, 0.5, 0.5, 0.0],
    [0.0, 0.5, -0.5, 0.0],
    [0.0, 0.5, 0.5, 1.0],
);

/// Five taps: the points 0, 1, −1, ½, −2 and infinity, which of those with small factors round best.
pub(super) struct Five;

impl Scheme<6, 2, 5> for Five {
    type Input = FiveInput;
    type Output = FiveOutput;
    type Filter = FiveFilter;
    type OutputGradient = FiveOutputGradient;
    type TapGradient = FiveTapGradient;
}

line!(FiveInput: 6 [0 1 2 3 4 5] => 6 [0 1 2 3 4 5],
    [2.0, -3.0, -4.0, 3.0, 2.0, 0.0],
    [0.0, -2.0, 1.0, 5.0, 2.0, 0.0],
    [0.0, -2.0, 5.0, -1.0, -2.0, 0.0],
    [0.0, 2.0, 1.0, -2.0, -1.0, 0.0],
    [0.0, 1.0, -2.0, -1.0, 2.0, 0.0],
    [0.0, 2.0, -3.0, -4.0, 3.0, 2.0],
);
line!(FiveOutput: 6 [0 1 2 3 4 5] => 2 [0 1],
    [1.0, 1.0, 1.0, 1.0, 1.0, 0.0],
    [0.0, 1.0, -1.0, 0.5, -2.0, 1.0],
);
line!(FiveOutputGradient: 2 [0 1] => 6 [0 1 2 3 4 5],
    [1.0, 0.0],
    [1.0, 1.0],
    [1.0, -1.0],
    [1.0, 0.5],
    [1.0, -2.0],
    [0.0, 1.0],
);
line!(FiveFilter: 5 [0 1 2 3 4] => 6 [0 1 2 3 4 5],
    [1.0 / 2.0, 0.0, 0.0, 0.0, 0.0],
    [1.0 / 6.0, 1.0 / 6.0, 1.0 / 6.0, 1.0 / 6.0, 1.0 / 6.0],
    [1.0 / 6.0, -1.0 / 6.0, 1.0 / 6.0, -1.0 / 6.0, 1.0 / 6.0],
    [16.0 / 15.0, 8.0 / 15.0, 4.0 / 15.0, 2.0 / 15.0, 1.0 / 15.0],
    [1.0 / 30.0, -1.0 / 15.0, 2.0 / 15.0, -4.0 / 15.0, 8.0 / 15.0],
    [0.0, 0.0, 0.0, 0.0, 1.0 / 2.0],
);
line!(FiveTapGradient: 6 [0 1 2 3 4 5] => 5 [0 1 2 3 4],
    [1.0 / 2.0, 1.0 / 6.0, 1.0 / 6.0, 16.0 / 15.0, 1.0 / 30.0, 0.0],
    [0.0, 1.0 / 6.0, -1.0 / 6.0, 8.0 / 15.0, -1.0 / 15.0, 0.0],
    [0.0, 1.0 / 6.0, 1.0 / 6.0, 4.0 / 15.0, 2.0 / 15.0, 0.0],
    [0.0, 1.0 / 6.0, -1.0 / 6.0, 2.0 / 15.0, -4.0 / 15.0, 0.0],
    [0.0, 1.0 / 6.0, 1.0 / 6.0, 1.0 / 15.0, 8.0 / 15.0, 1.0 / 2.0],
);
