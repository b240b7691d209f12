//! Rules that several ops of layers share.

use super::{Rule, ShapeError, Type, beginning, f32, windows, with_last};
use crate::Operand::{self, Beta, Bias, Gamma, K, Kernel, KeyMask, Offset, Q, QueryMask, Scale, V, X};
use crate::{Conv2D, Conv3D, DType, Mask, Norm, Pool2D, Shape};

impl Rule<'_> {
    pub(super) fn dense(&self) -> Result<Type, ShapeError> {
        let (x, kernel) = (self.floats(X)?, self.weight(Kernel)?);
        self.require(kernel.dims.len() >= 2 && !kernel.batched, "a kernel[in,out]")?;
        self.require(
            !x.dims.is_empty() && beginning(kernel.dims.iter(), x.last()),
            &format!("a last axis of {}", kernel.dims[0]),
        )?;
        let outputs = kernel.elements_per_row() / x.last().max(1);
        if self.given(Bias).is_some() {
            let bias = self.weight(Bias)?;
            let fits = !bias.batched && bias.elements_per_row() == outputs;
            self.require(fits, &format!("a bias of {outputs}"))?;
        }
        Ok(self.typed(with_last(x, outputs)))
    }

    pub(super) fn conv(&self, conv: &Conv2D) -> Result<Type, ShapeError> {
        let ([height, width, channels], kernel) = (self.image(X)?, self.singles(Kernel)?);
        let filters = kernel.last();
        let fits = kernel.dims.len() == 4
            && kernel.dims[..2] == conv.kernel
            && kernel.dims[2] * conv.groups == channels
            && filters.is_multiple_of(conv.groups);
        self.require(fits, &format!("a kernel over {channels} channels in {} groups", conv.groups))?;
        self.bias(filters)?;
        let span = |axis: usize| (conv.kernel[axis] - 1) * conv.dilation[axis] + 1;
        let rows = windows(height + conv.pads.height(), span(0), conv.strides[0]);
        let columns = windows(width + conv.pads.width(), span(1), conv.strides[1]);
        let (Some(rows), Some(columns)) = (rows, columns) else {
            return Err(self.error(&format!("an image of at least {}×{}", span(0), span(1))));
        };
        Ok(self.typed(self.like(X, [rows, columns, filters])))
    }

    pub(super) fn conv3d(&self, conv: &Conv3D) -> Result<Type, ShapeError> {
        let ([depth, height, width, channels], kernel) = (self.volume(X)?, self.singles(Kernel)?);
        let filters = kernel.last();
        let fits = kernel.dims.len() == 5
            && kernel.dims[..3] == conv.kernel
            && kernel.dims[3] * conv.groups == channels
            && filters.is_multiple_of(conv.groups);
        self.require(fits, &format!("a kernel over {channels} channels in {} groups", conv.groups))?;
        self.bias(filters)?;
        let (size, span) = ([depth, height, width], conv.span());
        let mut dims = Vec::with_capacity(4);
        for axis in 0..3 {
            let padded = size[axis] + conv.pads[axis][0] + conv.pads[axis][1];
            let Some(outputs) = windows(padded, span[axis], conv.strides[axis]) else {
                let [depth, height, width] = span;
                return Err(self.error(&format!("a volume of at least {depth}×{height}×{width}")));
            };
            dims.push(outputs);
        }
        dims.push(filters);
        Ok(self.typed(self.like(X, dims)))
    }

    /// A mask: of numbers of entries, or of the places before the last axis.
    pub(super) fn mask(&self, mask: Mask) -> Result<Type, ShapeError> {
        let mut shape = self.tensor(X).shape.clone();
        match mask {
            Mask::NotZero => self.ids(X)?,
            Mask::OtherClass(_) => {
                self.require(self.tensor(X).dtype == DType::I32, "class numbers (i32)")?;
            }
            Mask::AnyOther(_) => {
                self.singles(X)?;
                self.require(shape.dims.pop().is_some(), "values with an axis of features")?;
            }
        }
        Ok(f32(shape))
    }

    pub(super) fn max_pool(&self, pool: &Pool2D, image: [usize; 3]) -> Result<Vec<Type>, ShapeError> {
        let area = pool.window[0] * pool.window[1];
        self.require(area <= 256, "a window of at most 256 pixels, since an argmax is one byte")?;
        let shape = self.pool(X, pool, image)?;
        Ok(vec![self.typed(shape.clone()), Type { shape, dtype: DType::U8 }])
    }

    pub(super) fn pool(
        &self,
        of: Operand,
        pool: &Pool2D,
        [height, width, channels]: [usize; 3],
    ) -> Result<Shape, ShapeError> {
        let rows = windows(height + pool.pads.height(), pool.window[0], pool.strides[0]);
        let columns = windows(width + pool.pads.width(), pool.window[1], pool.strides[1]);
        match (rows, columns) {
            (Some(rows), Some(columns)) => Ok(self.like(of, [rows, columns, channels])),
            _ => Err(self.error(&format!("an image of at least {}×{}", pool.window[0], pool.window[1]))),
        }
    }

    /// Values with gamma and beta where the flags say so, and statistics of their shape.
    pub(super) fn norm(&self, norm: &Norm, axes: usize, statistics: &[Operand]) -> Result<Shape, ShapeError> {
        let x = self.floats(X)?;
        self.require(0 < axes && axes <= x.dims.len(), &format!("at least {axes} axes after the batch"))?;
        let wanted = &x.dims[x.dims.len() - axes..];
        let weights = [(norm.scale, Gamma), (norm.center, Beta)];
        let weights = weights.into_iter().filter(|(given, _)| *given).map(|(_, weight)| weight);
        for operand in weights.chain(statistics.iter().copied()) {
            self.require(self.singles(operand)?.dims == wanted, &format!("a weight of {wanted:?}"))?;
        }
        Ok(x.clone())
    }

    /// Values, with a scale of the last axes and an offset of the last where the flags say so.
    pub(super) fn affine(&self) -> Result<Shape, ShapeError> {
        let x = self.floats(X)?;
        if self.given(Scale).is_some() {
            let own = &self.singles(Scale)?.dims;
            self.require(!own.is_empty() && x.dims.ends_with(own), "a scale of the last axes")?;
        }
        if self.given(Offset).is_some() {
            let own = &self.singles(Offset)?.dims;
            self.require(own.len() == 1 && x.dims.ends_with(own), "an offset of the last axis")?;
        }
        Ok(x.clone())
    }

    /// Queries, keys and values; what the attention writes.
    pub(super) fn attention(&self) -> Result<[usize; 3], ShapeError> {
        let [q, k, v] = [self.image(Q)?, self.image(K)?, self.image(V)?];
        let fits = q[2] == k[2] && k[..2] == v[..2] && 0 < k[1] && q[1].is_multiple_of(k[1]);
        self.require(
            fits && 0 < k[0],
            "q[queries,heads,width], k[keys,key heads,width] and v[keys,key heads,…]",
        )?;
        Ok([q[0], q[1], v[2]])
    }

    /// The masks of an attention: of queries, then of keys.
    pub(super) fn attention_masks(&self, [queries, keys]: [usize; 2]) -> Result<(), ShapeError> {
        self.mask_of(QueryMask, queries)?;
        self.mask_of(KeyMask, keys)
    }

    /// A mask of this many places, where there is one.
    pub(super) fn mask_of(&self, mask: Operand, places: usize) -> Result<(), ShapeError> {
        if self.given(mask).is_none() {
            return Ok(());
        }
        let shape = self.singles(mask)?;
        self.require(shape.batched && shape.dims == [places], &format!("a mask of {places} places"))
    }

    /// An image of another size.
    pub(super) fn resize(&self, from: Operand, size: [usize; 2]) -> Result<Shape, ShapeError> {
        let [height, width, channels] = self.image(from)?;
        self.require(0 < height && 0 < width, "an image with pixels")?;
        Ok(self.like(from, [size[0], size[1], channels]))
    }

    pub(super) fn concat(&self, axis: usize) -> Result<Shape, ShapeError> {
        let first = self.floats(X)?;
        self.require(axis < first.dims.len(), &format!("an axis {axis} after the batch"))?;
        let mut shape = first.clone();
        for index in 1..self.inputs.len() {
            let other = self.alike((X, index))?;
            let alike = other.batched == first.batched
                && other.dims.len() == first.dims.len()
                && (0..first.dims.len()).all(|d| d == axis || other.dims[d] == first.dims[d]);
            self.require(alike, &format!("shapes alike but in axis {axis}"))?;
            shape.dims[axis] += other.dims[axis];
        }
        Ok(shape)
    }
}
