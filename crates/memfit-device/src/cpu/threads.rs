//! One pool of worker threads, and how its tasks share a buffer without sharing a byte.

use std::marker::PhantomData;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};

use rayon::prelude::*;

use super::lanes::Level;

/// How kernels run: on how many threads, with which vector instructions.
pub struct Threads {
    /// None runs everything on the calling thread.
    pool: Option<rayon::ThreadPool>,
    count: usize,
    level: Level,
}

impl Threads {
    /// Starts `count` threads that use the widest vectors this machine has, or those that `MEMFIT_VECTORS` names.
    #[cfg(test)]
    pub(crate) fn new(count: usize) -> Result<Threads, String> {
        Threads::at(count, Level::chosen()?)
    }

    /// Starts `count` threads that use the vectors of one level.
    pub(crate) fn at(count: usize, level: Level) -> Result<Threads, String> {
        let pool = match count {
            0 => return Err("a pool needs at least 1 thread".to_string()),
            1 => None,
            _ => {
                let builder = rayon::ThreadPoolBuilder::new().num_threads(count);
                let pool =
                    builder.build().map_err(|error| format!("cannot start {count} threads: {error}"))?;
                // What a thread takes for itself it has taken once it has run.
                pool.broadcast(|_| ());
                Some(pool)
            }
        };
        Ok(Threads { pool, count, level })
    }

    /// The calling thread alone, for a task that runs a kernel of its own. Nothing is started.
    pub(crate) fn alone(level: Level) -> Threads {
        Threads { pool: None, count: 1, level }
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

    /// Runs `body(task, worker)` for every task below `tasks`. At any moment at most one thread runs with a given
    /// `worker`, which is below `count()`: it names the part of a workspace that the task may use.
    ///
    /// Tasks are handed out in ascending order, so neighbours in memory are touched at about the same time.
    pub fn for_each(&self, tasks: usize, body: impl Fn(usize, usize) + Sync) {
        let workers = self.count.min(tasks);
        let Some(pool) = self.pool.as_ref().filter(|_| workers > 1) else {
            return (0..tasks).for_each(|task| body(task, 0));
        };
        let next = AtomicUsize::new(0);
        let work = |worker| loop {
            let task = next.fetch_add(1, Ordering::Relaxed);
            if task >= tasks {
                break;
            }
            body(task, worker);
        };
        pool.install(|| (0..workers).into_par_iter().with_max_len(1).for_each(work));
    }

    /// Runs `body(chunk, worker, values)` for every chunk of `size` values of a slice; the last one may be shorter.
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

    /// Runs a closure on a thread of the pool, from where `for_each` costs less.
    pub fn install<R: Send>(&self, body: impl FnOnce() -> R + Send) -> R {
        match &self.pool {
            Some(pool) => pool.install(body),
            None => body(),
        }
    }
}

/// A slice that several tasks write at once, each of them its own part.
pub struct Shared<'a, T> {
    start: *mut T,
    length: usize,
    slice: PhantomData<&'a mut [T]>,
}

// SAFETY: a `Shared` is a `&mut [T]` whose parts may be handed to other threads; the methods that do so are unsafe and
// ask for disjoint parts.
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
        threads.install(|| {
            threads.for_each(200, |_, worker| {
                assert_eq!(busy[worker].fetch_add(1, Ordering::SeqCst), 0);
                std::thread::yield_now();
                busy[worker].fetch_sub(1, Ordering::SeqCst);
            });
        });
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
