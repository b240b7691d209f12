//! One call from a problem to its plan, the smallest budget and the answer where it does not fit.

use std::time::Instant;

use memfit_device::Backend;
use memfit_device::heap::Taken;
use memfit_ir::{Bytes, CheckedPlan, Plan, Problem};
use memfit_plan::{DoesNotFit, Hint};

use crate::budget::{Runtime, Watch};
use crate::charge::{Charge, Lowest};
use crate::costs::{self, Costs, CostsUsed};
use crate::validation::bytes_beside;
use crate::{Error, Job};

/// What is asked of the planner besides the problem.
pub(crate) struct Ask<'a> {
    pub(crate) job: &'a Job,
    pub(crate) watch: &'a Watch,
    /// Heap that opening model and data took.
    pub(crate) before: Taken,
    pub(crate) setup: &'a dyn Backend,
    /// What all sources hold.
    pub(crate) input: Bytes,
    /// What writing a file takes at the end.
    pub(crate) for_file: Bytes,
    /// What moving variables to a caller takes, who may ask for them at any time.
    pub(crate) for_caller: Bytes,
}

/// The answer.
pub(crate) struct Solved {
    /// What the process holds besides the arena.
    pub(crate) runtime: Runtime,
    pub(crate) problem: Problem,
    pub(crate) outcome: Result<Chosen, Box<DoesNotFit>>,
    pub(crate) charge: Charge,
    /// The smallest budget: accepted there and above, refused below.
    pub(crate) smallest: Bytes,
    /// What is charged whatever the plan of the training: for planning, and for the validation.
    pub(crate) floor: Bytes,
    pub(crate) costs: CostsUsed,
    pub(crate) seconds_planning: f64,
}

/// Plans that may run.
pub(crate) struct Chosen {
    pub(crate) plan: CheckedPlan,
    pub(crate) validation: Option<CheckedPlan>,
}

/// Plans a problem, and the validation that runs between its epochs where there is one.
///
/// The budget is accepted if and only if it is at least the smallest one, which depends on neither the budget nor a clock.
pub(crate) fn solve(
    ask: &Ask<'_>,
    mut problem: Problem,
    validation: Option<Problem>,
) -> Result<Solved, Error> {
    let start = Instant::now();
    let (job, held) = (ask.job, ask.watch.held());
    let nodes = problem.graph.nodes.len() + validation.as_ref().map_or(0, |of| of.graph.nodes.len());
    let runtime = Runtime::of(ask.setup, ask.input, ask.for_file, nodes, ask.watch)?;
    let mut charge = Charge::new(runtime.clone(), &problem);
    let mut evaluation = validation.map(|problem| Evaluation::of(problem, runtime, ask.for_caller));
    charge.heap_beside = evaluation.as_ref().map_or(0, |evaluation| evaluation.lowest.heap);
    let lowest = charge.lowest(&mut problem);
    let needs_validation = evaluation
        .as_mut()
        .map_or(Bytes::ZERO, |evaluation| evaluation.needs_beside(&lowest.plan, lowest.heap));
    let planning = charge.planning(&problem, held, ask.before, &lowest, job.memory.costs);
    let planning = match &evaluation {
        Some(of) => {
            planning.max(of.charge.planning(&of.problem, held, ask.before, &of.lowest, Costs::Analytic))
        }
        None => planning,
    };
    let floor = planning.max(needs_validation);
    let smallest = lowest.needs.max(floor);
    let mut costs = CostsUsed::estimated();
    let outcome = if problem.budget.total < smallest {
        let only_validation = lowest.needs.max(planning) <= problem.budget.total;
        problem.budget.runtime = charge.runtime(lowest.heap).total();
        let mut answer = match evaluation.filter(|_| only_validation) {
            Some(evaluation) => evaluation.refused(&lowest.plan),
            None => Box::new(DoesNotFit::of_smallest(&problem, lowest.plan)),
        };
        answer.smallest = smallest;
        if answer.hints.is_empty() && lowest.needs.max(needs_validation) <= problem.budget.total {
            answer.hints.push(Hint::Other(format!(
                "planning alone takes {planning}: the graph is large for so low a budget"
            )));
        }
        Err(answer)
    } else {
        let plan = choose(ask, &mut problem, &charge, &lowest, evaluation.as_mut(), &mut costs);
        let heap = charge.heap(&problem, &plan);
        let planned =
            evaluation.map(|evaluation| evaluation.choose(&problem, &plan, heap, &charge)).transpose()?;
        let planned = planned.map(|(plan, heap)| {
            charge.heap_beside = heap;
            plan
        });
        problem.budget.runtime = charge.runtime(heap).total();
        Ok(Chosen { plan: checked(&problem, plan)?, validation: planned })
    };
    let heap = outcome.as_ref().map_or(lowest.heap, |chosen| charge.heap(&problem, chosen.plan.plan()));
    let seconds_planning = start.elapsed().as_secs_f64() - costs.seconds_measuring;
    Ok(Solved {
        runtime: charge.runtime(heap),
        problem,
        outcome,
        charge,
        smallest,
        floor,
        costs,
        seconds_planning,
    })
}

