//! A byte that grows from step to step is an error that names its owner.

use memfit_device::heap;
use memfit_grad::{Optimizer, Training};
use memfit_ir::{Loss, LossKind, TensorId};
use memfit_run::{Feed, FeedError, RunError, StepInput};
use memfit_testkit::harness::{problem, runner};
use memfit_testkit::random_graphs::random_graph;

#[global_allocator]
static HEAP: heap::Counting = heap::Counting;

/// A loader that keeps what it has read.
struct Leaky {
    kept: Vec<Vec<u8>>,
    bytes: usize,
}

impl Feed for Leaky {
    fn feed(&mut self, _: TensorId, _: usize, _: usize, to: &mut [u8]) -> Result<(), FeedError> {
        to.fill(0);
        self.kept.push(vec![1; self.bytes]);
        Ok(())
    }
}

#[test]
fn a_loader_that_leaks_is_stopped_and_named_and_one_that_does_not_runs_on() {
    let losses = vec![Loss { kind: LossKind::MeanSquaredError, weight: 1.0 }];
    let training = Training { losses, ..Training::new(Optimizer::sgd(0.1)) };
    let problem = problem(&random_graph(4, false), &training, 2);
    for (bytes, leaks) in [(64 << 10, true), (0, false)] {
        let mut runner = runner(&problem);
        let mut feed = Leaky { kept: Vec::with_capacity(1000), bytes };
        let mut ended = None;
        for step in 0..100 {
            let input = StepInput { step, rows: 2, learning_rate: 0.1, seed: 0 };
            if let Err(error) = runner.step(input, &mut feed) {
                ended = Some(error);
                break;
            }
        }
        match ended {
            Some(RunError::Grew { step, owner, .. }) => {
                assert!(leaks && step < 10 && owner == "the input pipeline", "{owner} at step {step}");
            }
            Some(other) => panic!("{other}"),
            None => assert!(!leaks, "{} bytes leaked unseen", feed.kept.len() * bytes),
        }
    }
}
