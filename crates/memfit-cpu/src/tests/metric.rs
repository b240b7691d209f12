//! Sums of metrics against plain loops: enough samples for several tasks, weights, and sums that are there
//! already.

use memfit_ir::{ClassAverage, ClassOf, Counts, FBeta, Iou, Metric, Op, Rate, RowValue, Shape, Thresholds};

use super::{Case, assert_near, positive_noise};

const ROWS: usize = 5000;
const CLASSES: usize = 7;

#[test]
fn tasks_add_up_to_plain_loops() {
    let prediction = positive_noise(ROWS * CLASSES, 1);
    let targets: Vec<f32> = positive_noise(ROWS * CLASSES, 2).iter().map(|t| t.round()).collect();
    let weights: Vec<f32> = positive_noise(ROWS, 3).iter().map(|w| (w * 4.0).floor()).collect();
    let samples = || {
        let rows = prediction.chunks(CLASSES).zip(targets.chunks(CLASSES));
        rows.zip(&weights).map(|((p, t), w)| (p, t, f64::from(*w)))
    };
    let argmax =
        |values: &[f32]| (0..CLASSES).rev().max_by(|a, b| values[*a].total_cmp(&values[*b])).unwrap();
    let counts = |top_k: Option<usize>| Counts {
        thresholds: Thresholds::At(vec![0.2, 0.7]),
        class: None,
        top_k,
        from_logits: false,
        labels: None,
        of: Rate::Recall,
    };
    let buckets = |top_k: usize| {
        let mut sums = vec![0.0; 6];
        for (p, t, w) in samples() {
            for (value, target) in p.iter().zip(t) {
                let is_in = p.iter().filter(|other| *other > value).count() < top_k;
                let above = if is_in { usize::from(*value > 0.2) + usize::from(*value > 0.7) } else { 0 };
                sums[above + if *target == 0.0 { 3 } else { 0 }] += w;
            }
        }
        sums
    };
    let mut meetings = vec![0.0; 3 * CLASSES];
    let mut scores = meetings.clone();
    let mut hits = vec![0.0; 2];
    for (p, t, w) in samples() {
        let (of, predicted) = (argmax(t), argmax(p));
        meetings[of] += if of == predicted { w } else { 0.0 };
        meetings[CLASSES + of] += w;
        meetings[2 * CLASSES + predicted] += w;
        for class in 0..CLASSES {
            let (of, predicted) = (f64::from(t[class]), if p[class] > 0.6 { 1.0 } else { 0.0 });
            scores[class] += w * of * predicted;
            scores[CLASSES + class] += w * of;
            scores[2 * CLASSES + class] += w * predicted;
        }
        hits[0] += if p.iter().filter(|other| **other > p[of]).count() < 3 { w } else { 0.0 };
        hits[1] += w;
    }
    let iou =
        Iou { classes: CLASSES, wanted: vec![0], one_hot: true, prediction: ClassOf::Largest, ignored: None };
    let score = FBeta { beta: 1.0, threshold: Some(0.6), average: ClassAverage::Macro };
    for (metric, wanted) in [
        (Metric::Counts(counts(None)), buckets(CLASSES)),
        (Metric::Counts(counts(Some(2))), buckets(2)),
        (Metric::Iou(iou), meetings),
        (Metric::FBeta(score), scores),
        (Metric::Mean(RowValue::TopKCategoricalAccuracy { k: 3 }), hits),
    ] {
        let name = format!("{metric:?}");
        let case = Case::new(Op::Metric(metric), ROWS)
            .input(Shape::rows([CLASSES]), prediction.clone())
            .input(Shape::rows([CLASSES]), targets.clone())
            .input(Shape::rows([]), weights.clone())
            .update(Shape::fixed([wanted.len()]), vec![3.0; wanted.len()]);
        let wanted: Vec<f64> = wanted.iter().map(|sum| sum + 3.0).collect();
        assert_near(case.run().updated(0), &wanted, 1e-6, &name);
    }
}
