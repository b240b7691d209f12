//! The CPU: kernels that are plain functions over slices and receive every byte they touch.
//!
//! ```
//! use memfit_device::{Context, Device};
//! use memfit_ir::{Bytes, Chain, DType, Graph, Kind, NodeId, Op, Shape, Slot, Unary};
//!
//! let mut graph = Graph::default();
//! let layer = graph.layer("relu");
//! let x = graph.tensor("x", Shape::rows([2]), DType::F32, Kind::Input, layer);
//! graph.push(Op::Elementwise(Chain::unary(Unary::Relu)), &[x], layer)?;
//!
//! let backend = memfit_cpu::open(Some(1))?;
//! assert_eq!(backend.costs(&graph)[0].workspace(2), Bytes::ZERO);
//!
//! let mut device: Box<dyn Device> = backend.seal(Bytes(128))?;
//! let (input, output) = (Slot { offset: Bytes(0), bytes: Bytes(16) }, Slot { offset: Bytes(64), bytes: Bytes(16) });
//! let workspace = Slot { offset: Bytes(0), bytes: Bytes(0) };
//! let context = Context { step: 0, iteration: 0, row_start: 0, rows: 2, rows_total: 2, learning_rate: 0.1, loss_scale: 1.0, seed: 7 };
//! device.floats_mut(input).copy_from_slice(&[-1.0, 2.0, 3.0, -4.0]);
//! device.launch(&graph, NodeId(0), &[input, output], workspace, false, &context);
//! assert_eq!(device.floats(output), [0.0, 2.0, 3.0, 0.0]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Decisions
//!
//! - **Results do not depend on the number of threads:** work is cut by shape, and partial sums are added in a
//!   fixed order. A kernel's workspace is in the function above it, and its time is the estimate of `cost`.
//! - **Every kernel that writes a weight,** its state, its average, a sum of gradients or a moving statistic
//!   computes a block beside the old one (`optimizer/blocks.rs`), writes it only if all of it is finite, and
//!   otherwise raises `found_inf`.
//! - **Kernels are compiled for every level of vector instructions** (`lanes`) and one level is chosen at
//!   start: the widest, or what `MEMFIT_VECTORS` names. Hot loops take vectors, not closures, which may be
//!   compiled apart without them.
//! - **Products are saved where that costs few digits:** 3×3 and 5×5 convolutions of stride 1 use Winograd's
//!   minimal filtering (`convolution/winograd`). Whether or not is a matter of an image's shape alone, by the numbers that
//!   `Capabilities` says to what fuses a pool into them.
//! - **A thread keeps its share:** tasks are cut alike in every kernel and each thread of the pool takes the
//!   same share of them, so that what it wrote is in its own caches when the next kernel reads it. The caller
//!   is one of the threads; the others stay awake for a moment between kernels. Nothing is allocated for a
//!   launch.
//! - **Some results are written past the caches:** what every thread has read and one overwrites (weights,
//!   Winograd filters, large results). Where cores share no cache, a line that another core still holds is
//!   slow to write.
//! - **Attention** computes scores a tile at a time in a worker's workspace. Forward keeps one logarithm a
//!   query and head, backward computes the tile again, and its three gradients may stand where `y`, `k` and
//!   `v` stood. Dropout of weights is drawn tile by tile, again in backward. A kernel keeps the axes that
//!   Keras gives it.
//! - **A recurrent layer** comes after one dense product of its whole input: each thread takes some rows
//!   through all steps, forward keeps the gates, and the kernel's gradient is one product over many steps at
//!   the end.
//! - **A volume's convolution** gathers strips of windows.
//! - **A convolution and its pool as one** (`convolution/pooled`): of few channels, the image between them
//!   exists in registers alone; the argmax of a window is one byte, which says too where the ReLU made 0, and
//!   a first layer's filter and bias learn from the gradient after the pool. Of Winograd convolutions
//!   (`convolution/pooled/deep.rs`), a tile is a window; both gradients read `dy` of the pool and scatter it
//!   by argmax on their way in, by tile for the filter, some lines at a time for the input. A dense layer of
//!   few units (`convolution/pooled/dense`) takes both inside: a few windows at a time are convolved, pooled
//!   and multiplied with their rows of the kernel, for all images, so that the kernel is read once; only the
//!   argmax is kept. Sums are those of the layers apart, so the bits are the same.
//! - **Folded activations** (`producer`) are recomputed a few lines at a time in the cache, with the sums of the
//!   plain kernel, so the bits are the same.
//! - **A fused optimizer update** (`fused_update`): the gradient of a large dense kernel, narrow or of a small
//!   `dy`, exists a block at a time in a worker's workspace, where the optimizer's rule takes it, with the
//!   sums of the plain kernel.
//! - **f16 and bf16 are storage:** kernels stay f32. Elementwise work, batch normalisation and copies convert
//!   block by block; for all others `widen` converts a few rows at a time into workspace, or a band of lines
//!   of a large image (`bands`), and narrows what they write. How much at once depends on shapes alone, and
//!   is part of `Cost`.
//! - **A loss as a metric** is the loss's own kernel without gradients.
#![allow(
    unsafe_code,
    reason = "kernels use vector instructions and write disjoint parts of one buffer from many threads"
)]

mod activity;
mod add_epilogue;
mod affine;
mod attention;
mod augment;
mod average_pool;
mod bands;
mod batch_norm;
mod bits;
mod broadcast;
mod cast;
mod conv2d;
mod conv3d;
mod convolution;
mod cost;
mod dense;
mod device;
mod dropout;
mod elementwise;
mod embedding;
mod floats;
mod fused;
mod fused_update;
mod gemm;
mod global_pool;
mod half;
mod lanes;
mod launch;
mod layer_norm;
mod loss;
mod mask;
mod maths;
mod matmul;
mod max_pool;
mod metric;
mod microkernel;
mod noise;
mod norm;
mod operands;
mod optimizer;
mod pool;
mod producer;
mod rearrange;
mod recurrent;
mod relu;
mod resize;
mod setup;
mod softmax;
mod spatial;
mod sums;
mod synthetic_values;
mod tasks;
mod thread_pool;
mod threads;
mod transpose;
mod upsample;
mod vector_maths;
mod widen;

#[cfg(test)]
mod tests;

pub use setup::{capabilities, open, open_with, vectors};

#[cfg(test)]
pub(crate) use half::Half;
