//! One step's run of the plan: launches, copies, and the search for what was not finite.

use std::collections::BTreeSet;

use memfit_device::{Context, Device, Kept, heap};
use memfit_ir::{CheckedPlan, DType, Kind, NodeId, Op, Place, Plan, Slot, Step, Tensor, TensorId};

use crate::finite::{
    Changed, Culprit, Found, NotFinite, first_bad_row, first_large_row, note_changes, outlives, suspects,
};
use crate::readback::Readback;
use crate::runner::{Feed, HeapMark, RunError, StepInput};

/// One step that runs.
pub(crate) struct Loop<'a> {
    pub(crate) plan: &'a CheckedPlan,
    pub(crate) device: &'a mut dyn Device,
    /// Whether launches return before they are done.
    pub(crate) runs_ahead: bool,
    pub(crate) feed: &'a mut dyn Feed,
    pub(crate) input: StepInput,
    pub(crate) iteration: u64,
    /// What gradients are multiplied by.
    pub(crate) scaled: f32,
    pub(crate) heap: &'a mut HeapMark,
    pub(crate) readback: &'a Readback,
    pub(crate) turn: usize,
    /// Whether every step before this one has ended.
    pub(crate) resets: bool,
    pub(crate) launched: &'a mut BTreeSet<u64>,
    pub(crate) staged: &'a mut Option<usize>,
    /// Launches that kept old values because the new ones were not finite.
    pub(crate) kept: Vec<(NodeId, Kept)>,
}