/// The fastest plan of a training that is charged no more than the budget; there is one, the smallest.
fn choose(
    ask: &Ask<'_>,
    problem: &mut Problem,
    charge: &Charge,
    lowest: &Lowest,
    mut evaluation: Option<&mut Evaluation>,
    costs: &mut CostsUsed,
) -> Plan {
    let (memory, total) = (&ask.job.memory, problem.budget.total);
    problem.budget.runtime = charge.runtime(0).total();
    let evaluated = std::cell::RefCell::new(evaluation.as_mut());
    let may_hold = |problem: &Problem, plan: &Plan| {
        let heap = charge.heap(problem, plan);
        let needs_validation = evaluated
            .borrow_mut()
            .as_mut()
            .map_or(Bytes::ZERO, |evaluation| evaluation.needs_beside(plan, heap));
        charge.of(problem, plan.bytes_peak, heap).max(needs_validation) <= total
    };
    if memory.first
        && let Some(plan) = memfit_plan::first(problem).filter(|plan| may_hold(problem, plan))
    {
        return plan;
    }
    // No choice depends on time where everything fits.
    if let Some(plan) = memfit_plan::unsplit(problem, &|plan| may_hold(problem, plan)) {
        return plan;
    }
    if memory.costs == Costs::Measured && !memory.first {
        let of = costs::Process { baseline: ask.job.caller.baseline, files: ask.watch.files };
        *costs = costs::measure(ask.setup, problem, of, ask.job.caller.seconds_measuring);
    }
    memfit_plan::fastest_beside(problem, &lowest.plan, &|plan| may_hold(problem, plan))
}

fn checked(problem: &Problem, plan: Plan) -> Result<CheckedPlan, Error> {
    // A copy holds no spare room.
    Ok(memfit_ir::check(problem, plan)?.clone())
}

/// The evaluation between epochs, whose arena stands where a training's values were.
struct Evaluation {
    problem: Problem,
    charge: Charge,
    lowest: Lowest,
    for_caller: Bytes,
}

/// The budget line of what stays of a training while it is validated.
const BESIDE: &str = "weights and optimizer of the training";

impl Evaluation {
    fn of(mut problem: Problem, runtime: Runtime, for_caller: Bytes) -> Evaluation {
        let charge = Charge::new(runtime, &problem);
        let lowest = charge.lowest(&mut problem);
        Evaluation { problem, charge, lowest, for_caller }
    }

    /// What its smallest plan is charged beside a training's plan of this heap.
    fn needs_beside(&mut self, training: &Plan, heap: u64) -> Bytes {
        self.charge.heap_beside = heap;
        self.charge.set_file(BESIDE, bytes_beside(training) + self.for_caller);
        self.charge.of(&self.problem, self.lowest.plan.bytes_peak, self.lowest.heap)
    }

    /// The fastest plan beside that of the training, and its heap.
    fn choose(
        mut self,
        problem: &Problem,
        training: &Plan,
        heap: u64,
        charge: &Charge,
    ) -> Result<(CheckedPlan, u64), Error> {
        let total = problem.budget.total;
        self.needs_beside(training, heap);
        self.problem.budget.runtime = self.charge.runtime(0).total();
        let may_hold = |plan: &Plan| {
            let own = self.charge.heap(&self.problem, plan);
            let beside = charge.of_beside(problem, training.bytes_peak, heap, own);
            self.charge.of(&self.problem, plan.bytes_peak, own).max(beside) <= total
        };
        let plan = memfit_plan::unsplit(&self.problem, &may_hold)
            .unwrap_or_else(|| memfit_plan::fastest_beside(&self.problem, &self.lowest.plan, &may_hold));
        let own = self.charge.heap(&self.problem, &plan);
        self.problem.budget.runtime = self.charge.runtime(own).total();
        Ok((checked(&self.problem, plan)?, own))
    }

    /// Why it does not fit beside a training.
    fn refused(mut self, training: &Plan) -> Box<DoesNotFit> {
        let beside = bytes_beside(training);
        self.problem.budget.runtime = self.charge.runtime(self.lowest.heap).total();
        let mut answer = Box::new(DoesNotFit::of_smallest(&self.problem, self.lowest.plan));
        answer.hints = vec![Hint::Other(format!(
            "this is the validation, with {beside} of weights and optimizer beside it; a smaller batch takes less, and an \
             evaluation after the training has nothing beside it"
        ))];
        answer
    }
}
