//! Cross-entropy of logits: softmax and loss as one.

use std::ops::Range;

use super::super::lanes::Lanes;
use super::super::softmax::{groups, max_of, max_of_few, powers, sum_powers, weighted_powers};
use super::super::sums::{sum, sum_pairs};
use super::super::tasks::{self, BLOCK, Cut, Tasks};
use super::super::threads::{Shared, Threads};
use super::{Numbers, Samples, Soft};

/// Writes gradients and returns the total.
pub(super) fn run<T: Targets>(
    threads: &Threads,
    samples: &Samples,
    targets: &T,
    workspace: &mut [f64],
) -> f64 {
    let count = samples.prediction.len() / samples.classes;
    let cut = Cut::parts(count, 4 * samples.classes);
    let partials = &mut workspace[..cut.count()];
    let work = Logits { samples, targets, cut, partials: Shared::new(partials) };
    tasks::run(threads, cut.count(), &work);
    partials.iter().sum()
}

/// What a loss of logits asks of its targets.
pub(super) trait Targets: Sync {
    /// The sum of a sample's shares; NaN where the sample has no target.
    fn total(&self, sample: usize) -> f64;
    /// What a sample's shares count for in the gradient: their sum, unless they are taken to sum to 1.
    fn mass(&self, sample: usize) -> f64 {
        self.total(sample)
    }
    /// `Σ share · (x − most)`.
    fn weigh(&self, sample: usize, x: &[f32], max: f32) -> f64;
    /// Subtracts `factor · share` from the gradients of some classes.
    fn subtract(&self, sample: usize, classes: Range<usize>, factor: f32, gradients: &mut [f32]);
}

impl Targets for Soft<'_> {
    #[inline(always)]
    fn total(&self, sample: usize) -> f64 {
        let smooth = self.smooth();
        sum(self.of(sample), |target| f64::from(smooth(target as f32)))
    }

    #[inline(always)]
    fn mass(&self, sample: usize) -> f64 {
        if self.is_unit { 1.0 } else { self.total(sample) }
    }

    #[inline(always)]
    fn weigh(&self, sample: usize, x: &[f32], max: f32) -> f64 {
        let smooth = self.smooth();
        sum_pairs(self.of(sample), x, |target, x| {
            let share = f64::from(smooth(target as f32));
            // A class without a share may be infinitely unlikely.
            if share == 0.0 { 0.0 } else { share * (x - f64::from(max)) }
        })
    }

    #[inline(always)]
    fn subtract(&self, sample: usize, classes: Range<usize>, factor: f32, gradients: &mut [f32]) {
        let smooth = self.smooth();
        for (gradient, target) in gradients.iter_mut().zip(&self.of(sample)[classes]) {
            *gradient -= factor * smooth(*target);
        }
    }
}

impl Targets for Numbers<'_> {
    #[inline(always)]
    fn total(&self, sample: usize) -> f64 {
        if self.of(sample).is_some() { 1.0 } else { f64::NAN }
    }

    #[inline(always)]
    fn weigh(&self, sample: usize, x: &[f32], max: f32) -> f64 {
        self.of(sample).map_or(f64::NAN, |class| f64::from(x[class] - max))
    }

    #[inline(always)]
    fn subtract(&self, sample: usize, classes: Range<usize>, factor: f32, gradients: &mut [f32]) {
        if let Some(class) = self.of(sample).filter(|class| classes.contains(class)) {
            gradients[class - classes.start] -= factor;
        }
    }
}

struct Logits<'a, T> {
    samples: &'a Samples<'a>,
    targets: &'a T,
    cut: Cut,
    partials: Shared<'a, f64>,
}

impl<T: Targets> Tasks for Logits<'_, T> {
    #[inline(always)]
    fn task<L: Lanes>(&self, task: usize, _worker: usize) {
        let mut buffer = [0.0; BLOCK];
        let classes = self.samples.classes;
        let mut total = 0.0;
        for group in groups(self.cut.range(task), classes) {
            total += match group.len() * classes <= BLOCK {
                true => self.group::<L>(group, &mut buffer),
                false => self.sample::<L>(group.start),
            };
        }
        // SAFETY: every task has a partial sum of its own.
        let partial = unsafe { self.partials.slice(task..task + 1) };
        partial[0] = total;
    }
}

/// `−Σ t ln softmax(x) = Σ t ln Σ eˣ − Σ t x`; its gradient is `softmax(x) Σ t − t`.
impl<T: Targets> Logits<'_, T> {
    /// Several samples that fill at most one block.
    #[inline(always)]
    fn group<L: Lanes>(&self, group: Range<usize>, buffer: &mut [f32; BLOCK]) -> f64 {
        let classes = self.samples.classes;
        let elements = group.start * classes..group.end * classes;
        let gradients = &mut buffer[..elements.len()];
        // SAFETY: samples belong to one part, and the slice that reads is gone before one writes.
        let x = unsafe { self.samples.prediction.read(elements.clone()) };
        powers::<L>(x, classes, gradients);
        let mut total = 0.0;
        let parts = gradients.chunks_exact_mut(classes).zip(x.chunks_exact(classes));
        for (sample, (gradients, x)) in group.zip(parts) {
            let (powers, share) = (sum(gradients, |power| power), self.samples.sample_share(sample));
            if share == 0.0 && self.targets.total(sample).is_nan() {
                // A sample that does not count needs no class.
                gradients.fill(0.0);
                continue;
            }
            total += share * self.value(sample, x, max_of_few(x), powers);
            let factor = (share * self.targets.mass(sample) / powers) as f32;
            gradients.iter_mut().for_each(|gradient| *gradient *= factor);
            self.targets.subtract(sample, 0..classes, share as f32, gradients);
        }
        if let Some(to) = &self.samples.gradients {
            // SAFETY: as above.
            unsafe { to.write(elements) }.copy_from_slice(gradients);
        }
        total
    }

    /// One sample that is longer than a block.
    #[inline(always)]
    fn sample<L: Lanes>(&self, sample: usize) -> f64 {
        let classes = self.samples.classes;
        let elements = sample * classes..(sample + 1) * classes;
        // SAFETY: samples belong to one part, and the slice that reads is gone before one writes.
        let x = unsafe { self.samples.prediction.read(elements.clone()) };
        let max = max_of::<L>(x);
        let powers = sum_powers::<L>(x, max);
        let share = self.samples.sample_share(sample);
        let is_ignored = share == 0.0 && self.targets.total(sample).is_nan();
        let value = if is_ignored { 0.0 } else { share * self.value(sample, x, max, powers) };
        let mass = if is_ignored { 0.0 } else { self.targets.mass(sample) };
        let factor = (share * mass / powers) as f32;
        if let Some(to) = &self.samples.gradients {
            let (x, gradients) = (self.samples.prediction.place(&elements), to.place(&elements));
            // SAFETY: as above; both have these elements.
            unsafe { weighted_powers::<L>(x, max, factor, gradients, classes) };
            // SAFETY: as above.
            let gradients = unsafe { to.write(elements) };
            self.targets.subtract(sample, 0..classes, share as f32, gradients);
        }
        value
    }

    #[inline(always)]
    fn value(&self, sample: usize, x: &[f32], max: f32, powers: f64) -> f64 {
        self.targets.total(sample) * powers.ln() - self.targets.weigh(sample, x, max)
    }
}
