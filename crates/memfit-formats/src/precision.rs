//! Keras's dtype policies: which type a layer computes in. Weights are f32 under all of them.

use std::fmt;
use std::str::FromStr;

use memfit_ir::DType;

/// A dtype policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Precision {
    /// Everything in f32.
    Float32,
    /// Values between layers and their gradients in f16, under dynamic loss scaling.
    MixedFloat16,
    /// Values between layers and their gradients in bf16.
    MixedBfloat16,
}

impl Precision {
    /// All policies.
    pub const ALL: [Precision; 3] = [Precision::Float32, Precision::MixedFloat16, Precision::MixedBfloat16];

    /// The type of the values that a layer computes.
    pub fn compute(self) -> DType {
        match self {
            Precision::Float32 => DType::F32,
            Precision::MixedFloat16 => DType::F16,
            Precision::MixedBfloat16 => DType::BF16,
        }
    }

    /// Keras's name of it.
    pub fn name(self) -> &'static str {
        match self {
            Precision::Float32 => "float32",
            Precision::MixedFloat16 => "mixed_float16",
            Precision::MixedBfloat16 => "mixed_bfloat16",
        }
    }
}

impl fmt::Display for Precision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A policy that is not one of the three.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the policy `{0}` is not supported; use float32, mixed_float16 or mixed_bfloat16")]
pub struct UnknownPrecision(String);

impl FromStr for Precision {
    type Err = UnknownPrecision;

    fn from_str(text: &str) -> Result<Precision, UnknownPrecision> {
        let known = Precision::ALL.into_iter().find(|policy| policy.name() == text);
        known.ok_or_else(|| UnknownPrecision(text.to_owned()))
    }
}
