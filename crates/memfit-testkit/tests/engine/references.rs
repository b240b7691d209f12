//! Numbers from outside: every layer, loss, optimizer and metric against what Keras on TensorFlow computed.

use std::process::Command;

use memfit::{parse_loss, parse_metric, parse_optimizer};
use memfit_formats::{Mode, Options, graph_from_keras};
use memfit_grad::{Optimizer, OutputMetric, Training};
use memfit_ir::{DType, Graph, Kind, Loss, LossKind, Op, Tensor, TensorId};
use memfit_run::Runner;
use memfit_testkit::harness::{Values, difference, problem, runner, runner_of, step, write_weights};
use memfit_testkit::specs::{draw, numbers, references};
use serde_json::Value;

/// Cases that plain floats leave out: they round every product, Keras does not, and ten steps of these make more of that than their
/// limits allow.
const PLAIN_LEAVES_OUT: [&str; 3] = ["six_convolutions", "transformer", "mixed_bfloat16_convolutions"];

#[test]
fn every_layer_gives_the_values_and_gradients_of_keras() {
    check_all(references("layers.json"), 20, check_layer);
}

/// Everything else in this file once more, at each level of vector instructions but the widest, which all others use.
#[test]
fn all_of_this_holds_at_every_vector_level() {
    let levels = memfit_cpu::vectors();
    for level in &levels[..levels.len() - 1] {
        let run = Command::new(std::env::current_exe().unwrap())
            .args(["references::", "--skip", "all_of_this_holds_at_every_vector_level"])
            .env("MEMFIT_VECTORS", level)
            .output()
            .unwrap();
        assert!(run.status.success(), "{level}:\n{}", String::from_utf8_lossy(&run.stdout));
    }
}

#[test]
fn every_function_of_keras_ops_gives_its_values_and_gradients() {
    check_all(references("operations.json"), 100, check_layer);
}

#[test]
fn every_recurrent_layer_gives_its_values_and_gradients() {
    check_all(references("recurrent.json"), 40, check_layer);
}

#[test]
fn sequences_images_and_noise_give_the_values_and_gradients_of_keras() {
    check_all(references("spatial.json"), 60, check_layer);
}

#[test]
fn volumes_masks_and_further_layers_give_the_values_and_gradients_of_keras() {
    check_all(references("further.json"), 30, check_layer);
}

#[test]
fn layers_and_models_within_layers_give_the_values_and_gradients_of_keras() {
    check_all(references("wrapped.json").iter().map(by_our_names).collect(), 30, check_layer);
}

/// A case whose weights have the names that they have here: Keras leaves out some of the layers around a model.
fn by_our_names(case: &Value) -> Value {
    let options = Options { mode: Mode::Training, seed: 0, precision: None };
    let model = memfit_formats::model_from_keras(&case["config"], &options).unwrap();
    let names: Vec<String> =
        model.weights.iter().map(|stored| model.graph.tensors[stored.tensor.0].name.clone()).collect();
    let mut case = case.clone();
    for (place, name) in names.into_iter().enumerate() {
        let weight = &mut case["weights"][place];
        let path = std::mem::replace(&mut weight["path"], name.clone().into());
        for results in ["weight_gradients", "moving_after"] {
            let all = case.get_mut(results).and_then(Value::as_object_mut);
            if let Some(all) = all
                && let Some(values) = all.remove(path.as_str().unwrap())
            {
                all.insert(name.clone(), values);
            }
        }
    }
    case
}

#[test]
fn ten_steps_with_penalties_on_values_masked_losses_and_other_sums_agree_with_keras() {
    check_all(references("further_training.json"), 20, check_training);
}

#[test]
fn ten_steps_of_every_model_loss_optimizer_and_metric_agree_with_keras() {
    // TensorFlow keeps the gradient of an embedding as slices and squares each by itself; memfit sums first, as
    // the optimizer's formula says, and agrees with the case that does the same.
    let cases = references("training.json");
    let comparable = cases.into_iter().filter(|case| case["name"] != "embedding_adamw_slices").collect();
    check_all(comparable, 20, check_training);
}

