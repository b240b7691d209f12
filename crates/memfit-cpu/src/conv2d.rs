//! Convolutions: geometry read from shapes, for the kernels in `convolution`.

use memfit_ir::{Conv2D, PooledConv2D, Producer, Shape, Update};

use super::convolution::pooled::dense::{Grad, Learning, PooledDense};
use super::convolution::pooled::{self, Pooled};
use super::convolution::{self, Convolution};
use super::made::{self, Made};
use super::operands::Operands;
use super::optimizer::Application;
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
    let shape = geometry(conv, operands.input_shape(0), operands.output_shape(0), operands.context.rows);
    let bias = operands.input_if(operands.node.inputs.len() == 3, 2);
    let (x, kernel, y) = (operands.input(0), operands.input(1), operands.output(0));
    convolution::forward(operands.threads, &shape, x, kernel, bias, y, operands.workspace().floats());
    y
}

/// The gradient of the input.
pub(crate) fn grad_input(operands: &Operands, conv: &Conv2D) {
    let shape = geometry(conv, operands.output_shape(0), operands.input_shape(0), operands.context.rows);
    let (dy, kernel, dx) = (operands.input(0), operands.input(1), operands.output(0));
    convolution::grad_input(operands.threads, &shape, dy, kernel, dx, operands.workspace().floats());
}

/// The gradient of the kernel, added to what is there.
pub(crate) fn grad_kernel(operands: &Operands, conv: &Conv2D) {
    let shape = geometry(conv, operands.input_shape(0), operands.input_shape(1), operands.context.rows);
    let (x, dy, dkernel) = (operands.input(0), operands.input(1), operands.update(0));
    let workspace = operands.workspace().floats();
    convolution::grad_kernel(operands.threads, &shape, x, dy, dkernel, !operands.fresh, workspace);
}

/// The same, of images that are recomputed while they are read.
pub(crate) fn grad_kernel_of(operands: &Operands, producer: &Producer, conv: &Conv2D) {
    let (x, dy) = (operands.input_shape(0), operands.input_shape(producer.inputs()));
    let shape = geometry(conv, x, dy, operands.context.rows);
    let mut workspace = operands.workspace();
    let made = Made::new(operands, producer, workspace.take_floats(made::workspace(producer, x)));
    let (dy, dkernel) = (operands.input(producer.inputs()), operands.update(0));
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
    let channels = operands.output_shape(0).last();
    let shape = pooled_geometry(conv, operands.input_shape(0), channels, operands.context.rows);
    let bias = operands.input_if(operands.node.inputs.len() == 3, 2);
    let (x, kernel) = (operands.input(0), operands.input(1));
    let (y, argmax) = (operands.output(0), operands.output(1));
    let workspace = operands.workspace().floats();
    pooled::forward(operands.threads, &shape, x, kernel, bias, y, argmax, workspace);
}

/// The gradients of the kernel and the bias, added to what is there.
pub(crate) fn max_pool_grad_kernel(operands: &Operands, conv: &PooledConv2D) {
    let channels = operands.input_shape(1).last();
    let shape = pooled_geometry(conv, operands.input_shape(0), channels, operands.context.rows);
    let (images, argmax) = ([operands.input(0), operands.input(1)], operands.input(2));
    let (dkernel, dbias) =
        (operands.update(0), (operands.node.updates.len() == 2).then(|| operands.update(1)));
    let workspace = operands.workspace().floats();
    pooled::grad_kernel(operands.threads, &shape, images, argmax, dkernel, dbias, !operands.fresh, workspace);
}

/// The gradient of the input, from the gradient of the pool's output.
pub(crate) fn max_pool_grad_input(operands: &Operands, conv: &PooledConv2D) {
    let channels = operands.input_shape(0).last();
    let shape = pooled_geometry(conv, operands.output_shape(0), channels, operands.context.rows);
    let (dy, argmax, kernel) = (operands.input(0), operands.input(1), operands.input(2));
    let (dx, workspace) = (operands.output(0), operands.workspace().floats());
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
    let shapes = [0, 1, 3].map(|index| operands.input_shape(index));
    let shape = pooled_dense_geometry(conv, shapes, operands.context.rows);
    let [x, filter, bias, kernel, kernel_bias] = [0, 1, 2, 3, 4].map(|index| operands.input(index));
    let (y, argmax) = (operands.output(0), operands.output(1));
    let (convolution, layer) = ([filter, bias], [kernel, kernel_bias]);
    let workspace = operands.workspace().floats();
    pooled::dense::forward(operands.threads, &shape, x, convolution, layer, y, argmax, workspace);
}

/// The gradients of its kernel, of the filter and of the filter's bias, added to what is there.
pub(crate) fn max_pool_dense_grad(operands: &Operands, conv: &PooledConv2D) {
    let shapes = [0, 1, 3].map(|index| operands.input_shape(index));
    let shape = pooled_dense_geometry(conv, shapes, operands.context.rows);
    let [x, filter, bias, kernel, dy] = [0, 1, 2, 3, 5].map(|index| operands.input(index));
    let given = Grad { x, filter, bias, argmax: operands.input(4), dy };
    let sum = Shared::new(operands.update(0));
    let learning = Learning::Sum { kernel, sum, accumulate: !operands.fresh };
    let sums = [operands.update(1), operands.update(2)];
    let workspace = operands.workspace().floats();
    pooled::dense::grad(operands.threads, &shape, &given, &learning, sums, !operands.fresh, workspace);
}

/// The same, with the kernel's gradient applied to it where it is made.
pub(crate) fn max_pool_dense_apply(operands: &Operands, conv: &PooledConv2D, update: &Update) {
    let shapes = [0, 1, 4].map(|index| operands.input_shape(index));
    let shape = pooled_dense_geometry(conv, shapes, operands.context.rows);
    let [x, filter, bias, dy] = [0, 1, 2, 4].map(|index| operands.input(index));
    let given = Grad { x, filter, bias, argmax: operands.input(3), dy };
    let learning = Learning::Applied(Application::new(operands, update, 2));
    let sums = [operands.update(0), operands.update(1)];
    let workspace = operands.workspace().floats();
    pooled::dense::grad(operands.threads, &shape, &given, &learning, sums, !operands.fresh, workspace);
}

/// Height, width and channels.
pub(crate) fn image(shape: &Shape) -> [usize; 3] {
    shape.dims[..].try_into().expect("the shape rules ask for images of three dimensions")
}
