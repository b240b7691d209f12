//! Convolutions: geometry read from shapes, for the kernels in `convolution`.

use memfit_ir::Operand::{
    Argmax, Bias, DBias, DFilter, DFilterBias, DKernel, Dx, Dy, Filter, FilterBias, Kernel, X, Y,
};
use memfit_ir::{Conv2D, PooledConv2D, Producer, Shape, Update};

use super::convolution::pooled::dense::{Grad, Learning, PooledDense};
use super::convolution::pooled::{self, Pooled};
use super::convolution::{self, Convolution};
use super::operands::Operands;
use super::optimizer::Application;
use super::producer::{self, Made};
use super::threads::Shared;

/// The geometry of a convolution between two images.
pub(crate) fn geometry(conv: &Conv2D, input: &Shape, output: &Shape, rows: usize) -> Convolution {
    Convolution {
        rows,
        input: image(input),
        output: image(output),
        kernel: conv.kernel,
        strides: conv.strides,
        dilation: conv.dilation,
        groups: conv.groups,
        pad_top: conv.pads.top,
        pad_left: conv.pads.left,
    }
}

/// `y = x ∗ kernel + bias`, which is handed back.
pub(crate) fn forward<'a>(operands: &Operands<'a>, conv: &Conv2D) -> &'a mut [f32] {
    let shape = geometry(conv, operands.shape(X), operands.shape(Y), operands.context.rows);
    let bias = operands.input_if_given(Bias);
    let (x, kernel, y) = (operands.input(X), operands.input(Kernel), operands.output(Y));
    convolution::forward(operands.threads, &shape, x, kernel, bias, y, operands.workspace().floats());
    y
}

/// The gradient of the input.
pub(crate) fn grad_input(operands: &Operands, conv: &Conv2D) {
    let shape = geometry(conv, operands.shape(Dx), operands.shape(Dy), operands.context.rows);
    let (dy, kernel, dx) = (operands.input(Dy), operands.input(Kernel), operands.output(Dx));
    convolution::grad_input(operands.threads, &shape, dy, kernel, dx, operands.workspace().floats());
}

/// The gradient of the kernel, added to what is there.
pub(crate) fn grad_kernel(operands: &Operands, conv: &Conv2D) {
    let shape = geometry(conv, operands.shape(X), operands.shape(Dy), operands.context.rows);
    let (x, dy, dkernel) = (operands.input(X), operands.input(Dy), operands.update(DKernel));
    let workspace = operands.workspace().floats();
    convolution::grad_kernel(operands.threads, &shape, x, dy, dkernel, !operands.fresh, workspace);
}

/// The same, of images that are recomputed while they are read.
pub(crate) fn grad_kernel_of(operands: &Operands, producer: &Producer, conv: &Conv2D) {
    let (x, dy) = (operands.shape(X), operands.shape(Dy));
    let shape = geometry(conv, x, dy, operands.context.rows);
    let mut workspace = operands.workspace();
    let made = Made::new(operands, producer, workspace.take_floats(producer::workspace(producer, x)));
    let (dy, dkernel) = (operands.input(Dy), operands.update(DKernel));
    let workspace = workspace.floats();
    convolution::grad_kernel_of(operands.threads, &shape, &made, dy, dkernel, !operands.fresh, workspace);
}

/// The geometry of a convolution of images of one shape, with its pool.
pub(crate) fn pooled_geometry(conv: &PooledConv2D, input: &Shape, channels: usize, rows: usize) -> Pooled {
    let [height, width, _] = image(input);
    let [height, width] = conv.between([height, width]);
    let between = Shape::rows([height, width, channels]);
    Pooled { conv: geometry(&conv.conv, input, &between, rows), relu: conv.relu }
}

/// `y = x ∗ kernel + bias`, of which only the maximum of each window is written.
pub(crate) fn max_pool(operands: &Operands, conv: &PooledConv2D) {
    let channels = operands.shape(Y).last();
    let shape = pooled_geometry(conv, operands.shape(X), channels, operands.context.rows);
    let bias = operands.input_if_given(Bias);
    let (x, kernel) = (operands.input(X), operands.input(Kernel));
    let (y, argmax) = (operands.output(Y), operands.output(Argmax));
    let workspace = operands.workspace().floats();
    pooled::forward(operands.threads, &shape, x, kernel, bias, y, argmax, workspace);
}

