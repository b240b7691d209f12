//! Shape rules: what each op writes, given what it reads, or why it cannot.

mod layers;
mod losses;

use std::fmt;

use crate::Operand::{
    self, A, Argmax, B, Bias, Dy, Gradient, Ids, K, Kernel, LogSumExp, Mask, Mean, Prediction, Q,
    SampleWeights, Squares, Sum, Table, V, Variance, Weight, X, Y,
};
use crate::{Change, DType, Named, Op, OperandList, Shape, Tensor};

/// Shape and element type of a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Type {
    /// Dimensions.
    pub shape: Shape,
    /// Element type.
    pub dtype: DType,
}

/// Why operands do not suit an op.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShapeError {
    /// The op's name.
    pub op: &'static str,
    /// What the op requires.
    pub expected: String,
    /// What it was given.
    pub got: String,
}

impl fmt::Display for ShapeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: expected {}, got {}", self.op, self.expected, self.got)
    }
}

impl std::error::Error for ShapeError {}

/// The types of an op's outputs, or why the inputs do not suit it.
pub fn infer(op: &Op, inputs: &[&Tensor]) -> Result<Vec<Type>, ShapeError> {
    Rule { op, names: op.operands().inputs, inputs }.infer()
}

struct Rule<'a> {
    op: &'a Op,
    names: OperandList,
    inputs: &'a [&'a Tensor],
}

fn f32(shape: Shape) -> Type {
    Type { shape, dtype: DType::F32 }
}

fn is_float(dtype: DType) -> bool {
    match dtype {
        DType::F32 | DType::F16 | DType::BF16 => true,
        DType::I32 | DType::I64 | DType::U8 | DType::Bool => false,
    }
}

