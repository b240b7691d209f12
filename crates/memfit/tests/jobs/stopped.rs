//! A run that is stopped after any of its steps ends its epochs once, and keeps the best checkpoint of the run that was never stopped.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use memfit::{Ended, Event, Job, Observer, Resume, fit};

const EPOCHS: u64 = 4;
/// Steps of an epoch.
const STEPS: u64 = 3;

const JOB: &str = r#"
[model]
layers = [{class = "Input", shape = [5]}, {class = "Dense", units = 7, activation = "tanh"}, {class = "Dense", units = 1}]
[train]
loss = "mse"
optimizer = {class = "SGD", learning_rate = 0.9}
batch = 8
epochs = 4
early_stopping = "val_loss:20"
[data]
rows = 48
shuffle = true
validation_split = 0.5
[checkpoint]
folder = "checkpoints"
every = "1step"
keep = 100
keep_best = "val_loss"
[memory]
budget = "1GiB"
costs = "analytic"
"#;

/// Asks to stop after a step, and notes the validation of each epoch.
struct Stop {
    after: Option<u64>,
    steps: u64,
    validated: Vec<(u64, u64)>,
}

impl Observer for Stop {
    fn event(&mut self, event: Event<'_>) {
        match event {
            Event::Step { record, .. } => self.steps = record.step + 1,
            Event::Epoch { epoch, validation: Some(validation), .. } => {
                self.validated.push((epoch, validation.loss.to_bits()));
            }
            Event::Epoch { validation: None, .. }
            | Event::Lowered { .. }
            | Event::Resumed { .. }
            | Event::Saved { .. }
            | Event::GoesOn { .. }
            | Event::Checkpoint { .. }
            | Event::Planned(_)
            | Event::Begun { .. }
            | Event::Piece { .. } => {}
        }
    }

    fn stop_requested(&mut self) -> bool {
        self.after.is_some_and(|after| after <= self.steps)
    }
}

fn run(folder: &Path, after: Option<u64>, resume: Resume) -> (Ended, Vec<(u64, u64)>) {
    let mut job = Job::parse(JOB, folder.to_owned()).unwrap();
    job.caller.resume = resume;
    let mut stop = Stop { after, steps: 0, validated: Vec::new() };
    let report = fit(&job, Some(1), &mut stop).unwrap();
    (report.ended, stop.validated)
}

/// The steps whose checkpoint is also the best one.
fn best(folder: &Path) -> Vec<u64> {
    let folder = folder.join("checkpoints");
    let file = |name: &str| fs::metadata(folder.join(name)).unwrap().ino();
    let wanted = file("best.keras");
    (1..=EPOCHS * STEPS).filter(|step| file(&format!("step-{step:010}.keras")) == wanted).collect()
}

#[test]
fn a_run_that_is_stopped_after_any_step_keeps_the_best_checkpoint_of_the_whole_run() {
    let whole = tempfile::tempdir().unwrap();
    let (ended, validated) = run(whole.path(), None, Resume::No);
    assert_eq!((ended, validated.len() as u64), (Ended::Finished, EPOCHS));
    let wanted = best(whole.path());
    assert!(wanted.len() == 1 && wanted[0] < EPOCHS * STEPS, "the best one is not the last: {wanted:?}");
    for after in 1..=EPOCHS * STEPS {
        let parts = tempfile::tempdir().unwrap();
        let (ended, mut found) = run(parts.path(), Some(after), Resume::No);
        assert_eq!(ended, Ended::Stopped, "{after}");
        // As where a run is killed after it has written the best one, and before it has named it.
        let _ = fs::remove_file(parts.path().join("checkpoints/best.keras"));
        // What was validated is so once, also where the run has ended and goes on again.
        for _ in 0..2 {
            let (ended, more) = run(parts.path(), None, Resume::Newest);
            assert_eq!(ended, Ended::Finished, "{after}");
            found.extend(more);
        }
        assert_eq!(found, validated, "{after}");
        assert_eq!(best(parts.path()), wanted, "{after}");
    }
}
