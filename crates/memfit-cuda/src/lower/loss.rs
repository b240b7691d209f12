//! Losses with their gradients, and metrics.

use memfit_ir::Operand::{DPrediction, Prediction, SampleWeights, Target};
use memfit_ir::{Bytes, Distance, Loss, LossKind, Metric, Reduction, RowValue};

use super::confusion;
use super::elementwise::number;
use super::sums::{PARTS, part_blocks};
use crate::call::{Call, Name, Operand, THREADS, blocks_for, int, long};
use crate::work::{Argument, Kernel, Lowered, Source};

const TEXT: &str = include_str!("../kernels/loss.cu");

/// Classes that a warp takes alone; for more of them, a block has a sample.
const LOGITS_OF_WARP: usize = 2048;

/// Writes the gradient of the prediction and adds the loss of this micro-batch.
pub(super) fn loss(call: &Call<'_>, loss: &Loss) -> Lowered {
    let kind = loss.kind.of_samples();
    let is_overlap = matches!(kind, LossKind::Distance(distance) if distance.is_overlap());
    let is_sum = matches!(loss.kind, LossKind::Reduced { reduction: Reduction::Sum, .. });
    let sums = Sums {
        gradients: call.output(DPrediction).pointer(),
        weight: loss.weight,
        by_row: is_overlap,
        reduction: if is_sum || kind.mixes_rows() { 1 } else { 0 },
    };
    let mut lowered = Lowered::default();
    let (source, parts, count) = sums.add(call, kind, &mut lowered);
    let arguments =
        vec![parts, count, call.update(Name::Loss).pointer(), Argument::Context, call.overwrite()];
    lowered.kernel(Kernel { source, entry: "add_loss", blocks: [1, 1, 1], threads: THREADS, arguments });
    lowered
}

/// How the losses of samples are added up.
struct Sums {
    gradients: Argument,
    weight: f32,
    /// Whether a row is one sample.
    by_row: bool,
    /// The kernels' `reduction`.
    reduction: i32,
}

impl Sums {
    /// Adds up parts of the loss: the source, where the parts are, and how many.
    fn add(&self, call: &Call<'_>, kind: &LossKind, lowered: &mut Lowered) -> (Source, Argument, Argument) {
        let (prediction, target) = (call.input(Prediction), call.input(Target));
        let row = prediction.shape().elements_per_row();
        let classes = if self.by_row { row } else { prediction.shape().last() }.max(1);
        let in_row = (row / classes).max(1);
        let Weights { pointer: weights, of_row, .. } = Weights::new(call);
        // Samples that have one weight.
        let weighed = in_row / of_row;
        let method = Method::of(kind, classes);
        let source = source(prediction, target, &method.define(prediction));
        let parts = Argument::At(lowered.scratch(Bytes::of::<f64>(PARTS)));
        let (elements, samples) = (prediction.elements, prediction.elements / classes);
        let (weight, reduction) = (Argument::Float(self.weight), Argument::Int(self.reduction));
        let mut arguments =
            vec![prediction.pointer(), target.pointer(), weights, self.gradients, parts, Argument::Context];
        let of_sample = |smoothing: f32| {
            let sizes = [long(samples), long(weighed), long(in_row), int(classes)];
            sizes.into_iter().chain([weight, reduction, Argument::Float(smoothing)])
        };
        let (entry, blocks, threads) = match method {
            Method::Element(_) => {
                let sizes = [elements, weighed * classes, in_row, classes].map(long);
                arguments.extend(sizes.into_iter().chain([weight, reduction]));
                ("elements", part_blocks(elements), THREADS)
            }
            Method::Sample { smoothing, .. } => {
                arguments.extend(of_sample(smoothing));
                ("samples", [few(samples), 1, 1], THREADS)
            }
            Method::NumberedLogits { team } => {
                arguments.extend(of_sample(0.0));
                let threads = team.max(THREADS);
                ("numbered_logits", [few(samples.div_ceil((threads / team) as usize)), 1, 1], threads)
            }
            Method::WholeBatch(_) => {
                let sums = Argument::At(lowered.scratch(Bytes::of::<f64>(3 * PARTS)));
                let blocks = part_blocks(elements);
                let arguments = vec![prediction.pointer(), target.pointer(), sums, long(elements)];
                let entry = "overlap_parts";
                lowered.kernel(Kernel { source: source.clone(), entry, blocks, threads: THREADS, arguments });
                let count = Argument::Int(blocks[0].cast_signed());
                let mut arguments =
                    vec![target.pointer(), self.gradients, sums, count, parts, Argument::Context];
                arguments.extend([long(elements), long(in_row), weight, reduction]);
                let (entry, blocks) = ("overlap_gradients", blocks_for(elements));
                lowered.kernel(Kernel { source: source.clone(), entry, blocks, threads: THREADS, arguments });
                return (source, parts, Argument::Int(1));
            }
        };
        lowered.kernel(Kernel { source: source.clone(), entry, blocks, threads, arguments });
        (source, parts, Argument::Int(blocks[0].cast_signed()))
    }
}

