//! The runner: with a checked plan, there is one arena, one plan, and a loop.

use std::collections::{BTreeSet, VecDeque};
use std::fmt;
use std::path::Path;
use std::time::Instant;

use memfit_device::{Backend, Device, DeviceError, heap};
use memfit_ir::{Bytes, CheckedPlan, Op, Slot, SyntheticValues, TensorId};

use crate::finite::{Culprit, Found, Guard, NotFinite};
use crate::loss_scale::LossScale;
use crate::readback::Readback;
use crate::step::Loop;
use crate::totals::{EpochSums, Means, Totals};
use crate::{StepRecord, Trace};

/// Heap that may come and go between steps without anything growing: queues of the thread pool, lines being printed.
const HEAP_NOISE: u64 = 256 << 10;

/// Where rows come from.
pub trait Feed: Send {
    /// Writes rows of an input, `first..first + rows` counted from the start of the batch.
    fn feed(&mut self, tensor: TensorId, first: usize, rows: usize, to: &mut [u8]) -> Result<(), FeedError>;

    /// Rows of the next batch, where it is known already: an asynchronous device gets its first rows while it
    /// still computes this batch. A feed that returns a number must bring that batch next.
    fn rows_next(&self) -> Option<usize> {
        None
    }

    /// Writes rows of an input of the next batch, counted from its start.
    fn feed_next(
        &mut self,
        _tensor: TensorId,
        _first: usize,
        _rows: usize,
        _to: &mut [u8],
    ) -> Result<(), FeedError> {
        Err("no next batch was promised".into())
    }

    /// How rows of an input are drawn, where they are synthetic, and the batch's first row in their sequence.
    fn synthetic_values(&self, _tensor: TensorId) -> Option<(SyntheticValues, u64)> {
        None
    }

    /// The row of the data, as it is stored and counted from 0, that is this row of the batch; none where there is no such thing.
    fn file_row(&self, _row_in_batch: usize) -> Option<u64> {
        None
    }

    /// Called when a micro-batch of the batch is done.
    fn piece_done(&mut self, _rows_done: usize, _rows_total: usize) {}
}

/// Why rows could not be fed, in the feeder's own words.
pub type FeedError = Box<dyn std::error::Error + Send + Sync>;

/// What is decided again for each step.
#[derive(Clone, Copy, Debug)]
pub struct StepInput {
    /// Counted from 0.
    pub step: u64,
    /// Rows of this step: the plan's batch, or fewer at the end of an epoch.
    pub rows: usize,
    /// The learning rate.
    pub learning_rate: f32,
    /// Seed of every random op.
    pub seed: u64,
}

/// How far training has come, in plain numbers.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Progress {
    /// Steps that have ended.
    pub steps: u64,
    /// Of these, steps that changed no weight since a gradient overflowed.
    pub steps_skipped: u64,
    /// Rows trained on.
    pub rows: u64,
    /// The loss scale and the steps since it changed, where gradients are scaled.
    pub loss_scale: Option<(f32, u64)>,
    /// Sums of the epoch.
    pub epoch: EpochSums,
}

/// Why training stopped.
#[derive(Debug)]
pub enum RunError {
    /// Rows could not be fed.
    Feed(FeedError),
    /// Offload memory could not be read or written.
    Store(std::io::Error),
    /// A loss, or a value that would have outlived the step, is not finite.
    NotFinite(Box<NotFinite>),
    /// Something grows from step to step.
    Grew {
        /// The step at which it was seen, counted from 0.
        step: u64,
        /// Bytes of heap by which it grew since the first step.
        bytes: u64,
        /// The owner of most of them.
        owner: &'static str,
    },
}

impl fmt::Display for RunError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RunError::Feed(error) => write!(f, "{error}"),
            RunError::Store(error) => {
                write!(
                    f,
                    "cannot copy to or from the disk: {error}; look at the disk that values are copied out to"
                )
            }
            RunError::NotFinite(error) => write!(f, "{error}"),
            RunError::Grew { step, bytes, owner } => write!(
                f,
                "step {} holds {bytes} bytes more than the first step; they were taken in {owner}; \
                 please report this with the job file",
                step + 1
            ),
        }
    }
}

