//! What a program of our own sets when it starts: limits of the system become answers instead of deaths.

use memfit_ir::Bytes;

/// Lets a write beyond the file-size limit (`ulimit -f`) fail, instead of ending the process by SIGXFSZ.
pub fn let_writes_fail() {
    #[cfg(unix)]
    // SAFETY: to ignore a signal installs no handler, and no other thread runs yet.
    unsafe {
        libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
    }
}

/// The limit of the first thread's stack (`ulimit -s`); none where there is no limit.
pub fn stack_limit() -> Option<Bytes> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the call fills the structure.
    let failed = unsafe { libc::getrlimit(libc::RLIMIT_STACK, &mut limit) } != 0;
    #[allow(clippy::unnecessary_cast, reason = "some systems count in signed numbers")]
    (!failed && limit.rlim_cur != libc::RLIM_INFINITY).then_some(Bytes(limit.rlim_cur as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stack_limit_is_at_least_what_this_test_runs_on() {
        assert!(stack_limit().is_none_or(|limit| Bytes(4096) <= limit));
    }
}
