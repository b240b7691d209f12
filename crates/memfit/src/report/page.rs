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
const STACK: [Group; 6] = [
    Group::Weights,
    Group::Optimizer,
    Group::Gradients,
    Group::Activations,
    Group::Workspace,
    Group::Input,
];

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
        "figures": figures(report),
        "batch": batch(report),
        "warning": warning(report),
        "timeline_text": timeline_text(report),
        "budget": summary.budget.0,
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
        steps.rev().max_by_key(|step| all[*step].held.total()).expect("there are at least as many steps as buckets")
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
    let area = |holder: &&Holder| {
        Reverse(u128::from(holder.slot.bytes.0) * (holder.upper - holder.lower) as u128)
    };
    let mut named: Vec<&Holder> = timeline.holders.iter().collect();
    named.sort_by_key(size);
    let few = named.len().min(HOLDERS_MOST / 5);
    named[few..].sort_by_key(area);
    let unnamed = named.split_off(named.len().min(HOLDERS_MOST));
    named.sort_by_key(size);
    (named, unnamed)
}

fn holders(report: &Report, holders: &[&Holder], names: &mut Names) -> Value {
    let column = |value: &dyn Fn(&Holder) -> u64| holders.iter().map(|holder| value(holder)).collect::<Value>();
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

fn lead(report: &Report) -> String {
    let trace = &report.trace;
    let rate = match trace.rows as f64 / trace.seconds {
        rate if !rate.is_finite() => String::new(),
        rate if rate < 100.0 => format!(" ({rate:.1} rows/s)"),
        rate => format!(" ({} rows/s)", grouped(rate as u64)),
    };
    let (steps, rows) = (counted(trace.steps, "step"), counted(trace.rows, "row"));
    format!("Trained {steps} on {rows} in {}{rate}.", duration(trace.seconds))
}

/// Label, value and note of every figure at the top.
fn figures(report: &Report) -> Value {
    let summary = &report.summary;
    let loss = match report.trace.loss {
        loss if loss != 0.0 && loss.abs() < 1e-3 => format!("{loss:.3e}"),
        loss => format!("{loss:.4}"),
    };
    let share = 100.0 * report.vm_hwm.0 as f64 / summary.budget.0 as f64;
    let (predicted, measured) = (report.bytes_peak_predicted, report.bytes_peak_measured);
    let (mark, arena) = if predicted == measured {
        (" ✓", format!("predicted = measured, to the byte: {}\u{a0}B", grouped(measured.0)))
    } else {
        let [measured, predicted] = [measured, predicted].map(|bytes| grouped(bytes.0));
        ("", format!("measured {measured}\u{a0}B, but predicted {predicted}\u{a0}B"))
    };
    let bound = summary.bytes_bound;
    let above = match 100.0 * summary.bytes_peak.saturating_sub(bound).0 as f64 / bound.0.max(1) as f64 {
        0.0 => "at the bound".to_owned(),
        above if above < 0.01 => "< 0.01 % above the bound".to_owned(),
        above => format!("{above:.2} % above the bound"),
    };
    let steps = counted(summary.steps as u64, "plan step");
    json!([
        ["Final loss", loss, "mean over the last batch"],
        ["Budget", summary.budget.to_string(), format!("fits from {} on", summary.bytes_smallest_budget)],
        ["Process peak", report.vm_hwm.to_string(), format!("{share:.1} % of the budget (VmHWM)")],
        ["Arena", format!("{measured}{mark}"), arena],
        ["Packing", above, format!("no packing of this schedule is below {bound}")],
        ["Planning time", duration(summary.seconds_planning), format!("for {steps} of one training step")],
    ])
}

/// How the batch runs, and what that means for the result.
fn batch(report: &Report) -> String {
    let summary = &report.summary;
    let (batch, piece) = (grouped(summary.batch as u64), grouped(summary.micro_batch as u64));
    if summary.micro_batches <= 1 {
        return format!("A batch of {batch} runs whole; it is not split.");
    }
    let pieces = grouped(summary.micro_batches as u64);
    let most = if summary.batch.is_multiple_of(summary.micro_batch) { "" } else { "at most " };
    let result = if summary.splits_batchnorm {
        "their gradients add up"
    } else {
        "gradients add up to those of the whole batch, so the result is the same up to rounding"
    };
    let cost = summary.time_relative;
    format!("A batch of {batch} runs as {pieces} pieces of {most}{piece}; {result}. Estimated cost {cost:.2}×.")
}

fn warning(report: &Report) -> Option<String> {
    let (batch, piece) = (report.summary.batch, report.summary.micro_batch);
    report.summary.splits_batchnorm.then(|| {
        format!(
            "Splitting changed the result: BatchNormalization took its mean and variance over pieces of {piece}, \
             not over the whole batch of {batch}."
        )
    })
}

/// The picture in words, and what is left out of it.
fn timeline_text(report: &Report) -> String {
    let (summary, timeline) = (&report.summary, &report.timeline);
    let piece = match summary.micro_batches {
        0 | 1 => "the batch".to_owned(),
        pieces => format!("one piece (all {} run the same steps in the same bytes)", grouped(pieces as u64)),
    };
    let (step, label, layer) = (grouped(timeline.peak as u64), &summary.peak_label, &summary.peak_layer);
    let program = summary.runtime.total();
    let live = summary.held.total() + program;
    let mut text = format!(
        "One training step as planned: the prologue, {piece} and the epilogue. Most is live at plan step {step}, \
         {label} in layer {layer}: {live}, of which the program itself holds {program}."
    );
    let joined = timeline.moments.len().div_ceil(MOMENTS_MOST);
    if joined > 1 {
        text += &format!(" Up to {joined} neighbouring steps are shown as one, by the highest of them.");
    }
    let unnamed = timeline.holders.len().saturating_sub(HOLDERS_MOST);
    if unnamed > 0 {
        let unnamed = grouped(unnamed as u64);
        text += &format!(" The names of {unnamed} small or short-lived tensors are left out; their bytes are not.");
    }
    text
}

fn counted(count: u64, what: &str) -> String {
    format!("{} {what}{}", grouped(count), if count == 1 { "" } else { "s" })
}

fn duration(seconds: f64) -> String {
    match seconds {
        seconds if seconds < 1.0 => format!("{:.1} ms", seconds * 1e3),
        seconds if seconds < 120.0 => format!("{seconds:.1} s"),
        seconds => format!("{} min {:02} s", grouped(seconds as u64 / 60), seconds as u64 % 60),
    }
}

/// Digits in threes.
fn grouped(value: u64) -> String {
    let thousands = value / 1000;
    if thousands == 0 { value.to_string() } else { format!("{},{:03}", grouped(thousands), value % 1000) }
}
