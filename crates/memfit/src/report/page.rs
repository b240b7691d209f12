//! The report as one self-contained page: a template that draws, and the figures as JSON inside it.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use memfit_ir::{Bytes, LayerId};
use memfit_plan::{Group, Holder, Moment, Timeline};
use serde_json::{Value, json};

use crate::Report;

const TEMPLATE: &str = include_str!("page.html");

/// Where the template wants the data.
const MARK: &str = "{{data}}";

/// More moments than this are joined; the highest of them stands for its neighbours.
const MOMENTS_MOST: usize = 4_000;

/// More holders than this lose their names.
const HOLDERS_MOST: usize = 5_000;

/// Columns and rows of the map of those.
const CELLS: [u64; 2] = [1_000, 500];

/// Rows of a table.
const ROWS_MOST: usize = 25;

/// From the bottom of the picture to its top: what stays lies below what comes and goes.
const STACK: [Group; 6] =
    [Group::Weights, Group::Optimizer, Group::Gradients, Group::Activations, Group::Workspace, Group::Input];

/// The page's text. It refers to nothing outside itself.
pub fn html(report: &Report) -> String {
    let (before, after) = TEMPLATE.split_once(MARK).expect("the template has a place for its data");
    // Only `<` can end a script element, and in JSON it stands inside strings alone.
    let data = data(report).to_string().replace('<', "\\u003c");
    [before, &data, after].concat()
}

fn data(report: &Report) -> Value {
    let (summary, timeline) = (&report.summary, &report.timeline);
    let (named, unnamed) = by_name(timeline);
    let mut names = Names::default();
    json!({
        "lead": lead(report),
        "about": report.about.to_json(),
        "figures": figures(report),
        "losses": losses(report),
        "batch": batch(report),
        "warning": warning(report),
        "timeline_text": timeline_text(report),
        "budget": summary.budget.0,
        "ran": 0 < report.trace.steps,
        "vm_hwm": report.vm_hwm.0,
        "bytes_peak": summary.bytes_peak.0,
        "bytes_arena": summary.bytes_arena.0,
        "bytes_runtime": summary.runtime.total().0,
        "runtime": summary.runtime.lines.iter().map(|line| json!([line.name, line.bytes.0])).collect::<Value>(),
        "kinds": STACK.map(Group::name),
        "steps": timeline.moments.len(),
        "peak": timeline.peak,
        "moments": moments(report, &mut names),
        "holders": holders(report, &named, &mut names),
        "holders_unnamed": unnamed.len(),
        "cells": cells(report, &unnamed),
        "at_peak": holders_at_peak(report),
        "layers": layers_at_peak(report),
        "names": names.list,
    })
}

/// Every name once; elsewhere it is a number.
#[derive(Default)]
struct Names {
    list: Vec<String>,
    known: BTreeMap<String, usize>,
}

impl Names {
    fn index(&mut self, name: &str) -> usize {
        if let Some(index) = self.known.get(name) {
            return *index;
        }
        self.known.insert(name.to_owned(), self.list.len());
        self.list.push(name.to_owned());
        self.list.len() - 1
    }
}

fn layer_name(report: &Report, layer: LayerId) -> &str {
    report.layers.get(layer.0).map_or("", String::as_str)
}

fn kind(group: Group) -> usize {
    STACK.iter().position(|known| *known == group).expect("every group is in the stack")
}

/// The highest moment of each bucket, in columns; numbers as differences, which are mostly short.
fn moments(report: &Report, names: &mut Names) -> Value {
    let all = &report.timeline.moments;
    let count = all.len().min(MOMENTS_MOST);
    let highest = |bucket: usize| {
        let steps = bucket * all.len() / count..(bucket + 1) * all.len() / count;
        steps
            .rev()
            .max_by_key(|step| all[*step].held.total())
            .expect("there are at least as many steps as buckets")
    };
    let steps: Vec<usize> = (0..count).map(highest).collect();
    let chosen: Vec<&Moment> = steps.iter().map(|step| &all[*step]).collect();
    let held = |group| differences(chosen.iter().map(|moment| moment.held.get(group).0));
    let layer = |moment: &&Moment| layer_name(report, moment.layer);
    json!({
        "step": differences(steps.iter().map(|step| *step as u64)),
        "held": STACK.map(held),
        "label": chosen.iter().map(|moment| names.index(&moment.label)).collect::<Value>(),
        "layer": chosen.iter().map(|moment| names.index(layer(moment))).collect::<Value>(),
    })
}

