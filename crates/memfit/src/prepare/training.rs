//! What a job trains for: losses and metrics with their names, and the training graph.

use memfit_formats::Precision;
use memfit_grad::{OutputMetric, Training, training_graph};
use memfit_ir::{Graph, Loss};

use crate::compile_metric::{Names, metric_name, parse_metric};
use crate::{Compiled, Error, Guard, Job, Like, model_file};

/// The training graph of a job under another policy.
pub(crate) fn graph_at(job: &Job, precision: Precision, training: &Training) -> Option<Graph> {
    let forward = model_file::forward(job, Some(precision)).ok()?;
    training_graph(&forward, training).ok()
}

/// What to train for, and the names of the values that are reported beside the loss.
pub(crate) fn training(
    job: &Job,
    forward: &Graph,
    compiled: &Compiled,
) -> Result<(Training, Vec<String>), Error> {
    let outputs = forward.outputs.len();
    let losses: Vec<Loss> = compiled
        .losses
        .iter()
        .zip(&compiled.loss_weights)
        .map(|(kind, weight)| Loss { kind: kind.clone(), weight: *weight })
        .collect();
    // The losses of several outputs are reported before the metrics.
    let mut names: Vec<String> = match &compiled.output_names[..] {
        [_] => Vec::new(),
        outputs => outputs.iter().map(|output| format!("{output}_loss")).collect(),
    };
    let (mut metrics, mut named) = (Vec::new(), Names::default());
    for (weighted, lists) in [(false, &compiled.metrics), (true, &compiled.weighted_metrics)] {
        for (output, (list, loss)) in lists.iter().zip(&losses).enumerate() {
            let tensor = &forward.tensors[forward.outputs[output].0];
            let prefix = Some(compiled.output_names[output].as_str()).filter(|_| 1 < outputs);
            for value in list {
                let metric = parse_metric(value, tensor, loss.kind.is_sparse())?;
                let name = named.next(prefix, &metric_name(value), weighted);
                match metric.numbers(&tensor.shape) {
                    1 => names.push(name),
                    numbers => names.extend((0..numbers).map(|number| format!("{name}[{number}]"))),
                }
                metrics.push(OutputMetric { output, metric, weighted });
            }
        }
    }
    let sample_weights = usize::from(job.data.sample_weight.is_some()).max(job.caller.sample_weights);
    let weights_of_samples = job.caller.weights_of_samples.clone();
    let optimizer = compiled.optimizer.clone();
    let training = Training {
        losses,
        metrics,
        sample_weights,
        weights_of_samples,
        guard: job.memory.guard == Guard::Step,
        like_tensorflow: matches!(job.train.like, Some(Like::Tensorflow)),
        capabilities: job.capabilities(),
        ..Training::new(optimizer)
    };
    Ok((training, names))
}
