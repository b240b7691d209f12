//! Metrics: the sums of a micro-batch from which they are computed.

use memfit_ir::{ClassOf, Counts, Distance, FBeta, Iou, LossKind, Metric, RowValue};

use super::call::Call;
use super::elementwise::{sigmoid, step};
use super::loss;

/// The terms of all sums.
pub(crate) fn terms(call: &Call, metric: &Metric) -> Vec<f64> {
    let samples = Samples::new(call);
    let mut sums = vec![0.0; call.updates[0].len()];
    match metric {
        Metric::Mean(value) => return mean(call, &samples, value),
        Metric::RootMeanSquaredError => {
            return mean(call, &samples, &RowValue::Loss(LossKind::MeanSquaredError));
        }
        Metric::Counts(counts) => samples.each(|sample| positives(counts, &sample, &mut sums)),
        Metric::Iou(iou) => samples.each(|sample| classes_of(iou, &sample, &mut sums)),
        Metric::FBeta(score) => samples.each(|sample| scores(score, &sample, &mut sums)),
    }
    sums
}

/// Predictions cut into samples, the elements of the last axis.
struct Samples<'a> {
    prediction: &'a [f64],
    target: &'a [f64],
    /// One weight a row, or one a sample.
    weights: Option<&'a [f64]>,
    classes: usize,
    in_row: usize,
}

/// One sample.
struct Sample<'a> {
    prediction: &'a [f64],
    /// A number for each prediction, or the number of a class.
    target: &'a [f64],
    weight: f64,
}