/// Adds the sums of this micro-batch that a metric is made of.
pub(super) fn metric(call: &Call<'_>, metric: &Metric) -> Lowered {
    const CLOSENESS: LossKind = LossKind::Distance(Distance::CosineSimilarity);
    match metric {
        Metric::Mean(RowValue::BinaryAccuracy { threshold }) => hits(call, 0, *threshold),
        Metric::Mean(RowValue::CategoricalAccuracy) => hits(call, 1, 1.0),
        Metric::Mean(RowValue::SparseCategoricalAccuracy) => hits(call, 2, 1.0),
        Metric::Mean(RowValue::Accuracy) => hits(call, 3, 0.0),
        Metric::Mean(RowValue::TopKCategoricalAccuracy { k }) => hits(call, 5, *k as f32),
        Metric::Mean(RowValue::SparseTopKCategoricalAccuracy { k }) => hits(call, 6, *k as f32),
        // The loss is minus what the metric is.
        Metric::Mean(RowValue::CosineSimilarity) => mean_loss(call, &CLOSENESS, -1),
        Metric::Mean(RowValue::Loss(kind)) => mean_loss(call, kind, 1),
        Metric::RootMeanSquaredError => mean_loss(call, &LossKind::MeanSquaredError, 1),
        Metric::Counts(counts) => confusion::counts(call, counts),
        Metric::Iou(iou) => confusion::classes_met(call, iou, metric.is_sparse()),
        Metric::FBeta(score) => confusion::classes_predicted(call, *score),
    }
}

/// The mean of a loss, over a divisor.
fn mean_loss(call: &Call<'_>, kind: &LossKind, divisor: i64) -> Lowered {
    let sums = Sums { gradients: Argument::Null, weight: 1.0, by_row: false, reduction: 2 };
    let mut lowered = Lowered::default();
    let (source, parts, count) = sums.add(call, kind.of_samples(), &mut lowered);
    let weights = if kind.counts_ignored() { Weights::none(call) } else { Weights::new(call) };
    add_metric(call, source, [parts, count], divisor, weights, &mut lowered);
    lowered
}

/// The share of samples that are right; `kind` is the kernel's `METRIC`, which may need a number.
fn hits(call: &Call<'_>, kind: usize, number: f32) -> Lowered {
    let (prediction, target) = (call.input(Prediction), call.input(Target));
    let classes = prediction.shape().last().max(1);
    let in_row = (prediction.shape().elements_per_row() / classes).max(1);
    let source = source(prediction, target, &format!("#define METRIC {kind}\n"));
    let mut lowered = Lowered::default();
    let parts = Argument::At(lowered.scratch(Bytes::of::<f64>(PARTS)));
    let Weights { pointer: weights, of_row, .. } = Weights::new(call);
    let samples = prediction.elements / classes;
    let blocks = part_blocks(samples * 128);
    let mut arguments = vec![prediction.pointer(), target.pointer(), weights, parts];
    arguments.extend([long(samples), long(in_row / of_row), int(classes), Argument::Float(number)]);
    lowered.kernel(Kernel { source: source.clone(), entry: "metric", blocks, threads: THREADS, arguments });
    let count = Argument::Int(blocks[0].cast_signed());
    let divisor = i64::try_from(in_row).expect("a row has fewer samples");
    add_metric(call, source, [parts, count], divisor, Weights::new(call), &mut lowered);
    lowered
}

