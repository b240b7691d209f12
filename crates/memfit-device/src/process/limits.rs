//! The most memory this process may hold: the least of what its control groups, its own limits and the
//! machine leave it.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use memfit_ir::Bytes;

use super::{kibibytes, resident, status};

/// How much this process may hold, and who says so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The most bytes it may hold in all, those it holds already included.
    pub available: Bytes,
    /// Whose word that is.
    pub by: LimitedBy,
}

impl Limits {
    /// What is left once all threads have started: of a limited address space their stacks, which are mapped
    /// in full and hold next to nothing, are no part.
    pub fn beside_threads(self) -> Limits {
        const STACK: Bytes = Bytes::mib(2);
        const OTHERS: u64 = 4;
        let threads = std::thread::available_parallelism().map_or(1, |count| count.get() as u64);
        match self.by {
            LimitedBy::AddressSpace => {
                Limits { available: self.available.saturating_sub(STACK * (2 * threads + OTHERS)), ..self }
            }
            LimitedBy::ControlGroup | LimitedBy::Data | LimitedBy::Machine | LimitedBy::Nothing => self,
        }
    }
}

/// Who limits a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitedBy {
    /// A control group, such as a container's.
    ControlGroup,
    /// The limit of its address space (`ulimit -v`).
    AddressSpace,
    /// The limit of its data (`ulimit -d`).
    Data,
    /// The memory that the machine has left.
    Machine,
    /// Nothing that is known.
    Nothing,
}

impl fmt::Display for LimitedBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            LimitedBy::ControlGroup => "the control group",
            LimitedBy::AddressSpace => "the limit of the address space (`ulimit -v`)",
            LimitedBy::Data => "the limit of data (`ulimit -d`)",
            LimitedBy::Machine => "the machine",
            LimitedBy::Nothing => "no known limit",
        })
    }
}

/// The least of what the control groups, this process's own limits and the machine leave it.
pub fn limits() -> Limits {
    let resident = resident();
    let all = [
        (control_groups(resident), LimitedBy::ControlGroup),
        (own_limit(libc::RLIMIT_AS as _, "VmSize:", resident), LimitedBy::AddressSpace),
        (own_limit(libc::RLIMIT_DATA as _, "VmData:", resident), LimitedBy::Data),
        (machine(resident), LimitedBy::Machine),
    ];
    let known = all.into_iter().filter_map(|(available, by)| Some(Limits { available: available?, by }));
    known
        .min_by_key(|limits| limits.available)
        .unwrap_or(Limits { available: Bytes(u64::MAX), by: LimitedBy::Nothing })
}

/// Whether `ulimit -v` says how much this process may map.
pub(super) fn address_space_is_limited() -> bool {
    own_limit(libc::RLIMIT_AS as _, "VmSize:", Bytes::ZERO).is_some()
}

/// What the machine has left, with what this process holds already.
fn machine(resident: Bytes) -> Option<Bytes> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    Some(kibibytes(&text, "MemAvailable:")? + resident)
}

/// What a limit on mappings leaves: all of it, less what is mapped but holds no memory.
fn own_limit(resource: libc::c_int, mapped: &str, resident: Bytes) -> Option<Bytes> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the call fills the structure.
    let failed = unsafe { libc::getrlimit(resource as _, &mut limit) } != 0;
    if failed || limit.rlim_cur == libc::RLIM_INFINITY {
        return None;
    }
    #[allow(clippy::unnecessary_cast, reason = "some systems count in signed numbers")]
    let limit = Bytes(limit.rlim_cur as u64);
    let idle = status(mapped).unwrap_or(resident).saturating_sub(resident);
    Some(limit.saturating_sub(idle))
}

/// The least that a control group of this process, or one above it, leaves it.
fn control_groups(resident: Bytes) -> Option<Bytes> {
    let text = fs::read_to_string("/proc/self/cgroup").ok()?;
    let folders =
        text.lines().flat_map(|line| Hierarchy::parse(line).map(|h| h.folders()).unwrap_or_default());
    folders.filter_map(|(version, folder)| version.leaves(&folder, resident)).min()
}

/// The two kinds of control groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Version {
    One,
    Two,
}

