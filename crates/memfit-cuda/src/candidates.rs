//! Algorithms of a library for one operation, with their workspace and time. The fastest that fits is chosen:
//! by its measured time, or else in the library's own order.

use std::cmp::Ordering;

use super::driver::{CudaError, Event, Stream};
use super::times::Times;

/// Runs of each algorithm when they are timed; the fastest counts.
const RUNS: usize = 3;

/// An algorithm that takes this many times as long as the fastest so far is not run again.
const HOPELESS: f32 = 2.0;

/// One algorithm.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Candidate<T> {
    pub(crate) algorithm: T,
    pub(crate) workspace: usize,
    milliseconds: Option<f32>,
}

/// All algorithms that a library offers, the one with the best predicted time first.
pub(crate) struct Candidates<T> {
    all: Vec<Candidate<T>>,
    is_timed: bool,
}

impl<T: Copy> Candidates<T> {
    pub(crate) fn new(algorithms: Vec<(T, usize)>) -> Candidates<T> {
        let known = |(algorithm, workspace)| Candidate { algorithm, workspace, milliseconds: None };
        Candidates { all: algorithms.into_iter().map(known).collect(), is_timed: false }
    }

    /// The fastest that takes no more than this; where none does, the one that takes least.
    pub(crate) fn best(&self, limit: usize) -> Option<&Candidate<T>> {
        let fits = self.all.iter().filter(|one| one.workspace <= limit);
        let time = |one: &Candidate<T>| one.milliseconds.unwrap_or(f32::INFINITY);
        // The first of equals: in the library's order where nothing was timed.
        fits.min_by(|a, b| time(a).partial_cmp(&time(b)).unwrap_or(Ordering::Equal))
            .or_else(|| self.all.iter().min_by_key(|one| one.workspace))
    }

    /// Workspaces within a limit that make a difference, with the milliseconds of the best algorithm within
    /// each: the least first, each larger one faster. None where nothing was timed, or where every algorithm
    /// needs more.
    pub(crate) fn offered(&self, limit: usize) -> Option<Vec<(usize, f32)>> {
        let timed = self.all.iter().filter(|one| one.workspace <= limit);
        let mut timed: Vec<(usize, f32)> =
            timed.filter_map(|one| Some((one.workspace, one.milliseconds?))).collect();
        timed.sort_by(|a, b| a.0.cmp(&b.0).then(a.1.total_cmp(&b.1)));
        let mut offered: Vec<(usize, f32)> = Vec::new();
        for one in timed {
            if offered.last().is_none_or(|(_, fastest)| one.1 < *fastest) {
                offered.push(one);
            }
        }
        (!offered.is_empty()).then_some(offered)
    }

    /// Adds to the times of some algorithms the time of the passes that they leave to other kernels.
    pub(crate) fn add_time(&mut self, milliseconds: impl Fn(&T) -> f32) {
        for one in &mut self.all {
            one.milliseconds = one.milliseconds.map(|time| time + milliseconds(&one.algorithm));
        }
    }

    pub(crate) fn is_timed(&self) -> bool {
        self.is_timed
    }

    /// Times every algorithm that takes no more workspace than this, unless its time is remembered under a
    /// key. An algorithm that fails is never chosen.
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

    #[cfg(test)]
    fn timed(algorithms: &[(T, usize, f32)]) -> Candidates<T> {
        let mut made = Candidates::new(
            algorithms.iter().map(|(algorithm, workspace, _)| (*algorithm, *workspace)).collect(),
        );
        for (one, (_, _, time)) in made.all.iter_mut().zip(algorithms) {
            one.milliseconds = Some(*time);
        }
        made
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
            if run(one.algorithm, one.workspace).is_err() {
                one.workspace = usize::MAX;
                times.push(f32::INFINITY);
                continue;
            }
            let mut best = f32::INFINITY;
            for _ in 0..RUNS {
                start.record(stream)?;
                run(one.algorithm, one.workspace)?;
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

/// What several calls that share one workspace take together: workspaces that make a difference, the least
/// with which all of them can run first, each larger one faster.
pub(crate) fn together(calls: &[Vec<(usize, f32)>]) -> Vec<(usize, f32)> {
    let least = calls.iter().filter_map(|call| Some(call.first()?.0)).max().unwrap_or(0);
    let mut sizes: Vec<usize> =
        calls.iter().flatten().map(|(workspace, _)| (*workspace).max(least)).collect();
    sizes.sort_unstable();
    sizes.dedup();
    let within = |call: &Vec<(usize, f32)>, limit: usize| {
        call.iter().rfind(|(workspace, _)| *workspace <= limit).map_or(0.0, |(_, time)| *time)
    };
    let mut found: Vec<(usize, f32)> = Vec::new();
    for size in sizes {
        let time = calls.iter().map(|call| within(call, size)).sum();
        if found.last().is_none_or(|(_, fastest)| time < *fastest) {
            found.push((size, time));
        }
    }
    found
}

/// The fastest, the one with the least workspace, and between them at most `between` that each need half the
/// workspace of the one before or less: the fastest first.
pub(crate) fn few(offered: &[(usize, f32)], between: usize) -> Vec<(usize, f32)> {
    let [least, larger @ ..] = offered else { return Vec::new() };
    let Some((fastest, rest)) = larger.split_last() else { return vec![*least] };
    let mut few = vec![*fastest];
    for one in rest.iter().rev() {
        if few.len() <= between && few.last().is_some_and(|last| one.0 <= last.0 / 2) {
            few.push(*one);
        }
    }
    few.push(*least);
    few
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_larger_and_no_faster_is_not_offered() {
        let all = Candidates::timed(&[
            ('a', 64, 1.0),
            ('b', 0, 4.0),
            ('c', 32, 2.0),
            ('d', 48, 2.5),
            ('e', 99, 0.5),
        ]);
        assert_eq!(all.offered(64), Some(vec![(0, 4.0), (32, 2.0), (64, 1.0)]));
        // What is offered at a size is what runs in it.
        for (size, _) in all.offered(64).unwrap_or_default() {
            assert_eq!(all.best(size).map(|one| one.workspace), Some(size));
        }
        assert_eq!(Candidates::new(vec![('a', 0)]).offered(64), None, "nothing was timed");
    }

    #[test]
    fn calls_of_one_node_share_its_workspace() {
        let calls = [vec![(0, 4.0), (32, 2.0)], vec![(16, 3.0), (48, 1.0)]];
        assert_eq!(together(&calls), [(16, 7.0), (32, 5.0), (48, 3.0)]);
        assert_eq!(together(&[]), []);
    }

    #[test]
    fn a_handful_is_offered() {
        let offered: Vec<(usize, f32)> = (0..8).map(|i| (i * 10, 9.0 - i as f32)).collect();
        assert_eq!(few(&offered, 2).iter().map(|one| one.0).collect::<Vec<_>>(), [70, 30, 10, 0]);
        assert_eq!(few(&offered[..1], 2).len(), 1);
        assert_eq!(few(&offered[..2], 2).iter().map(|one| one.0).collect::<Vec<_>>(), [10, 0]);
    }
}
