//! Losses with their gradients, and metrics.

use memfit_ir::{Bytes, Distance, Loss, LossKind, Metric, RowValue};

use super::Missing;
use super::chain::number;
use super::sums::{PARTS, part_blocks};
use crate::cuda::call::{Call, Operand, THREADS, int, long};
use crate::cuda::work::{Argument, Kernel, Lowered, Source};

const TEXT: &str = include_str!("../kernels/loss.cu");

/// Classes that a warp takes alone; for more of them, a block has a sample.
const LOGITS_OF_WARP: usize = 2048;

/// Writes the gradient of the prediction and adds the loss of this piece.
pub(super) fn loss(call: &Call<'_>, loss: &Loss) -> Result<Lowered, Missing> {
    let (prediction, target, slopes, sum) = (call.input(0), call.input(1), call.output(0), call.update(0));
    let classes = prediction.shape().last().max(1);
    let row = prediction.shape().elements_per_row();
    let in_row = row / classes;
    rows_weigh(call)?;
    let way = Way::of(&loss.kind, classes).ok_or(Missing)?;
    let source = source(prediction, target, &way.define(prediction));
    let mut lowered = Lowered::default();
    let parts = Argument::At(lowered.scratch(Bytes::of::<f64>(PARTS)));
    let weights = call.input_if(call.node.inputs.len() == 3, 2);
    let mut arguments =
        vec![prediction.pointer(), target.pointer(), weights, slopes.pointer(), parts, Argument::Context];
    let weight = Argument::Float(loss.weight);
    let (entry, blocks, threads) = match way {
        Way::Element(_) => {
            let count = prediction.elements;
            arguments.extend([long(count), long(row), long(in_row), long(classes), weight]);
            ("elements", part_blocks(count), THREADS)
        }
        Way::Sample(_, smoothing) => {
            let count = prediction.elements / classes;
            arguments.extend([long(count), long(in_row), int(classes), weight, Argument::Float(smoothing)]);
            ("samples", [few(count), 1, 1], THREADS)
        }
        Way::NumberedLogits { team } => {
            let count = prediction.elements / classes;
            arguments.extend([long(count), long(in_row), int(classes), weight, Argument::Float(0.0)]);
            let threads = team.max(THREADS);
            ("numbered_logits", [few(count.div_ceil((threads / team) as usize)), 1, 1], threads)
        }
    };
    lowered.kernel(Kernel { source: source.clone(), entry, blocks, threads, arguments });
    let count = Argument::Int(blocks[0].cast_signed());
    let arguments = vec![parts, count, sum.pointer(), Argument::Context, call.fresh()];
    lowered.kernel(Kernel { source, entry: "settle_loss", blocks: [1, 1, 1], threads: THREADS, arguments });
    Ok(lowered)
}

/// Adds the sums of this piece that a metric is made of.
pub(super) fn metric(call: &Call<'_>, metric: &Metric) -> Result<Lowered, Missing> {
    let (prediction, target, sums) = (call.input(0), call.input(1), call.update(0));
    let classes = prediction.shape().last().max(1);
    let in_row = (prediction.shape().elements_per_row() / classes).max(1);
    rows_weigh(call)?;
    let (kind, number) = metric_kind(metric).ok_or(Missing)?;
    let source = source(prediction, target, &format!("#define METRIC {kind}\n"));
    let mut lowered = Lowered::default();
    let parts = Argument::At(lowered.scratch(Bytes::of::<f64>(PARTS)));
    let weights = call.input_if(call.node.inputs.len() == 3, 2);
    let samples = prediction.elements / classes;
    let blocks = part_blocks(samples * 128);
    let arguments = vec![
        prediction.pointer(),
        target.pointer(),
        weights,
        parts,
        long(samples),
        long(in_row),
        int(classes),
        Argument::Float(number),
    ];
    lowered.kernel(Kernel { source: source.clone(), entry: "metric", blocks, threads: THREADS, arguments });
    let count = Argument::Int(blocks[0].cast_signed());
    let arguments =
        vec![parts, count, sums.pointer(), call.fresh(), long(in_row), weights, long(samples / in_row)];
    lowered.kernel(Kernel { source, entry: "settle_metric", blocks: [1, 1, 1], threads: THREADS, arguments });
    Ok(lowered)
}