impl Rule<'_> {
    fn infer(&self) -> Result<Vec<Type>, ShapeError> {
        if !self.names.counts().contains(&self.inputs.len()) {
            return Err(self.error(&self.names.describe_count()));
        }
        Ok(match self.op {
            Op::Dense => vec![self.dense()?],
            Op::DenseGradInput => {
                let (dy, kernel) = (self.floats(Dy)?, self.weight(Kernel)?);
                let sides = beginning(kernel.dims.iter().rev(), dy.last());
                self.require(sides, "dy[…,out] and kernel[in,out]")?;
                vec![self.typed(with_last(dy, kernel.elements_per_row() / dy.last().max(1)))]
            }
            Op::DenseGradKernel => {
                let (x, dy) = (self.floats(X)?, self.alike(Dy)?);
                let same = x.dims.len() == dy.dims.len()
                    && x.dims.split_last().map(|s| s.1) == dy.dims.split_last().map(|s| s.1);
                self.require(same, "x and dy alike but in the last axis")?;
                vec![]
            }
            Op::BiasGrad => {
                self.floats(Dy)?;
                vec![]
            }
            Op::SumSquares | Op::CheckFinite(_) => {
                self.singles(Gradient)?;
                vec![]
            }
            Op::Cast(dtype) => {
                self.require(is_float(*dtype), "a type of floats to cast to")?;
                vec![Type { shape: self.floats(X)?.clone(), dtype: *dtype }]
            }
            Op::Fused(fused) => fused.infer(self.inputs)?,
            Op::Conv2D(conv) => vec![self.conv(conv)?],
            Op::Conv2DGradInput(conv, size) => {
                let (dy, kernel) = (self.image(Dy)?, self.singles(Kernel)?);
                self.require(
                    kernel.dims.len() == 4 && kernel.last() == dy[2],
                    "kernel[h,w,in,out] and dy[…,out]",
                )?;
                let channels = kernel.dims[2] * conv.groups;
                vec![self.typed(self.like(Dy, [size[0], size[1], channels]))]
            }
            Op::Conv2DGradKernel(_) => {
                self.image(X)?;
                self.image(Dy)?;
                vec![]
            }
            Op::Conv3D(conv) => vec![self.conv3d(conv)?],
            Op::Conv3DGradInput(conv, size) => {
                let ([_, _, _, filters], kernel) = (self.volume(Dy)?, self.singles(Kernel)?);
                self.require(
                    kernel.dims.len() == 5 && kernel.last() == filters,
                    "kernel[d,h,w,in,out] and dy[…,out]",
                )?;
                let channels = kernel.dims[3] * conv.groups;
                vec![self.typed(self.like(Dy, [size[0], size[1], size[2], channels]))]
            }
            Op::Conv3DGradKernel(_) => {
                self.volume(X)?;
                self.volume(Dy)?;
                vec![]
            }
            Op::ActivityPenalty(_) => {
                vec![self.typed(self.floats(X)?.clone())]
            }
            Op::Mask(mask) => vec![self.mask(*mask)?],
            Op::BalanceWeights => {
                vec![f32(self.singles(SampleWeights)?.clone())]
            }
            Op::MaxPool2D(pool) | Op::MaxPool2DRelu(pool) => self.max_pool(pool, self.image(X)?)?,
            Op::ArgmaxBiasGrad => {
                let same = *self.floats(Dy)? == self.tensor(Argmax).shape;
                self.require(same && self.tensor(Argmax).dtype == DType::U8, "an argmax for each of dy")?;
                vec![]
            }
            Op::AveragePool2D(pool) => {
                vec![self.typed(self.pool(X, pool, self.image(X)?)?)]
            }
            Op::MaxPool2DGrad(pool, size) => {
                let [_, _, channels] = self.image(Dy)?;
                let argmax = self.tensor(Argmax);
                let alike = self.tensor(Dy).shape == argmax.shape && argmax.dtype == DType::U8;
                self.require(alike, "an argmax for each of dy")?;
                let windows = self.pool(Dy, pool, [size[0], size[1], channels])?;
                self.require(windows == argmax.shape, "the windows of an image of this size")?;
                vec![self.typed(self.like(Dy, [size[0], size[1], channels]))]
            }
            Op::AveragePool2DGrad(_, size) => {
                let [_, _, channels] = self.image(Dy)?;
                vec![self.typed(self.like(Dy, [size[0], size[1], channels]))]
            }
            Op::GlobalAveragePool2D => {
                let [_, _, channels] = self.image(X)?;
                vec![self.typed(self.like(X, [channels]))]
            }
            Op::GlobalMaxPool2D => {
                let [_, _, channels] = self.image(X)?;
                let shape = self.like(X, [channels]);
                vec![self.typed(shape.clone()), Type { shape, dtype: DType::I32 }]
            }
            Op::GlobalAveragePool2DGrad(size) | Op::GlobalMaxPool2DGrad(size) => {
                let channels = self.floats(Dy)?.last();
                vec![self.typed(self.like(Dy, [size[0], size[1], channels]))]
            }
            Op::Elementwise(chain) => {
                self.require(chain.is_well_formed(), "a chain whose links read earlier values")?;
                for index in 0..chain.inputs {
                    self.alike((X, index))?;
                    self.require(
                        self.tensor((X, index)).shape == self.tensor(X).shape,
                        "operands of one shape",
                    )?;
                }
                vec![self.typed(self.tensor(X).shape.clone())]
            }
            Op::SignBits { .. } => {
                let shape = self.floats(Y)?;
                let bytes = shape.elements_per_row().div_ceil(8);
                vec![Type { shape: self.like(Y, [bytes]), dtype: DType::U8 }]
            }
            Op::Softmax | Op::Dropout { .. } | Op::BatchNormInference(_) => {
                vec![self.typed(self.floats(X)?.clone())]
            }
            Op::MaskBits
            | Op::SoftmaxGrad
            | Op::BatchNormGrad(_)
            | Op::BatchNormInferenceGrad(_)
            | Op::LayerNormGrad(..) => vec![self.typed(self.floats(Dy)?.clone())],
            Op::Loss(loss) => {
                self.targets(loss.kind.is_sparse())?;
                self.loss_axes(&loss.kind)?;
                vec![self.typed(self.tensor(Prediction).shape.clone())]
            }
            Op::Metric(metric) => {
                self.targets(metric.is_sparse())?;
                self.metric_axes(metric)?;
                vec![]
            }
            Op::BatchNormStatistics => {
                let channels = self.floats(X)?.last();
                vec![f32(Shape::fixed([channels])), f32(Shape::fixed([channels]))]
            }
            Op::BatchNorm(norm) => vec![self.typed(self.norm(norm, 1, &[Mean, Variance])?)],
            Op::BatchNormMoving { .. } => vec![],
            Op::LayerNorm(norm, axes) => {
                let shape = self.norm(norm, *axes, &[])?;
                let kept = shape.dims[..shape.dims.len() - axes].to_vec();
                let statistic = Shape { batched: shape.batched, dims: kept };
                vec![self.typed(shape), f32(statistic.clone()), f32(statistic)]
            }
            Op::Attention(_) => {
                let [queries, heads, width] = self.attention()?;
                self.attention_masks([queries, self.tensor(K).shape.dims[0]])?;
                vec![self.typed(self.like(Q, [queries, heads, width])), f32(self.like(Q, [heads, queries]))]
            }
            Op::AttentionGrad(_) => {
                let [queries, heads, width] = self.attention()?;
                self.attention_masks([queries, self.tensor(K).shape.dims[0]])?;
                let alike = [Dy, Y].map(|operand| self.tensor(operand).shape.dims == [queries, heads, width]);
                self.require(alike == [true; 2], "dy and y of what the attention writes")?;
                self.require(
                    self.floats(LogSumExp)?.dims == [heads, queries],
                    "a log sum for each head and query",
                )?;
                [Q, K, V].map(|operand| self.typed(self.tensor(operand).shape.clone())).into()
            }
            Op::Augment(augment) => {
                let [height, width, channels] = self.image(X)?;
                let dims = match augment.change {
                    Change::Crop { height: rows, width: columns } => {
                        let fits = rows <= height && columns <= width;
                        self.require(fits, &format!("an image of at least {rows}×{columns}"))?;
                        [rows, columns, channels]
                    }
                    Change::Flip { .. }
                    | Change::Rotate { .. }
                    | Change::Translate { .. }
                    | Change::Zoom { .. }
                    | Change::Contrast { .. }
                    | Change::Brightness { .. } => [height, width, channels],
                };
                vec![self.typed(self.like(X, dims))]
            }
            Op::Recurrent(kind) => {
                let (x, kernel) = (self.floats(X)?, self.singles(Kernel)?);
                let (gates, units) = (kind.cell.gates(), kernel.dims.first().copied().unwrap_or(0));
                let [rows, wide] = x.dims[..] else { return Err(self.error("x[steps,gates·units]")) };
                let steps = rows.saturating_sub(kind.rows_after_input());
                let fits = x.batched && 0 < steps && wide == gates * units && kernel.dims == [units, wide];
                self.require(fits, "x[steps,gates·units] and kernel[units,gates·units]")?;
                self.mask_of(Mask, steps)?;
                if let Some(bias) = self.given(Bias) {
                    let wanted = kind.cell.biases() * wide;
                    self.require(bias.shape.elements_per_row() == wanted, &format!("{wanted} biases"))?;
                }
                let outputs = [(steps + kind.rows_after_states(), units), (steps, kind.cell.kept() * units)];
                let outputs = outputs.into_iter().filter(|(_, wide)| *wide > 0);
                outputs.map(|(rows, wide)| self.typed(self.like(X, [rows, wide]))).collect()
            }
            Op::RecurrentGrad(kind) => {
                let (dy, y) = (self.floats(Dy)?, self.alike(Y)?);
                let [rows, units] = dy.dims[..] else { return Err(self.error("dy[steps,units]")) };
                self.require(dy == y && kind.rows_after_states() < rows, "dy and y of one shape")?;
                let rows = rows - kind.rows_after_states() + kind.rows_after_input();
                vec![self.typed(self.like(Dy, [rows, kind.cell.gates() * units]))]
            }
            Op::Pad2D(pads) => {
                let [height, width, channels] = self.image(X)?;
                vec![self.typed(self.like(X, [height + pads.height(), width + pads.width(), channels]))]
            }
            Op::Crop2D(pads) => {
                let [height, width, channels] = self.image(X)?;
                self.require(
                    pads.height() < height && pads.width() < width,
                    "an image larger than what is cut off",
                )?;
                vec![self.typed(self.like(X, [height - pads.height(), width - pads.width(), channels]))]
            }
            Op::UpSample2D(size, _) => {
                let [height, width, channels] = self.image(X)?;
                vec![self.typed(self.like(X, [height * size[0], width * size[1], channels]))]
            }
            Op::UpSample2DGrad(size, _) => {
                let [height, width, channels] = self.image(Dy)?;
                let whole = height % size[0] == 0 && width % size[1] == 0;
                self.require(whole, "an image that is a multiple of the factor")?;
                vec![self.typed(self.like(Dy, [height / size[0], width / size[1], channels]))]
            }
            Op::Noise(noise) => {
                let shape = self.floats(X)?;
                self.require(stretches(&noise.dims, &shape.dims), "values that the noise stretches to")?;
                vec![self.typed(shape.clone())]
            }
            Op::Affine { .. } => vec![self.typed(self.affine()?)],
            Op::AffineGradScale => {
                self.require(self.floats(X)? == self.alike(Dy)?, "x and dy of one shape")?;
                vec![]
            }
            Op::AffineConstant { scale, offset } => {
                let shape = self.floats(X)?;
                let suits = !shape.dims.is_empty() && [scale.len(), offset.len()] == [shape.last(); 2];
                self.require(suits, &format!("a last axis of {}", scale.len()))?;
                vec![self.typed(shape.clone())]
            }
            Op::Resize2D(size, _) => vec![self.typed(self.resize(X, *size)?)],
            Op::Resize2DGrad(size, _) => vec![self.typed(self.resize(Dy, *size)?)],
            Op::Transpose(order) => {
                let shape = self.floats(X)?;
                let mut sorted = order.clone();
                sorted.sort_unstable();
                self.require(sorted.iter().copied().eq(0..shape.dims.len()), &format!("axes {sorted:?}"))?;
                vec![self.typed(self.like(X, order.iter().map(|axis| shape.dims[*axis]).collect::<Vec<_>>()))]
            }
            Op::Broadcast(dims) => {
                let from = self.floats(X)?;
                self.require(stretches(&from.dims, dims), &format!("dimensions that stretch to {dims:?}"))?;
                vec![self.typed(self.like(X, dims.clone()))]
            }
            Op::SumTo(dims) => {
                let from = self.floats(X)?;
                self.require(stretches(dims, &from.dims), &format!("dimensions that {dims:?} stretch to"))?;
                vec![self.typed(self.like(X, dims.clone()))]
            }
            Op::Concat(axis) => vec![self.typed(self.concat(*axis)?)],
            Op::Slice { axis, start, length } => {
                let mut shape = self.floats(X)?.clone();
                let inside = shape.dims.get(*axis).is_some_and(|size| start + length <= *size);
                self.require(inside, &format!("an axis {axis} with at least {} indices", start + length))?;
                shape.dims[*axis] = *length;
                vec![self.typed(shape)]
            }
            Op::PadAxis { axis, before, after } => {
                let mut shape = self.floats(X)?.clone();
                self.require(*axis < shape.dims.len(), &format!("an axis {axis} after the batch"))?;
                shape.dims[*axis] += before + after;
                vec![self.typed(shape)]
            }
            Op::MatMul(product) => {
                let (a, b) = (self.floats(A)?, self.alike(B)?);
                let Some(sizes) = product.sizes(a, b) else {
                    return Err(self.error("a[…,m,k] and b[…,k,n], alike in the axes before"));
                };
                let mut dims = a.dims[..a.dims.len() - 2].to_vec();
                dims.extend([sizes.m, sizes.n]);
                vec![self.typed(self.like(A, dims))]
            }
            Op::Embedding => {
                let table = self.singles(Table)?;
                self.require(table.dims.len() == 2, "a table[entries,width]")?;
                self.ids(Ids)?;
                let mut shape = self.tensor(Ids).shape.clone();
                shape.dims.push(table.last());
                vec![f32(shape)]
            }
            Op::EmbeddingGrad => {
                self.ids(Ids)?;
                vec![]
            }
            Op::Reshape(dims) => {
                let from = &self.tensor(X).shape;
                let wanted: usize = dims.iter().product();
                self.require(
                    wanted == from.elements_per_row(),
                    &format!("{wanted} elements a row for {dims:?}"),
                )?;
                vec![Type { shape: self.like(X, dims.clone()), dtype: self.tensor(X).dtype }]
            }
            Op::TakeRows => {
                vec![Type { shape: self.tensor(X).shape.clone(), dtype: self.tensor(X).dtype }]
            }
            Op::PutRows => {
                vec![]
            }
            Op::Zero | Op::AddZero => vec![],
            // Of the weight, which stands elsewhere, the gradient op has seen the shape.
            Op::Update(_) => {
                vec![]
            }
            Op::Accumulate(_) => {
                self.singles(Gradient)?;
                vec![]
            }
            Op::AddAccumulated(_) => {
                self.singles(Sum)?;
                vec![]
            }
            Op::KeepAccumulated => {
                self.singles(Gradient)?;
                vec![]
            }
            Op::CheckUpdate(_) => {
                vec![]
            }
            Op::CorrectSquares(_) => {
                self.singles(Gradient)?;
                self.singles(Squares)?;
                vec![]
            }
            Op::Penalty(_) => {
                self.singles(Weight)?;
                vec![]
            }
            Op::Constrain(_) => {
                vec![]
            }
        })
    }

    fn bias(&self, width: usize) -> Result<(), ShapeError> {
        if self.given(Bias).is_some() {
            let bias = self.singles(Bias)?;
            self.require(!bias.batched && bias.elements_per_row() == width, &format!("a bias of {width}"))?;
        }
        Ok(())
    }

    fn image(&self, operand: impl Into<Named>) -> Result<[usize; 3], ShapeError> {
        let shape = self.floats(operand)?;
        match shape.dims[..] {
            [height, width, channels] if shape.batched => Ok([height, width, channels]),
            _ => Err(self.error("an image [batch,height,width,channels]")),
        }
    }

    fn volume(&self, operand: impl Into<Named>) -> Result<[usize; 4], ShapeError> {
        let shape = self.floats(operand)?;
        match shape.dims[..] {
            [depth, height, width, channels] if shape.batched => Ok([depth, height, width, channels]),
            _ => Err(self.error("a volume [batch,depth,height,width,channels]")),
        }
    }

    fn floats(&self, operand: impl Into<Named>) -> Result<&Shape, ShapeError> {
        match self.given(operand) {
            Some(tensor) if is_float(tensor.dtype) => Ok(&tensor.shape),
            _ => Err(self.error("operands of floats")),
        }
    }

    /// An operand that is f32 whatever the type of the others: a weight, a statistic, the gradient of a weight.
    fn singles(&self, operand: impl Into<Named>) -> Result<&Shape, ShapeError> {
        match self.given(operand) {
            Some(tensor) if tensor.dtype == DType::F32 => Ok(&tensor.shape),
            _ => Err(self.error("f32 operands")),
        }
    }

    /// A weight of a product: f32, or rounded to the type of the first operand.
    fn weight(&self, operand: Operand) -> Result<&Shape, ShapeError> {
        self.singles(operand).or_else(|_| self.alike(operand))
    }

    /// An operand of the type of the first.
    fn alike(&self, operand: impl Into<Named>) -> Result<&Shape, ShapeError> {
        let operand = operand.into();
        let shape = self.floats(operand)?;
        self.require(self.tensor(operand).dtype == self.inputs[0].dtype, "operands of one type")?;
        Ok(shape)
    }

    /// A value of the type of the first operand.
    fn typed(&self, shape: Shape) -> Type {
        Type { shape, dtype: self.inputs[0].dtype }
    }

    fn like(&self, operand: Operand, dims: impl Into<Vec<usize>>) -> Shape {
        Shape { batched: self.tensor(operand).shape.batched, dims: dims.into() }
    }

    fn tensor(&self, operand: impl Into<Named>) -> &Tensor {
        self.given(operand).expect("operands were counted")
    }

    /// An operand that may not be there.
    fn given(&self, operand: impl Into<Named>) -> Option<&Tensor> {
        let operand = operand.into();
        assert!(self.names.has(operand.operand), "{} has no operand `{operand}`", self.op.name());
        self.names.place(operand, self.inputs.len()).map(|place| self.inputs[place])
    }

    fn require(&self, holds: bool, expected: &str) -> Result<(), ShapeError> {
        if holds { Ok(()) } else { Err(self.error(expected)) }
    }

    fn error(&self, expected: &str) -> ShapeError {
        let got: Vec<String> =
            self.inputs.iter().map(|tensor| format!("{}{}", tensor.dtype, tensor.shape)).collect();
        ShapeError { op: self.op.name(), expected: expected.to_owned(), got: got.join(", ") }
    }
}

fn windows(size: usize, span: usize, stride: usize) -> Option<usize> {
    size.checked_sub(span).map(|room| room / stride + 1)
}

fn with_last(shape: &Shape, last: usize) -> Shape {
    let mut shape = shape.clone();
    *shape.dims.last_mut().expect("checked by the caller to have a last axis") = last;
    shape
}

/// Whether the leading axes of a kernel, from one end on, have this many elements together. Either side of
/// that matrix may be several axes.
fn beginning<'a>(mut axes: impl ExactSizeIterator<Item = &'a usize>, elements: usize) -> bool {
    let mut product = 1;
    while axes.len() > 1 {
        product *= axes.next().expect("there are axes left");
        if product == elements {
            return true;
        }
    }
    false
}

fn stretches(small: &[usize], large: &[usize]) -> bool {
    small.len() == large.len() && small.iter().zip(large).all(|(s, l)| s == l || *s == 1)
}
