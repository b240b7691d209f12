//! The thread pool of `Threads`: the caller and its helpers, which spin for a moment before they sleep.

use std::cell::UnsafeCell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{self, JoinHandle, Thread};
use std::time::{Duration, Instant};

/// How long a thread that waits stays awake: about as long as the work between two kernels that share their
/// tasks. A sleeping thread takes some 0.1 ms to come back.
const AWAKE: Duration = Duration::from_micros(200);
/// How long it spins before it asks the system whether another thread needs its core.
const GREEDY: Duration = Duration::from_micros(10);

/// What every thread runs once, given its number.
type Job = dyn Fn(usize) + Sync;

/// The caller of [`ThreadPool::run`], who is number 0, and its helpers.
pub(crate) struct ThreadPool {
    shared: Arc<SharedState>,
    helpers: Vec<JoinHandle<()>>,
    /// Whether a job runs.
    busy: AtomicBool,
}

struct SharedState {
    /// Jobs handed out so far; changes when there is one to do.
    jobs: AtomicUsize,
    job: UnsafeCell<Option<Ordered>>,
    /// Helpers that are not done with the job.
    left: AtomicUsize,
    failed: AtomicBool,
    ends: AtomicBool,
    /// Whether each helper may have gone to sleep.
    asleep: Vec<AtomicBool>,
    /// How long a waiting thread stays awake: not at all where there is no core for each.
    awake: Duration,
}

// SAFETY: the job is written by the one caller that set `busy` while no helper is at work, and read by
// helpers after the change of `jobs` that announces it.
unsafe impl Sync for SharedState {}
// SAFETY: as above; what the job points to is `Sync` and outlives its being run.
unsafe impl Send for SharedState {}

/// A job and who waits for its end.
#[derive(Clone)]
struct Ordered {
    job: *const Job,
    caller: Thread,
}

impl ThreadPool {
    /// Starts the helpers of a pool of `count` threads, and waits until each has run.
    pub(crate) fn start(count: usize) -> std::io::Result<ThreadPool> {
        let cores = thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let shared = Arc::new(SharedState {
            jobs: AtomicUsize::new(0),
            job: UnsafeCell::new(None),
            left: AtomicUsize::new(0),
            failed: AtomicBool::new(false),
            ends: AtomicBool::new(false),
            asleep: (0..count).map(|_| AtomicBool::new(false)).collect(),
            awake: if count <= cores { AWAKE } else { Duration::ZERO },
        });
        let mut pool =
            ThreadPool { shared, helpers: Vec::with_capacity(count), busy: AtomicBool::new(false) };
        for number in 1..count {
            let shared = Arc::clone(&pool.shared);
            let builder = thread::Builder::new().name(format!("worker {number}"));
            pool.helpers.push(builder.spawn(move || shared.help(number))?);
        }
        // What a thread takes for itself it has taken once it has run.
        pool.run(&|| (), &|_| ());
        Ok(pool)
    }

    /// Runs `ready` here, then `job(number)` once on every thread, and returns when all are done. Where the
    /// pool is at work already it runs nothing, and returns false.
    pub(crate) fn run(&self, ready: &dyn Fn(), job: &(dyn Fn(usize) + Sync)) -> bool {
        if self.busy.swap(true, Ordering::Acquire) {
            return false;
        }
        ready();
        let shared = &*self.shared;
        // SAFETY: `job` is borrowed until this function returns, and no helper uses it after that: `wait`
        // sees them done.
        let job_unbound: *const Job =
            unsafe { std::mem::transmute::<&(dyn Fn(usize) + Sync), &'static Job>(job) };
        // SAFETY: helpers read this only after the next change of `jobs`, and all are done with the job
        // before.
        unsafe { *shared.job.get() = Some(Ordered { job: job_unbound, caller: thread::current() }) };
        shared.left.store(self.helpers.len(), Ordering::Relaxed);
        shared.jobs.fetch_add(1, Ordering::SeqCst);
        for (helper, asleep) in self.helpers.iter().zip(&shared.asleep[1..]) {
            if asleep.load(Ordering::SeqCst) {
                helper.thread().unpark();
            }
        }
        let own = catch_unwind(AssertUnwindSafe(|| job(0)));
        shared.wait(0, || shared.left.load(Ordering::SeqCst) == 0);
        // The thread that panicked has reported why.
        let failed = shared.failed.swap(false, Ordering::Relaxed);
        self.busy.store(false, Ordering::Release);
        if let Err(cause) = own {
            resume_unwind(cause);
        }
        assert!(!failed, "a task of a kernel panicked on another thread");
        true
    }
}

impl Drop for ThreadPool {
    fn drop(&mut self) {
        self.shared.ends.store(true, Ordering::SeqCst);
        self.shared.jobs.fetch_add(1, Ordering::SeqCst);
        for helper in self.helpers.drain(..) {
            helper.thread().unpark();
            // A helper catches panics of tasks; there is nothing to report.
            let _ended = helper.join();
        }
    }
}

impl SharedState {
    /// The life of a helper.
    fn help(&self, number: usize) {
        let mut seen = 0;
        loop {
            self.wait(number, || self.jobs.load(Ordering::SeqCst) != seen);
            // The caller hands out no further job before this one is done.
            seen = self.jobs.load(Ordering::SeqCst);
            if self.ends.load(Ordering::SeqCst) {
                return;
            }
            // SAFETY: the caller wrote it before it changed `jobs`, and does not again before `left` is 0.
            let Some(Ordered { job, caller }) = (unsafe { (*self.job.get()).clone() }) else { continue };
            // SAFETY: the caller keeps the job alive until `left` is 0.
            if catch_unwind(AssertUnwindSafe(|| unsafe { (*job)(number) })).is_err() {
                self.failed.store(true, Ordering::Relaxed);
            }
            if self.left.fetch_sub(1, Ordering::SeqCst) == 1 && self.asleep[0].load(Ordering::SeqCst) {
                caller.unpark();
            }
        }
    }

    /// Waits until something holds: spinning at first, then asleep until the thread that makes it hold wakes
    /// it.
    fn wait(&self, number: usize, holds: impl Fn() -> bool) {
        let start = Instant::now();
        while !holds() {
            let waited = start.elapsed();
            if waited < GREEDY.min(self.awake) {
                (0..4).for_each(|_| std::hint::spin_loop());
            } else if waited < self.awake {
                thread::yield_now();
            } else {
                self.asleep[number].store(true, Ordering::SeqCst);
                // The thread that makes it hold does so before it looks for sleepers: one of the two sees the
                // other.
                while !holds() {
                    thread::park();
                }
                self.asleep[number].store(false, Ordering::SeqCst);
            }
        }
    }
}
