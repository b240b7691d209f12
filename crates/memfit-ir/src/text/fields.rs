//! Every type's fields and variants, once: printing and parsing both follow from these lists.

use super::{Parser, Printer, Text};
use crate::{
    Accumulate, AddEpilogue, AtRate, Attention, AttentionDropout, Augment, Average, Binary, Budget, Bytes,
    Cell, Chain, Change, CheckUpdate, ClassAverage, ClassOf, Clip, Constraint, Conv2D, Conv3D, Cost, Counts,
    Curve, DType, Distance, FBeta, Fill, FusedUpdate, Gate, Initializer, Interpolation, Iou, Kind,
    LOW_WORKSPACE, Link, Loss, LossKind, LowWorkspace, Mask, MatMul, Metric, Nanos, Node, Noise, NoiseKind,
    Norm, Op, Orthogonal, Pads, Phase, Pinned, Place, Pool2D, PooledConv2D, Producer, Rate, Recurrent,
    Reduction, Region, Regularizer, Rewrite, Rewritten, RowValue, Sampling, Slice, Step, Summation, Tensor,
    Thresholds, Transfers, Unary, Update, UpdateRule,
};

/// `{field=value …}`; a field with a default is left out where it has that value.
macro_rules! structs {
    ($($name:ident { $($field:ident $(or $default:expr)?),* $(,)? })*) => {$(
        impl Text for $name {
            fn print(&self, printer: &mut Printer) {
                let $name { $($field),* } = self;
                printer.write("{");
                $(printer.field(stringify!($field), $field, None$(.or(Some(&$default)))?);)*
                printer.write("}");
            }

            fn parse(parser: &mut Parser<'_>) -> Result<$name, String> {
                parser.symbol('{')?;
                $(let $field = parser.field(stringify!($field), None$(.or(Some($default)))?)?;)*
                parser.symbol('}')?;
                Ok($name { $($field),* })
            }
        }
    )*};
}

/// `Variant`, `Variant(value …)` or `Variant{field=value …}`.
macro_rules! enums {
    ($($name:ident { $($variant:ident $(($($value:ident),*))? $({$($field:ident),*})?),* $(,)? })*) => {$(
        impl $crate::text::Text for $name {
            fn print(&self, printer: &mut $crate::text::Printer) {
                match self {
                    $($name::$variant $(($($value),*))? $({$($field),*})? => {
                        printer.write(stringify!($variant));
                        $(
                            printer.write("(");
                            $(printer.value($value);)*
                            printer.write(")");
                        )?
                        $(
                            printer.write("{");
                            $(printer.field(stringify!($field), $field, None);)*
                            printer.write("}");
                        )?
                    })*
                }
            }

            fn parse(parser: &mut $crate::text::Parser<'_>) -> Result<$name, String> {
                match parser.word()? {
                    $(stringify!($variant) => {
                        $(
                            parser.symbol('(')?;
                            $(let $value = $crate::text::Text::parse(parser)?;)*
                            parser.symbol(')')?;
                        )?
                        $(
                            parser.symbol('{')?;
                            $(let $field = parser.field(stringify!($field), None)?;)*
                            parser.symbol('}')?;
                        )?
                        Ok($name::$variant $(($($value),*))? $({$($field),*})?)
                    })*
                    other => Err(format!("`{other}` is no {}", stringify!($name))),
                }
            }
        }
    )*};
}
pub(crate) use enums;