/// The gradients of the kernel and the bias, added to what is there.
pub(crate) fn max_pool_grad_kernel(operands: &Operands, conv: &PooledConv2D) {
    let channels = operands.shape(Dy).last();
    let shape = pooled_geometry(conv, operands.shape(X), channels, operands.context.rows);
    let (images, argmax) = ([operands.input(X), operands.input(Dy)], operands.input(Argmax));
    let (dkernel, dbias) = (operands.update(DKernel), operands.update_if_given(DBias));
    let workspace = operands.workspace().floats();
    pooled::grad_kernel(operands.threads, &shape, images, argmax, dkernel, dbias, !operands.fresh, workspace);
}

/// The gradient of the input, from the gradient of the pool's output.
pub(crate) fn max_pool_grad_input(operands: &Operands, conv: &PooledConv2D) {
    let channels = operands.shape(Dy).last();
    let shape = pooled_geometry(conv, operands.shape(Dx), channels, operands.context.rows);
    let (dy, argmax, kernel) = (operands.input(Dy), operands.input(Argmax), operands.input(Kernel));
    let (dx, workspace) = (operands.output(Dx), operands.workspace().floats());
    pooled::grad_input(operands.threads, &shape, dy, argmax, kernel, dx, workspace);
}

/// The geometry of a convolution, its pool and the dense layer after it, from the shapes of image and filter
/// and of the tensor whose last dimension is the units: the kernel or `dy`.
pub(crate) fn pooled_dense_geometry(
    conv: &PooledConv2D,
    [image, filter, units]: [&Shape; 3],
    rows: usize,
) -> PooledDense {
    PooledDense { pooled: pooled_geometry(conv, image, filter.last(), rows), units: units.last() }
}

/// The product of a dense layer with what a convolution and its pool give.
pub(crate) fn max_pool_dense(operands: &Operands, conv: &PooledConv2D) {
    let shapes = [X, Filter, Kernel].map(|operand| operands.shape(operand));
    let shape = pooled_dense_geometry(conv, shapes, operands.context.rows);
    let [x, filter, filter_bias, kernel, bias] =
        [X, Filter, FilterBias, Kernel, Bias].map(|operand| operands.input(operand));
    let (convolution, layer) = ([filter, filter_bias], [kernel, bias]);
    let (y, argmax) = (operands.output(Y), operands.output(Argmax));
    let workspace = operands.workspace().floats();
    pooled::dense::forward(operands.threads, &shape, x, convolution, layer, y, argmax, workspace);
}

/// What both ways to learn read.
fn pooled_dense_given<'a>(operands: &Operands<'a>) -> Grad<'a> {
    let [x, filter, bias, dy] = [X, Filter, FilterBias, Dy].map(|operand| operands.input(operand));
    Grad { x, filter, bias, argmax: operands.input(Argmax), dy }
}

/// The gradients of its kernel, of the filter and of the filter's bias, added to what is there.
pub(crate) fn max_pool_dense_grad(operands: &Operands, conv: &PooledConv2D) {
    let shapes = [X, Filter, Kernel].map(|operand| operands.shape(operand));
    let shape = pooled_dense_geometry(conv, shapes, operands.context.rows);
    let given = pooled_dense_given(operands);
    let sum = Shared::new(operands.update(DKernel));
    let learning = Learning::Sum { kernel: operands.input(Kernel), sum, accumulate: !operands.fresh };
    let sums = [operands.update(DFilter), operands.update(DFilterBias)];
    let workspace = operands.workspace().floats();
    pooled::dense::grad(operands.threads, &shape, &given, &learning, sums, !operands.fresh, workspace);
}

/// The same, with the kernel's gradient applied to it where it is made.
pub(crate) fn max_pool_dense_apply(operands: &Operands, conv: &PooledConv2D, update: &Update) {
    let shapes = [X, Filter, Dy].map(|operand| operands.shape(operand));
    let shape = pooled_dense_geometry(conv, shapes, operands.context.rows);
    let given = pooled_dense_given(operands);
    let learning = Learning::Applied(Application::new(operands, update));
    let sums = [operands.update(DFilter), operands.update(DFilterBias)];
    let workspace = operands.workspace().floats();
    pooled::dense::grad(operands.threads, &shape, &given, &learning, sums, !operands.fresh, workspace);
}

/// Height, width and channels.
pub(crate) fn image(shape: &Shape) -> [usize; 3] {
    shape.dims[..].try_into().expect("the shape rules ask for images of three dimensions")
}
