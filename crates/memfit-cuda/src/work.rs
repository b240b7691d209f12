//! What a node is to a GPU, as plain data: kernels and library calls in the order in which they run, and
//! their workspace.
//!
//! Nothing here touches a device, so that every kernel can be made, compiled and looked at without one.

use memfit_ir::{ALIGNMENT, Bytes, DType};

/// A node at some number of rows.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Lowered {
    /// What runs, one after the other.
    pub work: Vec<Work>,
    /// Scratch memory of kernels, from the start of the node's workspace. The rest after it is the
    /// libraries'.
    pub workspace: Bytes,
}

/// One thing that runs.
#[derive(Clone, Debug, PartialEq)]
pub enum Work {
    /// A kernel of ours.
    Kernel(Kernel),
    /// The update of one weight, whose launch it may share with others. Its grid is not used.
    Update(Kernel),
    /// Zeros.
    Zero {
        /// Where.
        to: Address,
        /// How many bytes.
        bytes: Bytes,
    },
    /// Bytes that move.
    Copy {
        /// From here.
        from: Address,
        /// To here.
        to: Address,
        /// How many bytes.
        bytes: Bytes,
    },
    /// A matrix product of a library.
    Product(Product),
    /// A convolution of a library.
    Convolution(Convolution),
    /// A kernel that adds the bias of the convolution before it and applies its ReLU, where the convolution
    /// did not do so itself.
    Finish(Kernel),
}

/// A kernel with its arguments.
#[derive(Clone, Debug, PartialEq)]
pub struct Kernel {
    /// What is compiled.
    pub source: Source,
    /// The name of an `extern "C" __global__` function of the source.
    pub entry: &'static str,
    /// Blocks along x, y and z.
    pub blocks: [u32; 3],
    /// Threads of a block.
    pub threads: u32,
    /// In the order of the function's parameters.
    pub arguments: Vec<Argument>,
}

/// A text to compile: the prelude, then the defines, then the text of a file. What is alike is compiled once.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Source {
    /// One of the files in `kernels`.
    pub text: &'static str,
    /// Lines that stand before it: types and generated code.
    pub defines: String,
}

/// An argument of a kernel.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Argument {
    /// A pointer.
    At(Address),
    /// A pointer to nothing: an operand that the op is without.
    Null,
    /// `const Context*`: what is set again for every step and micro-batch. It is read on the device, so that
    /// a captured launch can be replayed.
    Context,
    /// `long long`.
    Long(i64),
    /// `int`.
    Int(i32),
    /// `float`.
    Float(f32),
}

/// A place in the arena.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Address {
    /// An offset in bytes from the start of an operand, counted over inputs, outputs and updates.
    Operand(usize, Bytes),
    /// An offset in bytes from the start of the workspace.
    Workspace(Bytes),
}

/// `d = a b (+ d, or + c) (+ bias)`, all row by row: `a` is `m × k`, `b` is `k × n`, `d` is `m × n`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Product {
    /// Rows of `a` and `d`.
    pub m: usize,
    /// Columns of `b` and `d`.
    pub n: usize,
    /// Columns of `a` and rows of `b`.
    pub k: usize,
    /// Stored transposed.
    pub transpose_a: bool,
    /// Likewise.
    pub transpose_b: bool,
    /// Products that are stored one after the other.
    pub count: usize,
    /// The type of `a` and `b`.
    pub dtype: DType,
    /// The type of `d`.
    pub dtype_result: DType,
    /// Where the factors and the product stand.
    pub a: Address,
    /// The second factor.
    pub b: Address,
    /// The product.
    pub d: Address,
    /// `n` numbers of `d`'s type, added to every row.
    pub bias: Option<Address>,
    /// Whether the product is added to what is there.
    pub adds: bool,
    /// Where a matrix like `d` stands that is added, unless it is `d` itself.
    pub c: Option<Address>,
}

