//! Training by builders: the same numbers as a job's, files that open again, answers to wrong arrays, and a budget that is kept. A
//! program of its own, since it measures its process.

use memfit::prelude::*;
use memfit::{Ended, Event, Observer, process};

#[path = "../../../examples/mnist.rs"]
mod mnist;

fn floats(count: usize) -> Vec<f32> {
    (0..count).map(|index| ((index * 37) % 101) as f32 / 101.0).collect()
}

fn model() -> Sequential {
    Sequential::new(Input::shape([6]))
        .add(Dense::new(8).activation(Relu))
        .add(Dense::new(3).activation(Softmax))
}

fn trainer<'a>() -> Trainer<'a> {
    Trainer::new(model())
        .loss(SparseCategoricalCrossentropy::default())
        .optimizer(Adam::default())
        .metrics(["accuracy"])
        .batch(16)
        .device("cpu")
        .threads(2)
        .set("memory.costs", "analytic")
        .seed(5)
}

fn classes(rows: usize) -> Vec<i32> {
    (0..rows).map(|row| (row % 3) as i32).collect()
}

#[test]
fn the_example_holds_its_claims() {
    mnist::main().unwrap();
}

/// A job file on the same rows in files takes the same steps.
#[test]
fn arrays_and_files_give_the_same_bits() {
    struct Losses(Vec<f64>);
    impl Observer for Losses {
        fn event(&mut self, event: Event<'_>) {
            if let Event::Step { record, .. } = event {
                self.0.push(record.loss);
            } else if let Event::Epoch { validation: Some(means), .. } = event {
                self.0.push(means.loss);
            }
        }
    }
    let folder = tempfile::tempdir().unwrap();
    let (x, y) = (floats(40 * 6), classes(40));
    let write = |name: &str, kind: &str, dims: &str, bytes: Vec<u8>| {
        let mut header = format!("{{'descr': '{kind}', 'fortran_order': False, 'shape': {dims}, }}");
        header.push_str(&" ".repeat(64 - (header.len() + 11) % 64));
        header.push('\n');
        let start = [b"\x93NUMPY\x01\x00".as_slice(), &(header.len() as u16).to_le_bytes()].concat();
        std::fs::write(folder.path().join(name), [&start, header.as_bytes(), &bytes].concat()).unwrap();
    };
    write("x.npy", "<f4", "(40, 6)", x.iter().flat_map(|one| one.to_le_bytes()).collect());
    write("y.npy", "<i4", "(40,)", y.iter().flat_map(|one| one.to_le_bytes()).collect());
    let text = r#"
        [model]
        layers = [{class="Input",shape=[6]},{class="Dense",units=8,activation="relu"},{class="Dense",units=3,activation="softmax"}]
        [train]
        loss = "sparse_categorical_crossentropy"
        optimizer = "adam"
        batch = 16
        seed = 5
        epochs = 3
        device = "cpu"
        [data]
        x = "x.npy"
        y = "y.npy"
        validation_split = 0.25
        [memory]
        costs = "analytic"
    "#;
    let job = memfit::Job::parse(text, folder.path().to_owned()).unwrap();
    let (mut of_job, mut of_arrays) = (Losses(Vec::new()), Losses(Vec::new()));
    memfit::fit(&job, Some(2), &mut of_job).unwrap();
    let data = Dataset::new(Array::new(&x, [40, 6]).unwrap(), Array::new(&y, [40]).unwrap());
    let plan = trainer().validation_split(0.25).plan().unwrap();
    let trained = plan.fit_with(&data, Epochs(3), &mut of_arrays).unwrap();
    assert_eq!(of_job.0, of_arrays.0);
    assert_eq!(of_job.0.len(), 3 * (2 + 1));
    assert_eq!(
        trained.history().names().collect::<Vec<_>>(),
        ["loss", "accuracy", "val_loss", "val_accuracy"]
    );
    // Rows of another type are the same numbers.
    let bytes: Vec<u8> = y.iter().map(|class| *class as u8).collect();
    let data = Dataset::new(Array::new(&x, [40, 6]).unwrap(), Array::new(&bytes, [40]).unwrap());
    let again = trainer().validation_split(0.25).plan().unwrap().fit(&data, Epochs(3)).unwrap();
    assert_eq!(again.history(), trained.history());
    let (seen, held) = (Array::new(&x[..180], [30, 6]).unwrap(), Array::new(&x[180..], [10, 6]).unwrap());
    let held = (held, Array::new(&y[30..], [10]).unwrap());
    let data = Dataset::new(seen, Array::new(&y[..30], [30]).unwrap());
    let apart = trainer().validation(&held).plan().unwrap().fit(&data, Epochs(3)).unwrap();
    assert_eq!(apart.history(), trained.history());
}