fn differences(values: impl Iterator<Item = u64>) -> Vec<i64> {
    let mut before = 0;
    values
        .map(|value| i64::try_from(value).expect("fewer than 8 EiB"))
        .map(|value| value - std::mem::replace(&mut before, value))
        .collect()
}

/// Holders with a name, largest first, and holders without.
///
/// A few names go to what is large for a moment, the others to what holds most over the steps.
fn by_name(timeline: &Timeline) -> (Vec<&Holder>, Vec<&Holder>) {
    let size = |holder: &&Holder| (Reverse(holder.slot.bytes), holder.lower, holder.slot.offset);
    let area =
        |holder: &&Holder| Reverse(u128::from(holder.slot.bytes.0) * (holder.upper - holder.lower) as u128);
    let mut named: Vec<&Holder> = timeline.holders.iter().collect();
    named.sort_by_key(size);
    let few = named.len().min(HOLDERS_MOST / 5);
    named[few..].sort_by_key(area);
    let unnamed = named.split_off(named.len().min(HOLDERS_MOST));
    named.sort_by_key(size);
    (named, unnamed)
}

fn holders(report: &Report, holders: &[&Holder], names: &mut Names) -> Value {
    let column =
        |value: &dyn Fn(&Holder) -> u64| holders.iter().map(|holder| value(holder)).collect::<Value>();
    let layer = |holder: &&Holder| layer_name(report, holder.layer);
    json!({
        "kind": column(&|holder| kind(holder.group) as u64),
        "bytes": column(&|holder| holder.slot.bytes.0),
        "offset": column(&|holder| holder.slot.offset.0),
        "lower": column(&|holder| holder.lower as u64),
        "upper": column(&|holder| holder.upper as u64),
        "name": holders.iter().map(|holder| names.index(&holder.name)).collect::<Value>(),
        "layer": holders.iter().map(|holder| names.index(layer(holder))).collect::<Value>(),
    })
}

/// Where holders without a name stand, in cells, each rectangle once: kind, life, place.
fn cells(report: &Report, holders: &[&Holder]) -> Value {
    let (steps, height) = (report.timeline.moments.len() as u64, report.summary.bytes_peak.0);
    let span = |lower: u64, upper: u64, whole: u64, cells: u64| {
        let cell = |value| u128::from(value) * u128::from(cells) / u128::from(whole.max(1));
        [cell(lower), cell(upper).max(cell(lower) + 1)].map(|cell| cell as u64)
    };
    let rectangle = |holder: &&Holder| {
        let life = span(holder.lower as u64, holder.upper as u64, steps, CELLS[0]);
        let place = span(holder.slot.offset.0, holder.slot.end().0, height, CELLS[1]);
        [kind(holder.group) as u64, life[0], life[1], place[0], place[1]]
    };
    let rectangles: BTreeSet<[u64; 5]> = holders.iter().map(rectangle).collect();
    json!({ "size": CELLS, "list": rectangles.into_iter().flatten().collect::<Value>() })
}

fn holders_at_peak(report: &Report) -> Value {
    let holders = report.timeline.holders_at_peak();
    let (shown, rest) = holders.split_at(holders.len().min(ROWS_MOST));
    let row = |holder: &&Holder| {
        let (layer, kind, slot) = (layer_name(report, holder.layer), kind(holder.group), holder.slot);
        json!([holder.name, layer, kind, slot.bytes.0, slot.offset.0, holder.lower, holder.upper])
    };
    let bytes_rest: Bytes = rest.iter().map(|holder| holder.slot.bytes).sum();
    json!({ "rows": shown.iter().map(row).collect::<Value>(), "rest": [rest.len(), bytes_rest.0] })
}

