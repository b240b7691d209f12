//! The driver of steps: begins them ahead of a device that works on its own, and ends them in order.
//! Training, evaluation, prediction, sessions and Python all run their steps through it.

use std::collections::VecDeque;

/// What can begin and end steps, each over a batch of its own.
pub trait Steps {
    /// The rows of one step.
    type Batch;
    /// Why a step could not begin or end.
    type Error;

    /// Begins a step.
    fn begin(&mut self, batch: &Self::Batch) -> Result<(), Self::Error>;

    /// Ends the oldest step in flight, and takes its results.
    fn end(&mut self, batch: Self::Batch) -> Result<(), Self::Error>;
}

/// The batches of the steps in flight, the oldest first.
#[derive(Debug)]
pub struct Driver<B> {
    in_flight: VecDeque<B>,
}

impl<B> Default for Driver<B> {
    fn default() -> Driver<B> {
        Driver { in_flight: VecDeque::new() }
    }
}

impl<B> Driver<B> {
    /// Begins a step, and ends those that are more than `ahead` steps before the newest. Where it cannot
    /// begin, all steps in flight end first: their results count.
    pub fn step<S: Steps<Batch = B>>(
        &mut self,
        steps: &mut S,
        batch: B,
        ahead: usize,
    ) -> Result<(), S::Error> {
        let result = steps.begin(&batch);
        if result.is_err() {
            self.finish(steps)?;
            return result;
        }
        self.in_flight.push_back(batch);
        self.end_all_but(steps, ahead)
    }

    /// Ends every step in flight.
    pub fn finish<S: Steps<Batch = B>>(&mut self, steps: &mut S) -> Result<(), S::Error> {
        self.end_all_but(steps, 0)
    }

    /// The steps in flight.
    pub fn steps_in_flight(&self) -> usize {
        self.in_flight.len()
    }

    fn end_all_but<S: Steps<Batch = B>>(&mut self, steps: &mut S, ahead: usize) -> Result<(), S::Error> {
        while ahead < self.in_flight.len()
            && let Some(oldest) = self.in_flight.pop_front()
        {
            // A step that fails discards the steps that began after it: they have changed nothing.
            steps.end(oldest).inspect_err(|_| self.in_flight.clear())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Notes every call. A batch of 13 cannot begin, one of 17 cannot end.
    #[derive(Default)]
    struct Noted(Vec<String>);

    impl Steps for Noted {
        type Batch = u32;
        type Error = u32;

        fn begin(&mut self, batch: &u32) -> Result<(), u32> {
            self.0.push(format!("begin {batch}"));
            if *batch == 13 { Err(13) } else { Ok(()) }
        }

        fn end(&mut self, batch: u32) -> Result<(), u32> {
            self.0.push(format!("end {batch}"));
            if batch == 17 { Err(17) } else { Ok(()) }
        }
    }

    #[track_caller]
    fn check(batches: &[u32], ahead: usize, wanted: &[&str], result: Result<(), u32>) {
        let (mut noted, mut driver) = (Noted::default(), Driver::default());
        let ran = batches.iter().try_for_each(|batch| driver.step(&mut noted, *batch, ahead));
        let ran = ran.and_then(|()| driver.finish(&mut noted));
        assert_eq!((noted.0.iter().map(String::as_str).collect::<Vec<_>>(), ran), (wanted.to_vec(), result));
        assert_eq!(driver.steps_in_flight(), 0);
    }

    #[test]
    fn steps_end_in_order_and_as_late_as_the_device_allows() {
        check(&[1, 2], 0, &["begin 1", "end 1", "begin 2", "end 2"], Ok(()));
        check(&[1, 2, 3], 1, &["begin 1", "begin 2", "end 1", "begin 3", "end 2", "end 3"], Ok(()));
    }

    #[test]
    fn what_cannot_begin_lets_earlier_steps_end_first() {
        check(&[1, 13, 2], 1, &["begin 1", "begin 13", "end 1"], Err(13));
    }

    #[test]
    fn what_cannot_end_forgets_later_steps() {
        check(&[17, 2, 3], 1, &["begin 17", "begin 2", "end 17"], Err(17));
    }
}
