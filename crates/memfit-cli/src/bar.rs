//! Training for people: a bar of the epoch where there is a terminal, and one line an epoch.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use memfit::{Bytes, Event, Means, Observer, Summary};

use crate::out;

/// Columns of a line: one less than a terminal of 80 has, so that none wraps.
const COLUMNS: usize = 79;

/// Columns of the bar itself.
const WIDTH: usize = 16;

/// Shows a person how training goes.
#[derive(Default)]
pub struct Bar {
    shown: Option<ProgressBar>,
    progress: Progress,
    epoch_began: Option<Instant>,
    rows: u64,
    /// Where a run goes on, its first step.
    first_step: u64,
}

/// How far training has come.
#[derive(Clone, Debug, Default, PartialEq)]
struct Progress {
    /// Counted from 0.
    epoch: u64,
    epochs: u64,
    /// Steps of the epoch that are done. A micro-batch is a fraction of one.
    steps: f64,
    steps_epoch: u64,
    /// Those that an earlier run had done.
    steps_before: f64,
    /// Seconds since the epoch began.
    seconds: f64,
    loss: Option<f64>,
    metrics: Vec<(String, f64)>,
    /// Why the last step changed no weight.
    skipped_by: Option<String>,
    /// The most that the process held so far, once a step is done.
    used: Option<Bytes>,
    budget: Bytes,
}

impl Observer for Bar {
    fn event(&mut self, event: Event<'_>) {
        match event {
            Event::Planned(summary) => self.begin(summary),
            Event::Lowered { asked, allowed } => out(&format!(
                "budget {asked} lowered to {}: {} allows no more\n",
                allowed.available, allowed.by
            )),
            Event::Resumed { iteration } => out(&format!("resumed  after step {iteration}\n")),
            Event::Saved { path } => out(&format!("saved    {}", path.display())),
            Event::GoesOn { from, step, broken } => {
                for problem in broken {
                    out(&format!("passed over {problem}"));
                }
                self.first_step = step;
                out(&match from {
                    Some(path) => format!("goes on from {}, after step {step}\n", path.display()),
                    None => "no checkpoint yet: starts from the beginning\n".to_owned(),
                });
            }
            Event::Checkpoint { path, seconds_stalled, .. } => {
                self.say(&format!("checkpoint {}  {seconds_stalled:.2} s", path.display()));
            }
            Event::Begun { steps, steps_epoch } => {
                self.progress.steps_epoch = steps_epoch;
                self.progress.epochs = steps.div_ceil(steps_epoch.max(1));
                self.progress.steps_before = (self.first_step % steps_epoch.max(1)) as f64;
                self.progress.steps = self.progress.steps_before;
                self.progress.epoch = self.first_step / steps_epoch.max(1);
                self.epoch_began = Some(Instant::now());
            }
            Event::Piece { rows_done, rows_total } => {
                let whole = self.progress.steps.floor();
                // The last micro-batch of a step ends the step, which is about to be reported.
                let share = (rows_done as f64 / rows_total.max(1) as f64).min(0.99);
                self.progress.steps = whole + share;
                self.draw();
                self.progress.steps = whole;
            }
            Event::Step { record, epoch, metrics, .. } => {
                let progress = &mut self.progress;
                if epoch != progress.epoch || self.epoch_began.is_none() {
                    progress.epoch = epoch;
                    progress.steps_before = 0.0;
                }
                let before = epoch.saturating_mul(progress.steps_epoch);
                progress.steps = record.step.saturating_sub(before) as f64 + 1.0;
                progress.loss = Some(record.loss);
                progress.metrics = metrics.iter().cloned().zip(record.metrics.iter().copied()).collect();
                progress.skipped_by.clone_from(&record.skipped_by);
                progress.used = Some(record.bytes_used);
                self.rows += record.rows as u64;
                self.draw();
            }
            Event::Epoch { epoch, means, validation, metrics, .. } => {
                self.end_epoch(epoch, means, validation, metrics);
            }
        }
    }
}

impl Bar {
    fn begin(&mut self, summary: &Summary) {
        out(&memfit::plan_table(summary));
        self.progress.budget = summary.budget;
        if std::io::stderr().is_terminal() {
            let bar = ProgressBar::new_spinner();
            bar.set_style(ProgressStyle::with_template("{msg}").expect("the template is a constant"));
            self.shown = Some(bar);
        }
    }

    fn draw(&mut self) {
        let Some(bar) = &self.shown else { return };
        self.progress.seconds = self.epoch_began.map_or(0.0, |start| start.elapsed().as_secs_f64());
        bar.set_message(self.progress.line());
        bar.tick();
    }

    /// Prints a line that stays, above the bar where there is one.
    fn say(&self, line: &str) {
        match &self.shown {
            Some(bar) => bar.suspend(|| out(line)),
            None => out(line),
        }
    }

    /// Takes the bar away, so that what is printed next stands where it was.
    pub fn clear(&self) {
        if let Some(bar) = &self.shown {
            bar.finish_and_clear();
        }
    }