/// What each layer holds at the peak, by kind, largest first.
fn layers_at_peak(report: &Report) -> Value {
    let mut sums: BTreeMap<&str, [u64; 6]> = BTreeMap::new();
    for holder in report.timeline.holders_at_peak() {
        sums.entry(layer_name(report, holder.layer)).or_default()[kind(holder.group)] += holder.slot.bytes.0;
    }
    let mut layers: Vec<(&str, [u64; 6])> = sums.into_iter().collect();
    layers.sort_by_key(|(_, held)| Reverse(held.iter().sum::<u64>()));
    let (shown, rest) = layers.split_at(layers.len().min(ROWS_MOST));
    json!({ "rows": shown, "rest": [rest.len(), rest.iter().flat_map(|(_, held)| held).sum::<u64>()] })
}

/// Steps of a point, and the mean loss of each; nothing where there is no line to draw.
fn losses(report: &Report) -> Value {
    let curve = &report.trace.losses;
    let points: Vec<f32> = curve.points().collect();
    if points.len() < 2 {
        return Value::Null;
    }
    json!({"width": curve.width(), "steps": report.trace.steps, "points": points})
}

fn lead(report: &Report) -> String {
    let trace = &report.trace;
    if !report.summary.fits {
        let smallest = report.summary.bytes_smallest_budget;
        return format!(
            "Planned, and does not fit its budget: the smallest plan, shown here, needs {smallest}."
        );
    }
    if trace.steps == 0 {
        let seconds = report.summary.seconds_step;
        return format!("Planned, and not run yet: about {seconds:.3} s a step are expected.");
    }
    let (steps, rows, seconds) = (counted(trace.steps, "step"), counted(trace.rows, "row"), trace.seconds);
    format!(
        "Trained {steps} on {rows} in {seconds:.1} s ({:.1} rows/s).",
        trace.rows as f64 / seconds.max(1e-9)
    )
}

/// Label, value and note of every figure at the top.
fn figures(report: &Report) -> Value {
    let (summary, bound) = (&report.summary, report.summary.bytes_bound);
    let loss = match report.trace.loss {
        loss if loss != 0.0 && loss.abs() < 1e-3 => format!("{loss:.3e}"),
        loss => format!("{loss:.4}"),
    };
    let share = 100.0 * report.vm_hwm.0 as f64 / summary.budget.0 as f64;
    let [measured, predicted] = [report.bytes_peak_measured, report.bytes_peak_predicted];
    let exact = |bytes: Bytes| format!("{}\u{a0}B", grouped(bytes.0));
    let (mark, arena) = if report.trace.steps == 0 {
        ("", format!("predicted, to the byte: {}", exact(predicted)))
    } else if predicted == measured {
        (" ✓", format!("predicted = measured, to the byte: {}", exact(measured)))
    } else {
        ("", format!("measured {}, but predicted {}", exact(measured), exact(predicted)))
    };
    let packing = match 100.0 * summary.bytes_peak.saturating_sub(bound).0 as f64 / bound.0.max(1) as f64 {
        0.0 => "at the bound".to_owned(),
        above => format!("{above:.2} % above the bound"),
    };
    let steps = counted(summary.steps as u64, "plan step");
    let of = report.bytes_host.map_or("VmHWM".to_owned(), |host| format!("on the GPU; {host} on the host"));
    let mut figures = json!([
        ["Final loss", loss, "mean over the last batch"],
        ["Budget", summary.budget.to_string(), format!("fits from {} on", summary.bytes_smallest_budget)],
        ["Process peak", report.vm_hwm.to_string(), format!("{share:.1} % of the budget ({of})")],
        ["Arena", format!("{measured}{mark}"), arena],
        ["Packing", packing, format!("no packing of this schedule is below {bound}")],
        [
            "Planning time",
            format!("{:.3} s", summary.seconds_planning),
            format!("for {steps} of one training step")
        ],
    ]);
    if let (0, Value::Array(figures)) = (report.trace.steps, &mut figures) {
        figures.retain(|figure| figure[0] != "Final loss" && figure[0] != "Process peak");
    }
    figures
}