#[test]
fn what_is_saved_opens_again_and_training_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let (x, y) = (floats(48 * 6), classes(48));
    let data = (Array::new(&x, [48, 6]).unwrap(), Array::new(&y, [48]).unwrap());
    let trained = trainer().shuffle(false).plan().unwrap().fit(&data, Epochs(2)).unwrap();
    let evaluated = trained.evaluate(&data).unwrap();
    let predicted = trained.predict(&data).unwrap();
    assert_eq!(predicted[0].dims(), [48, 3]);
    let path = trained.save(folder.path().join("one.keras")).unwrap();
    let opened = Trainer::new(Model::load(&path).unwrap()).batch(16).device("cpu").threads(2);
    assert_eq!(opened.evaluate(&data).unwrap(), evaluated);
    assert_eq!(opened.predict(&data).unwrap(), predicted);
    for name in ["one.weights.h5", "one.safetensors"] {
        let path = trained.save(folder.path().join(name)).unwrap();
        let weights = trainer().set("model.weights", path.to_str().unwrap());
        assert_eq!(weights.predict(&data).unwrap(), predicted, "{name}");
    }
    let wrong = trained.save(folder.path().join("one.onnx")).unwrap_err().to_string();
    assert!(wrong.contains("must end in .keras, .weights.h5 or .safetensors"), "{wrong}");
    // The optimizer's state goes on too, from memory and from the file.
    let whole = trainer().shuffle(false).plan().unwrap().fit(&data, Epochs(4)).unwrap();
    let whole = &whole.history().get("loss").unwrap()[2..];
    let on = |model: Model| {
        let trainer = Trainer::new(model)
            .loss(SparseCategoricalCrossentropy::default())
            .optimizer(Adam::default())
            .batch(16)
            .device("cpu")
            .threads(2)
            .shuffle(false)
            .seed(5);
        let trained = trainer.plan().unwrap().fit(&data, Epochs(2)).unwrap();
        trained.history().get("loss").unwrap().to_vec()
    };
    assert_eq!(on(trained.model()), whole);
    assert_eq!(on(Model::load(&path).unwrap()), whole);
}

#[test]
fn several_inputs_outputs_and_weights_come_in_their_order() {
    let (x, x2) = (Input::shape([4]), Input::shape([3]));
    let y = Dense::new(3).call(&x);
    let z = Add::new().call(&[&y, &x2]);
    let model = Model::new(&[x, x2], &[y, z]);
    let (a, b, t, w) = (floats(80), floats(60), floats(60), vec![0.5f32; 20]);
    let array = |values, width| Array::new(values, [20, width]).unwrap();
    let data = Dataset::default()
        .input(array(&a, 4))
        .input(array(&b, 3))
        .target(array(&t, 3))
        .target(array(&b, 3))
        .sample_weight(Array::new(&w, [20]).unwrap());
    let plan = Trainer::new(&model)
        .losses(["mse", "mae"])
        .loss_weights([1.0, 0.5])
        .sample_weights()
        .device("cpu")
        .plan()
        .unwrap();
    let trained = plan.fit(&data, Epochs(2)).unwrap();
    assert_eq!(trained.history().names().collect::<Vec<_>>(), ["loss", "dense_loss", "add_loss"]);
    assert_eq!(trained.predict(&data).unwrap().len(), 2);
}

#[test]
fn training_ends_early_where_it_is_asked_to() {
    let (x, y) = (floats(32 * 6), classes(32));
    let data = (Array::new(&x, [32, 6]).unwrap(), Array::new(&y, [32]).unwrap());
    let plan =
        trainer().learning_rate(0.0).validation_split(0.25).early_stopping("val_loss", 2).plan().unwrap();
    let trained = plan.fit(&data, Epochs(50)).unwrap();
    assert_eq!(trained.ended(), Ended::Early);
    assert!(trained.history().get("loss").unwrap().len() < 10);
}