/// Adds parts up to the two sums of a mean.
fn add_metric(
    call: &Call<'_>,
    source: Source,
    [parts, count]: [Argument; 2],
    divisor: i64,
    weights: Weights,
    lowered: &mut Lowered,
) {
    let Weights { pointer: weights, of_row, count: weights_count } = weights;
    let sums = call.update(Name::Sums).pointer();
    let mut arguments = vec![parts, count, sums, call.overwrite(), Argument::Long(divisor)];
    arguments.extend([weights, long(weights_count), long(of_row)]);
    lowered.kernel(Kernel { source, entry: "add_metric", blocks: [1, 1, 1], threads: THREADS, arguments });
}

/// The weights of rows or of samples, where there are any.
pub(super) struct Weights {
    pub(super) pointer: Argument,
    /// How many a row has: one, or one a sample.
    pub(super) of_row: usize,
    /// How many there are; rows, where there are none.
    pub(super) count: usize,
}

impl Weights {
    pub(super) fn new(call: &Call<'_>) -> Weights {
        match call.input_if_given(SampleWeights) {
            Some(weights) => {
                let (pointer, of_row) = (weights.pointer(), weights.shape().elements_per_row());
                Weights { pointer, of_row, count: weights.elements }
            }
            None => Weights::none(call),
        }
    }

    /// Every row counts by 1.
    fn none(call: &Call<'_>) -> Weights {
        Weights { pointer: Argument::Null, of_row: 1, count: call.rows }
    }
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
enum Method {
    /// Element by element: code that gives `value` and `gradient` from `p` and `t`.
    Element(String),
    /// Sample by sample: the kernel's `SAMPLE`, more defines that it needs, and the share of targets that is
    /// spread.
    Sample { kind: usize, defines: String, smoothing: f32 },
    /// All at once, by the factors of an overlap.
    WholeBatch(String),
    /// Logits with class numbers, by `team` threads a sample.
    NumberedLogits { team: u32 },
}

impl Method {
    fn define(&self, prediction: Operand<'_>) -> String {
        match self {
            Method::NumberedLogits { team } => {
                let width = 16 / prediction.dtype().size();
                format!("#define TEAM {team}\n#define WIDTH {width}\n")
            }
            Method::Element(code) => format!("#define ELEMENT {code}\n"),
            Method::Sample { kind, defines, .. } => format!("#define SAMPLE {kind}\n{defines}"),
            Method::WholeBatch(defines) => defines.clone(),
        }
    }