/// How the batch runs, and what that means for the result.
fn batch(report: &Report) -> String {
    let summary = &report.summary;
    let (batch, micro_batch) = (grouped(summary.batch as u64), grouped(summary.micro_batch as u64));
    let mut text = if summary.micro_batches <= 1 {
        format!("A batch of {batch} runs whole; it is not split.")
    } else {
        let micro_batches = grouped(summary.micro_batches as u64);
        let most = if summary.batch.is_multiple_of(summary.micro_batch) { "" } else { "at most " };
        let result = if summary.splits_batchnorm {
            "their gradients add up"
        } else {
            "gradients add up to those of the whole batch, so the result is the same up to rounding"
        };
        format!("A batch of {batch} runs as {micro_batches} micro-batches of {most}{micro_batch}; {result}.")
    };
    if let Some(region) = &summary.region {
        text += &format!(
            " Of its layers, {} in {} slices{}; their gradients add up to those of the whole batch, so the \
             result is the same up to rounding.",
            match &region.layers[..] {
                [only] => format!("{only} runs"),
                layers => format!("{} run", layers.join(", ")),
            },
            region.slices,
            if region.keeps { "" } else { ", forward once more before backward" }
        );
    }
    if summary.nodes_recomputed > 0 {
        let again = grouped(summary.nodes_recomputed as u64);
        text += &format!(" {again} launches recompute activations that are not kept, bit for bit the same.");
    }
    if summary.launches_leaner > 0 {
        let slower = grouped(summary.launches_leaner as u64);
        text += &format!(
            " {slower} launches run by an algorithm that takes less workspace than the fastest, at most {}.",
            summary.bytes_workspace
        );
    }
    match summary.gradients_applied {
        0 => {}
        1 => text += " One update is fused into the op that computes its gradient, which never exists whole.",
        count => {
            let count = grouped(count as u64);
            text += &format!(
                " {count} updates are fused into the ops that compute their gradients, which never exist whole."
            );
        }
    }
    if summary.values_folded > 0 {
        let folded = grouped(summary.values_folded as u64);
        text += &format!(
            " {folded} activations are recomputed inside the gradient ops that read them, bit for bit the same."
        );
    }
    if summary.bytes_offloaded != Bytes::ZERO {
        text += &format!(
            " {} of each micro-batch are copied out of the arena and back.",
            summary.bytes_offloaded
        );
    }
    if summary.time_relative > 1.0005 {
        text += &format!(" Estimated cost {:.2}×.", summary.time_relative);
    }
    if let Some(precision) = &summary.precision {
        text += &format!(" {}: {}; {}.", precision.names(), precision.changed(), precision.saved());
    }
    if let (Some(scale), skipped) = (report.trace.loss_scale, report.trace.steps_skipped) {
        let steps = counted(skipped, "step");
        text += &format!(" The loss scale ended at {scale}; {steps} skipped for a gradient that overflowed.");
    }
    text
}

fn warning(report: &Report) -> Option<String> {
    let (batch, micro_batch) = (report.summary.batch, report.summary.micro_batch);
    report.summary.splits_batchnorm.then(|| {
        format!(
            "Splitting changed the result: BatchNormalization took its mean and variance over micro-batches of {micro_batch}, \
             not over the whole batch of {batch}."
        )
    })
}

/// The picture in words, and what is left out of it.
fn timeline_text(report: &Report) -> String {
    let (summary, timeline) = (&report.summary, &report.timeline);
    let micro_batch = match summary.micro_batches {
        0 | 1 => "the batch".to_owned(),
        count => {
            format!("one micro-batch (all {} run the same steps in the same bytes)", grouped(count as u64))
        }
    };
    let (step, label, layer) = (grouped(timeline.peak as u64), &summary.peak_label, &summary.peak_layer);
    let program = summary.runtime.total();
    let live = summary.held.total() + program;
    let mut text = format!(
        "One training step as planned: the prologue, {micro_batch} and the epilogue. Most is live at plan step {step}, \
         {label} in layer {layer}: {live}, of which the program itself holds {program}."
    );
    let joined = timeline.moments.len().div_ceil(MOMENTS_MOST);
    if joined > 1 {
        text += &format!(" Up to {joined} neighbouring steps are shown as one, by the highest of them.");
    }
    let unnamed = timeline.holders.len().saturating_sub(HOLDERS_MOST);
    if unnamed > 0 {
        let unnamed = grouped(unnamed as u64);
        text += &format!(
            " The names of {unnamed} small or short-lived tensors are left out; their bytes are not."
        );
    }
    text
}

