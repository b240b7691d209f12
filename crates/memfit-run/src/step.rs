//! One step on its way through the plan: launches, copies, and the search for what was not finite.

use std::collections::BTreeSet;

use memfit_device::{Context, Device, heap};
use memfit_ir::{CheckedPlan, DType, Kind, Op, Place, Plan, Slot, Step, Tensor, TensorId};

use crate::finite::{Culprit, NotFinite, first_bad_row, suspects};
use crate::runner::{Feed, HeapMark, RunError, StepInput};
use crate::told::Told;

/// One step on its way.
pub(crate) struct Loop<'a> {
    pub(crate) plan: &'a CheckedPlan,
    pub(crate) device: &'a mut Device,
    pub(crate) feed: &'a mut dyn Feed,
    pub(crate) input: StepInput,
    pub(crate) iteration: u64,
    /// What gradients are multiplied by.
    pub(crate) scaled: f32,
    pub(crate) heap: &'a mut HeapMark,
    pub(crate) told: &'a Told,
    pub(crate) turn: usize,
    /// Whether every step before this one has ended.
    pub(crate) anew: bool,
    pub(crate) launched: &'a mut BTreeSet<u64>,
    pub(crate) staged: &'a mut Option<usize>,
}

impl Loop<'_> {
    pub(crate) fn run(&mut self) -> Result<(), RunError> {
        if self.device.is_asynchronous() {
            return self.run_ahead();
        }
        let plan: &Plan = self.plan.plan();
        let none = self.context(0, 0);
        for step in &plan.prologue {
            self.perform(step, &none)?;
        }
        for (first, rows) in plan.pieces(self.input.rows) {
            let context = self.context(first, rows);
            for step in &plan.body {
                self.perform(step, &context)?;
            }
            self.feed.piece_done(first + rows, self.input.rows);
        }
        for step in &plan.epilogue {
            self.perform(step, &none)?;
        }
        Ok(())
    }

    fn perform(&mut self, step: &Step, context: &Context) -> Result<(), RunError> {
        self.just_do(step, context)?;
        // The loss is known before anything of this piece reaches a weight.
        if let Step::Launch { node, args, .. } = step {
            let graph = &self.plan.problem().graph;
            if let Op::Loss(_) = graph.nodes[node.0].op {
                let sum = args.last().expect("a loss has a sum to add to");
                if !self.device.floats(*sum)[0].is_finite() {
                    return Err(RunError::NotFinite(self.find_culprit(context)?));
                }
            }
        }
        Ok(())
    }

    /// Draws the rows of an input where they are made-up floats, and says whether it did.
    fn is_drawn(&mut self, known: &Tensor, input: TensorId, context: &Context, to: Slot) -> bool {
        let Some((made_up, row)) = self.feed.made_up(input).filter(|_| known.dtype == DType::F32) else {
            return false;
        };
        let row = row.wrapping_add(context.row_start as u64);
        self.device.draw(made_up, row.wrapping_mul(known.shape.elements_per_row() as u64), to)
    }

    pub(crate) fn just_do(&mut self, step: &Step, context: &Context) -> Result<(), RunError> {
        let before = heap::live();
        let taken = || heap::live() as i64 - before as i64;
        match step {
            Step::Launch { node, args, workspace, fresh } => {
                let graph = &self.plan.problem().graph;
                self.device.launch(graph, *node, args, *workspace, *fresh, context);
                self.heap.by_kernels += taken();
                Ok(())
            }
            Step::Copy { from: Place::Feed(tensor), to: Place::Arena(slot) } => {
                let known = &self.plan.problem().graph.tensors[tensor.0];
                let all_rows = context.rows;
                // A slice is read where it stands in the piece; a small batch may leave it without rows.
                let (input, context) = match known.slice {
                    Some(slice) => (slice.of, context.sliced(slice)),
                    None => (*tensor, *context),
                };
                let bytes = known.bytes(all_rows);
                let fed = match context.rows {
                    0 => Ok(()),
                    // What is made up is drawn by all threads.
                    _ if self.is_drawn(known, input, &context, Slot { bytes, ..*slot }) => Ok(()),
                    rows => {
                        let to = &mut self.device.bytes_mut(*slot)[..bytes.to_usize()];
                        self.feed.feed(input, context.row_start, rows, to)
                    }
                };
                self.heap.by_feeds += taken();
                fed.map_err(RunError::Feed)
            }
            Step::Copy { from: Place::Arena(from), to: Place::Host(to) } => {
                self.device.copy_out(*from, *to).map_err(RunError::Store)
            }
            Step::Copy { from: Place::Host(from), to: Place::Arena(to) } => {
                self.device.copy_in(*from, *to).map_err(RunError::Store)
            }
            Step::Copy { .. } => unreachable!("the checker lets no other copy pass"),
            Step::Wait(slot) => {
                self.device.wait_for_copy(*slot);
                Ok(())
            }
        }
    }

    /// Runs the piece again, looking at every value. Training ends here, so nothing is harmed by what it overwrites.
    pub(crate) fn find_culprit(&mut self, context: &Context) -> Result<NotFinite, RunError> {
        let plan = self.plan.plan();
        let graph = &self.plan.problem().graph;
        let number = self.input.step;
        let found = |tensor: TensorId, culprit: Culprit| {
            let known = &graph.tensors[tensor.0];
            let layer = graph.layers[known.layer.0].clone();
            NotFinite { step: number, layer, tensor: known.name.clone(), culprit }
        };
        // What a loss adds to; behind the last that adds to it come gradients alone.
        let loss_of = |step: &Step| match step {
            Step::Launch { node, .. } if matches!(graph.nodes[node.0].op, Op::Loss(_)) => {
                graph.nodes[node.0].updates.first().copied()
            }
            Step::Launch { .. } | Step::Copy { .. } | Step::Wait(_) => None,
        };
        for (index, step) in plan.body.iter().enumerate() {
            let (weights, outputs) = match step {
                Step::Launch { node, args, .. } => suspects(graph, &graph.nodes[node.0], args),
                Step::Copy { from: Place::Feed(tensor), to: Place::Arena(slot) } => {
                    (vec![], vec![(*tensor, *slot)])
                }
                Step::Copy { .. } | Step::Wait(_) => (vec![], vec![]),
            };
            let bad = |device: &Device, (tensor, slot): &(TensorId, Slot)| {
                first_bad_row(graph, *tensor, device.bytes(*slot), context.rows)
            };
            if let Some((tensor, _)) = weights.iter().find(|pair| bad(self.device, pair).is_some()) {
                return Ok(found(*tensor, Culprit::Weight));
            }
            let loss = loss_of(step);
            if loss.is_some() && plan.body[index + 1..].iter().all(|behind| loss_of(behind) != loss) {
                break;
            }
            self.just_do(step, context)?;
            for pair in &outputs {
                if let Some(row) = bad(self.device, pair) {
                    let is_input = graph.tensors[pair.0.0].kind == Kind::Input;
                    let culprit = if is_input {
                        let slice = graph.tensors[pair.0.0].slice;
                        let context = slice.map_or(*context, |slice| context.sliced(slice));
                        Culprit::Input { row: context.row_start + row }
                    } else {
                        Culprit::Output
                    };
                    return Ok(found(pair.0, culprit));
                }
            }
        }
        Ok(NotFinite {
            step: self.input.step,
            layer: "loss".to_owned(),
            tensor: "loss".to_owned(),
            culprit: Culprit::Loss,
        })
    }

    pub(crate) fn context(&self, row_start: usize, rows: usize) -> Context {
        Context {
            step: self.input.step,
            iteration: self.iteration,
            row_start,
            rows,
            rows_total: self.input.rows,
            learning_rate: self.input.learning_rate,
            loss_scale: self.scaled,
            seed: self.input.seed,
        }
    }
}
