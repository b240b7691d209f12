//! Ways to compute one thing, with what they take: the fastest that fits is chosen, by its time where that was measured and by
//! the library's own order where not.

use std::cmp::Ordering;

use super::driver::{CudaError, Event, Stream};
use super::times::Times;

/// Runs of each way when they are timed; the fastest counts.
const RUNS: usize = 3;

/// What takes so many times as long as the fastest so far is not run again.
const HOPELESS: f32 = 2.0;

/// One way.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Candidate<T> {
    pub(crate) way: T,
    pub(crate) workspace: usize,
    milliseconds: Option<f32>,
}

/// All ways that a library offers, the one it believes to be fastest first.
pub(crate) struct Candidates<T> {
    all: Vec<Candidate<T>>,
    is_timed: bool,
}

impl<T: Copy> Candidates<T> {
    pub(crate) fn new(ways: Vec<(T, usize)>) -> Candidates<T> {
        let known = |(way, workspace)| Candidate { way, workspace, milliseconds: None };
        Candidates { all: ways.into_iter().map(known).collect(), is_timed: false }
    }

    /// The fastest that takes no more than this; where none does, the one that takes least.
    pub(crate) fn best(&self, limit: usize) -> Option<&Candidate<T>> {
        let fits = self.all.iter().filter(|one| one.workspace <= limit);
        let time = |one: &Candidate<T>| one.milliseconds.unwrap_or(f32::INFINITY);
        // The first of equals: in the library's order where nothing was timed.
        fits.min_by(|a, b| time(a).partial_cmp(&time(b)).unwrap_or(Ordering::Equal))
            .or_else(|| self.all.iter().min_by_key(|one| one.workspace))
    }

    /// Adds to the times of some ways what they leave to others.
    pub(crate) fn add_time(&mut self, milliseconds: impl Fn(&T) -> f32) {
        for one in &mut self.all {
            one.milliseconds = one.milliseconds.map(|time| time + milliseconds(&one.way));
        }
    }

    pub(crate) fn is_timed(&self) -> bool {
        self.is_timed
    }

    /// Times every way that takes no more workspace than this, unless its time is remembered under a key; one that fails is
    /// never chosen.
    pub(crate) fn time(
        &mut self,
        stream: &Stream,
        limit: usize,
        times: &Times,
        key: &str,
        run: impl FnMut(T, usize) -> Result<(), CudaError>,
    ) -> Result<(), CudaError> {
        self.is_timed = true;
        let fits = self.all.iter().filter(|one| one.workspace <= limit).count();
        if let Some(known) = times.get(key, fits) {
            let all = self.all.iter_mut().filter(|one| one.workspace <= limit);
            for (one, time) in all.zip(known) {
                match time.is_finite() {
                    true => one.milliseconds = Some(time),
                    false => one.workspace = usize::MAX,
                }
            }
            return Ok(());
        }
        let measured = self.measure(stream, limit, run)?;
        times.put(key, &measured);
        Ok(())
    }

    fn measure(
        &mut self,
        stream: &Stream,
        limit: usize,
        mut run: impl FnMut(T, usize) -> Result<(), CudaError>,
    ) -> Result<Vec<f32>, CudaError> {
        let (mut times, mut fastest) = (Vec::new(), f32::INFINITY);
        let (start, end) = (Event::new()?, Event::new()?);
        for one in self.all.iter_mut().filter(|one| one.workspace <= limit) {
            if run(one.way, one.workspace).is_err() {
                one.workspace = usize::MAX;
                times.push(f32::INFINITY);
                continue;
            }
            let mut best = f32::INFINITY;
            for _ in 0..RUNS {
                start.record(stream)?;
                run(one.way, one.workspace)?;
                end.record(stream)?;
                end.wait()?;
                best = best.min(end.milliseconds_since(&start)?);
                if fastest * HOPELESS < best {
                    break;
                }
            }
            fastest = fastest.min(best);
            one.milliseconds = Some(best);
            // A clock that is too coarse for the fastest still leaves a time.
            times.push(best.max(1e-6));
        }
        Ok(times)
    }
}
