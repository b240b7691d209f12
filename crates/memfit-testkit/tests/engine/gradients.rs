//! Every op: its value against the f64 reference, its gradient against finite differences of that reference.

use memfit_grad::{Optimizer, Training};
use memfit_ir::{DType, Kind, TensorId};
use memfit_testkit::halves::in_type;
use memfit_testkit::harness::{Values, difference, problem, runner, step, write_weights};
use memfit_testkit::op_cases::{OpCase, ROWS, draw_values, op_cases};
use memfit_testkit::reference::{evaluate, loss};

/// Step of the central differences; f64 leaves an error of about its square.
const STEP: f64 = 1e-5;

#[test]
fn every_op_agrees_with_the_reference_and_its_finite_differences() {
    let limits = Limits { value: 2e-5, loss: 1e-5, gradient: 2e-4 };
    check_all(&op_cases(), &limits);
}

#[test]
fn every_op_in_half_types_agrees_with_the_reference_up_to_their_last_place() {
    // Eleven and eight bits, and a few operations one after the other.
    for (dtype, limit) in [(DType::F16, 4e-3), (DType::BF16, 3e-2)] {
        let mut cases = op_cases();
        for case in &mut cases {
            case.forward = in_type(&case.forward, dtype);
            case.name = format!("{dtype} {}", case.name);
        }
        check_all(&cases, &Limits { value: limit, loss: limit, gradient: limit });
    }
}

/// How far results may be off.
struct Limits {
    value: f64,
    loss: f64,
    gradient: f64,
}

fn check_all(cases: &[OpCase], limits: &Limits) {
    let mut failures = Vec::new();
    for case in cases {
        if let Err(failure) = check(case, limits) {
            failures.push(format!("{}: {failure}", case.name));
        }
    }
    assert!(
        failures.is_empty(),
        "{} of {} cases fail:\n{}",
        failures.len(),
        cases.len(),
        failures.join("\n")
    );
}

fn check(case: &OpCase, limits: &Limits) -> Result<(), String> {
    let forward = &case.forward;
    let differentiable: Vec<TensorId> = (0..forward.tensors.len())
        .map(TensorId)
        .filter(|id| {
            let tensor = &forward.tensors[id.0];
            let leaf = tensor.kind == Kind::Input || tensor.kind == Kind::Weight { trainable: true };
            leaf && tensor.dtype == DType::F32
        })
        .collect();
    let training = Training {
        losses: vec![case.loss.clone()],
        sample_weights: usize::from(case.sample_weights),
        gradients_of: differentiable.clone(),
        ..Training::new(Optimizer::sgd(0.0))
    };
    let mut problem = problem(forward, &training, ROWS);
    let gradients = problem.graph.keep.clone();
    problem.graph.keep.push(forward.outputs[0]);
    let values = draw_values(&problem.graph, ROWS, 11);
    let mut runner = runner(&problem);
    write_weights(&mut runner, &values);
    let record = step(&mut runner, 0, ROWS, 0.0, &values);
    let scale = record.loss_scale.unwrap_or(1.0);
    let scaled = |gradient: &[f32]| gradient.iter().map(|value| value / scale).collect::<Vec<f32>>();

    let total = |values: &Values| {
        let computed = evaluate(forward, ROWS, values);
        let output = forward.outputs[0];
        let target = problem.graph.inputs[forward.inputs.len()];
        let weights =
            case.sample_weights.then(|| values[&problem.graph.inputs[forward.inputs.len() + 1]].as_slice());
        let classes = forward.tensors[output.0].shape.last();
        f64::from(case.loss.weight)
            * loss(&case.loss.kind, classes, &computed[&output], &values[&target], weights)
    };
    let output = forward.outputs[0];
    let wanted = &evaluate(forward, ROWS, &values)[&output];
    // f16 and bf16 are checked by the loss, which is computed from them.
    if forward.tensors[output.0].dtype == DType::F32 {
        close("value", difference(runner.floats(output), wanted), limits.value)?;
    }
    let whole = total(&values);
    close("loss", (record.loss - whole).abs() / whole.abs().max(1e-3), limits.loss)?;
    if gradients.len() != differentiable.len() {
        return Err(format!("{} gradients for {} leaves", gradients.len(), differentiable.len()));
    }
    for (leaf, gradient) in differentiable.iter().zip(&gradients) {
        let differences: Vec<f64> = (0..values[leaf].len())
            .map(|index| {
                let at = |shift: f64| {
                    let mut moved = values.clone();
                    moved.get_mut(leaf).expect("a leaf has values")[index] += shift;
                    total(&moved)
                };
                (at(STEP) - at(-STEP)) / (2.0 * STEP)
            })
            .collect();
        let name = &forward.tensors[leaf.0].name;
        close(
            &format!("gradient of {name}"),
            difference(&scaled(runner.floats(*gradient)), &differences),
            limits.gradient,
        )?;
    }
    Ok(())
}

fn close(what: &str, gap: f64, limit: f64) -> Result<(), String> {
    if gap <= limit { Ok(()) } else { Err(format!("{what} is off by {gap:.2e}, limit {limit:.0e}")) }
}
