//! Signals that end training after the step that runs: the first asks for it, a second ends the process at once.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use memfit::{Event, Observer};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1, SIGXCPU};
use signal_hook::flag;

/// What a terminal, a shell, a batch system or a time limit sends to a job that is to end. Slurm sends SIGUSR1 where it is asked to
/// (`--signal=USR1@60`).
const ENDING: [(i32, &str); 5] = [
    (SIGINT, "SIGINT"),
    (SIGTERM, "SIGTERM"),
    (SIGHUP, "SIGHUP"),
    (SIGXCPU, "SIGXCPU"),
    (SIGUSR1, "SIGUSR1"),
];

/// The signal that was received, where one was.
#[derive(Clone, Default)]
pub struct Signals {
    received: Arc<AtomicUsize>,
}

impl Signals {
    /// From now on signals are noted instead of ending the process.
    pub fn catch() -> io::Result<Signals> {
        let signals = Signals::default();
        let second = Arc::new(AtomicBool::new(false));
        for (signal, _) in ENDING {
            // Handlers run in this order, so that the first signal finds the flag down.
            flag::register_conditional_shutdown(signal, 128 + signal, Arc::clone(&second))?;
            flag::register(signal, Arc::clone(&second))?;
            flag::register_usize(signal, Arc::clone(&signals.received), signal as usize)?;
        }
        Ok(signals)
    }

    /// The signal's number and name, where one was received.
    pub fn received(&self) -> Option<(u8, &'static str)> {
        let received = self.received.load(Ordering::Relaxed);
        let known = ENDING.iter().find(|(signal, _)| *signal as usize == received);
        known.map(|(signal, name)| (*signal as u8, *name))
    }
}

/// An observer that also asks to stop where a signal was received. Signals are caught from the moment at which there is something to
/// lose: when the plan is made.
pub struct Stoppable<'a> {
    pub inner: &'a mut dyn Observer,
    pub signals: Option<Signals>,
}

impl<'a> Stoppable<'a> {
    /// Nothing is caught yet.
    pub fn new(inner: &'a mut dyn Observer) -> Stoppable<'a> {
        Stoppable { inner, signals: None }
    }

    /// The signal that was received, where one was.
    pub fn received(&self) -> Option<(u8, &'static str)> {
        self.signals.as_ref().and_then(Signals::received)
    }
}

impl Observer for Stoppable<'_> {
    fn event(&mut self, event: Event<'_>) {
        if let Event::Planned(_) = event {
            // Where the system lets no handler in, a signal ends the process, as it does without one.
            self.signals = Signals::catch().ok();
        }
        self.inner.event(event);
    }

    fn stop_requested(&mut self) -> bool {
        self.received().is_some() || self.inner.stop_requested()
    }
}