    fn of(kind: &LossKind, classes: usize) -> Method {
        let sample = |kind: usize, smoothing: f32| Method::Sample { kind, defines: String::new(), smoothing };
        let smooth = |smoothing: f32| format!("t = smoothed(t, {});", number(smoothing));
        Method::Element(match *kind {
            LossKind::MeanSquaredError => "value = (p - t) * (p - t); gradient = 2.0f * (p - t);".to_owned(),
            LossKind::MeanAbsoluteError => "value = fabsf(p - t); gradient = sign_of(p - t);".to_owned(),
            LossKind::Huber { delta } => format!(
                "float d = p - t, delta = {}; bool far = fabsf(d) > delta; \
                 value = far ? delta * fabsf(d) - 0.5f * delta * delta : 0.5f * d * d; \
                 gradient = far ? delta * sign_of(d) : d;",
                number(delta)
            ),
            LossKind::BinaryCrossentropy { from_logits: true, label_smoothing } => {
                format!(
                    "{} value = f_softplus(p) - p * t; gradient = f_sigmoid(p) - t;",
                    smooth(label_smoothing)
                )
            }
            LossKind::BinaryCrossentropy { from_logits: false, label_smoothing } => format!(
                "{} float q = clipped(p); value = -(t * logf(q) + (1.0f - t) * logf(1.0f - q)); \
                 gradient = unless_clipped(p, (q - t) / (q * (1.0f - q)));",
                smooth(label_smoothing)
            ),
            LossKind::CategoricalCrossentropy { from_logits, label_smoothing } => {
                return sample(if from_logits { 0 } else { 2 }, label_smoothing);
            }
            LossKind::UnitCategoricalCrossentropy { label_smoothing } => {
                let defines = "#define UNIT_TARGETS\n".to_owned();
                return Method::Sample { kind: 0, defines, smoothing: label_smoothing };
            }
            LossKind::SparseCategoricalCrossentropy { from_logits: true } => {
                return Method::NumberedLogits { team: if classes <= LOGITS_OF_WARP { 32 } else { 512 } };
            }
            LossKind::SparseCategoricalCrossentropy { from_logits: false } => {
                return sample(3, 0.0);
            }
            LossKind::Distance(Distance::CosineSimilarity) => return sample(4, 0.0),
            LossKind::Distance(Distance::CategoricalHinge) => return sample(5, 0.0),
            LossKind::Distance(Distance::CategoricalFocalCrossentropy {
                from_logits,
                label_smoothing,
                alpha,
                gamma,
            }) => {
                let [alpha, gamma] = [alpha, gamma].map(number);
                let defines = format!(
                    "#define FOCAL\n#define FROM_LOGITS {}\n#define ALPHA {alpha}\n#define GAMMA {gamma}\n",
                    u8::from(from_logits)
                );
                return Method::Sample { kind: 6, defines, smoothing: label_smoothing };
            }
            LossKind::Distance(distance @ (Distance::Dice { .. } | Distance::Tversky { .. })) => {
                let defines = overlap(distance);
                return match distance.mixes_rows() {
                    true => Method::WholeBatch(defines),
                    false => Method::Sample { kind: 7, defines, smoothing: 0.0 },
                };
            }
            LossKind::Distance(distance) => of_distance(distance, classes),
            LossKind::Reduced { .. } => unreachable!("samples have a loss that is not reduced"),
        })
    }
}

/// The factors of `1 − a I / (b I + c T + d P)`.
fn overlap(distance: Distance) -> String {
    let factors = if let Distance::Tversky { alpha, beta, .. } = distance {
        let (alpha, beta) = (f64::from(alpha), f64::from(beta));
        [1.0, 1.0 - alpha - beta, alpha, beta]
    } else {
        [2.0, 0.0, 1.0, 1.0]
    };
    format!("#define RATIO {}\n", factors.map(|factor| format!("{factor:e}")).join(", "))
}

/// The value and gradient of an element of a distance that is a sum over elements.
fn of_distance(distance: Distance, classes: usize) -> String {
    const HINGE: &str = "float side = t == 0.0f ? -1.0f : t; value = 1.0f - side * p; bool none = value < 0.0f; \
                         value = none ? 0.0f : value; gradient = none ? 0.0f : -side;";
    match distance {
        Distance::Poisson => {
            "value = p - t * logf(p + EPSILON); gradient = 1.0f - t / (p + EPSILON);".to_owned()
        }
        Distance::LogCosh => "float d = p - t; value = d + f_softplus(-2.0f * d) - 0.69314718056f; \
                              gradient = 1.0f - 2.0f * f_sigmoid(-2.0f * d);"
            .to_owned(),
        Distance::Hinge => HINGE.to_owned(),
        Distance::SquaredHinge => format!("{HINGE} gradient = 2.0f * value * gradient; value = value * value;"),
        Distance::MeanAbsolutePercentageError => {
            "float factor = 100.0f / fmaxf(fabsf(t), EPSILON); value = factor * fabsf(p - t); \
             gradient = factor * sign_of(p - t);"
                .to_owned()
        }
        Distance::MeanSquaredLogarithmicError => {
            "float gap = logf((p < EPSILON ? EPSILON : p) + 1.0f) - logf((t < EPSILON ? EPSILON : t) + 1.0f); \
             value = gap * gap; gradient = p < EPSILON ? 0.0f : 2.0f * gap / (p + 1.0f);"
                .to_owned()
        }
        Distance::KlDivergence => format!(
            "float count = {}; float q = p < EPSILON ? EPSILON : p; q = q > 1.0f ? 1.0f : q; \
             float u = t < EPSILON ? EPSILON : t; u = u > 1.0f ? 1.0f : u; \
             gradient = p < EPSILON || p > 1.0f ? 0.0f : -u / q * count; value = count * u * (logf(u) - logf(q));",
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
                 float inner = {}; value = factor * entropy; gradient = inner * (factor * along + bend * entropy);",
                number(label_smoothing),
                if from_logits { "f_sigmoid(p)" } else { "p" },
                number(gamma),
                if from_logits { "s * (1.0f - s)" } else { "1.0f" },
            )
        }
        Distance::CategoricalHinge
        | Distance::CosineSimilarity
        | Distance::CategoricalFocalCrossentropy { .. }
        | Distance::Dice { .. }
        | Distance::Tversky { .. } => {
            unreachable!("distances of whole samples have their own kernel")
        }
    }
}