/// Refuses weights of samples, which have no kernel here.
fn rows_weigh(call: &Call<'_>) -> Result<(), Missing> {
    match call.node.inputs.len() {
        3 if !call.input(2).shape().dims.is_empty() => Err(Missing),
        _ => Ok(()),
    }
}

/// The kernel's `METRIC`, and its number; none for metrics that have no kernel.
fn metric_kind(metric: &Metric) -> Option<(usize, f32)> {
    Some(match metric {
        Metric::Mean(RowValue::BinaryAccuracy { threshold }) => (0, *threshold),
        Metric::Mean(RowValue::CategoricalAccuracy) => (1, 1.0),
        Metric::Mean(RowValue::SparseCategoricalAccuracy) => (2, 1.0),
        Metric::Mean(RowValue::Loss(LossKind::MeanAbsoluteError)) => (3, 0.0),
        Metric::Mean(RowValue::Loss(LossKind::MeanSquaredError)) | Metric::RootMeanSquaredError => (4, 0.0),
        Metric::Mean(RowValue::TopKCategoricalAccuracy { k }) => (5, *k as f32),
        Metric::Mean(RowValue::SparseTopKCategoricalAccuracy { k }) => (6, *k as f32),
        Metric::Mean(RowValue::Accuracy | RowValue::CosineSimilarity | RowValue::Loss(_))
        | Metric::Counts(_)
        | Metric::Iou(_)
        | Metric::FBeta(_) => return None,
    })
}

/// Blocks of a sum, each of which has room for its part.
fn few(blocks: usize) -> u32 {
    u32::try_from(blocks.clamp(1, PARTS)).expect("there are few blocks")
}

fn source(prediction: Operand<'_>, target: Operand<'_>, define: &str) -> Source {
    let defines = format!("typedef {} X;\ntypedef {} T;\n{define}", prediction.c_type(), target.c_type());
    Source { text: TEXT, defines }
}

/// How a loss goes over its predictions.
enum Way {
    /// Element by element: code that gives `value` and `slope` from `p` and `t`.
    Element(String),
    /// Sample by sample: the kernel's `SAMPLE`, and the share of targets that is spread.
    Sample(usize, f32),
    /// Logits with numbered targets, by so many threads a sample.
    NumberedLogits { team: u32 },
}

impl Way {
    fn define(&self, prediction: Operand<'_>) -> String {
        match self {
            Way::NumberedLogits { team } => {
                let width = 16 / prediction.dtype().size();
                format!("#define TEAM {team}\n#define WIDTH {width}\n")
            }
            Way::Element(code) => format!("#define ELEMENT {code}\n"),
            Way::Sample(kind, _) => format!("#define SAMPLE {kind}\n"),
        }
    }

    /// None for losses that have no kernel.
    fn of(kind: &LossKind, classes: usize) -> Option<Way> {
        let smooth = |smoothing: f32| format!("t = smoothed(t, {});", number(smoothing));
        Some(Way::Element(match *kind {
            LossKind::MeanSquaredError => "value = (p - t) * (p - t); slope = 2.0f * (p - t);".to_owned(),
            LossKind::MeanAbsoluteError => "value = fabsf(p - t); slope = sign_of(p - t);".to_owned(),
            LossKind::Huber { delta } => format!(
                "float d = p - t, delta = {}; bool far = fabsf(d) > delta; \
                 value = far ? delta * fabsf(d) - 0.5f * delta * delta : 0.5f * d * d; \
                 slope = far ? delta * sign_of(d) : d;",
                number(delta)
            ),
            LossKind::BinaryCrossentropy { from_logits: true, label_smoothing } => {
                format!(
                    "{} value = f_softplus(p) - p * t; slope = f_sigmoid(p) - t;",
                    smooth(label_smoothing)
                )
            }
            LossKind::BinaryCrossentropy { from_logits: false, label_smoothing } => format!(
                "{} float q = clipped(p); value = -(t * logf(q) + (1.0f - t) * logf(1.0f - q)); \
                 slope = unless_clipped(p, (q - t) / (q * (1.0f - q)));",
                smooth(label_smoothing)
            ),
            LossKind::CategoricalCrossentropy { from_logits, label_smoothing } => {
                return Some(Way::Sample(if from_logits { 0 } else { 2 }, label_smoothing));
            }
            LossKind::SparseCategoricalCrossentropy { from_logits: true } => {
                return Some(Way::NumberedLogits { team: if classes <= LOGITS_OF_WARP { 32 } else { 512 } });
            }
            LossKind::SparseCategoricalCrossentropy { from_logits: false } => {
                return Some(Way::Sample(3, 0.0));
            }
            LossKind::Distance(Distance::CosineSimilarity) => return Some(Way::Sample(4, 0.0)),
            LossKind::Distance(Distance::CategoricalHinge) => return Some(Way::Sample(5, 0.0)),
            LossKind::Distance(distance) => of_distance(distance, classes)?,
            LossKind::Reduced { .. } => return None,
        }))
    }
}

