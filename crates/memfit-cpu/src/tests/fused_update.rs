//! Fused optimizer updates: the same bits as the whole gradient and then the update.

use memfit_ir::{Average, Clip, Fused, FusedUpdate, Op, Shape, Update, UpdateRule};

use super::{Case, noise, optimizer::rules, positive_noise};

/// Rows of `positions` vectors of `wide` values, each with `units` gradients.
fn check(update: &Update, rows: usize, positions: usize, wide: usize, units: usize) {
    let (x, dy) = (Shape::rows([positions, wide]), Shape::rows([positions, units]));
    let given = |op: Op| {
        let x_values = noise(x.elements(rows), 1);
        Case::new(op, rows).input(x.clone(), x_values).input(dy.clone(), noise(dy.elements(rows), 2))
    };
    let kernel = Shape::fixed([wide, units]);
    let count = kernel.elements_per_row();
    let changed = |case: Case| {
        let mut case = case.update(kernel.clone(), noise(count, 3));
        let states = update.rule.state(&[]).len() + usize::from(update.average.is_some());
        for index in 1..=states {
            let small = |value: &f32| if index == 1 { *value } else { 0.05 * value };
            let state: Vec<f32> = positive_noise(count, 3 + index as u64).iter().map(small).collect();
            case = case.update(kernel.clone(), state);
        }
        case
    };
    let made = given(Op::DenseGradKernel).update(kernel.clone(), noise(count, 9)).run_overwriting();
    let apart = Case::new(Op::Update(update.clone()), rows).input(kernel.clone(), made.updated(0));
    let gradient = Box::new(Op::DenseGradKernel);
    let together =
        given(Op::Fused(Fused::Applied(FusedUpdate { gradient, weight_at: None, update: update.clone() })));
    assert_eq!(
        changed(together).run().bits(),
        changed(apart).run().bits(),
        "{rows} rows of {positions} x {wide} to {units} by {update:?}"
    );
}

#[test]
fn every_rule_changes_a_weight_as_it_does_by_the_whole_gradient() {
    for rule in rules() {
        check(&Update::new(rule), 3, 2, 4001, 10);
    }
    let adam = UpdateRule::Adam { beta_1: 0.9, beta_2: 0.999, epsilon: 1e-7, amsgrad: false };
    let average = Some(Average { momentum: 0.9, overwrite_every: Some(2) });
    let update = Update { clip: Clip::Value(0.5), weight_decay: 0.1, average, ..Update::new(adam) };
    check(&update, 5, 1, 700, 33);
}

#[test]
fn sums_over_many_rows_are_added_in_the_same_order() {
    let update = Update::new(UpdateRule::Sgd { momentum: 0.9, nesterov: false });
    // One block of depth, several, and enough of them that they are summed in parts.
    for (rows, positions) in [(1, 1), (7, 1), (5, 61), (9, 333), (10, 400)] {
        for (wide, units) in [(33, 1), (40, 3), (300, 16), (530, 64)] {
            check(&update, rows, positions, wide, units);
        }
    }
}