impl Version {
    /// The memory that a group leaves this process: its limit, less what others in it use. Cached files that
    /// are not in use are not counted, since the system drops them when memory is needed.
    fn leaves(self, folder: &Path, resident: Bytes) -> Option<Bytes> {
        let (limit, used, cached) = match self {
            Version::One => ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
            Version::Two => ("memory.max", "memory.current", "inactive_file"),
        };
        let limit = number(&folder.join(limit))?;
        let statistics = fs::read_to_string(folder.join("memory.stat")).unwrap_or_default();
        let cached = statistic(&statistics, cached).unwrap_or(Bytes::ZERO);
        let used = number(&folder.join(used)).unwrap_or(Bytes::ZERO).saturating_sub(cached);
        Some(limit.saturating_sub(used.saturating_sub(resident)))
    }
}

/// A group of this process: where its hierarchy is mounted, and its path there.
#[derive(Debug, PartialEq)]
struct Hierarchy<'a> {
    version: Version,
    path: &'a str,
}

impl Hierarchy<'_> {
    /// Reads a line of `/proc/self/cgroup`, `number:controllers:path`, where it is about memory.
    fn parse(line: &str) -> Option<Hierarchy<'_>> {
        let mut parts = line.splitn(3, ':');
        let (_, controllers, path) = (parts.next()?, parts.next()?, parts.next()?);
        match controllers {
            "" => Some(Hierarchy { version: Version::Two, path }),
            _ if controllers.split(',').any(|name| name == "memory") => {
                Some(Hierarchy { version: Version::One, path })
            }
            _ => None,
        }
    }

    /// The group's folder and those above it. Inside a container the path may be that of the machine outside,
    /// whose folders are not there; the container's own group is then the root.
    fn folders(&self) -> Vec<(Version, PathBuf)> {
        let mounts: &[&str] = match self.version {
            Version::One => &["/sys/fs/cgroup/memory"],
            Version::Two => &["/sys/fs/cgroup", "/sys/fs/cgroup/unified"],
        };
        let relative = Path::new(self.path.trim_start_matches('/'));
        let above = |mount: &&str| {
            let mount = PathBuf::from(mount);
            relative.ancestors().map(|path| (self.version, mount.join(path))).collect::<Vec<_>>()
        };
        mounts.iter().flat_map(above).collect()
    }
}

/// A file with one number; `max` and what is not there are no limit.
fn number(path: &Path) -> Option<Bytes> {
    fs::read_to_string(path).ok()?.trim().parse().ok().map(Bytes)
}

/// The value after a name in lines such as `inactive_file 4096`.
fn statistic(text: &str, name: &str) -> Option<Bytes> {
    text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok()).map(Bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_about_memory_name_a_group() {
        for (line, expected) in [
            ("0::/user.slice", Some(Hierarchy { version: Version::Two, path: "/user.slice" })),
            ("4:memory:/a/b", Some(Hierarchy { version: Version::One, path: "/a/b" })),
            ("4:cpu,memory:/a:b", Some(Hierarchy { version: Version::One, path: "/a:b" })),
            ("3:cpuset:/", None),
            ("nonsense", None),
        ] {
            assert_eq!(Hierarchy::parse(line), expected, "{line}");
        }
    }

    #[test]
    fn a_group_is_looked_up_to_its_root() {
        let folders = Hierarchy { version: Version::One, path: "/a/b" }.folders();
        let expected = ["/sys/fs/cgroup/memory/a/b", "/sys/fs/cgroup/memory/a", "/sys/fs/cgroup/memory/"];
        assert_eq!(folders.iter().map(|(_, folder)| folder.to_str().unwrap()).collect::<Vec<_>>(), expected);
    }

    #[test]
    fn a_group_leaves_its_limit_less_what_others_use() {
        let folder = std::env::temp_dir().join(format!("memfit-group-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        for (limit, current, statistics, expected) in [
            ("1000\n", "700\n", "anon 9\ninactive_file 100\n", Some(Bytes(1000 - (700 - 100 - 50)))),
            ("1000", "30", "", Some(Bytes(1000))),
            ("100", "700", "", Some(Bytes(0))),
            ("max", "700", "", None),
        ] {
            fs::write(folder.join("memory.max"), limit).unwrap();
            fs::write(folder.join("memory.current"), current).unwrap();
            fs::write(folder.join("memory.stat"), statistics).unwrap();
            assert_eq!(Version::Two.leaves(&folder, Bytes(50)), expected);
        }
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn this_process_is_left_more_than_it_holds() {
        let limits = limits();
        assert!(resident() < limits.available, "{limits:?}");
    }
}