/// The value and slope of an element of a distance that has them.
fn of_distance(distance: Distance, classes: usize) -> Option<String> {
    const HINGE: &str = "float side = t == 0.0f ? -1.0f : t; value = 1.0f - side * p; bool none = value < 0.0f; \
                         value = none ? 0.0f : value; slope = none ? 0.0f : -side;";
    Some(match distance {
        Distance::Poisson => {
            "value = p - t * logf(p + EPSILON); slope = 1.0f - t / (p + EPSILON);".to_owned()
        }
        Distance::LogCosh => "float d = p - t; value = d + f_softplus(-2.0f * d) - 0.69314718056f; \
                              slope = 1.0f - 2.0f * f_sigmoid(-2.0f * d);"
            .to_owned(),
        Distance::Hinge => HINGE.to_owned(),
        Distance::SquaredHinge => format!("{HINGE} slope = 2.0f * value * slope; value = value * value;"),
        Distance::MeanAbsolutePercentageError => {
            "float factor = 100.0f / fmaxf(fabsf(t), EPSILON); value = factor * fabsf(p - t); \
             slope = factor * sign_of(p - t);"
                .to_owned()
        }
        Distance::MeanSquaredLogarithmicError => {
            "float gap = logf((p < EPSILON ? EPSILON : p) + 1.0f) - logf((t < EPSILON ? EPSILON : t) + 1.0f); \
             value = gap * gap; slope = p < EPSILON ? 0.0f : 2.0f * gap / (p + 1.0f);"
                .to_owned()
        }
        Distance::KlDivergence => format!(
            "float count = {}; float q = p < EPSILON ? EPSILON : p; q = q > 1.0f ? 1.0f : q; \
             float u = t < EPSILON ? EPSILON : t; u = u > 1.0f ? 1.0f : u; \
             slope = p < EPSILON || p > 1.0f ? 0.0f : -u / q * count; value = count * u * (logf(u) - logf(q));",
            number(classes as f32)
        ),
        Distance::BinaryFocalCrossentropy { from_logits, label_smoothing, alpha, gamma } => {
            let weight = alpha.map_or("1.0f".to_owned(), |alpha| {
                format!("(t * {} + (1.0f - t) * {})", number(alpha), number(1.0 - alpha))
            });
            format!(
                "t = smoothed(t, {}); float s = {}; float q = clipped(s); \
                 float entropy = -(t * logf(q) + (1.0f - t) * logf(1.0f - q)); \
                 float along = unless_clipped(s, (q - t) / (q * (1.0f - q))); \
                 float doubt = 1.0f - (t * s + (1.0f - t) * (1.0f - s)), weighs = {weight}, gamma = {}; \
                 float factor = weighs * powf(doubt, gamma); \
                 float bend = -weighs * gamma * powf(doubt, gamma - 1.0f) * (2.0f * t - 1.0f); \
                 float inner = {}; value = factor * entropy; slope = inner * (factor * along + bend * entropy);",
                number(label_smoothing),
                if from_logits { "f_sigmoid(p)" } else { "p" },
                number(gamma),
                if from_logits { "s * (1.0f - s)" } else { "1.0f" },
            )
        }
        Distance::CategoricalHinge | Distance::CosineSimilarity => {
            unreachable!("distances of whole samples have their own kernel")
        }
        Distance::CategoricalFocalCrossentropy { .. } | Distance::Dice { .. } | Distance::Tversky { .. } => {
            return None;
        }
    })
}
