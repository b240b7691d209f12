//! Changes of the model or of its training that would make a job fit, each tried by planning it.

use memfit_device::Backend;
use memfit_formats::Precision;
use memfit_grad::{Optimizer, Training, training_graph};
use memfit_ir::{Bytes, Graph, Kind, Plan, Problem, UpdateRule};
use memfit_plan::{DoesNotFit, Dominant, Hint};

use crate::precision::try_bfloat16;
use crate::{Compiled, Job, change, model_file, prepare};

/// The job that does not fit.
pub(crate) struct Base<'a> {
    pub job: &'a Job,
    pub forward: &'a Graph,
    pub training: &'a Training,
    pub compiled: &'a Compiled,
    pub problem: &'a Problem,
}

/// Arguments that say how wide a layer is.
const WIDTHS: [&str; 2] = ["filters", "units"];

/// Looks for what would help: what the planner can change by itself, then what changes the training or the model.
pub(crate) fn find_hints(answer: &mut DoesNotFit, base: &Base<'_>, setup: &dyn Backend) {
    answer.find_hints(base.problem);
    if answer.hints.contains(&Hint::BelowRuntime) || !base.problem.pinned.is_empty() {
        return;
    }
    answer.hints.extend(without_state(base, setup));
    let graph = || prepare::graph_at(base.job, Precision::MixedBfloat16, base.training);
    answer.hints.extend(try_bfloat16(base.problem, graph, setup));
    let plans = DoesNotFit::plans_for_a_try(base.problem);
    if plans == 0 {
        if let Some(untried) = &mut answer.untried {
            *untried += ", nor a smaller image or another layer";
        }
        return;
    }
    answer.hints.extend(smaller_image(base, setup, plans));
    if let Some(dominant) = &answer.dominant {
        answer.hints.extend(other_layer(base, setup, dominant));
    }
}

/// The plan of a changed job that fits the same budget.
fn plan_of(base: &Base<'_>, setup: &dyn Backend, job: &Job, forward: &Graph) -> Option<(Problem, Plan)> {
    let (training, _) = prepare::training(job, forward, base.compiled).ok()?;
    let graph = training_graph(forward, &training).ok()?;
    let problem = prepare::with_graph(setup, base.problem, graph);
    let plan = memfit_plan::fastest(&problem)?;
    Some((problem, plan))
}

/// An optimizer without state.
fn without_state(base: &Base<'_>, setup: &dyn Backend) -> Option<Hint> {
    if base.training.optimizer.rule.state(&[1]).is_empty() {
        return None;
    }
    let rule = UpdateRule::Sgd { momentum: 0.0, nesterov: false };
    let optimizer = Optimizer { rule, ..base.training.optimizer.clone() };
    let graph = training_graph(base.forward, &Training { optimizer, ..base.training.clone() }).ok()?;
    let changed = prepare::with_graph(setup, base.problem, graph);
    let smallest = memfit_plan::smallest_budget(&changed);
    (smallest <= base.problem.budget.total).then(|| Hint::Changed {
        kind: "optimizer",
        text: format!(
            "the optimizer SGD keeps no state and fits from {smallest}, with another path to the minimum"
        ),
        smallest,
    })
}

/// Sizes of images go in steps of this: what poolings and strides divide evenly in most networks.
fn step_of(height: usize) -> usize {
    match height {
        0..64 => 1,
        64..128 => 8,
        128.. => 32,
    }
}

/// The largest image that fits, found by a few plans.
fn smaller_image(base: &Base<'_>, setup: &dyn Backend, plans: usize) -> Option<Hint> {
    let dims = |id: &memfit_ir::TensorId| base.forward.tensors[id.0].shape.dims.clone();
    let image = base.forward.inputs.iter().map(dims).find(|dims| dims.len() == 3)?;
    let [height, width] = [image[0], image[1]];
    let step = step_of(height);
    let size = |count: usize| {
        let scaled = (width * count) as f64 / height as f64;
        [count * step, (scaled.round() as usize).max(1) * step]
    };
    let (mut low, mut high) = (0, height.div_ceil(step));
    let mut found: Option<([usize; 2], Graph, Bytes)> = None;
    for _ in 0..plans {
        let middle = low + (high - low) / 2;
        if middle == low {
            break;
        }
        let job = change::with_image_size(base.job, [height, width], size(middle)).ok()??;
        // An image can be too small for a model as well as too large for the budget.
        let Ok(forward) = model_file::forward(&job, job.train.precision) else {
            low = middle;
            continue;
        };
        match plan_of(base, setup, &job, &forward) {
            Some((problem, plan)) => {
                low = middle;
                found = Some((size(middle), forward, problem.budget.smallest(plan.bytes_peak)));
            }
            None => high = middle,
        }
    }
    let ([h, w], forward, smallest) = found?;
    let largest = if high == low + 1 && step == 1 {
        ", and no larger ones do".to_owned()
    } else if high == low + 1 {
        format!(", the largest in steps of {step}")
    } else {
        String::new()
    };
    let weights = match changed_weight(base.forward, &forward) {
        None => "the weights keep their shapes".to_owned(),
        Some((name, before, after)) => format!("{name} becomes {after} instead of {before}"),
    };
    let text = format!(
        "images of {h}x{w} instead of {height}x{width} fit within {smallest}{largest}; {weights}, and the data \
         must be resized"
    );
    Some(Hint::Changed { kind: "image_size", text, smallest })
}

/// The first weight whose shape differs: name, before, after.
fn changed_weight(before: &Graph, after: &Graph) -> Option<(String, String, String)> {
    let weights = |graph: &Graph| -> Vec<(String, String)> {
        let all = graph.tensors.iter().filter(|tensor| matches!(tensor.kind, Kind::Weight { .. }));
        all.map(|tensor| (tensor.name.clone(), tensor.shape.to_string())).collect()
    };
    let pairs = weights(before).into_iter().zip(weights(after));
    pairs
        .filter(|((name, before), (other, after))| name == other && before != after)
        .map(|((name, before), (_, after))| (name, before, after))
        .next()
}

/// A change of the layer that holds the most: half as wide; or, where its width is what is predicted, no Flatten before it.
fn other_layer(base: &Base<'_>, setup: &dyn Backend, dominant: &Dominant) -> Option<Hint> {
    let Dominant { layer, share, .. } = dominant;
    let forward = base.forward;
    let share = format!("{layer} holds {:.0} % of the peak", share * 100.0);
    let is_output =
        forward.outputs.iter().any(|output| forward.layers[forward.tensors[output.0].layer.0] == *layer);
    let (job, change) = if is_output {
        let job = change::with_class(base.job, "Flatten", "GlobalAveragePooling2D").ok()??;
        (job, "`GlobalAveragePooling2D` in place of Flatten".to_owned())
    } else {
        let change::Halved { job, argument, before, after } =
            change::with_half(base.job, layer, &WIDTHS).ok()??;
        (job, format!("`{argument} = {after}` there instead of {before}"))
    };
    let changed = model_file::forward(&job, job.train.precision).ok()?;
    let (problem, plan) = plan_of(base, setup, &job, &changed)?;
    let smallest = problem.budget.smallest(plan.bytes_peak);
    let text = format!("{share}: {change} fits within {smallest}, and is another network");
    Some(Hint::Changed { kind: "layer", text, smallest })
}