impl std::error::Error for RunError {}

/// A plan with its memory, ready to run.
pub struct Runner {
    plan: CheckedPlan,
    device: Box<dyn Device>,
    /// The most steps in flight beside the current one.
    steps_ahead: usize,
    trace: Trace,
    readback: Readback,
    /// The steps in flight, the oldest first.
    in_flight: VecDeque<InFlight>,
    /// When the last step ended.
    ended: Option<Instant>,
    /// The sums of the steps of this epoch.
    totals: Totals,
    heap: HeapMark,
    /// Steps that this runner has ended, in contrast to those of the whole training.
    steps_here: u64,
    /// Where gradients are scaled.
    loss_scale: Option<LossScale>,
    /// Where a bad step changes nothing.
    guard: Option<Guard>,
    /// Sections that ran launch by launch, on a device that works on its own.
    launched: BTreeSet<u64>,
    /// Rows of the next step's first micro-batch, where they have been staged already.
    staged: Option<usize>,
}

/// A step that was launched and of which nothing is known yet.
#[derive(Clone, Copy)]
struct InFlight {
    input: StepInput,
    iteration: u64,
    loss_scale: Option<f32>,
    start: Instant,
    /// The index of its readback buffer.
    turn: usize,
}

/// The heap as it was when the first steps were done, and the growth of each owner since.
#[derive(Clone, Copy, Default)]
pub(crate) struct HeapMark {
    live: u64,
    pub(crate) by_feeds: i64,
    pub(crate) by_kernels: i64,
}

impl Runner {
    /// Takes the arena, and the disk's part where the plan copies values out to a folder. Nothing that comes later can take
    /// more.
    pub fn new(
        plan: CheckedPlan,
        mut backend: Box<dyn Backend>,
        folder: &Path,
    ) -> Result<Runner, DeviceError> {
        if plan.plan().bytes_host != Bytes::ZERO {
            backend.take_offload(folder, plan.plan().bytes_host)?;
        }
        let readback = Readback::of(&plan);
        backend.take_readback(readback.bytes());
        let arena = plan.problem().budget.arena_for(plan.plan().bytes_peak);
        let steps_ahead = backend.capabilities().steps_ahead;
        let device = backend.seal(arena)?;
        let loss_scale = LossScale::of(&plan.problem().graph);
        let guard = Guard::of(&plan.problem().graph);
        let totals = Totals::of(&plan.problem().graph);
        let (trace, heap, launched) = (Trace::default(), HeapMark::default(), BTreeSet::new());
        let in_flight = VecDeque::with_capacity(steps_ahead + 1);
        Ok(Runner {
            plan,
            device,
            steps_ahead,
            trace,
            readback,
            in_flight,
            ended: None,
            totals,
            heap,
            steps_here: 0,
            loss_scale,
            guard,
            launched,
            staged: None,
        })
    }

    /// The plan that runs.
    pub fn plan(&self) -> &CheckedPlan {
        &self.plan
    }

    /// What was measured so far.
    pub fn trace(&self) -> &Trace {
        &self.trace
    }

    /// The scale of gradients as the last step left it, where they are scaled.
    pub fn loss_scale(&self) -> Option<&LossScale> {
        self.loss_scale.as_ref()
    }

    /// How far training has come: what a checkpoint keeps beside the tensors.
    pub fn progress(&self) -> Progress {
        let Trace { steps, steps_skipped, rows, .. } = self.trace;
        let loss_scale = self.loss_scale.as_ref().map(LossScale::state);
        Progress { steps, steps_skipped, rows, loss_scale, epoch: self.totals.state() }
    }

    /// Continues where another runner of the same graph stopped; says whether the graph is the same as far as
    /// that shows.
    pub fn restore(&mut self, progress: &Progress) -> bool {
        let Progress { steps, steps_skipped, rows, loss_scale, epoch } = progress;
        self.trace = Trace { steps: *steps, steps_skipped: *steps_skipped, rows: *rows, ..Trace::default() };
        match (&mut self.loss_scale, loss_scale) {
            (Some(own), Some(state)) => own.restore(*state),
            (None, None) => {}
            (Some(_), None) | (None, Some(_)) => return false,
        }
        self.totals.restore(epoch)
    }

