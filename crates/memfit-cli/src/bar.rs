//! The progress bar: epoch, step, loss, rows a second, memory used against the budget.

use std::time::Instant;

use indicatif::{ProgressBar, ProgressStyle};
use memfit::{Bytes, Event, Means, Observer, Summary, process};

use crate::out;

/// Shows a person how training goes.
#[derive(Default)]
pub struct Bar {
    shown: Option<Shown>,
}

struct Shown {
    bar: ProgressBar,
    budget: Bytes,
    start: Instant,
    rows_before: u64,
    /// Step, epoch and loss, as of the last step that ended.
    last: String,
    metrics: String,
}

const WIDTH: usize = 12;

impl Observer for Bar {
    fn event(&mut self, event: Event<'_>) {
        match event {
            Event::Planned(summary) => self.begin(summary),
            Event::Lowered { asked, allowed } => out(&format!(
                "budget {asked} lowered to {}: {} allows no more\n",
                allowed.available, allowed.by
            )),
            Event::Resumed { iteration } => out(&format!("resumed  behind step {iteration}\n")),
            Event::Saved { path } => out(&format!("saved    {}", path.display())),
            Event::GoesOn { from, step, broken } => {
                for problem in broken {
                    out(&format!("passed over {problem}"));
                }
                out(&match from {
                    Some(path) => format!("goes on from {}, after step {step}\n", path.display()),
                    None => "no checkpoint yet: starts from the beginning\n".to_owned(),
                });
            }
            Event::Checkpoint { path, seconds_stalled, .. } => {
                let line = format!("checkpoint {}  {seconds_stalled:.2} s", path.display());
                match &self.shown {
                    Some(shown) => shown.bar.suspend(|| out(&line)),
                    None => out(&line),
                }
            }
            Event::Piece { rows_done, rows_total } => {
                if let Some(shown) = &mut self.shown {
                    shown.draw(rows_done as u64, rows_total as u64);
                }
            }
            Event::Step { record, epoch, steps, metrics, .. } => {
                let Some(shown) = &mut self.shown else { return };
                shown.rows_before += record.rows as u64;
                shown.last =
                    format!("epoch {}  step {}/{steps}  loss {:.6}", epoch + 1, record.step + 1, record.loss);
                shown.metrics = metrics
                    .iter()
                    .zip(&record.metrics)
                    .map(|(name, value)| format!("  {name} {value:.4}"))
                    .collect();
                if let Some(layer) = &record.skipped_by {
                    shown.metrics += &format!("  skipped: the gradient of {layer} overflowed");
                }
                // The line of every step stays, where somebody looks: few of many, all of few.
                let every = (steps / 20).max(1);
                if record.step % every == 0 || record.step + 1 == steps {
                    let line = shown.line(record.bytes_used);
                    shown.bar.suspend(|| out(&line));
                }
                if record.step + 1 == steps {
                    shown.bar.finish_and_clear();
                }
            }
            Event::Epoch { epoch, means, validation, metrics, .. } => {
                let Some(shown) = &self.shown else { return };
                if metrics.is_empty() && validation.is_none() {
                    return;
                }
                let told = |prefix: &str, means: &Means| {
                    let values = metrics.iter().zip(&means.values);
                    let values: String =
                        values.map(|(name, value)| format!("  {prefix}{name} {value:.4}")).collect();
                    format!("  {prefix}loss {:.6}{values}", means.loss)
                };
                let validated = validation.map(|means| told("val_", means)).unwrap_or_default();
                let line = format!("epoch {}{}{validated}", epoch + 1, told("", means));
                shown.bar.suspend(|| out(&line));
            }
        }
    }
}

impl Bar {
    fn begin(&mut self, summary: &Summary) {
        out(&memfit::plan_table(summary));
        let bar = ProgressBar::new(1);
        let style = ProgressStyle::with_template("{bar:24} {pos}/{len} rows  {msg}");
        bar.set_style(style.expect("the template is a constant"));
        self.shown = Some(Shown {
            bar,
            budget: summary.budget,
            start: Instant::now(),
            rows_before: 0,
            last: "step 1".to_owned(),
            metrics: String::new(),
        });
    }
}

impl Shown {
    fn draw(&mut self, done: u64, total: u64) {
        self.bar.set_length(total);
        self.bar.set_position(done);
        let rate = (self.rows_before + done) as f64 / self.start.elapsed().as_secs_f64();
        let message =
            format!("{}{}  {rate:.1} rows/s  {}", self.last, self.metrics, self.memory(process::held()));
        self.bar.set_message(message);
    }

    fn line(&self, used: Bytes) -> String {
        let rate = self.rows_before as f64 / self.start.elapsed().as_secs_f64();
        format!("{}{}  {rate:.1} rows/s  {}", self.last, self.metrics, self.memory(used))
    }

    fn memory(&self, used: Bytes) -> String {
        let filled = (used.0 as f64 / self.budget.0.max(1) as f64 * WIDTH as f64).round() as usize;
        let filled = filled.min(WIDTH);
        format!("memory [{}{}] {used} / {}", "#".repeat(filled), ".".repeat(WIDTH - filled), self.budget)
    }
}