impl Loop<'_> {
    pub(crate) fn run(&mut self) -> Result<(), RunError> {
        if self.runs_ahead {
            return self.run_ahead();
        }
        let plan: &Plan = self.plan.plan();
        let none = self.context(0, 0);
        for step in &plan.prologue {
            self.do_step(step, &none)?;
        }
        for (first, rows) in plan.pieces(self.input.rows) {
            let context = self.context(first, rows);
            for (index, step) in plan.body.iter().enumerate() {
                self.do_step(step, &context)?;
                // The loss is known before anything of this micro-batch reaches a weight.
                if self.is_bad_loss(step) {
                    let before = if first == 0 { &plan.body[..index] } else { &plan.body };
                    let changed = self.changed(plan.prologue.iter().chain(before));
                    let found = self.find_culprit(&context)?;
                    return Err(RunError::NotFinite(Box::new(NotFinite { changed, ..found })));
                }
            }
            self.feed.piece_done(first + rows, self.input.rows);
        }
        for step in &plan.epilogue {
            self.do_step(step, &none)?;
        }
        if self.kept.is_empty() { Ok(()) } else { Err(RunError::NotFinite(Box::new(self.find_cause()?))) }
    }

    /// Whether a step was a loss, and what it added to is not finite.
    fn is_bad_loss(&self, step: &Step) -> bool {
        let Step::Launch { node, args, .. } = step else { return false };
        let sum = args.last().expect("every node has an operand");
        matches!(self.plan.problem().graph.nodes[node.0].op, Op::Loss(_))
            && !self.device.floats(*sum)[0].is_finite()
    }

    /// What outlives the step and was changed by these of its steps.
    fn changed<'b>(&self, steps: impl Iterator<Item = &'b Step>) -> Vec<Changed> {
        let graph = &self.plan.problem().graph;
        let mut changed = Vec::new();
        for step in steps {
            let Step::Launch { node, args, .. } = step else { continue };
            let (id, node) = (*node, &graph.nodes[node.0]);
            let found_inf = || self.device.floats(args[node.inputs.len() - 1])[0] != 0.0;
            let is_idle = if let Op::Update(update) = &node.op {
                let is_due = (self.iteration + 1).is_multiple_of(update.steps);
                update.guarded && found_inf() || !is_due && update.average.is_none()
            } else if let Op::Accumulate(accumulate) = &node.op {
                accumulate.guarded && found_inf()
            } else {
                matches!(node.op, Op::Constrain(_)) && !node.inputs.is_empty() && found_inf()
            };
            if !is_idle {
                let kept = self.kept.iter().filter(|(known, _)| *known == id);
                let kept = kept.fold(Kept::default(), |sum, (_, more)| Kept {
                    elements: sum.elements + more.elements,
                    state_written: sum.state_written || more.state_written,
                });
                note_changes(graph, node, kept, &mut changed);
            }
        }
        changed
    }

    /// Why a step that is over kept values: an input of it, or else the first tensor whose new values were not finite.
    fn find_cause(&mut self) -> Result<NotFinite, RunError> {
        let plan = self.plan.plan();
        let graph = &self.plan.problem().graph;
        let changed = self.changed(plan.prologue.iter().chain(&plan.body).chain(&plan.epilogue));
        let node = &graph.nodes[self.kept[0].0.0];
        let id = node.updates.iter().find(|id| outlives(graph, **id)).expect("it outlives the step");
        self.caused_by(*id, changed)
    }

    /// Why a step would have written what is not finite for a tensor.
    pub(crate) fn caused_by(&mut self, id: TensorId, changed: Vec<Changed>) -> Result<NotFinite, RunError> {
        let graph = &self.plan.problem().graph;
        let found = Found::Written { tensor: graph.tensors[id.0].name.clone() };
        let (tensor, culprit) = self.find_input()?.unwrap_or((id, Culprit::Update));
        let known = &graph.tensors[tensor.0];
        Ok(NotFinite {
            step: self.input.step,
            layer: graph.layers[known.layer.0].clone(),
            tensor: known.name.clone(),
            culprit,
            found,
            row_of_data: self.row_of_data(culprit),
            changed,
        })
    }

    /// Reads the batch again and looks for a row that is not finite, or so large that its square is not.
    fn find_input(&mut self) -> Result<Option<(TensorId, Culprit)>, RunError> {
        let plan = self.plan.plan();
        let graph = &self.plan.problem().graph;
        let mut large = None;
        for (first, rows) in plan.pieces(self.input.rows) {
            let context = self.context(first, rows);
            for step in &plan.body {
                let Step::Copy { from: Place::Feed(tensor), to: Place::Arena(slot) } = step else { continue };
                self.do_step(step, &context)?;
                let sliced = graph.tensors[tensor.0].slice.map_or(context, |slice| context.sliced(slice));
                let bytes = self.device.bytes(*slot);
                if let Some(row) = first_bad_row(graph, *tensor, bytes, context.rows) {
                    return Ok(Some((*tensor, Culprit::Input { row: sliced.row_start + row })));
                }
                if let (None, Some(row)) = (large, first_large_row(graph, *tensor, bytes, context.rows)) {
                    large = Some((*tensor, Culprit::LargeInput { row: sliced.row_start + row }));
                }
            }
        }
        Ok(large)
    }

    /// The row in the data that a culprit names by its place in the batch.
    fn row_of_data(&self, culprit: Culprit) -> Option<u64> {
        match culprit {
            Culprit::Input { row } | Culprit::LargeInput { row } => self.feed.file_row(row),
            Culprit::Weight | Culprit::Output | Culprit::Loss | Culprit::Gradient | Culprit::Update => None,
        }
    }

    /// Draws the rows of an input where they are synthetic floats, and says whether it did.
    fn is_drawn(&mut self, known: &Tensor, input: TensorId, context: &Context, to: Slot) -> bool {
        let Some((synthetic_values, row)) =
            self.feed.synthetic_values(input).filter(|_| known.dtype == DType::F32)
        else {
            return false;
        };
        let row = row.wrapping_add(context.row_start as u64);
        self.device.draw(synthetic_values, row.wrapping_mul(known.shape.elements_per_row() as u64), to)
    }

    pub(crate) fn do_step(&mut self, step: &Step, context: &Context) -> Result<(), RunError> {
        let before = heap::live();
        let taken = || heap::live() as i64 - before as i64;
        match step {
            Step::Launch { node, args, workspace, fresh } => {
                let graph = &self.plan.problem().graph;
                self.device.launch(graph, *node, args, *workspace, *fresh, context);
                self.heap.by_kernels += taken();
                let kept = self.device.take_kept();
                if kept != Kept::default() {
                    self.kept.push((*node, kept));
                }
                Ok(())
            }
            Step::Copy { from: Place::Feed(tensor), to: Place::Arena(slot) } => {
                let known = &self.plan.problem().graph.tensors[tensor.0];
                let all_rows = context.rows;
                // A slice is read where it stands in the micro-batch; a small batch may leave it without
                // rows.
                let (input, context) = match known.slice {
                    Some(slice) => (slice.of, context.sliced(slice)),
                    None => (*tensor, *context),
                };
                let bytes = known.bytes(all_rows);
                let fed = match context.rows {
                    0 => Ok(()),
                    // Synthetic rows are drawn by all threads.
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

    /// Runs the micro-batch again, looking at every value, without what outlives the step.
    pub(crate) fn find_culprit(&mut self, context: &Context) -> Result<NotFinite, RunError> {
        let plan = self.plan.plan();
        let graph = &self.plan.problem().graph;
        let number = self.input.step;
        let found = |tensor: TensorId, culprit: Culprit, row_of_data: Option<u64>| {
            let known = &graph.tensors[tensor.0];
            let (layer, tensor) = (graph.layers[known.layer.0].clone(), known.name.clone());
            let (found, changed) = (Found::Loss, vec![]);
            NotFinite { step: number, layer, tensor, culprit, found, row_of_data, changed }
        };
        // The tensor that a loss adds to; after the last node that adds to it come only gradients.
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
            let bad = |device: &dyn Device, (tensor, slot): &(TensorId, Slot)| {
                first_bad_row(graph, *tensor, device.bytes(*slot), context.rows)
            };
            if let Some((tensor, _)) = weights.iter().find(|pair| bad(self.device, pair).is_some()) {
                return Ok(found(*tensor, Culprit::Weight, None));
            }
            let loss = loss_of(step);
            if loss.is_some() && plan.body[index + 1..].iter().all(|later| loss_of(later) != loss) {
                break;
            }
            // What outlives the step stays as it is.
            if let Step::Launch { node, .. } = step
                && graph.nodes[node.0].updates.iter().any(|id| outlives(graph, *id))
            {
                continue;
            }
            self.do_step(step, context)?;
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
                    return Ok(found(pair.0, culprit, self.row_of_data(culprit)));
                }
            }
        }
        Ok(NotFinite {
            step: self.input.step,
            layer: "loss".to_owned(),
            tensor: "loss".to_owned(),
            culprit: Culprit::Loss,
            found: Found::Loss,
            row_of_data: None,
            changed: vec![],
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