/// A convolution or one of its gradients, images NHWC and filters `[out, height, width, in / groups]`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Convolution {
    /// Which of the three it is.
    pub pass: Pass,
    /// Images.
    pub rows: usize,
    /// Height, width and channels, with margins that are the same on both sides.
    pub input: [usize; 3],
    /// Likewise of the result.
    pub output: [usize; 3],
    /// Height and width of a filter.
    pub kernel: [usize; 2],
    /// Step between outputs.
    pub strides: [usize; 2],
    /// Step between taps.
    pub dilation: [usize; 2],
    /// Independent groups of channels.
    pub groups: usize,
    /// Zeros above and below, left and right.
    pub pads: [usize; 2],
    /// The type of all of them.
    pub dtype: DType,
    /// Images.
    pub x: Address,
    /// Filters.
    pub filter: Address,
    /// Results.
    pub y: Address,
    /// A number for each filter in the type of `y`, added where the library does that in the same pass.
    pub bias: Option<Address>,
    /// Whether what is negative becomes 0, where the library does that in the same pass too.
    pub relu: bool,
    /// Whether the result is added to what is there.
    pub adds: bool,
}

/// Which of a convolution's three operands is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Pass {
    /// `y` from `x` and the filter.
    Forward,
    /// `dx` from `dy` and the filter.
    Input,
    /// `dfilter` from `x` and `dy`.
    Filter,
}

impl Convolution {
    /// The same over the first half of the rows and over the rest; without bias and ReLU, which another
    /// kernel then applies.
    pub(crate) fn split_rows(&self) -> [Convolution; 2] {
        let first = self.rows / 2;
        let bytes =
            |image: [usize; 3]| Bytes(self.dtype.size()) * (image.iter().product::<usize>() * first) as u64;
        let rest = Convolution {
            rows: self.rows - first,
            x: self.x.offset(bytes(self.input)),
            y: self.y.offset(bytes(self.output)),
            bias: None,
            relu: false,
            adds: self.adds || self.pass == Pass::Filter,
            ..*self
        };
        [Convolution { rows: first, bias: None, relu: false, ..*self }, rest]
    }
}

impl Work {
    /// Its kernel, where it is one.
    pub fn into_kernel(self) -> Option<Kernel> {
        match self {
            Work::Kernel(kernel) | Work::Finish(kernel) | Work::Update(kernel) => Some(kernel),
            Work::Zero { .. } | Work::Copy { .. } | Work::Product(_) | Work::Convolution(_) => None,
        }
    }
}

impl Lowered {
    /// Takes a part of the workspace.
    pub(crate) fn scratch(&mut self, bytes: Bytes) -> Address {
        let address = Address::Workspace(self.workspace);
        self.workspace += bytes.align_up(ALIGNMENT.max(256));
        address
    }

    /// Adds a kernel.
    pub(crate) fn kernel(&mut self, kernel: Kernel) {
        self.work.push(Work::Kernel(kernel));
    }
}

impl From<Kernel> for Lowered {
    fn from(kernel: Kernel) -> Lowered {
        Lowered { work: vec![Work::Kernel(kernel)], workspace: Bytes::ZERO }
    }
}

impl Address {
    /// This many bytes further.
    pub(crate) fn offset(self, bytes: Bytes) -> Address {
        match self {
            Address::Operand(index, offset) => Address::Operand(index, offset + bytes),
            Address::Workspace(offset) => Address::Workspace(offset + bytes),
        }
    }

    /// The start of an operand.
    pub(crate) fn operand(index: usize) -> Address {
        Address::Operand(index, Bytes::ZERO)
    }
}

/// The name of an element type in kernels.
pub(crate) fn c_type(dtype: DType) -> &'static str {
    match dtype {
        DType::F32 => "float",
        DType::F16 => "f16",
        DType::BF16 => "bf16",
        DType::I32 => "int",
        DType::I64 => "i64",
        DType::U8 | DType::Bool => "u8",
    }
}
