//! The names of operands: what a tensor is to the op that reads, writes or changes it.

use std::fmt;

macro_rules! operands {
    ($($(#[$doc:meta])* $variant:ident = $name:literal,)+) => {
        /// What a tensor is to an op.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Operand {
            $($(#[$doc])* $variant,)+
        }

        impl Operand {
            /// The name in texts.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Operand::$variant => $name,)+
                }
            }
        }
    };
}

operands! {
    /// The value that an op is about.
    X = "x",
    /// The result.
    Y = "y",
    /// The gradient of the result.
    Dy = "dy",
    /// The gradient of the value.
    Dx = "dx",
    /// The gradient between two fused gradient ops, where others read it too.
    Dz = "dz",
    /// A further value of the same shape.
    Other = "other",
    /// The first factor of a product of two values.
    A = "a",
    /// Its second factor.
    B = "b",
    /// The weight of a product or a convolution.
    Kernel = "kernel",
    /// What is added for each index of the last axis.
    Bias = "bias",
    /// The kernel of a convolution, where a dense layer's kernel stands beside it.
    Filter = "filter",
    /// The bias of that convolution.
    FilterBias = "filter_bias",
    /// The gradient of a kernel.
    DKernel = "dkernel",
    /// The gradient of a bias.
    DBias = "dbias",
    /// The gradient of a filter.
    DFilter = "dfilter",
    /// The gradient of a filter's bias.
    DFilterBias = "dfilter_bias",
    /// The place of each maximum.
    Argmax = "argmax",
    /// One bit an element.
    Bits = "bits",
    /// The scale of a normalisation.
    Gamma = "gamma",
    /// The offset of a normalisation.
    Beta = "beta",
    /// The gradient of gamma.
    DGamma = "dgamma",
    /// The gradient of beta.
    DBeta = "dbeta",
    /// Means.
    Mean = "mean",
    /// Variances.
    Variance = "variance",
    /// Reciprocals of standard deviations.
    Rstd = "rstd",
    /// Moving averages of means.
    MovingMean = "moving_mean",
    /// Moving averages of variances.
    MovingVariance = "moving_variance",
    /// Factors for the last axes.
    Scale = "scale",
    /// Terms for the last axis.
    Offset = "offset",
    /// The gradient of a scale.
    DScale = "dscale",
    /// Queries.
    Q = "q",
    /// Keys.
    K = "k",
    /// Values that queries take by their keys.
    V = "v",
    /// The gradient of queries.
    Dq = "dq",
    /// The gradient of keys.
    Dk = "dk",
    /// The gradient of values.
    Dv = "dv",
    /// Logarithms of the sums of exponentials.
    LogSumExp = "logsumexp",
    /// Which queries count.
    QueryMask = "query_mask",
    /// Which keys count.
    KeyMask = "key_mask",
    /// Which places count.
    Mask = "mask",
    /// What a cell keeps for its gradient.
    Kept = "kept",
    /// What a network predicts.
    Prediction = "prediction",
    /// What it should predict.
    Target = "target",
    /// How much samples count.
    SampleWeights = "sample_weights",
    /// The gradient of a prediction.
    DPrediction = "dprediction",
    /// The sum of losses.
    Loss = "loss",
    /// The sums of a metric.
    Sums = "sums",
    /// Numbers of entries.
    Ids = "ids",
    /// Entries.
    Table = "table",
    /// The gradient of a table.
    DTable = "dtable",
    /// The gradient of a weight.
    Gradient = "gradient",
    /// The square of the norm of gradients.
    SquaredNorm = "squared_norm",
    /// The sum of the squares of single gradients, element by element.
    Squares = "squares",
    /// A sum over nodes or steps.
    Sum = "sum",
    /// Which check found a value that is not finite; 0 for none.
    FoundInf = "found_inf",
    /// What training changes.
    Weight = "weight",
    /// What an optimizer keeps for a weight.
    State = "state",
    /// The moving average of a weight.
    Average = "average",
}

impl Operand {
    /// What a tensor's name says of it where the op writes several, which also names it in stored graphs.
    pub(crate) fn label(self) -> &'static str {
        if self == Operand::Dz {
            "sum"
        } else if self == Operand::Dq {
            "q"
        } else if self == Operand::Dk {
            "k"
        } else if self == Operand::Dv {
            "v"
        } else {
            self.name()
        }
    }
}

/// An operand by its name, and which one where the op has several of that name: `Dy`, or `(Dy, 1)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Named {
    /// The name.
    pub operand: Operand,
    /// Its place among those of this name.
    pub index: usize,
}

impl From<Operand> for Named {
    fn from(operand: Operand) -> Named {
        Named { operand, index: 0 }
    }
}

impl From<(Operand, usize)> for Named {
    fn from((operand, index): (Operand, usize)) -> Named {
        Named { operand, index }
    }
}

impl fmt::Display for Named {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.operand.name())?;
        if 0 < self.index { write!(f, " {}", self.index) } else { Ok(()) }
    }
}
