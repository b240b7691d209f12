//! Generated code that finds the place of an element in another tensor.

use std::fmt::Write;

/// An axis of the tensor that is gone through, and how far apart its neighbours are in the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Axis {
    pub(super) size: usize,
    pub(super) step: usize,
}

impl Axis {
    /// Neighbouring axes as one where their steps allow it.
    pub(super) fn merged(axes: Vec<Axis>) -> Vec<Axis> {
        let mut merged: Vec<Axis> = Vec::new();
        for axis in axes.into_iter().filter(|axis| axis.size != 1) {
            match merged.last_mut() {
                Some(last) if last.step == axis.step * axis.size => {
                    *last = Axis { size: last.size * axis.size, step: axis.step };
                }
                _ => merged.push(axis),
            }
        }
        merged
    }
}

/// Statements that add to `from` the place of the element `rest`, the last axis first; what is left in `rest`
/// are rows, which are so far apart.
pub(super) fn places(axes: &[Axis], per_row: Option<usize>) -> String {
    let mut text = String::new();
    for Axis { size, step } in axes.iter().rev() {
        if *step != 0 {
            write!(text, "from += (i64)(rest % {size}) * {step}; ")
                .expect("a text takes what is written to it");
        }
        write!(text, "rest /= {size}; ").expect("a text takes what is written to it");
    }
    if let Some(per_row) = per_row {
        write!(text, "from += (i64)rest * {per_row}; ").expect("a text takes what is written to it");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_that_stay_neighbours_become_one() {
        let axes = [[2, 12], [3, 4], [1, 9], [4, 1]].map(|[size, step]| Axis { size, step });
        assert_eq!(Axis::merged(axes.to_vec()), [Axis { size: 24, step: 1 }]);
        let broadcast = [[2, 0], [3, 0], [4, 1]].map(|[size, step]| Axis { size, step });
        assert_eq!(Axis::merged(broadcast.to_vec()), [Axis { size: 6, step: 0 }, Axis { size: 4, step: 1 }]);
    }

    #[test]
    fn the_last_axis_comes_first() {
        let axes = [Axis { size: 3, step: 1 }, Axis { size: 4, step: 3 }];
        let wanted = "from += (i64)(rest % 4) * 3; rest /= 4; from += (i64)(rest % 3) * 1; rest /= 3; from += (i64)rest * 12; ";
        assert_eq!(places(&axes, Some(12)), wanted);
    }
}