#[test]
fn ten_steps_of_everything_that_a_model_is_compiled_with_agree_with_keras() {
    check_all(references("compile.json"), 35, check_training);
}

#[test]
fn what_is_frozen_has_no_gradient_no_state_and_nothing_kept_for_it() {
    let case = references("compile.json").into_iter().find(|case| case["name"] == "frozen").unwrap();
    let (frozen, _) = training_problem(&case, 8);
    let text = case["config"].to_string().replace(r#""trainable":false"#, r#""trainable":true"#);
    let mut thawed = case.clone();
    thawed["config"] = serde_json::from_str(&text).unwrap();
    let (thawed, _) = training_problem(&thawed, 8);
    let bytes_of = |graph: &Graph, kind: Kind| -> u64 {
        let of_kind = graph.tensors.iter().filter(|tensor| tensor.kind == kind);
        of_kind.map(|tensor| tensor.shape.bytes(tensor.dtype, 8).0).sum()
    };
    // Two states of Adam for each trainable weight and no others: conv2 and the output.
    let learning = bytes_of(&frozen.graph, Kind::Weight { trainable: true });
    assert_eq!(learning, 4 * (3 * 3 * 4 * 4 + 4 + 16 * 5 + 5));
    assert_eq!(bytes_of(&frozen.graph, Kind::Optimizer), 2 * learning);
    assert_eq!(bytes_of(&frozen.graph, Kind::Gradient), learning);
    for layer in ["conv1", "norm1", "norm2"] {
        let owned = frozen.graph.tensors.iter().filter(|tensor| tensor.name.starts_with(layer));
        let kinds: Vec<Kind> = owned.map(|tensor| tensor.kind).collect();
        assert!(!kinds.is_empty() && !kinds.contains(&Kind::Gradient) && !kinds.contains(&Kind::Optimizer));
    }
    // Backward ends at the first layer that learns: in front of it there are no gradients, and so nothing is kept.
    let flows = |graph: &Graph, layer: &str| {
        let of_layer = |tensor: &&Tensor| graph.layers[tensor.layer.0] == layer && tensor.kind == Kind::Flow;
        graph.tensors.iter().filter(of_layer).count()
    };
    assert_eq!(flows(&frozen.graph, "conv1") + flows(&frozen.graph, "norm1"), 0);
    assert!(0 < flows(&thawed.graph, "norm1"));
    let peak = |problem: &memfit_ir::Problem| memfit_plan::plan(problem).unwrap().bytes_peak;
    assert!(peak(&frozen) < peak(&thawed), "{} and {}", peak(&frozen), peak(&thawed));
}

#[test]
fn ten_steps_under_mixed_policies_follow_keras_and_skip_the_same_steps() {
    let cases = references("precision.json");
    let names: Vec<&str> = cases.iter().filter_map(|case| case["name"].as_str()).collect();
    assert!(
        names.contains(&"mixed_float16_overflow") && names.contains(&"mixed_bfloat16_batch_normalization")
    );
    check_all(cases, 10, check_precision);
}

#[test]
fn a_loss_of_the_whole_batch_is_never_split_and_one_of_rows_may_be() {
    let cases = references("further_training.json");
    for (name, may) in [
        ("loss_dice", false),
        ("loss_tversky", false),
        ("loss_dice_rows", true),
        ("loss_sum", true),
        ("loss_ignore_class", false),
        ("loss_ignore_class_beyond", true),
        ("loss_mean_with_sample_weight", true),
        ("loss_mean_with_sample_weight_weights", false),
        ("masked_loss", false),
        ("activity", true),
    ] {
        let case = cases.iter().find(|case| case["name"] == name).unwrap();
        let batch = case["batch"].as_u64().unwrap() as usize;
        let (mut problem, _) = training_problem(case, batch);
        // Only statistics of a BatchNormalization may be those of a micro-batch.
        problem.allow_batchnorm_split = true;
        assert_eq!(memfit_plan::moves::split::may_split(&problem), may, "{name}");
        let pieces = memfit_plan::moves::split::pieces_of(&problem, batch / 2);
        assert_eq!(memfit_ir::check(&problem, pieces).is_ok(), may, "{name}");
        if may {
            check_training_in_pieces(case, batch / 2).unwrap();
        }
    }
}

/// The losses of the first steps, with the batch in micro-batches.
fn check_training_in_pieces(case: &Value, piece: usize) -> Result<(), String> {
    let batch = case["batch"].as_u64().unwrap() as usize;
    let (problem, optimizer) = training_problem(case, batch);
    let mut runner = runner_of(&problem, memfit_plan::moves::split::pieces_of(&problem, piece));
    memfit::initialize_state(&mut runner);
    write_weights(&mut runner, &weight_values(case, &problem.graph, |_| true));
    for (number, wanted) in (0..).zip(&numbers(&case["losses"])[..3]) {
        let values = step_values(case, &problem.graph, number, batch);
        let record = step(&mut runner, number, batch, optimizer.schedule.at(number), &values);
        close(&format!("loss of step {number}"), (record.loss - wanted).abs() / wanted.abs(), 1e-4)?;
    }
    Ok(())
}

#[test]
fn a_batch_split_1_2_5_and_32_ways_gives_the_same_weights() {
    let case = references("training.json").into_iter().find(|case| case["name"] == "large_image").unwrap();
    let batch = 32;
    let (problem, _) = training_problem(&case, batch);
    let mut weights: Vec<Vec<Vec<f32>>> = Vec::new();
    for ways in [1, 2, 5, 32usize] {
        let plan = memfit_plan::moves::split::pieces_of(&problem, batch.div_ceil(ways));
        assert_eq!(plan.micro_batches(), ways);
        let mut runner = runner_of(&problem, plan);
        write_weights(&mut runner, &weight_values(&case, &problem.graph, |_| true));
        for number in 0..5 {
            let values = step_values(&case, &problem.graph, number, batch);
            step(&mut runner, number, batch, 1e-4, &values);
        }
        weights.push(trainable(&problem.graph).map(|id| runner.floats(id).to_vec()).collect());
    }
    for split in &weights[1..] {
        for (got, wanted) in split.iter().flatten().zip(weights[0].iter().flatten()) {
            assert!((got - wanted).abs() <= 1e-5 * wanted.abs().max(0.1), "{got} and {wanted}");
        }
    }
}

fn check_all(cases: Vec<Value>, more_than: usize, check: impl Fn(&Value) -> Result<(), String>) {
    assert!(cases.len() > more_than, "the reference file has its cases");
    let plain = std::env::var("MEMFIT_VECTORS").is_ok_and(|level| level == "plain");
    let left_out = |case: &Value| plain && PLAIN_LEAVES_OUT.iter().any(|name| case["name"] == *name);
    let failures: Vec<String> = cases
        .iter()
        .filter(|case| !left_out(case))
        .filter_map(|case| check(case).err().map(|failure| format!("{}: {failure}", case["name"])))
        .collect();
    assert!(
        failures.is_empty(),
        "{} of {} cases fail:\n{}",
        failures.len(),
        cases.len(),
        failures.join("\n")
    );
}

fn check_layer(case: &Value) -> Result<(), String> {
    for (mode, outputs) in [(Mode::Training, "outputs"), (Mode::Inference, "outputs_inference")] {
        if case.get(outputs).is_none() {
            continue;
        }
        let mut forward = match load(case, mode) {
            Ok(forward) => forward,
            // An error that names the layer is allowed; the list of such layers is short and checked here.
            Err(error) if case["name"] == "batch_normalization_axis_1" => {
                assert!(error.contains("axis"), "{error}");
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        // The mean of these references knows no mask; those of training do.
        forward.masks.clear();
        check_layer_in_mode(case, &forward, outputs)?;
    }
    Ok(())
}

fn check_layer_in_mode(case: &Value, forward: &Graph, outputs: &str) -> Result<(), String> {
    let training_mode = outputs == "outputs";
    let loss = Loss { kind: LossKind::MeanSquaredError, weight: 1.0 };
    // Only values are compared in inference mode, where a normalisation gives its weights no gradient.
    let weights = trainable(forward).filter(|_| training_mode);
    let leaves: Vec<TensorId> = forward
        .inputs
        .iter()
        .copied()
        .filter(|id| forward.tensors[id.0].dtype == DType::F32)
        .chain(weights)
        .collect();
    let training = Training {
        losses: vec![loss; forward.outputs.len()],
        gradients_of: leaves.clone(),
        ..Training::new(Optimizer::sgd(0.0))
    };
    let rows = case["inputs"][0]["shape"][0].as_u64().unwrap() as usize;
    let mut problem = problem(forward, &training, rows);
    let gradients = problem.graph.keep.clone();
    if gradients.len() != leaves.len() {
        return Err(format!("{} gradients for {} leaves", gradients.len(), leaves.len()));
    }
    problem.graph.keep.extend(&forward.outputs);
    let mut runner = runner(&problem);
    write_weights(&mut runner, &weight_values(case, &problem.graph, |_| true));
    let mut values = step_values(case, &problem.graph, 0, rows);
    if case.get("targets").is_none() {
        for (id, tensor) in forward.outputs.iter().zip(&problem.graph.inputs[forward.inputs.len()..]) {
            values.insert(*tensor, vec![0.0; forward.tensors[id.0].shape.elements(rows)]);
        }
    }
    let record = step(&mut runner, 0, rows, 0.0, &values);
    for (id, wanted) in forward.outputs.iter().zip(case[outputs].as_array().unwrap()) {
        close("output", difference(runner.floats(*id), &numbers(wanted)), 1e-5)?;
    }
    if !training_mode {
        return Ok(());
    }
    let loss = case["loss"].as_f64().unwrap();
    close("loss", (record.loss - loss).abs() / loss.abs().max(1e-3), 1e-5)?;
    check_layer_gradients(case, forward, &runner, &leaves, &gradients)?;
    for (path, wanted) in case.get("moving_after").and_then(Value::as_object).into_iter().flatten() {
        let id = named(forward, path);
        close(path, difference(runner.floats(id), &numbers(wanted)), 1e-5)?;
    }
    Ok(())
}

fn check_layer_gradients(
    case: &Value,
    forward: &Graph,
    runner: &Runner,
    leaves: &[TensorId],
    gradients: &[TensorId],
) -> Result<(), String> {
    let gradient_of = |leaf: TensorId| {
        let index = leaves.iter().position(|known| *known == leaf).expect("leaves are those of the file");
        runner.floats(gradients[index])
    };
    for (input, wanted) in forward.inputs.iter().zip(case["input_gradients"].as_array().unwrap()) {
        if !wanted.is_null() {
            let name = format!("gradient of {}", forward.tensors[input.0].name);
            close(&name, difference(gradient_of(*input), &numbers(wanted)), 2e-5)?;
        }
    }
    let weights = case["weight_gradients"].as_object().unwrap();
    if weights.len() != trainable(forward).count() {
        return Err(format!("{} trainable weights, Keras has {}", trainable(forward).count(), weights.len()));
    }
    for (path, wanted) in weights {
        let name = format!("gradient of {path}");
        close(&name, difference(gradient_of(named(forward, path)), &numbers(wanted)), 2e-5)?;
    }
    Ok(())
}

fn check_training(case: &Value) -> Result<(), String> {
    let batch = case["batch"].as_u64().unwrap() as usize;
    let (problem, optimizer) = training_problem(case, batch);
    let mut runner = runner(&problem);
    memfit::initialize_state(&mut runner);
    write_weights(&mut runner, &weight_values(case, &problem.graph, |_| true));
    let losses = numbers(&case["losses"]);
    for (number, wanted) in (0..).zip(&losses) {
        let values = step_values(case, &problem.graph, number, batch);
        let record = step(&mut runner, number, batch, optimizer.schedule.at(number), &values);
        let gap = (record.loss - wanted).abs() / wanted.abs();
        close(&format!("loss {} for {wanted} of step {number}", record.loss), gap, 1e-4)?;
        // The losses of several outputs come first.
        let outputs = problem.graph.nodes.iter().filter(|node| matches!(node.op, Op::Loss(_))).count();
        let metrics = record.metrics.iter().skip(if 1 < outputs { outputs } else { 0 });
        for (name, got) in case["metrics"].as_array().into_iter().flatten().zip(metrics) {
            let wanted = case["metrics_values"][name.as_str().unwrap()][number as usize].as_f64().unwrap();
            close(&format!("{name} of step {number}"), (got - wanted).abs(), 1e-5)?;
        }
    }
    for (path, wanted) in case["final"].as_object().unwrap() {
        let weight = runner.floats(named(&problem.graph, path));
        let scale = wanted["abs_sum"].as_f64().unwrap().max(1e-3);
        let sum: f64 = weight.iter().map(|value| f64::from(*value)).sum();
        close(&format!("sum of {path}"), (sum - wanted["sum"].as_f64().unwrap()).abs() / scale, 1e-4)?;
        let first = numbers(&wanted["first"]);
        close(&format!("first of {path}"), difference(&weight[..first.len()], &first), 1e-3)?;
    }
    Ok(())
}

fn check_precision(case: &Value) -> Result<(), String> {
    let (limit, dtype) = match case["policy"].as_str() {
        Some("mixed_float16") => (2e-3, DType::F16),
        Some("mixed_bfloat16") => (2e-2, DType::BF16),
        other => return Err(format!("the policy is {other:?}")),
    };
    let batch = case["batch"].as_u64().unwrap() as usize;
    let (problem, optimizer) = training_problem(case, batch);
    let halves = problem.graph.tensors.iter().filter(|tensor| tensor.dtype == dtype).count();
    assert!(halves >= 5, "{}: only {halves} tensors are {dtype}", case["name"]);
    let mut runner = runner(&problem);
    write_weights(&mut runner, &weight_values(case, &problem.graph, |_| true));
    let scales = case.get("loss_scales").map(numbers).unwrap_or_default();
    for (number, wanted) in (0..).zip(&numbers(&case["losses"])) {
        let values = step_values(case, &problem.graph, number, batch);
        let rate = optimizer.schedule.at(runner.trace().updates());
        let record = step(&mut runner, number, batch, rate, &values);
        let scale = scales.get(number as usize).map(|scale| *scale as f32);
        if record.loss_scale != scale {
            return Err(format!("step {number} has the scale {:?}, not {scale:?}", record.loss_scale));
        }
        let skipped = scales.windows(2).nth(number as usize).is_some_and(|pair| pair[1] < pair[0]);
        if record.skipped_by.is_some() != skipped {
            return Err(format!("step {number} was skipped by {:?}; by Keras: {skipped}", record.skipped_by));
        }
        let gap = (record.loss - wanted).abs() / wanted.abs();
        close(&format!("loss {} for {wanted} of step {number}", record.loss), gap, limit)?;
    }
    for (path, wanted) in case["final"].as_object().unwrap() {
        let weight = runner.floats(named(&problem.graph, path));
        let scale = wanted["abs_sum"].as_f64().unwrap().max(1e-3);
        let sum: f64 = weight.iter().map(|value| f64::from(*value)).sum();
        close(&format!("sum of {path}"), (sum - wanted["sum"].as_f64().unwrap()).abs() / scale, limit)?;
    }
    Ok(())
}

fn training_problem(case: &Value, batch: usize) -> (memfit_ir::Problem, Optimizer) {
    let forward = load(case, Mode::Training).unwrap();
    let outputs = forward.outputs.len();
    let each = case["loss"].as_array().cloned().unwrap_or_else(|| vec![case["loss"].clone(); outputs]);
    let kinds: Vec<LossKind> = each.iter().map(|loss| parse_loss(loss, "loss").unwrap()).collect();
    let weights: Vec<f64> = match case.get("loss_weights") {
        None | Some(Value::Null) => vec![1.0; outputs],
        Some(weights) => numbers(weights),
    };
    let each_output = || forward.outputs.iter().zip(&kinds).enumerate();
    let metrics = each_output()
        .flat_map(|(output, (tensor, kind))| {
            let given = case["metrics"].as_array().into_iter().flatten();
            let parse = |value| parse_metric(value, &forward.tensors[tensor.0], kind.is_sparse()).unwrap();
            let metrics: Vec<_> = given.map(parse).collect();
            metrics.into_iter().map(move |metric| OutputMetric { output, metric, weighted: false })
        })
        .collect();
    let losses =
        kinds.into_iter().zip(weights).map(|(kind, weight)| Loss { kind, weight: weight as f32 }).collect();
    let optimizer = parse_optimizer(&case["optimizer"]).unwrap();
    let sample_weights = usize::from(!case["sample_weights"].is_null());
    let training = Training { losses, metrics, sample_weights, ..Training::new(optimizer.clone()) };
    (problem(&forward, &training, batch), optimizer)
}

fn load(case: &Value, mode: Mode) -> Result<Graph, String> {
    graph_from_keras(&case["config"], &Options { mode, seed: 0, precision: None })
        .map_err(|error| error.to_string())
}

fn weight_values(case: &Value, graph: &Graph, wanted: impl Fn(&str) -> bool) -> Values {
    let weights = case["weights"].as_array().unwrap().iter();
    weights
        .map(|weight| (weight["path"].as_str().unwrap(), weight))
        .filter(|(path, _)| wanted(path))
        .map(|(path, weight)| (named(graph, path), draw(weight, 0)))
        .collect()
}

/// Inputs, targets and weights of rows, in the order of the graph's inputs; the batch may be larger than the file's.
fn step_values(case: &Value, graph: &Graph, number: u64, batch: usize) -> Values {
    let list = |key: &str| case[key].as_array().cloned().unwrap_or_default();
    let weights = case.get("sample_weights").filter(|spec| !spec.is_null()).cloned();
    let specs = list("inputs").into_iter().chain(list("targets")).chain(weights);
    graph
        .inputs
        .iter()
        .zip(specs)
        .map(|(id, mut spec)| {
            spec["shape"][0] = batch.into();
            (*id, draw(&spec, number))
        })
        .collect()
}

fn trainable(graph: &Graph) -> impl Iterator<Item = TensorId> + '_ {
    (0..graph.tensors.len())
        .map(TensorId)
        .filter(|id| graph.tensors[id.0].kind == Kind::Weight { trainable: true })
}

/// A weight by its Keras path, of which a sequential model's own name is not part here.
fn named(graph: &Graph, path: &str) -> TensorId {
    let is_it =
        |name: &str| path == name || path.strip_suffix(name).is_some_and(|model| model.ends_with('/'));
    let is_weight = |tensor: &Tensor| matches!(tensor.kind, Kind::Weight { .. });
    let index = graph.tensors.iter().position(|tensor| is_weight(tensor) && is_it(&tensor.name));
    TensorId(index.unwrap_or_else(|| panic!("no weight {path}")))
}

fn close(what: &str, gap: f64, limit: f64) -> Result<(), String> {
    if gap <= limit { Ok(()) } else { Err(format!("{what} is off by {gap:.2e}, limit {limit:.0e}")) }
}
