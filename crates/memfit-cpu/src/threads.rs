//! One pool of worker threads, and how its tasks share a buffer without sharing a byte.

use std::marker::PhantomData;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::lanes::Level;
use super::thread_pool::ThreadPool;

/// How kernels run: on how many threads, with which vector instructions.
pub struct Threads {
    /// None runs everything on the calling thread.
    pool: Option<ThreadPool>,
    /// For every thread, the next of its own tasks. All of them are used by one `for_each` at a time.
    next: Vec<Next>,
    count: usize,
    level: Level,
}

/// More threads than any machine has processors for.
const MOST: usize = 4096;

impl Threads {
    /// Starts `count` threads that use the widest vectors this machine has, or those that `MEMFIT_VECTORS`
    /// names.
    #[cfg(test)]
    pub(crate) fn new(count: usize) -> Result<Threads, String> {
        Threads::at(count, Level::chosen()?)
    }

    /// Starts `count` threads that use the vectors of one level.
    pub(crate) fn at(count: usize, level: Level) -> Result<Threads, String> {
        match count {
            0 => return Err("a pool needs at least 1 thread".to_string()),
            1..=MOST => {}
            _ => return Err(format!("a pool has at most {MOST} threads")),
        }
        // Threads that cannot be started are done without: results do not depend on how many there are.
        let (pool, count) = std::iter::successors(Some(count), |count| Some(count / 2))
            .take_while(|count| 1 < *count)
            .find_map(|count| ThreadPool::start(count).ok().map(|pool| (Some(pool), count)))
            .unwrap_or((None, 1));
        Ok(Threads { pool, next: (0..count).map(|_| Next::default()).collect(), count, level })
    }

    /// The calling thread alone, for a task that runs a kernel of its own. Nothing is started.
    pub(crate) fn alone(level: Level) -> Threads {
        Threads { pool: None, next: Vec::new(), count: 1, level }
    }

    /// How many threads there are.
    pub fn count(&self) -> usize {
        self.count
    }

    /// What the vector instructions are called that kernels use on these threads.
    pub fn vectors(&self) -> &'static str {
        self.level.name()
    }

    /// The vector instructions that kernels use on these threads.
    pub(crate) fn level(&self) -> Level {
        self.level
    }

    /// Runs `body(task, worker)` for every task below `tasks`. At any moment at most one thread runs with a
    /// given `worker`, which is below `count()`: it names the part of a workspace that the task may use.
    ///
    /// Every thread has an even share of tasks that follow each other, the same whenever there are as many:
    /// what one kernel leaves in the caches of a core, the next finds there. Who is done helps the others.
    pub fn for_each(&self, tasks: usize, body: impl Fn(usize, usize) + Sync) {
        let workers = self.count.min(tasks);
        let share = |worker: usize| worker * tasks / workers..(worker + 1) * tasks / workers;
        let work = |worker: usize| {
            for other in (worker..workers).chain(0..worker.min(workers)) {
                loop {
                    let task = self.next[other].0.fetch_add(1, Ordering::Relaxed);
                    if task >= share(other).end {
                        break;
                    }
                    body(task, worker);
                }
            }
        };
        let ready = || {
            (0..workers).for_each(|worker| self.next[worker].0.store(share(worker).start, Ordering::Relaxed))
        };
        let done = self.pool.as_ref().is_some_and(|pool| workers > 1 && pool.run(&ready, &work));
        if !done {
            (0..tasks).for_each(|task| body(task, 0));
        }
    }

    /// Runs `body(chunk, worker, values)` for every chunk of `size` values of a slice; the last one may be
    /// shorter.
    pub fn for_each_chunk_with<T: Send>(
        &self,
        values: &mut [T],
        size: usize,
        body: impl Fn(usize, usize, &mut [T]) + Sync,
    ) {
        let length = values.len();
        let values = Shared::new(values);
        self.for_each(length.div_ceil(size), |chunk, worker| {
            let range = chunk * size..length.min((chunk + 1) * size);
            // SAFETY: chunks do not overlap, and every chunk is one task.
            body(chunk, worker, unsafe { values.slice(range) });
        });
    }

    /// Runs `body(chunk, values)` for every chunk of `size` values of a slice; the last one may be shorter.
    pub fn for_each_chunk<T: Send>(
        &self,
        values: &mut [T],
        size: usize,
        body: impl Fn(usize, &mut [T]) + Sync,
    ) {
        self.for_each_chunk_with(values, size, |chunk, _, values| body(chunk, values));
    }
}

