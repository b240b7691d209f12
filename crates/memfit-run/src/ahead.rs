//! Steps in flight on an asynchronous device: the host stages rows and runs ahead of the device. A section
//! that was launched once is captured, so that from then on a micro-batch is one launch.
//!
//! The first time, a section of the plan runs launch by launch, which lets libraries initialise themselves.
//! The second time it is captured. From the third time on it is replayed.

use memfit_device::{Asynchronous, Context, Device};
use memfit_ir::{Place, Plan, Slot, Step, SyntheticValues, TensorId};

use crate::step::Loop;
use crate::{NotFinite, RunError};

/// Parts of a plan that are recorded apart.
#[derive(Clone, Copy)]
enum Section {
    Prologue,
    Body,
    Epilogue,
}

impl Loop<'_> {
    /// Launches one step. A loss that is not finite keeps the device itself from writing weights until the host has seen it.
    pub(crate) fn run_ahead(&mut self) -> Result<(), RunError> {
        let plan: &Plan = self.plan.plan();
        let none = self.context(0, 0);
        asynchronous(self.device).begin_step(self.resets);
        self.section(Section::Prologue, &plan.prologue, &none)?;
        for (first, rows) in plan.pieces(self.input.rows) {
            self.section(Section::Body, &plan.body, &self.context(first, rows))?;
        }
        self.section(Section::Epilogue, &plan.epilogue, &none)?;
        asynchronous(self.device).begin_readback(self.turn, &mut self.readback.slots());
        self.stage_next(&plan.body);
        Ok(())
    }

    /// Stages the next step's first rows while the device is busy with this one. Where they cannot be fed, that step is the one to
    /// say so.
    fn stage_next(&mut self, body: &[Step]) {
        let next = self.feed.rows_next().and_then(|rows| self.plan.plan().pieces(rows).next());
        if let Some((first, rows)) = next
            && matches!(self.stage(body, &self.context(first, rows), true), Ok(true))
        {
            *self.staged = Some(rows);
        }
    }

    fn section(&mut self, section: Section, steps: &[Step], context: &Context) -> Result<(), RunError> {
        if steps.is_empty() {
            return Ok(());
        }
        let stages = self.stage_all(steps, context)?;
        let ahead = asynchronous(self.device);
        let half = if stages { ahead.staging_buffer() as u64 } else { 0 };
        let key = (section as u64) << 33 | half << 32 | context.rows as u64;
        ahead.set_context(context);
        let mut taken = 0;
        if let (Section::Body, true, Some(from)) = (section, stages, self.plan.plan().ahead) {
            let waiting = self.waiting(context);
            taken = waiting.len();
            asynchronous(self.device).take_ahead(from, &waiting);
        }
        let ahead = asynchronous(self.device);
        if ahead.is_captured(key) {
            ahead.replay(key);
        } else if self.launched.insert(key) {
            self.launch_all(steps, context, taken)?;
        } else {
            ahead.begin_capture();
            self.launch_all(steps, context, taken)?;
            let ahead = asynchronous(self.device);
            ahead.end_capture(key);
            ahead.replay(key);
        }
        if stages {
            asynchronous(self.device).end_staging();
        }
        Ok(())
    }

    /// Feeds every row of a section into host memory, from where the device copies it when its time has come; says whether there
    /// were any.
    fn stage_all(&mut self, steps: &[Step], context: &Context) -> Result<bool, RunError> {
        // Synthetic rows are drawn where they are needed.
        if let Some((_, row)) = steps.iter().filter_map(fed).find_map(|tensor| self.synthetic_values(tensor))
        {
            asynchronous(self.device).set_source_row(row);
        }
        if context.row_start == 0 && context.rows != 0 && self.staged.take() == Some(context.rows) {
            return Ok(true);
        }
        self.stage(steps, context, false)
    }

    /// Feeds every row of this batch's section that is not synthetic, or of the next batch's.
    fn stage(&mut self, steps: &[Step], context: &Context, next: bool) -> Result<bool, RunError> {
        let graph = &self.plan.problem().graph;
        let all = steps.iter().filter_map(fed);
        let fed: Vec<TensorId> = all.filter(|tensor| self.synthetic_values(*tensor).is_none()).collect();
        let bytes = |tensor: TensorId| graph.tensors[tensor.0].bytes(context.rows).to_usize();
        let total: usize = fed.iter().map(|tensor| staged(bytes(*tensor))).sum();
        if total == 0 {
            return Ok(false);
        }
        asynchronous(self.device).begin_staging(total);
        let mut offset = 0;
        for tensor in fed {
            let ahead = asynchronous(self.device);
            let to = ahead.stage(offset, bytes(tensor));
            let (input, context) = match graph.tensors[tensor.0].slice {
                Some(slice) => (slice.of, context.sliced(slice)),
                None => (tensor, *context),
            };
            if context.rows != 0 {
                let (first, rows) = (context.row_start, context.rows);
                let fed = match next {
                    true => self.feed.feed_next(input, first, rows, to),
                    false => self.feed.feed(input, first, rows, to),
                };
                fed.map_err(RunError::Feed)?;
            }
            offset += staged(bytes(tensor));
        }
        if let Some(to) = self.plan.plan().ahead {
            let bytes = self.waiting(context).last().map_or(0, |(offset, bytes, _)| offset + bytes);
            asynchronous(self.device).bring_ahead(bytes, to);
        }
        Ok(true)
    }

    /// Rows that wait on the device for their micro-batch: where they wait, their bytes, and where they go.
    fn waiting(&self, context: &Context) -> Vec<(usize, usize, Slot)> {
        let graph = &self.plan.problem().graph;
        let fed = self.plan.plan().fed_first().filter(|(tensor, _)| self.synthetic_values(*tensor).is_none());
        let mut end = 0;
        let place = |(tensor, slot): (TensorId, Slot)| {
            let (offset, bytes) = (end, graph.tensors[tensor.0].bytes(context.rows).to_usize());
            end += staged(bytes);
            (offset, bytes, slot)
        };
        fed.map(place).collect()
    }

    /// Launches and copies, without the first `taken` staged inputs, which are in their places already.
    fn launch_all(&mut self, steps: &[Step], context: &Context, taken: usize) -> Result<(), RunError> {
        let mut offset = 0;
        let mut fed = 0;
        for step in steps {
            if let Step::Copy { from: Place::Feed(tensor), to: Place::Arena(slot) } = step {
                let known = &self.plan.problem().graph.tensors[tensor.0];
                if let Some((synthetic_values, _)) = self.synthetic_values(*tensor) {
                    let (start, rows) = match known.slice {
                        Some(slice) => (slice.start(context.rows), slice.rows(context.rows)),
                        None => (0, context.rows),
                    };
                    asynchronous(self.device).draw_synthetic(known, synthetic_values, rows, start, *slot);
                    continue;
                }
                let bytes = known.bytes(context.rows).to_usize();
                if taken <= fed {
                    asynchronous(self.device).copy_staged(offset, bytes, *slot);
                }
                fed += 1;
                offset += staged(bytes);
            } else {
                self.do_step(step, context)?;
            }
        }
        Ok(())
    }

    /// How an input is drawn, where it is synthetic; a slice as the input that it belongs to.
    fn synthetic_values(&self, tensor: TensorId) -> Option<(SyntheticValues, u64)> {
        let slice = self.plan.problem().graph.tensors[tensor.0].slice;
        self.feed.synthetic_values(slice.map_or(tensor, |slice| slice.of))
    }

    /// Searches micro-batch by micro-batch for the cause of a loss that is not finite.
    pub(crate) fn find_culprits(&mut self) -> Result<NotFinite, RunError> {
        // Any micro-batch may hold the cause; the last of them blames the loss itself where none has another
        // culprit.
        let mut found = None;
        for (first, rows) in self.plan.plan().pieces(self.input.rows) {
            let culprit = self.find_culprit(&self.context(first, rows))?;
            let is_loss = culprit.is_loss();
            found = Some(culprit);
            if !is_loss {
                break;
            }
        }
        Ok(found.expect("a batch has at least one piece"))
    }
}

/// The device as one that works on its own, which is why this module runs its steps.
fn asynchronous<'a>(device: &'a mut (dyn Device + '_)) -> &'a mut dyn Asynchronous {
    device.asynchronous().expect("only steps of an asynchronous device run ahead")
}

/// The input whose rows a step brings.
fn fed(step: &Step) -> Option<TensorId> {
    match step {
        Step::Copy { from: Place::Feed(tensor), .. } => Some(*tensor),
        Step::Copy { .. } | Step::Launch { .. } | Step::Wait(_) => None,
    }
}

/// Room for rows in host memory, so that the next ones begin where any element may begin.
fn staged(bytes: usize) -> usize {
    bytes.next_multiple_of(64)
}
