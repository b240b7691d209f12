//! A caller's own loop: rows and weights of the caller, and an arena that is taken and given back.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on says where it stopped")]

use memfit::{
    Borrowed, BorrowedArray, BorrowedOrder, Bytes, Error, Job, Purpose, Session, StepOf, ValidationRows,
    VariableKind, process,
};

const JOB: &str = r#"
[model]
layers = [{class="Input",shape=[4]},{class="Dense",units=8,activation="relu"},{class="Dense",units=1}]
[train]
loss = "mse"
optimizer = "adam"
batch = 16
"#;

fn session(purpose: Purpose) -> Session {
    let mut job = Job::parse(JOB, "".into()).unwrap();
    job.caller.baseline = process::resident();
    job.memory.budget = Some(Bytes::mib(64).into());
    Session::plan(&job, purpose, Some(2)).unwrap()
}

fn floats(values: impl Iterator<Item = f32>) -> Vec<u8> {
    values.flat_map(f32::to_le_bytes).collect()
}

/// One step over 16 rows in an order of the caller's.
fn step(session: &mut Session) -> f64 {
    let x = floats((0..16 * 4).map(|index| (index % 7) as f32 / 7.0));
    let y = floats((0..16).map(|index| (index % 3) as f32));
    let x = BorrowedArray { description: "<f4", dims: &[16, 4], bytes: &x };
    let y = BorrowedArray { description: "<f4", dims: &[16], bytes: &y };
    let fields = session.fields().to_vec();
    let order: Vec<i64> = (0..16).rev().collect();
    let arrays = &[x, y][..fields.len()];
    let mut rows = Borrowed::new(&fields, arrays, BorrowedOrder::Rows(&order)).unwrap();
    session
        .step(&mut rows, StepOf { start: 0, rows: 16, learning_rate: Some(0.01), next: None })
        .unwrap()
        .loss
}

fn write(session: &mut Session, values: &[Option<Vec<u8>>]) {
    for (variable, value) in values.iter().enumerate() {
        if let (Some(slot), Some(value)) = (session.bytes_mut(variable), value) {
            slot.copy_from_slice(value);
        }
    }
}

fn read(session: &Session) -> Vec<Option<Vec<u8>>> {
    (0..session.variables().count()).map(|variable| session.bytes(variable).map(<[u8]>::to_vec)).collect()
}

fn first_weights(session: &mut Session) -> Vec<Option<Vec<u8>>> {
    let variables: Vec<_> = session.variables().map(|known| (known.kind, known.dims.to_vec())).collect();
    let value = |(kind, dims): &(VariableKind, Vec<usize>)| {
        let elements = dims.iter().product::<usize>();
        (*kind == VariableKind::Weight)
            .then(|| floats((0..elements).map(|index| (index % 5) as f32 / 9.0 - 0.2)))
    };
    variables.iter().map(value).collect()
}

#[test]
fn an_arena_that_was_given_back_goes_on_where_it_was() {
    let (mut whole, mut broken) = (session(Purpose::Training), session(Purpose::Training));
    let kinds: Vec<VariableKind> = whole.variables().map(|known| known.kind).collect();
    assert_eq!(
        kinds[..6],
        [[VariableKind::Weight; 4].as_slice(), &[VariableKind::Iteration, VariableKind::LearningRate]]
            .concat()
    );
    let start = first_weights(&mut whole);
    for one in [&mut whole, &mut broken] {
        one.open().unwrap();
        write(one, &start);
    }
    let mut losses = [Vec::new(), Vec::new()];
    for _ in 0..6 {
        losses[0].push(step(&mut whole));
        losses[1].push(step(&mut broken));
        let values = read(&broken);
        broken.close();
        assert!(!broken.is_open());
        broken.open().unwrap();
        write(&mut broken, &values);
    }
    assert_eq!(losses[0], losses[1]);
    assert!(losses[0][5] < losses[0][0]);
    assert_eq!(read(&whole), read(&broken));
    assert_eq!((whole.iteration(), broken.iteration()), (6, 6));
}

