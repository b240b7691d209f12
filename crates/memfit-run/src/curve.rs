//! The loss over the steps of a run, in a fixed number of bytes however long it runs.

/// Points that are kept.
const POINTS: usize = 512;

/// Means of the loss over equally many steps each. Where there is no room, neighbours are joined.
#[derive(Clone, Debug, PartialEq)]
pub struct LossCurve {
    /// Steps of a point.
    width: u64,
    points: Vec<f32>,
    /// The sum over the steps since the last point, and how many they are.
    open: (f64, u64),
}

impl Default for LossCurve {
    fn default() -> LossCurve {
        LossCurve { width: 1, points: Vec::with_capacity(POINTS), open: (0.0, 0) }
    }
}

impl LossCurve {
    /// Steps of a point: the last may have fewer.
    pub fn width(&self) -> u64 {
        self.width
    }

    /// The means, in the order of the steps.
    pub fn points(&self) -> impl Iterator<Item = f32> {
        let (sum, count) = self.open;
        let last = (0 < count).then(|| (sum / count as f64) as f32);
        self.points.iter().copied().chain(last)
    }

    pub(crate) fn add(&mut self, loss: f64) {
        let (sum, count) = &mut self.open;
        *sum += loss;
        *count += 1;
        if *count < self.width {
            return;
        }
        if self.points.len() == POINTS {
            for index in 0..POINTS / 2 {
                let (a, b) = (self.points[2 * index], self.points[2 * index + 1]);
                self.points[index] = a / 2.0 + b / 2.0;
            }
            self.points.truncate(POINTS / 2);
            self.width *= 2;
            // Half a point is open now, unless a point is one step: then the step is.
            return;
        }
        self.points.push((*sum / *count as f64) as f32);
        self.open = (0.0, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_run_keeps_every_step_and_a_long_one_means_of_equally_many() {
        for (steps, width) in
            [(0u64, 1u64), (1, 1), (512, 1), (513, 2), (1024, 2), (1025, 2), (1026, 4), (100_000, 256)]
        {
            let mut curve = LossCurve::default();
            let room = curve.points.capacity();
            (0..steps).for_each(|step| curve.add(step as f64));
            assert_eq!((curve.width(), curve.points.capacity()), (width, room), "{steps}");
            assert_eq!(curve.points().count() as u64, steps.div_ceil(width), "{steps}");
            for (index, mean) in curve.points().enumerate() {
                let (first, end) = (index as u64 * width, ((index as u64 + 1) * width).min(steps));
                let expected = (first + end - 1) as f64 / 2.0;
                assert!((f64::from(mean) - expected).abs() <= 1e-3 * expected.max(1.0), "{steps}: {index}");
            }
        }
    }
}
