//! Two plans side by side.

use memfit::{Bytes, Gap, SavedPlan};

/// How many layers are named.
const LAYERS: usize = 16;

/// What each plan holds at its peak, by kind and by layer, and what it costs. The change leads from the other to this one.
pub fn table(this: &SavedPlan, other: &SavedPlan) -> String {
    let mut lines = vec![
        format!("other  {}", described(other)),
        format!("this   {}", described(this)),
        String::new(),
        format!("{:<26} {:>12} {:>12} {:>13}", "", "other", "this", "change"),
    ];
    lines.extend(this.gaps(other).iter().map(|gap| row(&worded(gap.name), gap)));
    lines.push("at the peak, by kind".to_owned());
    lines.extend(this.gaps_by_kind(other).iter().map(|gap| row(&format!("  {}", gap.name), gap)));
    lines.push("at the peak, by layer".to_owned());
    let layers = this.gaps_by_layer(other);
    let (changed, same): (Vec<&Gap<'_>>, Vec<&Gap<'_>>) =
        layers.iter().partition(|gap| gap.this != gap.other);
    lines.extend(changed.iter().take(LAYERS).map(|gap| row(&format!("  {}", gap.name), gap)));
    if LAYERS < changed.len() {
        lines.push(format!("  {} more that differ; --json has them all", changed.len() - LAYERS));
    }
    if !same.is_empty() {
        lines.push(format!("  {} the same in both", same.len()));
    }
    lines.push("how it runs".to_owned());
    for ((name, this), (_, other)) in runs(this).into_iter().zip(runs(other)) {
        let gap = if this == other { "same" } else { "" };
        lines.push(format!("  {name:<24} {other:>12} {this:>12} {gap:>13}"));
    }
    lines.join("\n")
}

fn runs(plan: &SavedPlan) -> [(&'static str, String); 5] {
    [
        ("micro-batches x rows", format!("{} x {}", plan.micro_batches, plan.micro_batch)),
        ("nodes recomputed", plan.nodes_recomputed.to_string()),
        ("recomputed where read", plan.values_folded.to_string()),
        ("fused updates", plan.gradients_applied.to_string()),
        ("time, over unsplit", format!("{:.3}x", plan.time_relative)),
    ]
}

fn described(plan: &SavedPlan) -> String {
    let answer = if plan.fits { "fits" } else { "does not fit; its smallest plan is shown" };
    format!("{}, batch {}, budget {}: {answer}", plan.job, plan.batch, Bytes(plan.budget))
}

/// `bytes_smallest_budget` as people say it.
fn worded(name: &str) -> String {
    match name {
        "bytes_runtime" => "program".to_owned(),
        "bytes_offloaded" => "copied out, micro-batch".to_owned(),
        other => other.trim_start_matches("bytes_").replace('_', " "),
    }
}

fn row(name: &str, gap: &Gap<'_>) -> String {
    let Gap { this, other, .. } = *gap;
    let words = match this.cmp(&other) {
        std::cmp::Ordering::Less => format!("-{}", other - this),
        std::cmp::Ordering::Equal => "same".to_owned(),
        std::cmp::Ordering::Greater => format!("+{}", this - other),
    };
    format!("{name:<26} {other:>12} {this:>12} {words:>13}")
}
