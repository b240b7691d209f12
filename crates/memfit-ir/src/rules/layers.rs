//! Rules that several ops of layers share.

use super::{Rule, ShapeError, Type, beginning, f32, windows, with_last};
use crate::{Attention, Conv2D, Conv3D, DType, Mask, Norm, Pool2D, Shape};

impl Rule<'_> {
    pub(super) fn dense(&self) -> Result<Type, ShapeError> {
        let (x, kernel) = (self.floats(0)?, self.weight(1)?);
        self.require(kernel.dims.len() >= 2 && !kernel.batched, "a kernel[in,out]")?;
        self.require(
            !x.dims.is_empty() && beginning(kernel.dims.iter(), x.last()),
            &format!("a last axis of {}", kernel.dims[0]),
        )?;
        let outputs = kernel.elements_per_row() / x.last().max(1);
        if self.inputs.len() == 3 {
            let bias = self.weight(2)?;
            let fits = !bias.batched && bias.elements_per_row() == outputs;
            self.require(fits, &format!("a bias of {outputs}"))?;
        }
        Ok(self.typed(with_last(x, outputs)))
    }

    pub(super) fn conv(&self, conv: &Conv2D) -> Result<Type, ShapeError> {
        let ([height, width, channels], kernel) = (self.image(0)?, self.singles(1)?);
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
        Ok(self.typed(self.like(0, [rows, columns, filters])))
    }

    pub(super) fn conv3d(&self, conv: &Conv3D) -> Result<Type, ShapeError> {
        let ([depth, height, width, channels], kernel) = (self.volume(0)?, self.singles(1)?);
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
        Ok(self.typed(self.like(0, dims)))
    }

    /// A mask: of numbers of entries, or of the places before the last axis.
    pub(super) fn mask(&self, mask: Mask) -> Result<Type, ShapeError> {
        let mut shape = self.inputs[0].shape.clone();
        match mask {
            Mask::NotZero => self.ids()?,
            Mask::OtherClass(_) => {
                self.require(self.inputs[0].dtype == DType::I32, "class numbers (i32)")?;
            }
            Mask::AnyOther(_) => {
                self.singles(0)?;
                self.require(shape.dims.pop().is_some(), "values with an axis of features")?;
            }
        }
        Ok(f32(shape))
    }

    pub(super) fn max_pool(&self, pool: &Pool2D, image: [usize; 3]) -> Result<Vec<Type>, ShapeError> {
        let area = pool.window[0] * pool.window[1];
        self.require(area <= 256, "a window of at most 256 pixels, since a winner is one byte")?;
        let shape = self.pool(pool, image)?;
        Ok(vec![self.typed(shape.clone()), Type { shape, dtype: DType::U8 }])
    }

    pub(super) fn pool(
        &self,
        pool: &Pool2D,
        [height, width, channels]: [usize; 3],
    ) -> Result<Shape, ShapeError> {
        let rows = windows(height + pool.pads.height(), pool.window[0], pool.strides[0]);
        let columns = windows(width + pool.pads.width(), pool.window[1], pool.strides[1]);
        match (rows, columns) {
            (Some(rows), Some(columns)) => Ok(self.like(0, [rows, columns, channels])),
            _ => Err(self.error(&format!("an image of at least {}×{}", pool.window[0], pool.window[1]))),
        }
    }

    /// Values with gamma and beta where the flags say so, and `statistics` more operands of their shape.
    pub(super) fn norm(&self, norm: &Norm, axes: usize, statistics: usize) -> Result<Shape, ShapeError> {
        let count = 1 + usize::from(norm.scale) + usize::from(norm.center) + statistics;
        let x = self.floats(0)?;
        self.require(0 < axes && axes <= x.dims.len(), &format!("at least {axes} axes after the batch"))?;
        let wanted = &x.dims[x.dims.len() - axes..];
        for index in 1..count {
            self.require(self.singles(index)?.dims == wanted, &format!("a weight of {wanted:?}"))?;
        }
        Ok(x.clone())
    }

    /// Values, with a scale of the last axes and an offset of the last where the flags say so.
    pub(super) fn affine(&self, scale: bool, center: bool) -> Result<Shape, ShapeError> {
        let count = 1 + usize::from(scale) + usize::from(center);
        let x = self.floats(0)?;
        if scale {
            let own = &self.singles(1)?.dims;
            self.require(!own.is_empty() && x.dims.ends_with(own), "a scale of the last axes")?;
        }
        if center {
            let own = &self.singles(count - 1)?.dims;
            self.require(own.len() == 1 && x.dims.ends_with(own), "an offset of the last axis")?;
        }
        Ok(x.clone())
    }

    /// Queries, keys and values from `first` on; what the attention writes.
    pub(super) fn attention(&self, first: usize) -> Result<[usize; 3], ShapeError> {
        let [q, k, v] = [self.image(first)?, self.image(first + 1)?, self.image(first + 2)?];
        let fits = q[2] == k[2] && k[..2] == v[..2] && 0 < k[1] && q[1].is_multiple_of(k[1]);
        self.require(
            fits && 0 < k[0],
            "q[queries,heads,width], k[keys,key heads,width] and v[keys,key heads,…]",
        )?;
        Ok([q[0], q[1], v[2]])
    }

    /// The masks of an attention, after its other operands: of queries, then of keys.
    pub(super) fn attention_masks(
        &self,
        kind: &Attention,
        first: usize,
        sizes: [usize; 2],
    ) -> Result<(), ShapeError> {
        let wanted = [kind.query_mask, kind.key_mask].into_iter().zip(sizes).filter(|(given, _)| *given);
        for (index, (_, places)) in wanted.enumerate() {
            self.mask_of(first + index, places)?;
        }
        Ok(())
    }

    /// A mask of this many places.
    pub(super) fn mask_of(&self, index: usize, places: usize) -> Result<(), ShapeError> {
        let shape = self.singles(index)?;
        self.require(shape.batched && shape.dims == [places], &format!("a mask of {places} places"))
    }

    pub(super) fn concat(&self, axis: usize) -> Result<Shape, ShapeError> {
        let first = self.floats(0)?;
        self.require(axis < first.dims.len(), &format!("an axis {axis} after the batch"))?;
        let mut shape = first.clone();
        for index in 1..self.inputs.len() {
            let other = self.alike(index)?;
            let alike = other.batched == first.batched
                && other.dims.len() == first.dims.len()
                && (0..first.dims.len()).all(|d| d == axis || other.dims[d] == first.dims[d]);
            self.require(alike, &format!("shapes alike but in axis {axis}"))?;
            shape.dims[axis] += other.dims[axis];
        }
        Ok(shape)
    }
}
