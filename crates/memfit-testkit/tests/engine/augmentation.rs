//! Layers that change images at random: fixed changes as Keras makes them, draws that only seed, step and row decide.

use memfit_formats::{Mode, Options, graph_from_keras, graph_from_layers};
use memfit_ir::{Budget, Bytes, Graph, Problem, Transfers};
use memfit_testkit::harness::{UNLIMITED, Values, difference, runner_of, step};
use memfit_testkit::specs::{draw, numbers, references};
use serde_json::{Value, json};

const TRAINING: Options = Options { mode: Mode::Training, seed: 0, precision: None };

/// The forward graph alone: nothing here learns.
fn forward_problem(mut graph: Graph, batch: usize) -> Problem {
    graph.keep.extend(graph.outputs.clone());
    let setup = memfit_cpu::open(Some(2)).unwrap();
    let budget = Budget {
        total: UNLIMITED,
        runtime: Bytes::ZERO,
        granule: setup.capabilities().granule,
        host: Bytes::ZERO,
    };
    Problem {
        costs: setup.costs(&graph),
        graph,
        budget,
        batch,
        costs_rewritten: Default::default(),
        allow_batchnorm_split: false,
        transfers: Transfers::default(),
        pinned: memfit_ir::Pinned::default(),
    }
}

/// The layer's output for images at a step, with the batch in micro-batches of `piece` rows.
fn output(problem: &Problem, images: &[f64], number: u64, rows: usize, piece: usize) -> Vec<f32> {
    let graph = &problem.graph;
    let values = Values::from([(graph.inputs[0], images.to_vec())]);
    let mut runner = runner_of(problem, memfit_plan::moves::split::pieces_of(problem, piece));
    step(&mut runner, number, rows, 0.0, &values);
    runner.floats(graph.outputs[0]).to_vec()
}

#[test]
fn fixed_changes_are_those_of_keras() {
    let cases = references("augmentation.json");
    assert!(cases.len() > 20);
    for case in &cases {
        let problem = forward_problem(graph_from_keras(&case["config"], &TRAINING).unwrap(), 2);
        let got = output(&problem, &draw(&case["inputs"][0], 0), 0, 2, 2);
        let gap = difference(&got, &numbers(&case["outputs"][0]));
        assert!(gap < 1e-5, "{} is off by {gap:.2e}", case["name"]);
        let options = Options { mode: Mode::Inference, ..TRAINING };
        let forward = graph_from_keras(&case["config"], &options).unwrap();
        assert_eq!(forward.outputs, forward.inputs, "{}", case["name"]);
    }
}

fn listed(layer: Value) -> Problem {
    let input = json!({"class": "Input", "shape": [4, 3, 2]});
    forward_problem(graph_from_layers(&[input, layer], None, &TRAINING).unwrap(), 16)
}

/// The first image of a list, sixteen times.
fn images() -> Vec<f64> {
    (0..16).flat_map(|_| (0..24).map(f64::from)).collect()
}

#[test]
fn about_half_of_the_images_are_flipped_and_the_others_stay() {
    let problem = listed(json!({"class": "RandomFlip", "mode": "horizontal"}));
    let flipped: Vec<f32> =
        (0..24).map(|at: i32| (at / 6 * 6 + (2 - at / 2 % 3) * 2 + at % 2) as f32).collect();
    let plain: Vec<f32> = (0..24).map(|at: i32| at as f32).collect();
    let got = output(&problem, &images(), 0, 16, 16);
    let turned = got.chunks(24).filter(|image| *image == flipped).count();
    let left = got.chunks(24).filter(|image| *image == plain).count();
    assert_eq!(turned + left, 16);
    assert!((3..=13).contains(&turned), "{turned} of 16 are flipped");
}

#[test]
fn a_crop_is_a_part_of_the_image() {
    let problem = listed(json!({"class": "RandomCrop", "height": 2, "width": 2}));
    let mut corners: Vec<f32> = (0..20)
        .map(|number| output(&problem, &images(), number, 16, 16))
        .map(|got| {
            let first = got[0];
            let wanted = [0.0, 1.0, 2.0, 3.0, 6.0, 7.0, 8.0, 9.0].map(|offset| first + offset);
            assert!(got.chunks(8).all(|image| image == wanted));
            first
        })
        .collect();
    corners.sort_by(f32::total_cmp);
    corners.dedup();
    assert!(corners.len() > 2, "{corners:?}");
}

#[test]
fn draws_depend_on_the_step_and_not_on_how_the_batch_is_split() {
    for layer in [
        json!({"class": "RandomFlip"}),
        json!({"class": "RandomCrop", "height": 2, "width": 2}),
        json!({"class": "RandomRotation", "factor": 0.2}),
        json!({"class": "RandomTranslation", "height_factor": 0.3, "width_factor": 0.3}),
        json!({"class": "RandomZoom", "height_factor": 0.3}),
        json!({"class": "RandomContrast", "factor": 0.5}),
        json!({"class": "RandomBrightness", "factor": 0.5}),
    ] {
        let problem = listed(layer.clone());
        let [first, again, next] = [0, 0, 1].map(|number| output(&problem, &images(), number, 16, 16));
        assert_eq!(first, again, "{layer}");
        let elsewhere = (1..6).any(|number| output(&problem, &images(), number, 16, 16) != first);
        assert!(elsewhere, "{layer}: {next:?}");
        // Only the output of the last micro-batch remains: it must be the batch's last rows.
        let split = output(&problem, &images(), 0, 16, 4);
        let rows = first.len() / 16;
        assert_eq!(split[..4 * rows], first[12 * rows..], "{layer}");
    }
}