structs! {
    Tensor { name, shape, dtype, kind, layer, slice or None }
    Node { op, inputs, outputs, updates or Vec::new(), layer, phase or Phase::Piece }
    Region { boundary, slices, keeps }
    Slice { index, count, of }
    Cost {
        workspace_fixed or Bytes::ZERO,
        workspace_per_row or Bytes::ZERO,
        nanos_fixed,
        nanos_per_row,
        measured or None,
        leaner or [None; LOW_WORKSPACE],
    }
    LowWorkspace { workspace_fixed, nanos }
    Nanos { fixed, per_row }
    Pinned { micro_batch or None, region or None, algorithms or Vec::new() }
    Budget { total, runtime, granule, host }
    Transfers { nanos_per_byte_fed, nanos_per_byte_moved, nanos_per_byte_copied, feeds_ahead }
    Conv2D { kernel, strides or [1, 1], dilation or [1, 1], groups or 1, pads or Pads::default() }
    Conv3D { kernel, strides, dilation, groups, pads }
    Pool2D { window, strides, pads or Pads::default() }
    PooledConv2D { conv, relu }
    Pads { top, bottom, left, right }
    Chain { inputs, links }
    Producer { norm, function }
    Norm { epsilon, scale, center }
    Attention { scale, causal, query_mask, key_mask, dropout }
    AttentionDropout { rate, seed }
    Recurrent { cell, reads_backwards, writes_backwards, masked, starts, ends }
    MatMul { transpose_a, transpose_b }
    Loss { kind, weight }
    Counts { thresholds, class, top_k, from_logits, labels, of }
    Iou { classes, wanted, one_hot, prediction, ignored }
    FBeta { beta, threshold, average }
    Augment { change, seed }
    Sampling { interpolation, fill }
    Noise { kind, seed, dims }
    Accumulate { steps, guarded }
    Update { rule, clip or Clip::None, weight_decay, guarded or false, steps or 1, average or None }
    CheckUpdate { number, update }
    Average { momentum, overwrite_every }
    FusedUpdate { gradient, weight_at, update }
    Regularizer { l1, l2, orthogonal }
    Orthogonal { factor, by_rows }
}

