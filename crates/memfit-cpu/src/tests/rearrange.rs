//! Elements that move: concatenation, slices, broadcasting, sums back, embeddings.

use memfit_ir::{Op, Shape};

use super::{Case, assert_near, noise};

/// The index along each axis of a place in a shape of these dimensions.
fn indices(mut at: usize, dims: &[usize]) -> Vec<usize> {
    let mut indices = vec![0; dims.len()];
    for (index, size) in indices.iter_mut().zip(dims).rev() {
        *index = at % size;
        at /= size;
    }
    indices
}

fn place(indices: &[usize], dims: &[usize]) -> usize {
    indices.iter().zip(dims).fold(0, |at, (index, size)| at * size + index)
}

#[test]
fn tensors_stand_side_by_side_and_are_cut_apart_again() {
    for (axis, all) in [
        (0, vec![vec![2], vec![3], vec![1]]),
        (1, vec![vec![3, 2, 4], vec![3, 5, 4]]),
        (2, vec![vec![2, 3, 1], vec![2, 3, 40], vec![2, 3, 7]]),
    ] {
        let rows = 3;
        let mut whole = all[0].clone();
        whole[axis] = all.iter().map(|dims| dims[axis]).sum();
        let mut y = vec![0.0; rows * whole.iter().product::<usize>()];
        let (mut case, mut start) = (Case::new(Op::Concat(axis), rows), 0);
        let mut parts = vec![];
        for (seed, dims) in all.iter().enumerate() {
            let x = noise(rows * dims.iter().product::<usize>(), seed as u64);
            let with_rows = |dims: &[usize]| [&[rows], dims].concat();
            for (at, x) in x.iter().enumerate() {
                let mut index = indices(at, &with_rows(dims));
                index[axis + 1] += start;
                y[place(&index, &with_rows(&whole))] = *x;
            }
            case = case.input(Shape::rows(dims.clone()), x.clone());
            parts.push((start, dims[axis], x));
            start += dims[axis];
        }
        assert_eq!(case.run().floats(0), y);
        for (start, length, x) in parts {
            let case = Case::new(Op::Slice { axis, start, length }, rows)
                .input(Shape::rows(whole.clone()), y.clone());
            assert_eq!(case.run().floats(0), x);
        }
    }
}

#[test]
fn dimensions_broadcast_and_sum_back() {
    for (small, large) in [
        (vec![1], vec![5]),
        (vec![4], vec![4]),
        (vec![1, 1, 6], vec![3, 4, 6]),
        (vec![3, 1, 6], vec![3, 4, 6]),
        (vec![1, 4, 1], vec![3, 4, 6]),
        (vec![3, 4, 1], vec![3, 4, 70]),
        (vec![1, 1, 100], vec![30, 40, 100]),
        (vec![2, 1, 3, 1, 2], vec![2, 5, 3, 4, 2]),
        (vec![], vec![]),
    ] {
        let rows = 2;
        let with_rows = |dims: &[usize]| [&[rows], dims].concat();
        let count = |dims: &[usize]| with_rows(dims).iter().product::<usize>();
        let (x, dy) = (noise(count(&small), 1), noise(count(&large), 2));
        let source = |at: usize| {
            let mut index = indices(at, &with_rows(&large));
            index.iter_mut().zip(with_rows(&small)).for_each(|(index, size)| *index = (*index).min(size - 1));
            place(&index, &with_rows(&small))
        };
        let y: Vec<f32> = (0..dy.len()).map(|at| x[source(at)]).collect();
        let mut dx = vec![0.0; x.len()];
        dy.iter().enumerate().for_each(|(at, dy)| dx[source(at)] += f64::from(*dy));
        let case = Case::new(Op::Broadcast(large.clone()), rows).input(Shape::rows(small.clone()), x);
        assert_eq!(case.run().floats(0), y, "{small:?} to {large:?}");
        let case = Case::new(Op::SumTo(small.clone()), rows).input(Shape::rows(large.clone()), dy);
        assert_near(case.run().floats(0), &dx, 1e-6, &format!("{large:?} to {small:?}"));
    }
}

#[test]
fn entries_are_found_by_number_and_missing_ones_are_nan() {
    let (entries, width) = (7, 5);
    let ids = [0, 3, 6, 3, 7, -1, i32::MAX, 2];
    let (table, dy, before) =
        (noise(entries * width, 1), noise(ids.len() * width, 2), noise(entries * width, 3));
    let valid = |id: i32| usize::try_from(id).ok().filter(|id| *id < entries);
    let mut sums: Vec<f64> = before.iter().map(|before| f64::from(*before)).collect();
    let mut y = vec![];
    for (position, id) in ids.iter().enumerate() {
        for column in 0..width {
            y.push(valid(*id).map_or(f64::NAN, |id| f64::from(table[id * width + column])));
            if let Some(id) = valid(*id) {
                sums[id * width + column] += f64::from(dy[position * width + column]);
            }
        }
    }
    let floats: Vec<f32> = ids.iter().map(|id| *id as f32 + if *id < 0 { 0.0 } else { 0.75 }).collect();
    let (shape, weights) = (Shape::rows([4]), Shape::fixed([entries, width]));
    for whole in [true, false] {
        let ids_of = |op| {
            let case = Case::new(op, 2);
            if whole {
                case.input(shape.clone(), ids.to_vec())
            } else {
                case.input(shape.clone(), floats.clone())
            }
        };
        let forward = ids_of(Op::Embedding).input(weights.clone(), table.clone()).run();
        assert_near(forward.floats(0), &y, 0.0, "forward");
        let grad = ids_of(Op::EmbeddingGrad)
            .input(Shape::rows([4, width]), dy.clone())
            .update(weights.clone(), before.clone());
        assert_near(grad.run().updated(0), &sums, 1e-6, "gradient");
        let overwrite: Vec<f64> =
            sums.iter().zip(&before).map(|(sum, before)| sum - f64::from(*before)).collect();
        assert_near(grad.run_overwriting().updated(0), &overwrite, 1e-6, "overwrite gradient");
    }
}
