//! Tables for people.

use memfit::{BatchCurve, PackAnswer, Packing, Report};

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
    ];
    let (held, budget) = (report.vm_hwm, report.summary.budget);
    lines.extend(match report.bytes_host {
        None => vec![format!("process  {held} at its peak (VmHWM), budget {budget}")],
        Some(host) => vec![
            format!("device   {held} held by the process at its peak, budget {budget}"),
            format!("host     {host} at its peak (VmHWM), beside the budget"),
        ],
    });
    if let Some(validated) = &report.validated {
        let values: Vec<String> =
            validated.iter().map(|(name, value)| format!("{name} {value:.6}")).collect();
        lines.insert(1, format!("valid    {}", values.join("  ")));
    }
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
    let gap = if height == bound {
        "proven optimal".to_owned()
    } else {
        format!("at most {:.2} % above the optimum", 100.0 * (height as f64 / bound.max(1) as f64 - 1.0))
    };
    format!("height {height}  bound {bound}  {gap}  {:.2} s", answer.seconds)
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