enums! {
    Step { Launch { node, args, workspace, fresh }, Copy { from, to }, Wait(slot) }
    Place { Feed(tensor), Arena(slot), Host(slot) }
    Rewrite { FuseUpdate(tensor), FuseProducer(tensor), Slice(region) }
    Rewritten { Reader(node), Update(gradient) }
    DType { F32, F16, BF16, I32, I64, U8, Bool }
    Kind { Input, Weight { trainable }, Optimizer, Gradient, Flow, Activation, Statistic }
    Phase { Begin, Piece, End }
    Initializer {
        Constant(value),
        Uniform { low, high, seed },
        Normal { mean, stddev, seed },
        Ones { start, end },
        Orthogonal { gain, columns, seed },
        TruncatedNormal { mean, stddev, seed },
    }
    Op {
        Fused(fused),
        Dense,
        DenseGradInput,
        DenseGradKernel,
        BiasGrad,
        Conv2D(conv),
        Conv2DGradInput(conv, image),
        Conv2DGradKernel(conv),
        Conv3D(conv),
        Conv3DGradInput(conv, volume),
        Conv3DGradKernel(conv),
        MaxPool2D(pool),
        MaxPool2DRelu(pool),
        ArgmaxBiasGrad,
        MaxPool2DGrad(pool, image),
        AveragePool2D(pool),
        AveragePool2DGrad(pool, image),
        GlobalAveragePool2D,
        GlobalAveragePool2DGrad(image),
        GlobalMaxPool2D,
        GlobalMaxPool2DGrad(image),
        Elementwise(chain),
        SignBits { below },
        MaskBits,
        Softmax,
        SoftmaxGrad,
        BalanceWeights,
        Loss(loss),
        ActivityPenalty(regularizer),
        Mask(mask),
        Metric(metric),
        Dropout { rate, seed },
        Augment(augment),
        Noise(noise),
        Affine { scale, center },
        AffineGradScale,
        AffineConstant { scale, offset },
        BatchNormStatistics,
        BatchNorm(norm),
        BatchNormGrad(norm),
        BatchNormMoving { momentum },
        BatchNormInference(norm),
        BatchNormInferenceGrad(norm),
        LayerNorm(norm, axes),
        LayerNormGrad(norm, axes),
        Attention(attention),
        AttentionGrad(attention),
        Recurrent(recurrent),
        RecurrentGrad(recurrent),
        Pad2D(pads),
        Crop2D(pads),
        UpSample2D(factors, interpolation),
        UpSample2DGrad(factors, interpolation),
        Resize2D(image, interpolation),
        Resize2DGrad(image, interpolation),
        Transpose(axes),
        Broadcast(dims),
        SumTo(dims),
        Concat(axis),
        Slice { axis, start, length },
        PadAxis { axis, before, after },
        MatMul(matmul),
        Embedding,
        EmbeddingGrad,
        Reshape(dims),
        Cast(dtype),
        TakeRows,
        PutRows,
        Zero,
        AddZero,
        SumSquares,
        CheckFinite(count),
        Accumulate(accumulate),
        AddAccumulated(steps),
        KeepAccumulated,
        CorrectSquares(factor),
        Update(update),
        CheckUpdate(check),
        Penalty(regularizer),
        Constrain(constraint),
    }
    Interpolation { Nearest, Bilinear }
    Link { Unary(function, value), Binary(function, left, right) }
    Unary {
        Relu,
        ReluGeneral { negative_slope, max_value, threshold },
        LeakyRelu(negative_slope),
        Elu(alpha),
        Gelu,
        Silu,
        Sigmoid,
        Tanh,
        Softplus,
        Exp,
        Log,
        Sqrt,
        Rsqrt,
        Reciprocal,
        Square,
        Abs,
        Power(exponent),
        Clip { low, high },
        Sin,
        Cos,
        Scale(factor),
        Offset(summand),
    }
    Binary { Add, Subtract, Multiply, Divide, Maximum, Minimum, GreaterEqual, Derivative(function) }
    AddEpilogue { Dense, DenseGradInput, LayerNormGrad(norm, axes) }
    LossKind {
        MeanSquaredError,
        MeanAbsoluteError,
        Huber { delta },
        BinaryCrossentropy { from_logits, label_smoothing },
        CategoricalCrossentropy { from_logits, label_smoothing },
        UnitCategoricalCrossentropy { label_smoothing },
        SparseCategoricalCrossentropy { from_logits },
        Distance(distance),
        Reduced { kind, reduction, ignore_class },
    }
    Distance {
        Poisson,
        LogCosh,
        Hinge,
        SquaredHinge,
        MeanAbsolutePercentageError,
        MeanSquaredLogarithmicError,
        KlDivergence,
        BinaryFocalCrossentropy { from_logits, label_smoothing, alpha, gamma },
        CategoricalHinge,
        CategoricalFocalCrossentropy { from_logits, label_smoothing, alpha, gamma },
        Dice { axes },
        Tversky { alpha, beta, axes },
        CosineSimilarity,
    }
    Reduction { Mean, Sum, MeanOfWeights }
    Mask { NotZero, OtherClass(class), AnyOther(value) }
    Metric { Mean(value), RootMeanSquaredError, Counts(counts), Iou(iou), FBeta(fbeta) }
    RowValue {
        BinaryAccuracy { threshold },
        Accuracy,
        CategoricalAccuracy,
        SparseCategoricalAccuracy,
        TopKCategoricalAccuracy { k },
        SparseTopKCategoricalAccuracy { k },
        CosineSimilarity,
        Loss(kind),
    }
    ClassOf { Largest, Number, AtLeast(threshold) }
    ClassAverage { Micro, Macro, Weighted, None }
    Thresholds { At(values), Even { count, open } }
    Rate {
        TruePositives,
        FalsePositives,
        TrueNegatives,
        FalseNegatives,
        Precision,
        Recall,
        Specificity,
        Auc { curve, summation },
        Best { rate, least },
    }
    AtRate { SensitivityAtSpecificity, SpecificityAtSensitivity, PrecisionAtRecall, RecallAtPrecision }
    Curve { Roc, Pr }
    Summation { Interpolation, Minoring, Majoring }
    Change {
        Flip { horizontal, vertical },
        Crop { height, width },
        Rotate { turns, sampling },
        Translate { height, width, sampling },
        Zoom { height, width, sampling },
        Contrast { factor, range },
        Brightness { share, range },
    }
    Fill { Constant(value), Nearest, Reflect, Wrap }
    NoiseKind { Dropout { rate }, Add { stddev }, Multiply { stddev }, Alpha { rate }, AlphaGrad { rate } }
    Cell { Simple { activation }, Lstm { activation, recurrent }, Gru { activation, recurrent, reset_after } }
    Gate { Linear, Relu, Sigmoid, Tanh }
    UpdateRule {
        Sgd { momentum, nesterov },
        Adam { beta_1, beta_2, epsilon, amsgrad },
        Rmsprop { rho, momentum, epsilon, centered },
        Adagrad { initial_accumulator_value, epsilon },
        Adadelta { rho, epsilon },
        Adamax { beta_1, beta_2, epsilon },
        Nadam { beta_1, beta_2, epsilon },
        Ftrl { learning_rate_power, initial_accumulator_value, l1, l2, l2_shrinkage, beta },
        Lion { beta_1, beta_2 },
        Adafactor { beta_2_decay, epsilon_1, epsilon_2, clip_threshold, relative_step },
        Lamb { beta_1, beta_2, epsilon },
    }
    Clip { None, Value(most), Norm(most) }
    Constraint {
        NonNeg,
        MaxNorm { max_value, axes },
        UnitNorm { axes },
        MinMaxNorm { min_value, max_value, rate, axes },
    }
}
