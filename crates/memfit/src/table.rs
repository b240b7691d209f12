//! A plan as a table for people.

use memfit_device::Coverage;
use memfit_ir::Bytes;
use memfit_plan::Group;

use crate::{Costs, CostsUsed, Summary};

/// How many layers a table names.
const LAYERS: usize = 8;

/// What a job would hold.
pub fn plan_table(summary: &Summary) -> String {
    let mut lines = vec![
        row("budget", summary.budget, "what the process may hold"),
        row("program", summary.runtime.total(), "measured: what the process holds besides the arena"),
        row("arena", summary.bytes_arena, &format!("planned: its peak is {} bytes", summary.bytes_peak.0)),
        row("bound", summary.bytes_bound, &above_bound(summary)),
        String::new(),
        format!(
            "at the peak (step {} of {}: {} of {})",
            summary.peak_step, summary.steps, summary.peak_label, summary.peak_layer
        ),
    ];
    if summary.runtime.baseline != Bytes::ZERO {
        let note = "held by the calling program before: not counted by the budget";
        lines.insert(0, row("process", summary.runtime.baseline, note));
    }
    let total = summary.held.total().0.max(1) as f64;
    let share = |bytes: Bytes| format!("{:5.1} %", 100.0 * bytes.0 as f64 / total);
    for group in Group::ALL {
        let bytes = summary.held.get(group);
        lines.push(row(&format!("  {}", group.name()), bytes, &share(bytes)));
    }
    lines.push(String::new());
    lines.push("by layer".to_owned());
    for layer in summary.layers.iter().take(LAYERS) {
        lines.push(row(&format!("  {}", layer.layer), layer.bytes, &share(layer.bytes)));
    }
    if LAYERS < summary.layers.len() {
        let rest: Bytes = summary.layers[LAYERS..].iter().map(|layer| layer.bytes).sum();
        let name = format!("  {} more", summary.layers.len() - LAYERS);
        lines.push(row(&name, rest, &share(rest)));
    }
    lines.push(String::new());
    lines.push(split(summary));
    lines.extend(summary.note_of_rows());
    if let Some(seed) = summary.shuffle_seed {
        lines.push(format!("rows shuffled in every epoch, by seed {seed}"));
    }
    if let Some(precision) = &summary.precision {
        lines.push(format!("{}: {}", precision.names(), precision.changed()));
        lines.push(format!("{:>15} {}", "", precision.saved()));
    }
    lines.push(row("smallest", summary.bytes_smallest_budget, "the lowest budget at which this job trains"));
    lines.push(costs_line(&summary.costs));
    lines.push(format!("planned in {:.0} ms\n", summary.seconds_planning * 1e3));
    lines.join("\n")
}

/// What times were compared by.
pub fn costs_line(used: &CostsUsed) -> String {
    let (seconds, Coverage { kinds_measured, kinds, share }) = (used.seconds_measuring, used.coverage);
    let text = match used.costs {
        Costs::Analytic => return "costs    analytic: arithmetic and bytes at rough rates".to_owned(),
        Costs::Measured if seconds == 0.0 => "as remembered from an earlier start".to_owned(),
        Costs::Measured => format!("in {seconds:.1} s"),
    };
    let rest = if kinds_measured == kinds {
        String::new()
    } else {
        let share = match 100.0 * share {
            percent if percent < 1.0 => "less than 1".to_owned(),
            percent => format!("{percent:.0}"),
        };
        format!(
            ": {kinds_measured} of {kinds} kinds of nodes with {share} % of the time, and the rest estimated in proportion"
        )
    };
    format!("costs    measured on this machine {text}{rest}")
}

fn split(summary: &Summary) -> String {
    let mut text = if summary.micro_batches == 1 {
        format!("batch {} whole", summary.batch)
    } else {
        let last =
            if summary.batch.is_multiple_of(summary.micro_batch) { "" } else { " (the last is smaller)" };
        format!(
            "batch {} = {} micro-batches of {}{last}",
            summary.batch, summary.micro_batches, summary.micro_batch
        )
    };
    if let Some(region) = &summary.region {
        let name = |layer: Option<&String>| layer.map_or("", String::as_str).to_owned();
        let layers = match &region.layers[..] {
            [only] => format!("{only} runs"),
            layers => format!("{} to {} run", name(layers.first()), name(layers.last())),
        };
        text += &format!(
            ", of which {layers} in {} slices{}",
            region.slices,
            if region.keeps { "" } else { ", forward once more before backward" }
        );
    }
    if summary.nodes_recomputed > 0 {
        text += &format!(", {} launches recompute activations", summary.nodes_recomputed);
    }
    if summary.values_folded > 0 {
        text +=
            &format!(", {} activations are recomputed inside the ops that read them", summary.values_folded);
    }
    match summary.gradients_applied {
        0 => {}
        1 => text += ", 1 update is fused into its gradient",
        count => text += &format!(", {count} updates are fused into their gradients"),
    }
    if summary.launches_leaner > 0 {
        let (count, most) = (summary.launches_leaner, summary.bytes_workspace);
        text += &format!(
            ", {count} launches by an algorithm of less workspace than the fastest (at most {most})"
        );
    }
    if summary.bytes_offloaded != Bytes::ZERO {
        text += &format!(", {} copied out for each micro-batch", summary.bytes_offloaded);
    }
    if summary.time_relative > 1.0005 {
        let slower = (summary.time_relative - 1.0) * 100.0;
        text += &format!("; about {slower:.1} % slower than without a budget");
    }
    if summary.splits_batchnorm {
        text += "\nBatchNormalization normalises each micro-batch by itself: allowed by the job, and not the same result";
    }
    text
}

fn above_bound(summary: &Summary) -> String {
    let above = summary.bytes_peak.0 as f64 / summary.bytes_bound.0.max(1) as f64 - 1.0;
    format!("no packing is lower; this one is {:.2} % above", above * 100.0)
}

fn row(name: &str, bytes: Bytes, note: &str) -> String {
    format!("{name:<24} {bytes:>12}  {note}")
}