#[test]
fn wrong_arrays_are_answers() {
    let (x, y) = (floats(20 * 6), classes(20));
    let nan = vec![f32::NAN; 20];
    let good = Array::new(&x, [20, 6]).unwrap();
    let labels = Array::new(&y, [20]).unwrap();
    let none: [i32; 0] = [];
    let cases = [
        (
            Dataset::new(Array::new(&x, [40, 3]).unwrap(), labels.clone()),
            "has rows of [3] and `input_layer` takes [6]",
        ),
        (Dataset::new(good.clone(), Array::new(&y[..19], [19]).unwrap()), "19 rows"),
        (Dataset::new(good.clone(), Array::new(&none, [0]).unwrap()), "no rows"),
        (Dataset::new(good.clone(), Array::new(&nan, [20]).unwrap()), "a NaN in row 0"),
        (Dataset::default().input(good.clone()), "1 arrays (1 inputs, 0 targets"),
        (Dataset::new(good.clone(), labels.clone()).sample_weight(labels.clone()), "`.sample_weights()`"),
        (Dataset::new(good.clone(), Array::new(&[7; 20], [20]).unwrap()), "the model has 3 classes"),
        (Dataset::new(good.clone(), Array::new(&[0.5f32; 20], [20]).unwrap()), "takes whole numbers"),
    ];
    for (data, wanted) in cases {
        let plan = trainer().plan().unwrap();
        let found = plan.fit(&data, Epochs(1)).unwrap_err().to_string();
        assert!(found.contains(wanted), "{found} has no `{wanted}`");
    }
    let data = Dataset::new(good, labels);
    let zero = trainer().plan().unwrap().fit(&data, Epochs(0)).unwrap_err().to_string();
    assert!(zero.contains("0 steps"), "{zero}");
    let settings = [
        (trainer().budget("lots"), "memory.budget"),
        (trainer().device("tpu"), "unknown device `tpu`"),
        (trainer().loss("mess"), "unknown loss `mess`"),
        (trainer().set("train.bacth", 3), "did you mean `batch`?"),
        (trainer().batch(0), "a batch of 0 rows"),
        (trainer().early_stopping("val_loss", 2), "give validation data"),
    ];
    for (trainer, wanted) in settings {
        let found = trainer.plan().and_then(|plan| plan.fit(&data, Epochs(1))).unwrap_err().to_string();
        assert!(found.contains(wanted), "{found} has no `{wanted}`");
    }
}

/// What the process holds beside what it held before stays within the budget, down to the smallest.
#[test]
fn the_budget_is_what_training_adds() {
    let model = Sequential::new(Input::shape([32, 32, 3]))
        .add(Conv2D::new(32, 3).activation(Relu))
        .add(Conv2D::new(32, 3).activation(Relu))
        .add(GlobalAveragePooling2D::new())
        .add(Dense::new(10));
    let (x, y) = (floats(64 * 32 * 32 * 3), floats(64 * 10));
    let data = (Array::new(&x, [64, 32, 32, 3]).unwrap(), Array::new(&y, [64, 10]).unwrap());
    let trainer = Trainer::new(&model).loss("mse").batch(64).device("cpu").threads(2);
    let smallest = trainer.clone().set("memory.costs", "analytic").plan().unwrap().bytes_smallest_budget();
    let refused = trainer.clone().budget("8 MiB").plan().unwrap_err();
    assert!(matches!(refused, Error::DoesNotFit(_)), "{refused}");
    let mut losses: Vec<f64> = Vec::new();
    for more in [2u64, 16, 64, 256] {
        let budget = smallest + Bytes::mib(more);
        let before = process::resident();
        let trainer = trainer.clone().budget(&budget.0.to_string()).set("memory.costs", "analytic");
        let plan = trainer.plan().unwrap();
        let trained = plan.fit(&data, Epochs(2)).unwrap();
        let report = trained.report();
        assert_eq!(report.bytes_peak_predicted, report.bytes_peak_measured);
        let added = process::resident_peak().saturating_sub(before);
        assert!(added <= budget, "{added} were added within a budget of {budget}");
        losses.push(trained.history().get("loss").unwrap()[1]);
    }
    assert!(losses.iter().all(|loss| (loss - losses[0]).abs() < 1e-4), "{losses:?}");
}
