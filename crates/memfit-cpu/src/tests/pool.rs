//! Pools against plain loops.

use memfit_ir::{Op, Pads, Pool2D, Shape};

use super::{Case, Values, assert_near, noise};

struct Pooled {
    pool: Pool2D,
    rows: usize,
    input: [usize; 3],
    output: [usize; 3],
}

fn pools() -> Vec<Pooled> {
    let pool = |window, strides, [top, bottom, left, right]: [usize; 4]| Pool2D {
        window,
        strides,
        pads: Pads { top, bottom, left, right },
    };
    [
        (pool([2, 2], [2, 2], [0; 4]), 3, [6, 4, 5]),
        (pool([3, 3], [2, 2], [0, 1, 1, 1]), 2, [8, 7, 70]),
        (pool([2, 3], [1, 2], [1, 0, 0, 2]), 2, [5, 6, 3]),
        (pool([1, 1], [3, 2], [0; 4]), 1, [7, 7, 1]),
        (pool([5, 4], [2, 3], [2, 2, 1, 2]), 1, [9, 30, 130]),
    ]
    .into_iter()
    .map(|(pool, rows, input)| {
        let high = (input[0] + pool.pads.height() - pool.window[0]) / pool.strides[0] + 1;
        let wide = (input[1] + pool.pads.width() - pool.window[1]) / pool.strides[1] + 1;
        Pooled { output: [high, wide, input[2]], pool, rows, input }
    })
    .collect()
}

impl Pooled {
    /// The real pixels under a window's result: place in the window, and place in the input.
    fn under(&self, at: usize) -> Vec<(usize, usize)> {
        let [high, wide, channels] = self.output;
        let (channel, across, down) = (at % channels, at / channels % wide, at / channels / wide % high);
        let row = at / channels / wide / high;
        let Pool2D { window, strides, pads } = &self.pool;
        (0..window[0] * window[1])
            .filter_map(|place| {
                let y = (down * strides[0] + place / window[1]).checked_sub(pads.top)?;
                let x = (across * strides[1] + place % window[1]).checked_sub(pads.left)?;
                let inside = y < self.input[0] && x < self.input[1];
                inside
                    .then_some((place, ((row * self.input[0] + y) * self.input[1] + x) * channels + channel))
            })
            .collect()
    }

    fn sizes(&self) -> (usize, usize) {
        (self.rows * self.input.iter().product::<usize>(), self.rows * self.output.iter().product::<usize>())
    }
}

#[test]
fn the_argmax_is_the_first_maximum_of_a_window() {
    for case in pools() {
        let (inputs, outputs) = case.sizes();
        // Few different values, so that there are equals; all below 0, so that margins would be the maximum
        // if they counted.
        let x: Vec<f32> = noise(inputs, 1).iter().map(|x| (x * 3.0).round() - 20.0).collect();
        let dy = noise(outputs, 2);
        let (mut y, mut argmax, mut dx) = (vec![0.0; outputs], vec![0u8; outputs], vec![0.0; inputs]);
        for at in 0..outputs {
            let under = case.under(at);
            let most = under.iter().map(|(_, from)| x[*from]).fold(f32::NEG_INFINITY, f32::max);
            let (place, from) = under.iter().find(|(_, from)| x[*from] == most).unwrap();
            (y[at], argmax[at]) = (most, *place as u8);
            dx[*from] += f64::from(dy[at]);
        }
        let forward =
            Case::new(Op::MaxPool2D(case.pool.clone()), case.rows).input(Shape::rows(case.input), x).run();
        assert_eq!(forward.outputs, [Values::F32(y), Values::U8(argmax.clone())]);
        let size = [case.input[0], case.input[1]];
        let grad = Case::new(Op::MaxPool2DGrad(case.pool.clone(), size), case.rows)
            .input(Shape::rows(case.output), dy)
            .input(Shape::rows(case.output), argmax);
        assert_near(grad.run().floats(0), &dx, 1e-6, "gradient");
    }
}

