//! The table of all ops and their facts.

use std::fmt::{self, Write};

use super::{Along, Axes, OperandList, Presence, Signature};
use crate::*;

impl Signature {
    /// The signatures of all ops, each as one with all that its fields can ask for.
    pub fn all() -> Vec<Signature> {
        let fused = Fused::examples().into_iter().map(Op::Fused);
        examples().into_iter().chain(fused).map(|op| op.signature()).collect()
    }
}

impl fmt::Display for Along {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Along::Independent => "independent",
            Along::Summed => "summed",
            Along::Mixed => "mixed",
        })
    }
}

impl fmt::Display for CostClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            CostClass::Bytes => "bytes",
            CostClass::Product => "product",
            CostClass::Convolution => "convolution",
        })
    }
}

/// Operands in brackets are there as fields or the node say; those with dots may be several.
impl fmt::Display for OperandList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (operand, presence)) in self.places().iter().enumerate() {
            let name = operand.name();
            let comma = if index == 0 { "" } else { ", " };
            match presence {
                Presence::Always => write!(f, "{comma}{name}")?,
                Presence::Optional | Presence::Asked { .. } => write!(f, "{comma}[{name}]")?,
                Presence::Repeated => write!(f, "{comma}{name}…")?,
            }
        }
        Ok(())
    }
}

/// The batch, what stands after it, and the last axes from where they differ.
impl fmt::Display for Axes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let letter = |along: Along| match along {
            Along::Independent => 'i',
            Along::Summed => 's',
            Along::Mixed => 'm',
        };
        let mut text = String::new();
        text.push(self.batch.map_or('-', letter));
        write!(text, " {}…", letter(self.inner))?;
        for along in self.last.iter().skip_while(|along| **along == self.inner) {
            write!(text, " {}", letter(*along))?;
        }
        if self.mixed.is_some() {
            text.push_str(" (axis: m)");
        }
        f.pad(&text)
    }
}

/// One line: `reads → writes ⇒ changes`, and the facts.
impl fmt::Display for Signature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:<27}{:<20}{:<12}", self.name, self.facts.axes, self.facts.cost_class)?;
        let mut parts = vec![self.inputs.to_string()];
        parts.retain(|part| !part.is_empty());
        if !self.outputs.places().is_empty() {
            parts.push(format!("→ {}", self.outputs));
        }
        if !self.updates.places().is_empty() {
            parts.push(format!("⇒ {}", self.updates));
        }
        f.write_str(&parts.join(" "))?;
        let pairs: Vec<String> =
            self.in_place().map(|(output, input)| format!("{}={}", output.name(), input.name())).collect();
        if !pairs.is_empty() {
            write!(f, "; {}", pairs.join(" "))?;
        }
        for fact in self.facts.words() {
            write!(f, "; {fact}")?;
        }
        Ok(())
    }
}

impl super::Facts {
    /// What is true of the op, in words.
    pub fn words(&self) -> impl Iterator<Item = &'static str> {
        let facts = [
            (self.is_view, "view"),
            (self.is_random, "random"),
            (self.is_sum_of_step, "sum of the step"),
            (self.is_of_batch_norm, "batch normalization"),
            (self.is_differentiable, "has a gradient"),
        ];
        facts.into_iter().filter(|(holds, _)| *holds).map(|(_, word)| word)
    }
}