    /// Goes on with the scale of an earlier runner of this plan.
    pub fn resume_loss_scale(&mut self, scale: LossScale) {
        self.loss_scale = Some(scale);
    }

    /// Gives the arena's pages from `from` on back to the system: those above everything that lives between
    /// steps.
    ///
    /// # Panics
    /// Where something stands there that stays from step to step.
    pub fn give_back(&mut self, from: Bytes) {
        let plan = self.plan.plan();
        let stays = plan.persistent.iter().any(|(_, slot)| from < slot.end());
        assert!(!stays, "only what holds nothing between steps is given back");
        assert!(self.in_flight.is_empty(), "what was in flight has ended");
        // Rows that wait on the device go with its memory.
        self.staged = None;
        self.device.give_back(from);
    }

    /// Gives back what no step needs any more when training is over: all pages that hold nothing between
    /// steps. Where an error left a step in flight, they stay.
    pub fn give_back_transient(&mut self) {
        if !self.in_flight.is_empty() {
            return;
        }
        self.staged = None;
        let plan = self.plan.plan();
        let mut slots: Vec<Slot> = plan.persistent.iter().chain(&plan.kept).map(|(_, slot)| *slot).collect();
        slots.sort_by_key(|slot| slot.offset);
        let mut free = Bytes::ZERO;
        let end = Slot { offset: plan.bytes_peak, bytes: Bytes::ZERO };
        for slot in slots.into_iter().chain([end]) {
            if free < slot.offset {
                self.device.give_back_slot(Slot { offset: free, bytes: slot.offset - free });
            }
            free = free.max(slot.end());
        }
    }

    /// Gives the pages of a persistent tensor back, whose values are lost: no step can follow.
    pub fn give_back_tensor(&mut self, tensor: TensorId) {
        let slot = self.slot(tensor);
        self.device.give_back_slot(slot);
    }

    /// Takes them again for the next step.
    pub fn take_again(&mut self) -> Result<(), DeviceError> {
        self.device.take_again()
    }

    /// The same device for another runner, whose arena stands beside this one.
    pub fn backend_beside(&self) -> Box<dyn Backend> {
        self.device.backend_beside()
    }

    /// Gives the arena back; what was planned and what was measured remain.
    pub fn finish(self) -> (CheckedPlan, Trace) {
        (self.plan, self.trace)
    }

    /// A persistent or kept tensor, for reading.
    pub fn floats(&self, tensor: TensorId) -> &[f32] {
        self.device.floats(self.slot(tensor))
    }

    /// A persistent tensor, for writing before the first step.
    pub fn floats_mut(&mut self, tensor: TensorId) -> &mut [f32] {
        let slot = self.slot(tensor);
        self.device.floats_mut(slot)
    }

    /// The bytes of a persistent or kept tensor, for writing them to a file.
    pub fn bytes(&self, tensor: TensorId) -> &[u8] {
        self.device.bytes(self.slot(tensor))
    }

    /// The bytes of a persistent tensor, for reading them from a file before the first step.
    pub fn bytes_mut(&mut self, tensor: TensorId) -> &mut [u8] {
        let slot = self.slot(tensor);
        self.device.bytes_mut(slot)
    }

    /// Copies one persistent tensor over another of its size.
    pub fn copy(&mut self, from: TensorId, to: TensorId) {
        let (from, to) = (self.slot(from), self.slot(to));
        self.device.copy(from, to);
    }

    fn slot(&self, tensor: TensorId) -> Slot {
        let plan = self.plan.plan();
        let mut known = plan.persistent.iter().chain(&plan.kept);
        known
            .find(|(id, _)| *id == tensor)
            .map(|(_, slot)| *slot)
            .expect("only persistent and kept tensors are read")
    }

    /// One training step.
    pub fn step(&mut self, input: StepInput, feed: &mut dyn Feed) -> Result<StepRecord, RunError> {
        self.begin(input, feed)?;
        self.end(feed)
    }

    /// How many steps may be in flight when another begins. A loss scale follows from the step before, and
    /// after a bad step that was guarded nothing may change.
    pub fn steps_ahead(&self) -> usize {
        if self.loss_scale.is_some() || self.guard.is_some() { 0 } else { self.steps_ahead }
    }

