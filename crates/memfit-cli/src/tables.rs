//! Tables for people.

use memfit::{BatchCurve, Bytes, Costs, Group, PackAnswer, Packing, Report, Summary};

/// How many layers a table names.
const LAYERS: usize = 8;

/// What a job would hold.
pub fn plan(summary: &Summary) -> String {
    let mut lines = vec![
        row("budget", summary.budget, "the line: everything below is under it"),
        row("program", summary.runtime.total(), "measured: what the process holds besides the arena"),
        row("arena", summary.bytes_arena, &format!("planned: its peak is {} bytes", summary.bytes_peak.0)),
        row("bound", summary.bytes_bound, &above_bound(summary)),
        String::new(),
        format!(
            "at the peak (step {} of {}: {} of {})",
            summary.peak_step, summary.steps, summary.peak_label, summary.peak_layer
        ),
    ];
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
    if let Some(precision) = &summary.precision {
        lines.push(format!("{}: {}", precision.names(), precision.changed()));
        lines.push(format!("{:>15} {}", "", precision.saved()));
    }
    lines.push(row("smallest", summary.bytes_smallest_budget, "the lowest line at which this job trains"));
    lines.push(costs(summary.costs, summary.seconds_measuring));
    lines.push(format!("planned in {:.0} ms\n", summary.seconds_planning * 1e3));
    lines.join("\n")
}

/// What times were compared by.
pub fn costs(costs: Costs, seconds: f64) -> String {
    match costs {
        Costs::Analytic => "costs    analytic: arithmetic and bytes at rough rates".to_owned(),
        Costs::Measured if seconds == 0.0 => {
            "costs    measured on this machine, as remembered from an earlier start".to_owned()
        }
        Costs::Measured => format!("costs    measured on this machine in {seconds:.1} s"),
    }
}

/// How a job went.
pub fn report(report: &Report) -> String {
    let trace = &report.trace;
    let equal = if report.bytes_peak_predicted == report.bytes_peak_measured { "=" } else { "≠" };
    let rate = trace.rows as f64 / trace.seconds;
    let mut lines = vec![
        format!(
            "\ntrained  {} steps in {:.1} s, {rate:.1} rows/s, loss {:.6}",
            trace.steps, trace.seconds, trace.loss
        ),
        format!(
            "arena    {} bytes predicted {equal} {} bytes measured",
            report.bytes_peak_predicted.0, report.bytes_peak_measured.0
        ),
        format!("process  {} at its peak (VmHWM), budget {}", report.vm_hwm, report.summary.budget),
    ];
    if let Some(scale) = trace.loss_scale {
        let by =
            trace.skipped_by.as_ref().map(|layer| format!(", at the last by {layer}")).unwrap_or_default();
        lines.push(format!("scale    {scale} at the last step; {} steps skipped{by}", trace.steps_skipped));
    }
    lines.join("\n")
}

/// Bytes against batch.
pub fn batch(curve: &BatchCurve) -> String {
    let mut lines = vec![match curve.largest {
        Some(batch) => format!("largest batch without a split within {}: {batch}\n", curve.budget),
        None => format!("not even a batch of 1 fits {} without a split\n", curve.budget),
    }];
    let most = curve.points.iter().map(|(_, bytes)| bytes.0).max().unwrap_or(1).max(1);
    lines.push(format!("{:>10}  {:>12}", "batch", "needs"));
    for (batch, bytes) in &curve.points {
        let bar = "#".repeat((bytes.0 as f64 / most as f64 * 40.0).round() as usize);
        let fits = if *bytes <= curve.budget { "fits" } else { "does not fit" };
        lines.push(format!("{batch:>10}  {bytes:>12}  {bar} {fits}"));
    }
    lines.join("\n")
}

/// How low a file was packed.
pub fn packing(answer: &PackAnswer) -> String {
    let Packing { height, bound, .. } = answer.packing;
    let verdict = if height == bound {
        "proven optimal".to_owned()
    } else {
        format!("at most {:.2} % above the optimum", 100.0 * (height as f64 / bound.max(1) as f64 - 1.0))
    };
    format!("height {height}  bound {bound}  {verdict}  {:.2} s", answer.seconds)
}

/// Why a file does not fit its capacity.
pub fn packing_refusal(answer: &PackAnswer, capacity: u64) -> String {
    let reason = match &answer.reason {
        Some(ids) if answer.proven => format!("these buffers alone cannot fit: {}", ids.join(", ")),
        Some(ids) => format!("these buffers alone were not made to fit either: {}", ids.join(", ")),
        None => "no single reason was found; try more --seconds".to_owned(),
    };
    format!(
        "the buffers do not fit {capacity}\n  found  {}\n  bound  {}\n  reason {reason}",
        answer.packing.height, answer.packing.bound
    )
}

fn split(summary: &Summary) -> String {
    let mut text = if summary.micro_batches == 1 {
        format!("batch {} in one piece", summary.batch)
    } else {
        let last =
            if summary.batch.is_multiple_of(summary.micro_batch) { "" } else { " (the last is smaller)" };
        format!("batch {} = {} pieces of {}{last}", summary.batch, summary.micro_batches, summary.micro_batch)
    };
    if let Some(region) = &summary.region {
        let (first, last) = (region.layers.first(), region.layers.last());
        text += &format!(
            ", of which {} to {} run in {} slices{}",
            first.map_or("", String::as_str),
            last.map_or("", String::as_str),
            region.slices,
            if region.keeps { "" } else { ", forward once more before backward" }
        );
    }
    if summary.nodes_recomputed > 0 {
        text += &format!(", {} launches compute a value again", summary.nodes_recomputed);
    }
    if summary.bytes_offloaded != Bytes::ZERO {
        text += &format!(", {} copied out to disk for each piece", summary.bytes_offloaded);
    }
    if summary.time_relative > 1.0005 {
        let slower = (summary.time_relative - 1.0) * 100.0;
        text += &format!("; about {slower:.1} % slower than with all the memory it likes");
    }
    if summary.splits_batchnorm {
        text += "\nBatchNormalization normalises each piece by itself: allowed by the job, and not the same result";
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
