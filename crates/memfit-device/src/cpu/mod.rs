//! The kernels of the CPU: plain functions over slices that receive every byte they touch.
#![allow(
    unsafe_code,
    reason = "kernels use vector instructions and write disjoint parts of one buffer from many threads"
)]

mod activity;
mod affine;
mod applied;
mod attention;
mod augment;
mod bands;
mod bits;
mod cast;
mod conv2d;
mod conv3d;
pub mod convolution;
pub(crate) mod cost;
mod crew;
mod dense;
mod dropout;
mod elementwise;
mod embedding;
pub mod gemm;
mod half;
pub(crate) mod lanes;
mod launch;
mod loss;
mod made;
pub(crate) mod made_up;
mod mask;
mod maths;
mod matmul;
mod metric;
mod microkernel;
mod noise;
mod norm;
mod operands;
mod optimizer;
mod plus;
mod pool;
mod rearrange;
mod rectify;
mod recurrent;
mod resize;
mod softmax;
mod spatial;
mod stretch;
mod sums;
mod tasks;
pub mod threads;
mod transpose;
mod upsample;
mod vector_maths;
pub(crate) mod widen;

#[cfg(test)]
pub(crate) use half::Half;