    /// The number of steps in flight.
    pub fn steps_in_flight(&self) -> usize {
        self.in_flight.len()
    }

    /// How often weights were updated when all steps in flight are over: what schedules and optimizers count.
    pub fn updates(&self) -> u64 {
        self.trace.updates() + self.in_flight.len() as u64
    }

    /// Begins a step: on a device that works on its own it is launched, elsewhere it is done when this returns.
    ///
    /// # Panics
    /// Where more than [`Runner::steps_ahead`] have not ended.
    pub fn begin(&mut self, input: StepInput, feed: &mut dyn Feed) -> Result<(), RunError> {
        assert!(self.in_flight.len() <= self.steps_ahead(), "no more steps are in flight than may be");
        let start = Instant::now();
        let turn = self.in_flight.back().map_or(0, |before| before.turn + 1) % (self.steps_ahead + 1);
        let loss_scale = self.loss_scale.as_ref().map(|scale| scale.scale);
        let iteration = input.step - self.trace.steps_skipped;
        let in_flight = InFlight { input, iteration, loss_scale, start, turn };
        self.loop_of(in_flight, feed).run()?;
        self.in_flight.push_back(in_flight);
        Ok(())
    }

    /// Ends the oldest step in flight: waits for its readback. The feed is one of its batch, whose rows are
    /// wanted again where its loss is not finite; later steps in flight have changed nothing then, and are
    /// discarded.
    ///
    /// # Panics
    /// Where no step is in flight.
    pub fn end(&mut self, feed: &mut dyn Feed) -> Result<StepRecord, RunError> {
        let in_flight = self.in_flight.pop_front().expect("a step begins before it ends");
        let InFlight { input, loss_scale, start, .. } = in_flight;
        let ended = self.look_at(in_flight, feed);
        if ended.is_err() {
            self.in_flight.clear();
            self.forget_next();
        }
        let (Means { loss, values: metrics, .. }, skipped_by) = ended?;
        let now = Instant::now();
        // A step that was launched while another ran counts from the end of that one.
        let since = self.ended.map_or(start, |before| before.max(start));
        self.ended = Some(now);
        let record = StepRecord {
            step: input.step,
            rows: input.rows,
            loss,
            metrics,
            loss_scale,
            skipped_by,
            seconds: now.duration_since(since).as_secs_f64(),
            bytes_used: self.device.bytes_used(),
            bytes_held: self.device.bytes_held(),
        };
        self.trace.add(&record, self.device.bytes_peak());
        self.steps_here += 1;
        Ok(record)
    }

    /// What a step gave, and the layer for which it was skipped.
    fn look_at(
        &mut self,
        in_flight: InFlight,
        feed: &mut dyn Feed,
    ) -> Result<(Means, Option<String>), RunError> {
        let InFlight { input, turn, .. } = in_flight;
        if self.steps_ahead != 0 {
            let readback = |tensor: TensorId| self.readback.floats(&*self.device, turn, tensor)[0];
            if !self.totals.losses().all(|tensor| readback(tensor).is_finite()) {
                let found = self.loop_of(in_flight, feed).find_culprits()?;
                return Err(RunError::NotFinite(Box::new(found)));
            }
            feed.piece_done(input.rows, input.rows);
        }
        assert_eq!(
            self.device.bytes_peak(),
            self.plan.plan().bytes_peak,
            "the peak that was measured is the one that was planned"
        );
        self.check_flat(input.step)?;
        self.check_guard(in_flight, feed)?;
        let means = self.statistics(input.rows, turn);
        Ok((means, self.settle_scale(input.step, turn)?))
    }

    /// Where a step would have written what is not finite, says why it wrote nothing.
    fn check_guard(&mut self, in_flight: InFlight, feed: &mut dyn Feed) -> Result<(), RunError> {
        let Some(Guard { found_inf }) = self.guard else { return Ok(()) };
        let number = self.readback.floats(&*self.device, in_flight.turn, found_inf)[0];
        // A gradient that overflows its scale only skips the step.
        let is_scale = self.loss_scale.as_ref().is_some_and(|scale| scale.concerns(number));
        if number == 0.0 || is_scale {
            return Ok(());
        }
        let tensor = Guard::looked_at(&self.plan.problem().graph, number).expect("every number is a check's");
        let found = self.loop_of(in_flight, feed).caused_by(tensor, vec![])?;
        Err(RunError::NotFinite(Box::new(found)))
    }