fn counted(count: u64, what: &str) -> String {
    format!("{} {what}{}", grouped(count), if count == 1 { "" } else { "s" })
}

/// Digits in threes.
fn grouped(value: u64) -> String {
    let thousands = value / 1000;
    if thousands == 0 { value.to_string() } else { format!("{},{:03}", grouped(thousands), value % 1000) }
}

#[cfg(test)]
mod tests {
    use memfit_grad::{Optimizer, Training, training_graph};
    use memfit_ir::{Budget, Cost, DType, Graph, Kind, Loss, LossKind, Op, Problem, Shape, Transfers};
    use memfit_run::Trace;

    use super::*;
    use crate::{Line, Runtime, Summary};

    const HOSTILE: &str = "</script><b>x";

    /// A dozen dense layers, one of them with a hostile name.
    fn problem(runtime: Bytes) -> Problem {
        let mut forward = Graph::default();
        let layer = forward.layer("input");
        let mut x = forward.tensor("x", Shape::rows([64]), DType::F32, Kind::Input, layer);
        forward.inputs.push(x);
        for index in 0..12 {
            let layer =
                forward.layer(&if index == 5 { HOSTILE.to_owned() } else { format!("dense_{index}") });
            let (shape, kind) = (Shape::fixed([64, 64]), Kind::Weight { trainable: true });
            let kernel = forward.tensor(format!("kernel_{index}"), shape, DType::F32, kind, layer);
            x = forward.push(Op::Dense, &[x, kernel], layer).unwrap()[0];
        }
        forward.outputs.push(x);
        let losses = vec![Loss { kind: LossKind::MeanSquaredError, weight: 1.0 }];
        let graph =
            training_graph(&forward, &Training { losses, ..Training::new(Optimizer::adam()) }).unwrap();
        let costs = vec![Cost { workspace_fixed: Bytes(4096), ..Cost::default() }; graph.nodes.len()];
        let budget = Budget { total: Bytes::mib(8), runtime, granule: Bytes(4096), host: Bytes::ZERO };
        Problem {
            graph,
            costs,
            budget,
            batch: 256,
            costs_rewritten: Default::default(),
            allow_batchnorm_split: false,
            transfers: Transfers::default(),
            pinned: memfit_ir::Pinned::default(),
        }
    }

    fn report() -> Report {
        let runtime =
            Runtime { lines: vec![Line { name: "program", bytes: Bytes::mib(3) }], ..Runtime::default() };
        let problem = problem(runtime.total());
        let plan = memfit_plan::plan(&problem).unwrap();
        let timeline = memfit_plan::timeline(&problem, &plan);
        let peak = timeline.moments[timeline.peak].clone();
        let summary = Summary {
            fits: true,
            budget: problem.budget.total,
            bytes_peak: plan.bytes_peak,
            bytes_arena: problem.budget.arena_for(plan.bytes_peak),
            bytes_bound: plan.bytes_bound,
            runtime,
            held: peak.held,
            layers: vec![],
            rows_data: None,
            batch: 256,
            shuffle_seed: None,
            nodes: 40,
            micro_batch: 4,
            micro_batches: 64,
            region: None,
            nodes_recomputed: 3,
            values_folded: 0,
            gradients_applied: 0,
            bytes_workspace: Bytes(4096),
            launches_leaner: 0,
            bytes_offloaded: Bytes::mib(1),
            splits_batchnorm: false,
            precision: None,
            bytes_smallest_budget: Bytes::mib(5),
            seconds_planning: 0.25,
            costs: crate::CostsUsed::estimated(),
            seconds_step: 1.0,
            time_relative: 1.03,
            steps: timeline.moments.len(),
            peak_step: timeline.peak,
            peak_label: peak.label,
            peak_layer: HOSTILE.to_owned(),
        };
        let mut about = crate::report::About::default();
        about.add("Command", HOSTILE);
        Report {
            about,
            bytes_peak_predicted: plan.bytes_peak,
            bytes_peak_measured: plan.bytes_peak,
            summary,
            timeline,
            layers: problem.graph.layers,
            trace: Trace { steps: 500, rows: 128_000, seconds: 200.0, loss: 0.25, ..Trace::default() },
            vm_hwm: Bytes::mib(6),
            bytes_host: None,
            validated: None,
            stalls: crate::Stalls::default(),
            ended: crate::Ended::Finished,
            step: 500,
        }
    }

