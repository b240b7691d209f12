//! A network on images of digits, from the first line to the saved file: planned, trained, saved, opened again and evaluated.
//!
//! The digits are synthetic: each class is a bar in a place of its own, with noise around it. With MNIST's own arrays, the rest of the
//! program is the same.
//!
//! Run it with `cargo run --release -p memfit --example mnist`.
#![allow(clippy::print_stdout, reason = "an example talks to its reader")]

use memfit::prelude::*;

const ROWS: usize = 600;
const SIDE: usize = 28;

/// Images and their classes.
fn digits(rows: usize) -> (Vec<u8>, Vec<u8>) {
    let mut state = 1u32;
    let mut noise = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8 / 4
    };
    let (mut pixels, mut classes) = (Vec::with_capacity(rows * SIDE * SIDE), Vec::with_capacity(rows));
    for row in 0..rows {
        let class = row * 7 % 10;
        for pixel in 0..SIDE * SIDE {
            let bar = 4 + 2 * class;
            let bright = if (bar..bar + 2).contains(&(pixel / SIDE)) { 160 } else { 0 };
            pixels.push(bright + noise());
        }
        classes.push(class as u8);
    }
    (pixels, classes)
}

/// From the first line to the saved file.
pub fn main() -> Result<(), Error> {
    let (x, y) = digits(ROWS);
    let data = Dataset::new(Array::new(&x, [ROWS, SIDE, SIDE, 1])?, Array::new(&y, [ROWS])?);

    let model = Sequential::new(Input::shape([SIDE, SIDE, 1]))
        .add(Rescaling::new(1.0 / 255.0))
        .add(Conv2D::new(16, 3).activation(Relu))
        .add(MaxPooling2D::new(2))
        .add(Flatten::new())
        .add(Dense::new(10).activation(Softmax));

    let plan = Trainer::new(&model)
        .loss(SparseCategoricalCrossentropy::default())
        .optimizer(Adam::default())
        .metrics(["accuracy"])
        .batch(64)
        .budget("512 MiB")
        .validation_split(0.1)
        .plan()?;
    println!("{plan}");

    let trained = plan.fit(&data, Epochs(3))?;
    let report = trained.report();
    assert_eq!(report.bytes_peak_predicted, report.bytes_peak_measured, "the peak is known before it runs");
    println!("loss by epoch: {:?}", trained.history().get("val_loss"));

    let path = std::env::temp_dir().join(format!("mnist-{}.keras", std::process::id()));
    trained.save(&path)?;
    let opened = Model::load(&path)?;
    // The file brings the loss and the metrics.
    let evaluated = Trainer::new(&opened).budget("512 MiB").evaluate(&data)?;
    assert_eq!(evaluated, trained.evaluate(&data)?, "the file has every bit of the weights");
    println!("loss {:.4}, accuracy {:?}", evaluated.loss(), evaluated.get("accuracy"));

    let classes = Trainer::new(&opened).predict(&Array::new(&x, [ROWS, SIDE, SIDE, 1])?)?;
    println!("the first image: {:?}", &classes[0].values()[..10]);
    std::fs::remove_file(&path).expect("it was written above");
    Ok(())
}