#[test]
fn the_mean_of_a_window_counts_no_margin() {
    for case in pools() {
        let (inputs, outputs) = case.sizes();
        let (x, dy) = (noise(inputs, 1), noise(outputs, 2));
        let (mut y, mut dx) = (vec![0.0; outputs], vec![0.0; inputs]);
        for at in 0..outputs {
            let under = case.under(at);
            for (_, from) in &under {
                y[at] += f64::from(x[*from]) / under.len() as f64;
                dx[*from] += f64::from(dy[at]) / under.len() as f64;
            }
        }
        let forward =
            Case::new(Op::AveragePool2D(case.pool.clone()), case.rows).input(Shape::rows(case.input), x);
        assert_near(forward.run().floats(0), &y, 1e-6, "forward");
        let size = [case.input[0], case.input[1]];
        let grad = Case::new(Op::AveragePool2DGrad(case.pool.clone(), size), case.rows)
            .input(Shape::rows(case.output), dy);
        assert_near(grad.run().floats(0), &dx, 1e-6, "gradient");
    }
}

#[test]
fn global_pools_see_whole_images() {
    for (rows, [height, width, channels]) in [(3, [4, 5, 6]), (1, [1, 1, 1]), (2, [9, 3, 150])] {
        let (pixels, count) = (height * width, rows * channels);
        let (x, dy) = (noise(rows * pixels * channels, 1), noise(count, 2));
        let place = |at: usize, pixel: usize| (at / channels * pixels + pixel) * channels + at % channels;
        let (mut mean, mut maxima, mut argmax) = (vec![0.0; count], vec![0.0; count], vec![0; count]);
        let (mut mean_grad, mut max_grad) = (vec![0.0; x.len()], vec![0.0; x.len()]);
        for at in 0..count {
            let pixel = (0..pixels).max_by(|a, b| x[place(at, *a)].total_cmp(&x[place(at, *b)])).unwrap();
            (maxima[at], argmax[at]) = (x[place(at, pixel)], pixel as i32);
            max_grad[place(at, pixel)] = dy[at];
            for pixel in 0..pixels {
                mean[at] += f64::from(x[place(at, pixel)]) / pixels as f64;
                mean_grad[place(at, pixel)] = f64::from(dy[at]) / pixels as f64;
            }
        }
        let (images, channels) = (Shape::rows([height, width, channels]), Shape::rows([channels]));
        let average = Case::new(Op::GlobalAveragePool2D, rows).input(images.clone(), x.clone());
        assert_near(average.run().floats(0), &mean, 1e-6, "mean");
        let grad = Case::new(Op::GlobalAveragePool2DGrad([height, width]), rows);
        assert_near(grad.input(channels.clone(), dy.clone()).run().floats(0), &mean_grad, 1e-6, "gradient");
        let max = Case::new(Op::GlobalMaxPool2D, rows).input(images, x).run();
        assert_eq!(max.outputs, [Values::F32(maxima), Values::I32(argmax.clone())]);
        let grad = Case::new(Op::GlobalMaxPool2DGrad([height, width]), rows);
        assert_eq!(grad.input(channels.clone(), dy).input(channels, argmax).run().floats(0), max_grad);
    }
}

#[test]
fn what_is_not_a_number_wins_a_pool() {
    let pool = Pool2D { window: [2, 2], strides: [2, 2], pads: Pads::default() };
    for at in 0..4 {
        let mut x = vec![1.0, 2.0, 3.0, 4.0];
        x[at] = f32::NAN;
        let shape = Shape::rows([2, 2, 1]);
        let pooled = Case::new(Op::MaxPool2D(pool.clone()), 1).input(shape.clone(), x.clone()).run();
        assert!(pooled.floats(0)[0].is_nan() && pooled.outputs[1] == Values::U8(vec![at as u8]));
        let pooled = Case::new(Op::GlobalMaxPool2D, 1).input(shape, x).run();
        assert!(pooled.floats(0)[0].is_nan() && pooled.outputs[1] == Values::I32(vec![at as i32]));
    }
}
