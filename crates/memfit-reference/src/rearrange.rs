//! Elements that are moved, repeated and summed along axes.

use super::call::Call;

/// Axis `i` of the result is axis `order[i]`.
pub(crate) fn transpose(call: &Call, order: &[usize]) -> Vec<f64> {
    let (x, dims) = (call.input(0), call.dims(0));
    let per_row: usize = dims.iter().product();
    let mut y = vec![0.0; x.len()];
    for (index, value) in x.iter().enumerate() {
        let mut places = vec![0; dims.len()];
        let mut rest = index % per_row;
        for axis in (0..dims.len()).rev() {
            places[axis] = rest % dims[axis];
            rest /= dims[axis];
        }
        let to = order.iter().fold(0, |to, axis| to * dims[*axis] + places[*axis]);
        y[index / per_row * per_row + to] = *value;
    }
    y
}

/// Dimensions of 1 repeated.
pub(crate) fn broadcast(call: &Call) -> Vec<f64> {
    let (small, large) = (call.dims(0), call.output_dims(0));
    let count = call.rows() * large.iter().product::<usize>();
    (0..count).map(|index| call.input(0)[place_in_small(index, large, small)]).collect()
}

/// The sum back to dimensions of 1.
pub(crate) fn sum_to(call: &Call, small: &[usize]) -> Vec<f64> {
    let large = call.dims(0);
    let mut y = vec![0.0; call.rows() * small.iter().product::<usize>()];
    for (index, value) in call.input(0).iter().enumerate() {
        y[place_in_small(index, large, small)] += value;
    }
    y
}

/// Where an element of a tensor stands in one that has 1 along some axes; what is left of its index counts rows.
fn place_in_small(index: usize, large: &[usize], small: &[usize]) -> usize {
    let (mut rest, mut place, mut stride) = (index, 0, 1);
    for (size, kept) in large.iter().zip(small).rev() {
        place += if *kept == 1 { 0 } else { rest % size * stride };
        rest /= size;
        stride *= kept;
    }
    place + rest * stride
}

/// Tensors one after the other along an axis.
pub(crate) fn concat(call: &Call, axis: usize) -> Vec<f64> {
    let blocks = call.rows() * call.dims(0)[..axis].iter().product::<usize>();
    let mut y = Vec::new();
    for block in 0..blocks {
        for (index, values) in call.inputs.iter().enumerate() {
            let wide: usize = call.dims(index)[axis..].iter().product();
            y.extend(&values[block * wide..(block + 1) * wide]);
        }
    }
    y
}

/// Some indices of an axis.
pub(crate) fn slice(call: &Call, axis: usize, start: usize, length: usize) -> Vec<f64> {
    let dims = call.dims(0);
    let one: usize = dims[axis + 1..].iter().product();
    let blocks = call.input(0).chunks((one * dims[axis]).max(1));
    blocks.flat_map(|block| block[one * start..one * (start + length)].to_vec()).collect()
}

/// Zeros before and after the indices of an axis.
pub(crate) fn pad_axis(call: &Call, axis: usize, before: usize, after: usize) -> Vec<f64> {
    let dims = call.dims(0);
    let one: usize = dims[axis + 1..].iter().product();
    let mut y = Vec::new();
    for block in call.input(0).chunks((one * dims[axis]).max(1)) {
        y.extend(vec![0.0; one * before]);
        y.extend(block);
        y.extend(vec![0.0; one * after]);
    }
    y
}
