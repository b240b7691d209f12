//! Logs of a run that was stopped and resumed have the rows of one that was not.

use std::fs;

use memfit_ir::Bytes;
use memfit_run::{Means, StepRecord};

use super::*;
use crate::Quiet;

const STEPS: u64 = 6;
/// Steps of an epoch.
const EPOCH: u64 = 2;

fn job(folder: &Path, log: &str) -> Job {
    let mut job = Job::for_model(Path::new("model.keras"));
    job.caller.folder = folder.to_owned();
    job.train.log = Some(log.into());
    job.train.tensorboard = Some("board".into());
    job
}

/// Logs the steps of a run from one to another, and the epochs that end with them.
fn run(job: &Job, steps: std::ops::Range<u64>, resumed: bool) {
    let metrics = ["mae".to_owned(), "odd,\"name".to_owned()];
    let done = Done { steps: steps.start, epochs: steps.start / EPOCH };
    let logs = Logs::open(job, &metrics, true, resumed.then_some(done)).unwrap();
    let mut quiet = Quiet;
    let mut logged = Logged::new(&mut quiet, logs);
    for step in steps {
        let record = StepRecord {
            step,
            rows: 4,
            loss: if step == 3 { f64::NAN } else { 1.0 / (step + 1) as f64 },
            metrics: vec![0.5, 1e-9],
            loss_scale: None,
            skipped_by: None,
            seconds: 0.5,
            bytes_used: Bytes(1000 + step),
            bytes_held: Bytes(1000 + step),
        };
        let (epoch, learning_rate) = (step / EPOCH, 0.1);
        logged.event(Event::Step { record: &record, epoch, steps: STEPS, metrics: &metrics, learning_rate });
        if (step + 1).is_multiple_of(EPOCH) {
            let means = |loss: f64| Means { rows: 8, loss, values: vec![loss + 1.0, loss + 2.0] };
            let (means, validated) = (means(step as f64), means(10.0));
            let validation = Some(&validated);
            logged.event(Event::Epoch { epoch, means: &means, validation, metrics: &metrics, learning_rate });
        }
    }
    logged.flush().unwrap();
}

fn text(job: &Job) -> String {
    fs::read_to_string(job.path(job.train.log.as_ref().unwrap())).unwrap()
}

/// Event files without their times.
fn events(job: &Job) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    for run in ["train", "validation"] {
        all.extend(events::without_times(&job.caller.folder.join("board").join(run)));
    }
    all
}

#[test]
fn csv_has_a_header_and_a_row_for_every_step_and_epoch() {
    let folder = tempfile::tempdir().unwrap();
    let job = job(folder.path(), "log.csv");
    run(&job, 0..4, false);
    assert_eq!(
        text(&job),
        "kind,epoch,step,loss,mae,\"odd,\"\"name\",val_loss,val_mae,\"val_odd,\"\"name\",learning_rate,rows_per_second,bytes_used\n\
         step,1,1,1.0,0.5,1e-9,,,,0.1,8.0,1000\n\
         step,1,2,0.5,0.5,1e-9,,,,0.1,8.0,1001\n\
         epoch,1,2,1.0,2.0,3.0,10.0,11.0,12.0,0.1,8.0,1001\n\
         step,2,3,0.3333333333333333,0.5,1e-9,,,,0.1,8.0,1002\n\
         step,2,4,NaN,0.5,1e-9,,,,0.1,8.0,1003\n\
         epoch,2,4,3.0,4.0,5.0,10.0,11.0,12.0,0.1,8.0,1003\n"
    );
}

#[test]
fn jsonl_has_an_object_for_every_step_and_epoch() {
    let folder = tempfile::tempdir().unwrap();
    let job = job(folder.path(), "log.jsonl");
    run(&job, 2..4, false);
    let lines: Vec<String> = text(&job).lines().map(str::to_owned).collect();
    assert_eq!(
        lines[1..],
        [
            r#"{"kind":"step","epoch":2,"step":4,"loss":null,"mae":0.5,"odd,\"name":1e-9,"learning_rate":0.1,"rows_per_second":8.0,"bytes_used":1003}"#,
            r#"{"kind":"epoch","epoch":2,"step":4,"loss":3.0,"mae":4.0,"odd,\"name":5.0,"val_loss":10.0,"val_mae":11.0,"val_odd,\"name":12.0,"learning_rate":0.1,"rows_per_second":8.0,"bytes_used":1003}"#,
        ]
    );
}

#[test]
fn a_run_that_is_resumed_leaves_no_row_out_and_none_twice() {
    for name in ["log.csv", "log.jsonl"] {
        let whole_folder = tempfile::tempdir().unwrap();
        let whole = job(whole_folder.path(), name);
        run(&whole, 0..STEPS, false);
        // Stopped after some steps, of which the first ones are in the checkpoint.
        for (checkpoint, stopped) in [(0, 3), (1, 1), (2, 2), (2, 5), (3, 6), (4, 5)] {
            let folder = tempfile::tempdir().unwrap();
            let job = job(folder.path(), name);
            run(&job, 0..stopped, false);
            // It was killed within a row, too.
            let cut_off = text(&job) + "step,9,9";
            fs::write(job.path(Path::new(name)), cut_off).unwrap();
            run(&job, checkpoint..STEPS, true);
            assert_eq!(text(&job), text(&whole), "{name}: {checkpoint} of {stopped} steps");
            assert_eq!(events(&job), events(&whole), "{name}: {checkpoint} of {stopped} steps");
        }
    }
}

#[test]
fn a_new_run_begins_a_new_log() {
    let folder = tempfile::tempdir().unwrap();
    let job = job(folder.path(), "log.csv");
    run(&job, 0..2, false);
    let once = text(&job);
    run(&job, 0..2, false);
    assert_eq!(text(&job), once);
}

#[test]
fn what_cannot_be_written_is_an_answer() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("file"), "").unwrap();
    let open = |log: &str, board: &str| {
        let mut job = job(folder.path(), log);
        job.train.tensorboard = Some(board.into());
        Logs::open(&job, &[], false, None).err().map(|error| error.to_string()).unwrap_or_default()
    };
    assert!(open("no/folder/log.csv", "board").contains("train.log (--log): cannot write"));
    assert!(open("log.txt", "board").contains("must end in .csv or .jsonl"));
    assert!(open("log.csv", "file").contains("train.tensorboard (--tensorboard): cannot write to"));

    // A device that is always full.
    std::os::unix::fs::symlink("/dev/full", folder.path().join("full.jsonl")).unwrap();
    let mut job = job(folder.path(), "full.jsonl");
    job.train.tensorboard = None;
    let logs = Logs::open(&job, &[], false, Some(Done::default()));
    let means = Means { rows: 1, loss: 1.0, values: vec![] };
    let failed = logs.and_then(|logs| {
        let mut quiet = Quiet;
        let mut logged = Logged::new(&mut quiet, logs);
        logged.event(Event::Epoch {
            epoch: 0,
            means: &means,
            validation: None,
            metrics: &[],
            learning_rate: 0.1,
        });
        logged.check()
    });
    let answer = failed.unwrap_err().to_string();
    assert!(answer.contains("full.jsonl"), "{answer}");
}
