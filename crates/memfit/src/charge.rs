//! What is charged to the budget: the one answer for `plan`, `train`, the smallest budget and the refusal.

use memfit_device::heap::{self, Taken};
use memfit_ir::{Bytes, Plan, Problem};
use memfit_plan::Gauge;

use crate::Costs;
use crate::budget::Runtime;

/// What a process is charged for while it holds plans of one problem.
pub(crate) struct Charge {
    /// Without any plan.
    runtime: Runtime,
    /// Heap of the copy of the problem that a checked plan keeps.
    heap_problem: u64,
    /// Heap of another plan that is held too: the validation's beside the training's, or the reverse.
    pub(crate) heap_beside: u64,
}

/// The plan that is charged the least.
pub(crate) struct Lowest {
    pub(crate) plan: Plan,
    /// Its heap.
    pub(crate) heap: u64,
    /// What it is charged.
    pub(crate) needs: Bytes,
    /// Heap that was held at the most to find it.
    pub(crate) heap_planning: u64,
}

impl Charge {
    pub(crate) fn new(runtime: Runtime, problem: &Problem) -> Charge {
        let heap_problem = if runtime.is_counted() { heap_of(problem) } else { 0 };
        Charge { runtime, heap_problem, heap_beside: 0 }
    }

    /// Has something else held in place of the file that is written at the end.
    pub(crate) fn set_file(&mut self, name: &'static str, bytes: Bytes) {
        self.runtime.set_file(name, bytes);
    }

    /// What a plan holds of the heap, checked as one that runs.
    pub(crate) fn heap(&self, problem: &Problem, plan: &Plan) -> u64 {
        if !self.runtime.is_counted() {
            return 0;
        }
        let is_rewritten = !plan.rewrites.is_empty();
        let of_problem =
            if is_rewritten { heap_of(&*memfit_plan::solved(problem, plan)) } else { self.heap_problem };
        of_problem + heap_of(plan)
    }

    /// What the process holds besides the arena with a plan of this heap.
    pub(crate) fn runtime(&self, heap: u64) -> Runtime {
        self.runtime.with_heap(heap + self.heap_beside)
    }

    /// **What is charged to the budget** for a plan with this peak and this heap.
    pub(crate) fn of(&self, problem: &Problem, peak: Bytes, heap: u64) -> Bytes {
        self.of_beside(problem, peak, heap, self.heap_beside)
    }

    /// The same beside another plan of this heap.
    pub(crate) fn of_beside(&self, problem: &Problem, peak: Bytes, heap: u64, beside: u64) -> Bytes {
        problem.budget.arena_for(peak) + self.runtime.with_heap(heap + beside).total()
    }

    /// The same for a plan whose heap is not known yet.
    pub(crate) fn of_plan(&self, problem: &Problem, plan: &Plan) -> Bytes {
        self.of(problem, plan.bytes_peak, self.heap(problem, plan))
    }

    /// The plan that is charged the least. It is found by estimates alone, and whatever the budget, so that
    /// neither a clock nor a budget decides what is the smallest.
    pub(crate) fn lowest(&self, problem: &mut Problem) -> Lowest {
        let gauge = Gauge { most: |work| heap::measured(work).1.most, here: heap::here };
        let (plan, heap_planning) = memfit_plan::smallest_measured(problem, &gauge);
        let heap = self.heap(problem, &plan);
        let needs = self.of(problem, plan.bytes_peak, heap);
        // A plan of the whole batch may have a higher peak and so much less heap that it is charged less.
        let budget = problem.budget;
        problem.budget.total = needs;
        problem.budget.runtime = self.runtime(0).total();
        let whole = memfit_plan::unsplit(problem, &|plan| self.of_plan(problem, plan) < needs);
        problem.budget = budget;
        match whole {
            Some(plan) => {
                let heap = self.heap(problem, &plan);
                Lowest { needs: self.of(problem, plan.bytes_peak, heap), heap, plan, heap_planning }
            }
            None => Lowest { plan, heap, needs, heap_planning },
        }
    }

    /// What planning itself is charged, where this much heap was held before it, this much at the most until then, and this much more
    /// to find the smallest plan. Looking for the fastest takes more than looking for the smallest, and more yet by what was measured;
    /// a plan is checked on copies.
    pub(crate) fn planning(
        &self,
        problem: &Problem,
        held: u64,
        before: Taken,
        lowest: &Lowest,
        costs: Costs,
    ) -> Bytes {
        let more = (lowest.heap_planning / 4).min(32 << 20);
        let looking = match costs {
            Costs::Analytic => lowest.heap_planning + more + (512 << 10),
            Costs::Measured => lowest.heap_planning + more * 2 + (512 << 10),
        };
        let most = before.most.max(held + looking.max(lowest.heap * 3));
        self.runtime.planning(most, memfit_plan::threads(problem))
    }
}

/// What a value holds of the heap, as its copy does.
fn heap_of<T: Clone>(value: &T) -> u64 {
    let (copy, taken) = heap::measured(|| value.clone());
    drop(copy);
    taken.left
}