#[test]
fn evaluation_and_prediction_take_the_weights_of_the_training() {
    let mut training = session(Purpose::Training);
    let start = first_weights(&mut training);
    training.open().unwrap();
    write(&mut training, &start);
    let loss = step(&mut training);
    let weights = start.iter().take(4).cloned().collect::<Vec<_>>();
    let mut evaluation = session(Purpose::Evaluation);
    evaluation.open().unwrap();
    write(&mut evaluation, &weights);
    assert!((step(&mut evaluation) - loss).abs() < 1e-6);
    let mut prediction = session(Purpose::Prediction);
    assert_eq!(prediction.output_dims().collect::<Vec<_>>(), [[1]]);
    prediction.open().unwrap();
    write(&mut prediction, &weights);
    step(&mut prediction);
    assert_eq!(prediction.prediction(0, 16).len(), 16 * 4);
    assert!(prediction.prediction(0, 16).iter().any(|byte| *byte != 0));
}

fn validated(budget: Bytes) -> Result<Session, Error> {
    let mut job = Job::parse(JOB, "".into()).unwrap();
    job.caller.baseline = process::resident();
    job.caller.validation = Some(ValidationRows { batch: 16, weights_of_samples: Vec::new(), config: None });
    job.memory.budget = Some(budget.into());
    Session::plan(&job, Purpose::Training, Some(2))
}

#[test]
fn a_validation_takes_the_weights_of_now_and_changes_no_bit_of_the_training() {
    let (mut plain, mut validated) = (session(Purpose::Training), validated(Bytes::mib(64)).unwrap());
    let start = first_weights(&mut plain);
    for one in [&mut plain, &mut validated] {
        one.open().unwrap();
        write(one, &start);
    }
    let mut evaluation = session(Purpose::Evaluation);
    for _ in 0..3 {
        assert_eq!(step(&mut plain), step(&mut validated));
        evaluation.open().unwrap();
        write(&mut evaluation, &read(&validated)[..4]);
        let wanted = step(&mut evaluation);
        evaluation.close();
        validated.begin_validation().unwrap();
        let values = read(&validated);
        assert_eq!(step(&mut validated), wanted);
        write(&mut validated, &start);
        assert_ne!(step(&mut validated), wanted, "weights that are written are seen by the next step");
        write(&mut validated, &values);
        assert_eq!(step(&mut validated), wanted);
        validated.end_validation().unwrap();
    }
    assert_eq!(read(&plain), read(&validated));
    assert_eq!((plain.iteration(), validated.iteration()), (3, 3));
    validated.begin_validation().unwrap();
    validated.close();
    validated.open().unwrap();
    validated.begin_validation().unwrap();
}

#[test]
fn a_budget_counts_the_validation_before_the_first_step() {
    let refused = validated(Bytes(1)).err().expect("no plan takes one byte");
    let Error::DoesNotFit(answer) = refused else { panic!("{refused}") };
    assert!(validated(answer.smallest + Bytes::mib(4)).is_ok());
}

/// Trains through the front door, and returns the loss of every step.
fn fitted(seed: u64) -> Vec<f64> {
    struct Losses(Vec<f64>);
    impl memfit::Observer for Losses {
        fn event(&mut self, event: memfit::Event<'_>) {
            if let memfit::Event::Step { record, .. } = event {
                self.0.push(record.loss);
            }
        }
    }
    let mut job = Job::parse(JOB, "".into()).unwrap();
    (job.train.steps, job.train.seed) = (Some(20), seed);
    job.memory.budget = Some(Bytes::mib(4096).into());
    let mut losses = Losses(Vec::new());
    memfit::fit(&job, Some(1), &mut losses).unwrap();
    losses.0
}

#[test]
fn two_jobs_of_one_process_do_not_disturb_each_other() {
    let alone: Vec<Vec<f64>> = (0..4).map(fitted).collect();
    let at_once: Vec<Vec<f64>> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4).map(|seed| scope.spawn(move || fitted(seed))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(alone, at_once);
}
