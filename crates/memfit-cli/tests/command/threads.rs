//! The number of threads where it is not given: what this process may use, and no more.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;

use crate::harness::{PROGRAM, command, command_after, example, text};

/// What is planned, and what it is planned by.
fn arguments() -> [String; 5] {
    ["plan", &example("flat.toml"), "--json", "--device", "cpu"].map(str::to_owned)
}

/// The threads that a plan counts: each has a stack, and so has the program.
fn threads(mut command: Command) -> usize {
    let plan: Value = serde_json::from_str(&text(&command.output().unwrap())).unwrap();
    let lines = plan["runtime"].as_array().unwrap();
    let stacks = lines.iter().find(|line| line["name"] == "thread stacks").unwrap();
    usize::try_from(stacks["bytes"].as_u64().unwrap() / (256 << 10)).unwrap() - 1
}

fn alone() -> Command {
    let mut command = command(&[]);
    command.args(arguments());
    command
}

#[test]
fn as_many_threads_as_were_asked_for() {
    for count in [1, 3] {
        let mut command = alone();
        command.args(["--threads", &count.to_string()]);
        assert_eq!(threads(command), count);
    }
}

#[test]
fn as_many_threads_as_the_process_may_run_on() {
    assert_eq!(threads(alone()), std::thread::available_parallelism().unwrap().get());
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let allowed = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    let Some(first) = allowed.and_then(|list| list.trim().split([',', '-']).next()) else {
        return println!("skipped: this system does not say which processors a process may run on");
    };
    if Command::new("taskset").arg("--version").output().is_err() {
        return println!("skipped: no taskset");
    }
    let mut command = Command::new("taskset");
    command.args(["--cpu-list", first, PROGRAM]).args(arguments());
    assert_eq!(threads(command), 1);
}

#[test]
fn as_many_threads_as_the_control_group_has_processors_for() {
    let Some(group) = Group::with_one_processor() else {
        return println!("skipped: no control group can be made here");
    };
    let mut command = command_after(&format!("echo $$ > {}/cgroup.procs", group.0.display()), &[]);
    command.args(arguments());
    assert_eq!(threads(command), 1);
}

/// A control group that goes when it is dropped.
struct Group(PathBuf);

impl Group {
    /// One processor's time for all in it; none where the system, or its owner, does not permit it.
    fn with_one_processor() -> Option<Group> {
        let own = fs::read_to_string("/proc/self/cgroup").ok()?;
        // `number:controllers:path` for each hierarchy of version 1; version 2 has number 0 and no controllers.
        let of = |wanted: &dyn Fn(&str) -> bool| {
            own.lines().find_map(|line| {
                let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
                wanted(controllers).then(|| path.trim_start_matches('/').to_owned())
            })
        };
        let name = format!("memfit-{}", std::process::id());
        let first = of(&|controllers| controllers.split(',').any(|one| one == "cpu"));
        let (folder, file, limit) = match first {
            Some(path) => (format!("/sys/fs/cgroup/cpu/{path}"), "cpu.cfs_quota_us", "100000"),
            None => (format!("/sys/fs/cgroup/{}", of(&str::is_empty)?), "cpu.max", "100000 100000"),
        };
        let group = Group(PathBuf::from(folder).join(name));
        fs::create_dir(&group.0).ok()?;
        fs::write(group.0.join(file), limit).ok()?;
        let joined = Command::new("sh")
            .args(["-c", &format!("echo $$ > {}/cgroup.procs", group.0.display())])
            .output()
            .ok()?;
        joined.status.success().then_some(group)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.0);
    }
}