/// One op of each kind, without those that are fused.
fn examples() -> Vec<Op> {
    let conv = Conv2D { kernel: [3; 2], strides: [1; 2], dilation: [1; 2], groups: 1, pads: Pads::default() };
    let conv3d = Conv3D { kernel: [3; 3], strides: [1; 3], dilation: [1; 3], groups: 1, pads: [[0; 2]; 3] };
    let pool = || Pool2D { window: [2; 2], strides: [2; 2], pads: Pads::default() };
    let norm = || Norm { epsilon: 1e-3, scale: true, center: true };
    let nearest = Interpolation::Nearest;
    let penalty = Regularizer::default();
    let change = Change::Flip { horizontal: true, vertical: false };
    let dropout = Some(AttentionDropout { rate: 0.5, seed: 0 });
    let attention = Attention { query_mask: true, key_mask: true, dropout, ..Attention::default() };
    let recurrent = Recurrent {
        cell: Cell::Lstm { activation: Gate::Tanh, recurrent: Gate::Sigmoid },
        reads_backwards: false,
        writes_backwards: false,
        masked: true,
        starts: false,
        ends: false,
    };
    let update = Update {
        clip: Clip::Norm(1.0),
        guarded: true,
        average: Some(Average { momentum: 0.99, overwrite_every: None }),
        ..Update::new(UpdateRule::Sgd { momentum: 0.9, nesterov: false })
    };
    let loss = Loss { kind: LossKind::MeanSquaredError, weight: 1.0 };
    let metric = Metric::Mean(RowValue::Accuracy);
    let noise = Noise { kind: NoiseKind::Add { stddev: 1.0 }, seed: 0, dims: vec![] };
    let product = MatMul { transpose_a: false, transpose_b: false };
    let affine = |scale, center| Op::Affine { scale, center };
    vec![
        Op::Dense,
        Op::DenseGradInput,
        Op::DenseGradKernel,
        Op::BiasGrad,
        Op::Conv2D(conv.clone()),
        Op::Conv2DGradInput(conv.clone(), [1; 2]),
        Op::Conv2DGradKernel(conv),
        Op::Conv3D(conv3d.clone()),
        Op::Conv3DGradInput(conv3d.clone(), [1; 3]),
        Op::Conv3DGradKernel(conv3d),
        Op::MaxPool2D(pool()),
        Op::MaxPool2DRelu(pool()),
        Op::ArgmaxBiasGrad,
        Op::MaxPool2DGrad(pool(), [1; 2]),
        Op::AveragePool2D(pool()),
        Op::AveragePool2DGrad(pool(), [1; 2]),
        Op::GlobalAveragePool2D,
        Op::GlobalAveragePool2DGrad([1; 2]),
        Op::GlobalMaxPool2D,
        Op::GlobalMaxPool2DGrad([1; 2]),
        Op::Elementwise(Chain::binary(Binary::Add)),
        Op::SignBits { below: f32::INFINITY },
        Op::MaskBits,
        Op::Softmax,
        Op::SoftmaxGrad,
        Op::BalanceWeights,
        Op::Loss(loss),
        Op::ActivityPenalty(penalty),
        Op::Mask(Mask::NotZero),
        Op::Metric(metric),
        Op::Dropout { rate: 0.5, seed: 0 },
        Op::Augment(Augment { change, seed: 0 }),
        Op::Noise(noise),
        affine(true, true),
        Op::AffineGradScale,
        Op::AffineConstant { scale: vec![], offset: vec![] },
        Op::BatchNormStatistics,
        Op::BatchNorm(norm()),
        Op::BatchNormGrad(norm()),
        Op::BatchNormMoving { momentum: 0.99 },
        Op::BatchNormInference(norm()),
        Op::BatchNormInferenceGrad(norm()),
        Op::LayerNorm(norm(), 1),
        Op::LayerNormGrad(norm(), 1),
        Op::Attention(attention.clone()),
        Op::AttentionGrad(attention),
        Op::Recurrent(recurrent.clone()),
        Op::RecurrentGrad(recurrent),
        Op::Pad2D(Pads::default()),
        Op::Crop2D(Pads::default()),
        Op::UpSample2D([2; 2], nearest),
        Op::UpSample2DGrad([2; 2], nearest),
        Op::Resize2D([1; 2], nearest),
        Op::Resize2DGrad([1; 2], nearest),
        Op::Transpose(vec![]),
        Op::Broadcast(vec![]),
        Op::SumTo(vec![]),
        Op::Concat(0),
        Op::Slice { axis: 0, start: 0, length: 1 },
        Op::PadAxis { axis: 0, before: 0, after: 0 },
        Op::MatMul(product),
        Op::Embedding,
        Op::EmbeddingGrad,
        Op::Reshape(vec![]),
        Op::Cast(DType::F32),
        Op::TakeRows,
        Op::PutRows,
        Op::Zero,
        Op::AddZero,
        Op::SumSquares,
        Op::CheckFinite(1),
        Op::Accumulate(Accumulate { steps: 2, guarded: true }),
        Op::AddAccumulated(2),
        Op::KeepAccumulated,
        Op::CorrectSquares(1.0),
        Op::Update(update.clone()),
        Op::CheckUpdate(CheckUpdate { number: 1, update }),
        Op::Penalty(penalty),
        Op::Constrain(Constraint::NonNeg),
    ]
}