impl<'a> Samples<'a> {
    fn new(call: &Call<'a>) -> Samples<'a> {
        let classes = call.last(0);
        Samples {
            prediction: call.input(0),
            target: call.input(1),
            weights: call.input_if(call.inputs.len() == 3, 2),
            classes,
            in_row: (call.shape(0).elements_per_row() / classes).max(1),
        }
    }

    fn each(&self, mut of: impl FnMut(Sample<'a>)) {
        let count = self.prediction.len() / self.classes;
        let wide = self.target.len() / count.max(1);
        for (index, prediction) in self.prediction.chunks(self.classes).enumerate() {
            let target = &self.target[index * wide..(index + 1) * wide];
            let weight = self.weights.map_or(1.0, |weights| weights[index * weights.len() / count]);
            of(Sample { prediction, target, weight });
        }
    }
}

/// The sum of the values of rows, and that of their weights.
fn mean(call: &Call, samples: &Samples, value: &RowValue) -> Vec<f64> {
    let (mut total, mut weight) = (0.0, 0.0);
    samples.each(|sample| {
        weight += sample.weight;
        total += sample.weight * hits(value, &sample);
    });
    let in_row = samples.in_row as f64;
    let of_loss = |kind: &LossKind| {
        let count = (call.rows() * samples.in_row) as f64;
        let weight = if kind.counts_ignored() { count } else { weight };
        [loss::sum_over_rows(call, kind), weight / in_row]
    };
    match value {
        RowValue::Loss(kind) => of_loss(kind).to_vec(),
        RowValue::CosineSimilarity => {
            let [total, weight] = of_loss(&LossKind::Distance(Distance::CosineSimilarity));
            vec![-total, weight]
        }
        RowValue::BinaryAccuracy { .. }
        | RowValue::Accuracy
        | RowValue::CategoricalAccuracy
        | RowValue::SparseCategoricalAccuracy
        | RowValue::TopKCategoricalAccuracy { .. }
        | RowValue::SparseTopKCategoricalAccuracy { .. } => vec![total / in_row, weight / in_row],
    }
}

/// The share of a sample's predictions that are right, or whether its class is.
fn hits(value: &RowValue, sample: &Sample) -> f64 {
    let Sample { prediction, target, .. } = *sample;
    let share = |is_right: &dyn Fn(f64, f64) -> bool| {
        let right = prediction.iter().zip(target).filter(|(p, t)| is_right(**p, **t)).count();
        right as f64 / prediction.len() as f64
    };
    let top = |k: usize, class: Option<usize>| {
        let wanted = class.and_then(|class| prediction.get(class)).filter(|wanted| wanted.is_finite());
        // Of equal predictions at the border all count, as in Keras.
        wanted.map_or(0.0, |wanted| step(prediction.iter().filter(|p| *p > wanted).count() < k))
    };
    let number = || (0.0 <= target[0]).then_some(target[0] as usize);
    match *value {
        RowValue::BinaryAccuracy { threshold } => share(&|p, t| step(f64::from(threshold) < p) == t),
        RowValue::Accuracy => share(&|p, t| p == t),
        RowValue::CategoricalAccuracy => step(argmax(prediction) == argmax(target)),
        RowValue::SparseCategoricalAccuracy => step(number() == Some(argmax(prediction))),
        RowValue::TopKCategoricalAccuracy { k } => top(k, Some(argmax(target))),
        RowValue::SparseTopKCategoricalAccuracy { k } => top(k, number()),
        RowValue::CosineSimilarity | RowValue::Loss(_) => 0.0,
    }
}

/// The first largest.
fn argmax(values: &[f64]) -> usize {
    let larger = |best: usize, place: usize| if values[best] < values[place] { place } else { best };
    (0..values.len()).reduce(larger).unwrap_or(0)
}

/// Adds a sample's predictions to positives or negatives, by how many thresholds they are above.
fn positives(counts: &Counts, sample: &Sample, sums: &mut [f64]) {
    let intervals = counts.thresholds.stretches();
    for (class, (p, t)) in sample.prediction.iter().zip(sample.target).enumerate() {
        if counts.class.is_some_and(|wanted| wanted != class) {
            continue;
        }
        let is_before = |(other, value): (usize, &f64)| value > p || (value == p && other < class);
        let before = sample.prediction.iter().enumerate().filter(|other| is_before(*other)).count();
        let value = if counts.from_logits { sigmoid(*p) } else { *p };
        let is_out = counts.top_k.is_some_and(|k| k <= before);
        let interval = if is_out { 0 } else { counts.thresholds.below(value as f32) };
        let label = if counts.labels.is_some() { class } else { 0 };
        let side = 2 * label + usize::from(*t == 0.0);
        sums[side * intervals + interval] += sample.weight;
    }
}

/// Adds a sample, or each of its elements, to its class and to the one predicted.
fn classes_of(iou: &Iou, sample: &Sample, sums: &mut [f64]) {
    let Sample { prediction, target, .. } = *sample;
    let mut count = |target: i64, prediction: i64| {
        let class = |number: i64| usize::try_from(number).ok().filter(|number| *number < iou.classes);
        let (Some(of), Some(predicted)) = (class(target), class(prediction)) else { return };
        if iou.ignored == Some(target) {
            return;
        }
        // Keras counts in whole numbers.
        let weight = sample.weight.trunc();
        sums[of] += if of == predicted { weight } else { 0.0 };
        sums[iou.classes + of] += weight;
        sums[2 * iou.classes + predicted] += weight;
    };
    match iou.prediction {
        ClassOf::Largest if iou.one_hot => count(argmax(target) as i64, argmax(prediction) as i64),
        ClassOf::Largest => count(target[0] as i64, argmax(prediction) as i64),
        ClassOf::Number => prediction.iter().zip(target).for_each(|(p, t)| count(*t as i64, *p as i64)),
        ClassOf::AtLeast(least) => {
            let pairs = prediction.iter().zip(target);
            pairs.for_each(|(p, t)| count(*t as i64, i64::from(f64::from(least) <= *p)));
        }
    }
}

/// Adds a sample to the classes that it has and those predicted.
fn scores(score: &FBeta, sample: &Sample, sums: &mut [f64]) {
    let classes = sample.prediction.len();
    let most = sample.prediction.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    for (class, (p, t)) in sample.prediction.iter().zip(sample.target).enumerate() {
        let is_predicted = match score.threshold {
            Some(threshold) => f64::from(threshold) < *p,
            // A sample that predicts nothing at all predicts no class.
            None => most <= *p && 1e-9 < p.abs(),
        };
        sums[class] += sample.weight * t * step(is_predicted);
        sums[classes + class] += sample.weight * t;
        sums[2 * classes + class] += sample.weight * step(is_predicted);
    }
}