    fn data_of(page: &str) -> Value {
        let (_, data) = page.split_once("id=\"data\">").unwrap();
        serde_json::from_str(data.split_once("</script>").unwrap().0).unwrap()
    }

    #[test]
    fn the_page_says_what_was_promised_and_what_was_measured() {
        let mut report = report();
        let page = html(&report);
        let exact = format!("to the byte: {}\u{a0}B", grouped(report.bytes_peak_measured.0));
        let split = "A batch of 256 runs as 64 micro-batches of 4; gradients add up";
        for text in
            ["500 steps on 128,000 rows in 200.0 s (640.0 rows/s)", "75.0 % of", &exact, "✓", split, "1.03×"]
        {
            assert!(page.contains(text), "{text}");
        }
        report.bytes_host = Some(Bytes::mib(3));
        assert!(html(&report).contains("on the GPU; 3.00 MiB on the host"));
        report.bytes_peak_measured += Bytes(64);
        report.summary.splits_batchnorm = true;
        let page = html(&report);
        assert!(!page.contains('✓') && page.contains("but predicted"));
        assert!(!page.contains("up to rounding") && page.contains("Splitting changed the result"));
    }

    #[test]
    fn the_page_says_which_run_it_was_and_draws_its_losses() {
        let mut report = report();
        assert_eq!(data_of(&html(&report))["losses"], Value::Null, "there is nothing to draw");
        report.about = crate::report::About::default();
        report.about.add("Optimizer", "Adam");
        report.about.add("Command", "memfit train job.toml");
        let data = data_of(&html(&report));
        assert_eq!(data["about"], json!([["Optimizer", "Adam"], ["Command", "memfit train job.toml"]]));
    }

    #[test]
    fn names_cannot_break_out_of_the_data() {
        let page = html(&report());
        assert!(!page.contains(HOSTILE));
        assert_eq!(page.matches("</script").count(), TEMPLATE.matches("</script").count());
        assert!(data_of(&page)["names"].as_array().unwrap().contains(&json!(HOSTILE)));
    }

    #[test]
    fn a_long_plan_keeps_its_peak_and_a_place_for_every_holder() {
        let mut report = report();
        let timeline = &mut report.timeline;
        timeline.moments = timeline.moments.iter().cloned().cycle().take(10_000).collect();
        timeline.holders = timeline.holders.iter().cloned().cycle().take(12_000).collect();
        let data = data_of(&html(&report));
        let column = |values: &Value| -> Vec<i64> {
            let differences = values.as_array().unwrap().iter().map(|value| value.as_i64().unwrap());
            let add = |sum: &mut i64, difference| {
                *sum += difference;
                Some(*sum)
            };
            differences.scan(0, add).collect()
        };
        let moments = &data["moments"];
        let (steps, peak) = (column(&moments["step"]), report.timeline.peak as i64);
        let bucket = steps.iter().position(|step| *step == peak).expect("the peak stands for its bucket");
        let held: i64 = (0..STACK.len()).map(|kind| column(&moments["held"][kind])[bucket]).sum();
        assert_eq!((steps.len(), held as u64), (MOMENTS_MOST, report.summary.held.total().0));
        assert_eq!(data["holders"]["name"].as_array().unwrap().len(), HOLDERS_MOST);
        assert_eq!(data["holders_unnamed"], 7_000);
        assert_ne!(data["cells"]["list"], json!([]));
    }
}