/// A counter on a cache line of its own.
#[derive(Default)]
#[repr(align(128))]
struct Next(AtomicUsize);

/// A slice that several tasks write at once, each of them its own part.
pub struct Shared<'a, T> {
    start: *mut T,
    length: usize,
    slice: PhantomData<&'a mut [T]>,
}

// SAFETY: a `Shared` is a `&mut [T]` whose parts may be handed to other threads; the methods that do so are
// unsafe and ask for disjoint parts.
unsafe impl<T: Send> Sync for Shared<'_, T> {}
// SAFETY: as above.
unsafe impl<T: Send> Send for Shared<'_, T> {}

impl<'a, T> Shared<'a, T> {
    /// Borrows a slice for as long as tasks write it.
    pub fn new(slice: &'a mut [T]) -> Self {
        Shared { start: slice.as_mut_ptr(), length: slice.len(), slice: PhantomData }
    }

    /// The part of the slice in `range`.
    ///
    /// # Safety
    /// No other part that is alive at the same time overlaps this one.
    #[expect(clippy::mut_from_ref, reason = "handing out disjoint parts is what this type is for")]
    pub unsafe fn slice(&self, range: Range<usize>) -> &mut [T] {
        assert!(range.start <= range.end && range.end <= self.length, "a part lies inside the slice");
        // SAFETY: the range is inside the slice, and the caller keeps parts disjoint.
        unsafe { std::slice::from_raw_parts_mut(self.start.add(range.start), range.end - range.start) }
    }

    /// A pointer to the first element, for kernels that write a part that is not one range.
    pub(crate) fn pointer(&self) -> *mut T {
        self.start
    }

    /// How many elements there are.
    pub(crate) fn len(&self) -> usize {
        self.length
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_task_runs_once_and_workers_stay_below_the_count() {
        for count in [1, 2, 3] {
            let threads = Threads::new(count).unwrap();
            for tasks in [0, 1, 2, 7, 1000] {
                let runs: Vec<AtomicUsize> = (0..tasks).map(|_| AtomicUsize::new(0)).collect();
                threads.for_each(tasks, |task, worker| {
                    assert!(worker < count);
                    runs[task].fetch_add(1, Ordering::Relaxed);
                });
                assert!(runs.iter().all(|runs| runs.load(Ordering::Relaxed) == 1));
            }
        }
    }

    #[test]
    fn a_worker_is_never_shared_by_two_running_tasks() {
        let threads = Threads::new(3).unwrap();
        let busy: Vec<AtomicUsize> = (0..3).map(|_| AtomicUsize::new(0)).collect();
        threads.for_each(200, |_, worker| {
            assert_eq!(busy[worker].fetch_add(1, Ordering::SeqCst), 0);
            std::thread::yield_now();
            busy[worker].fetch_sub(1, Ordering::SeqCst);
        });
    }

    #[test]
    fn a_task_that_shares_tasks_of_its_own_does_them_alone() {
        let threads = Threads::new(2).unwrap();
        let runs = AtomicUsize::new(0);
        threads.for_each(4, |_, _| {
            threads.for_each(5, |_, worker| {
                assert_eq!(worker, 0);
                runs.fetch_add(1, Ordering::Relaxed);
            });
        });
        assert_eq!(runs.load(Ordering::Relaxed), 20);
    }

    #[test]
    fn threads_that_fell_asleep_come_back() {
        let threads = Threads::new(3).unwrap();
        for pause in [0, 1, 3] {
            std::thread::sleep(std::time::Duration::from_millis(pause));
            let runs = AtomicUsize::new(0);
            threads.for_each(100, |_, _| {
                runs.fetch_add(1, Ordering::Relaxed);
            });
            assert_eq!(runs.load(Ordering::Relaxed), 100);
        }
    }

    #[test]
    fn a_panic_of_a_task_reaches_the_caller_and_the_threads_go_on() {
        let threads = Threads::new(2).unwrap();
        for broken in [0, 99] {
            let work = || threads.for_each(100, |task, _| assert_ne!(task, broken));
            assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(work)).is_err());
        }
        threads.for_each(100, |_, worker| assert!(worker < 2));
    }

    #[test]
    fn chunks_cover_a_slice() {
        let threads = Threads::new(2).unwrap();
        let mut values = vec![0; 10];
        threads.for_each_chunk(&mut values, 4, |chunk, values| values.fill(chunk));
        assert_eq!(values, [0, 0, 0, 0, 1, 1, 1, 1, 2, 2]);
    }

    #[test]
    fn no_threads_is_an_error() {
        assert!(Threads::new(0).is_err());
    }
}