    /// The line that stays.
    fn end_epoch(&mut self, epoch: u64, means: &Means, validation: Option<&Means>, metrics: &[String]) {
        let seconds = self.epoch_began.map_or(0.0, |start| start.elapsed().as_secs_f64());
        let mut line = format!("epoch {}/{}", epoch + 1, self.progress.epochs);
        let all = std::iter::once(("", means)).chain(validation.map(|means| ("val_", means)));
        for (prefix, means) in all {
            line += &format!("  {prefix}loss {}", number(means.loss));
            for (name, value) in metrics.iter().zip(&means.values) {
                line += &format!("  {prefix}{name} {}", number(*value));
            }
        }
        line += &format!("  {seconds:.1} s  {:.1} rows/s", self.rows as f64 / seconds.max(1e-9));
        if let Some(used) = self.progress.used {
            line += &format!("  {used}");
        }
        self.say(&line);
        self.rows = 0;
        (self.progress.steps, self.progress.steps_before) = (0.0, 0.0);
        self.progress.epoch = epoch + 1;
        self.epoch_began = Some(Instant::now());
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.clear();
    }
}

impl Progress {
    /// One line: the epoch, the bar, steps, time left, loss and memory, and of the metrics those that have room.
    fn line(&self) -> String {
        let total = self.steps_epoch.max(1) as f64;
        let filled = ((self.steps / total).clamp(0.0, 1.0) * WIDTH as f64) as usize;
        let bar = format!("[{}{}]", "#".repeat(filled), ".".repeat(WIDTH - filled));
        let steps = if self.steps.fract() == 0.0 {
            format!("{:.0}", self.steps)
        } else {
            format!("{:.1}", (self.steps * 10.0).floor() / 10.0)
        };
        let mut line =
            format!("epoch {}/{} {bar} {steps}/{}", self.epoch + 1, self.epochs.max(1), self.steps_epoch);
        // What is most wanted comes first where there is little room; all of it stands in this order.
        let mut parts = vec![self.time_left()];
        parts.extend(self.loss.map(|loss| format!("loss {}", number(loss))));
        parts.extend(self.used.map(|used| of_budget(used, self.budget)));
        parts.extend(self.skipped_by.as_ref().map(|layer| format!("skipped: {layer} overflowed")));
        parts.extend(self.metrics.iter().map(|(name, value)| format!("{name} {}", number(*value))));
        for part in parts.iter().filter(|part| !part.is_empty()) {
            if line.chars().count() + 2 + part.chars().count() <= COLUMNS {
                line += "  ";
                line += part;
            }
        }
        line.chars().take(COLUMNS).collect()
    }

    fn time_left(&self) -> String {
        let done = self.steps - self.steps_before;
        if done <= 0.0 {
            return String::new();
        }
        let left = self.seconds / done * (self.steps_epoch as f64 - self.steps).max(0.0);
        // Beyond years it is no time that a person waits.
        let left = Duration::try_from_secs_f64(left).unwrap_or(Duration::MAX).as_secs();
        let (hours, minutes, seconds) = (left / 3600, left / 60 % 60, left % 60);
        if 0 < hours {
            format!("{hours}:{minutes:02}:{seconds:02} left")
        } else {
            format!("{minutes}:{seconds:02} left")
        }
    }
}

/// `1.50/2.00 GiB`: the unit once where it is the same.
fn of_budget(used: Bytes, budget: Bytes) -> String {
    let (used, budget) = (used.to_string(), budget.to_string());
    match (used.split_once(' '), budget.split_once(' ')) {
        (Some((count, unit)), Some((_, other))) if unit == other => format!("{count}/{budget}"),
        (Some(_) | None, Some(_) | None) => format!("{used}/{budget}"),
    }
}

/// A value with the digits that a person reads.
fn number(value: f64) -> String {
    if value != 0.0 && !(1e-3..1e5).contains(&value.abs()) {
        format!("{value:.3e}")
    } else {
        format!("{value:.4}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn progress() -> Progress {
        Progress {
            epoch: 1,
            epochs: 20,
            steps: 37.25,
            steps_epoch: 79,
            steps_before: 0.0,
            seconds: 74.5,
            loss: Some(0.123_456),
            metrics: vec![("accuracy".to_owned(), 0.912_34), ("mean_absolute_error".to_owned(), 1e-5)],
            skipped_by: None,
            used: Some(Bytes::mib(1536)),
            budget: Bytes::mib(2048),
        }
    }

    #[test]
    fn a_line_counts_steps_of_the_epoch_with_fractions_and_the_time_left() {
        let line = progress().line();
        assert_eq!(line, "epoch 2/20 [#######.........] 37.2/79  1:23 left  loss 0.1235  1.50/2.00 GiB");
        let first = Progress { steps: 0.0, loss: None, used: None, metrics: Vec::new(), ..progress() };
        assert_eq!(first.line(), "epoch 2/20 [................] 0/79");
        let ended = Progress { steps: 79.0, used: None, ..progress() };
        assert_eq!(
            ended.line(),
            "epoch 2/20 [################] 79/79  0:00 left  loss 0.1235  accuracy 0.9123"
        );
    }

    #[test]
    fn no_line_is_wider_than_80_columns() {
        let names = [
            "a",
            "accuracy",
            "a_metric_with_a_name_that_is_longer_than_a_whole_terminal_is_wide_or_nearly_so",
        ];
        for (steps_epoch, seconds, loss) in
            [(1, 0.0, 0.0), (79, 1e3, -1e30), (u64::MAX, 1e18, f64::MAX), (1_000_000, 1e9, f64::NAN)]
        {
            for name in names {
                let metrics = vec![(name.to_owned(), 1e300); 5];
                let skipped_by = Some(name.to_owned());
                let steps = steps_epoch as f64 / 3.0;
                let one = Progress {
                    steps,
                    steps_epoch,
                    seconds,
                    loss: Some(loss),
                    metrics,
                    skipped_by,
                    ..progress()
                };
                let line = one.line();
                assert!(line.chars().count() < 80, "{line}");
            }
        }
    }
}