    /// A step's loop over the plan.
    fn loop_of<'a>(
        &'a mut self,
        InFlight { input, iteration, loss_scale, turn, .. }: InFlight,
        feed: &'a mut dyn Feed,
    ) -> Loop<'a> {
        let Runner { plan, device, steps_ahead, heap, readback, launched, staged, in_flight, .. } = self;
        let (scaled, resets) = (loss_scale.unwrap_or(1.0), in_flight.is_empty());
        device.enter();
        Loop {
            plan,
            device: &mut **device,
            runs_ahead: *steps_ahead != 0,
            feed,
            input,
            iteration,
            scaled,
            heap,
            readback,
            turn,
            resets,
            launched,
            staged,
            kept: Vec::new(),
        }
    }

    /// Takes a batch that was promised as the next to be another one after all.
    pub fn forget_next(&mut self) {
        self.staged = None;
    }

    /// Adapts the loss scale; names the layer for whose gradient the step was skipped.
    fn settle_scale(&mut self, step: u64, turn: usize) -> Result<Option<String>, RunError> {
        let readback = |tensor: TensorId| self.readback.floats(&*self.device, turn, tensor)[0];
        let Some(found_inf) = self.loss_scale.as_ref().map(|scale| readback(scale.found_inf())) else {
            return Ok(None);
        };
        let scale = self.loss_scale.as_mut().expect("there is a found_inf on it");
        let Some(gradient) = scale.settle(found_inf) else { return Ok(None) };
        let graph = &self.plan.problem().graph;
        let known = &graph.tensors[gradient.0];
        let layer = graph.layers[known.layer.0].clone();
        if scale.scale < 1.0 {
            let (tensor, culprit) = (known.name.clone(), Culprit::Gradient);
            let (found, row_of_data, changed) = (Found::Gradients, None, vec![]);
            let error = NotFinite { step, layer, tensor, culprit, found, row_of_data, changed };
            return Err(RunError::NotFinite(Box::new(error)));
        }
        Ok(Some(layer))
    }

    fn statistics(&mut self, rows: usize, turn: usize) -> Means {
        let sums = |tensor: TensorId| self.readback.floats(&*self.device, turn, tensor);
        // All penalties on weights add to one sum, and all on values to another.
        let nodes = &self.plan.problem().graph.nodes;
        let weights = nodes.iter().find(|node| matches!(node.op, Op::Penalty(_)));
        let values = nodes.iter().find(|node| matches!(node.op, Op::ActivityPenalty(_)));
        let penalties =
            weights.into_iter().chain(values).map(|node| f64::from(sums(node.updates[0])[0])).sum();
        self.totals.add(rows, penalties, sums)
    }

    /// Resets the sums of loss and metrics.
    pub fn begin_epoch(&mut self) {
        self.totals.clear();
    }

    /// Loss and metrics over all steps since the epoch began.
    pub fn epoch(&self) -> Means {
        self.totals.means()
    }

    /// Step N+1 holds what step N held. Only a program that counts its heap can check this; in others all
    /// counts are 0.
    fn check_flat(&mut self, step: u64) -> Result<(), RunError> {
        let live = heap::live();
        // The first steps fill caches that stay: formatted lines, the pool's queues.
        if self.steps_here <= 1 {
            self.heap = HeapMark { live, ..HeapMark::default() };
            return Ok(());
        }
        let bytes = live.saturating_sub(self.heap.live);
        if bytes <= HEAP_NOISE {
            return Ok(());
        }
        let half = i64::try_from(bytes / 2).unwrap_or(i64::MAX);
        let owner = if half < self.heap.by_feeds {
            "the input pipeline"
        } else if half < self.heap.by_kernels {
            "the kernels"
        } else {
            "what runs between the steps"
        };
        Err(RunError::Grew { step, bytes, owner })
    }
}
