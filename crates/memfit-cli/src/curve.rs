//! Time against bytes in a terminal: drawn, and as a table.

use memfit::{Bytes, SweepPoint};

/// Columns of the picture, so that it fits 80 with the times beside it.
const COLUMNS: usize = 68;

/// Rows of the picture.
const ROWS: usize = 16;

/// Points of the table, a few of many.
const LINES: usize = 24;

/// The picture: bytes to the right on a scale of powers of two, time upwards, the budget as a line.
pub fn plot(points: &[SweepPoint], budget: Bytes) -> String {
    let (Some(fastest), Some(smallest)) = (points.first(), points.last()) else {
        return "there is no plan".to_owned();
    };
    let (low, high) = (smallest.budget, fastest.budget);
    // A budget close to the curve is drawn where it is, one far off only named.
    let is_near = low.0 / 2 <= budget.0 && budget.0 / 2 <= high.0;
    let (left, right) = if is_near { (low.min(budget), high.max(budget)) } else { (low, high) };
    let slowest = points.iter().map(|point| point.time_relative).fold(1.01, f64::max);
    let (from, to) = ((left.0 as f64).log2(), (right.0 as f64).log2());
    let column = |bytes: Bytes| share((bytes.0 as f64).log2() - from, to - from, COLUMNS - 1);
    let row = |time: f64| ROWS - 1 - share(time - 1.0, slowest - 1.0, ROWS - 1);

    let mut cells = vec![[b' '; COLUMNS]; ROWS];
    if is_near {
        for row in &mut cells {
            row[column(budget)] = b':';
        }
    }
    // Between two points, a budget has the plan of the smaller one.
    let mut end = COLUMNS;
    for point in points {
        let start = column(point.budget);
        let bound = &mut cells[row(point.time_bound)][start..end];
        bound.iter_mut().filter(|cell| **cell == b' ').for_each(|cell| *cell = b'.');
        cells[row(point.time_relative)][start..end].fill(b'-');
        end = start;
    }
    for point in points {
        cells[row(point.time_relative)][column(point.budget)] = b'o';
    }

    let mut lines = vec!["time of a step over the fastest, against the budget of the process".to_owned()];
    for (index, cells) in cells.iter().enumerate() {
        let time = 1.0 + (slowest - 1.0) * (ROWS - 1 - index) as f64 / (ROWS - 1) as f64;
        let time = if index % 5 == 0 { format!("{time:.3}x") } else { String::new() };
        lines.push(format!("{time:>8} |{}", String::from_utf8_lossy(cells).trim_end()));
    }
    lines.push(format!("{:>8} +{}", "", "-".repeat(COLUMNS)));
    lines.push(format!("{:>8}  {}", "", scale(from, to)));
    lines.push("o a plan   - what a budget between two plans buys   . lower bound of the time".to_owned());
    lines.push(match SweepPoint::bought(points, budget) {
        _ if budget < low => format!(": your budget, {budget}: below the smallest plan{}", far(is_near)),
        Some(point) if point == fastest => {
            format!(": your budget, {budget}: buys the fastest plan{}", far(is_near))
        }
        Some(point) => format!(": your budget, {budget}: buys {:.3}x", point.time_relative),
        None => format!(": your budget, {budget}"),
    });
    lines.push(String::new());
    lines.join("\n")
}

/// One line a plan, a few of many, with a mark where the budget stands.
pub fn table(points: &[SweepPoint], budget: Bytes) -> String {
    let mut lines = vec![format!(
        "{:>12}  {:>12}  {:>8}  {:>8}  {:>6}  {:>10}  {:>10}",
        "budget", "activations", "time", "bound", "split", "recomputed", "copied out"
    )];
    let bought = points.iter().position(|point| point.budget <= budget);
    for (at, point) in shown(points.len(), bought).into_iter().map(|at| (at, &points[at])) {
        lines.push(format!(
            "{:>12}  {:>12}  {:>7.3}x  {:>7.3}x  {:>6}  {:>10}  {:>10}{}",
            point.budget,
            point.bytes_activations,
            point.time_relative,
            point.time_bound,
            split(point),
            point.nodes_recomputed,
            point.bytes_offloaded,
            if bought == Some(at) { " <" } else { "" }
        ));
    }
    if let Some(most) = points.iter().map(|point| point.slices).max().filter(|slices| 1 < *slices) {
        lines.push(format!("1/{most}: the whole batch, its first layers or its last in {most} slices"));
    }
    if LINES < points.len() {
        lines.push(format!("some of {} plans; --json and --report have them all", points.len()));
    }
    lines.join("\n")
}

/// Micro-batches, and slices where the first layers run in some.
fn split(point: &SweepPoint) -> String {
    match point.slices {
        1 => point.micro_batches.to_string(),
        slices => format!("{}/{slices}", point.micro_batches),
    }
}

/// The first, the last, the one that is bought, and others evenly between.
fn shown(count: usize, bought: Option<usize>) -> Vec<usize> {
    let lines = count.min(LINES);
    let mut shown: Vec<usize> = (0..lines).map(|line| line * (count - 1) / (lines - 1).max(1)).collect();
    shown.extend(bought);
    shown.sort_unstable();
    shown.dedup();
    shown
}

/// A part of a whole, in steps.
fn share(part: f64, whole: f64, steps: usize) -> usize {
    if whole <= 0.0 { 0 } else { (part / whole * steps as f64).round().clamp(0.0, steps as f64) as usize }
}

/// Sizes under the picture: both ends, and what fits between.
fn scale(from: f64, to: f64) -> String {
    const LABELS: usize = 5;
    let mut text = vec![b' '; COLUMNS];
    for label in 0..LABELS {
        let bytes = Bytes(2f64.powf(from + (to - from) * label as f64 / (LABELS - 1) as f64).round() as u64);
        let words = bytes.to_string();
        let middle = label * (COLUMNS - 1) / (LABELS - 1);
        let start = middle.saturating_sub(words.len() / 2).min(COLUMNS - words.len());
        text[start..start + words.len()].copy_from_slice(words.as_bytes());
    }
    String::from_utf8_lossy(&text).trim_end().to_owned()
}

fn far(is_near: bool) -> &'static str {
    if is_near { "" } else { " and far off the picture" }
}
