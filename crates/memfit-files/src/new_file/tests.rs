//! A file is whole or not there, whenever its process ends and however full its disk is.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};

use super::*;
use crate::{Array, Element, FileKind};

/// With a name while it is written, or without.
const WAYS: [bool; 2] = [false, true];

fn create(path: &Path, has_name: bool) -> Result<NewFile, FileError> {
    if has_name { NewFile::create_named(path) } else { NewFile::create(path) }
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn a_file_appears_when_it_is_whole_and_replaces_an_old_one() {
    for has_name in WAYS {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.keras");
        for text in ["old", "a new one"] {
            let file = create(&path, has_name).unwrap();
            let before = fs::read(&path).ok();
            file.file().write_all(text.as_bytes()).unwrap();
            assert_eq!(fs::read(&path).ok(), before, "untouched until it is whole");
            assert_eq!(names(folder.path()).len(), usize::from(before.is_some()) + usize::from(has_name));
            assert_eq!(file.finish().unwrap(), path);
            assert_eq!(fs::read_to_string(&path).unwrap(), text);
            assert_eq!(names(folder.path()), ["a.keras"], "nothing stands beside");
        }
    }
}

#[test]
fn a_file_that_is_given_up_leaves_nothing() {
    for has_name in WAYS {
        let folder = tempfile::tempdir().unwrap();
        let files = [(); 2].map(|()| create(&folder.path().join("a.keras"), has_name).unwrap());
        drop(files);
        assert_eq!(names(folder.path()), [""; 0]);
    }
}

#[test]
fn a_copy_is_made_where_a_file_cannot_be_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.keras");
    // A file that has a name and lost it cannot be linked again.
    let (file, beside) = named(&path).unwrap();
    fs::remove_file(&beside).unwrap();
    (&file).write_all(b"text").unwrap();
    let new = NewFile { path: path.clone(), beside: None, file };
    new.finish().unwrap();
    assert_eq!(fs::read_to_string(&path).unwrap(), "text");
    assert_eq!(names(folder.path()), ["a.keras"]);
}

#[test]
fn only_files_that_no_process_writes_are_leftovers() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.keras");
    let ours = end_of_name().into_string().unwrap();
    let stay = [
        "a.keras".to_owned(),
        ".hidden".to_owned(),
        ".a.keras.1.2.part".to_owned(),
        ".a.keras.1.2@another.host.part".to_owned(),
        format!(".a.keras{ours}"),
        format!(".a.keras.x.2{ours}"),
        format!("a.keras.1.2{ours}"),
    ];
    for name in stay.iter().cloned().chain([format!(".a.keras.1.2{ours}"), format!(".b.npy.77.0{ours}")]) {
        fs::write(folder.path().join(name), "x").unwrap();
    }
    let written = NewFile::create_named(&path).unwrap();
    assert_eq!(remove_leftovers(folder.path()), 2);
    let mut expected = stay.to_vec();
    expected.push(written.beside.as_ref().unwrap().file_name().unwrap().to_str().unwrap().to_owned());
    expected.sort();
    assert_eq!(names(folder.path()), expected);
    assert_eq!(remove_leftovers(&folder.path().join("missing")), 0);
}

#[test]
fn a_second_name_replaces_an_old_file_and_leaves_nothing_beside() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    for name in ["step-1.keras", "step-2.keras", "step-2.keras"] {
        if !at(name).exists() {
            fs::write(at(name), name).unwrap();
        }
        name_again(&at(name), &at("best.keras")).unwrap();
        assert_eq!(fs::read_to_string(at("best.keras")).unwrap(), name);
    }
    assert_eq!(names(folder.path()), ["best.keras", "step-1.keras", "step-2.keras"]);
    assert!(name_again(&at("step-3.keras"), &at("best.keras")).is_err());
    // A process that was killed between the two steps left a name that the next run removes.
    fs::hard_link(at("step-1.keras"), name_beside(&at("best.keras"))).unwrap();
    let held = File::open(at("step-1.keras")).unwrap();
    held.try_lock().unwrap();
    assert_eq!(remove_leftovers(folder.path()), 0, "its process lives");
    drop(held);
    assert_eq!(remove_leftovers(folder.path()), 1);
    assert_eq!(names(folder.path()).len(), 3);
}

#[test]
fn a_killed_process_leaves_nothing_or_what_the_next_run_removes() {
    let folder = tempfile::tempdir().unwrap();
    for has_name in WAYS {
        let mut child = start_writing(&folder.path().join("a.keras"), has_name);
        assert_eq!(names(folder.path()).len(), usize::from(has_name));
        assert_eq!(remove_leftovers(folder.path()), 0, "its process lives");
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(names(folder.path()).len(), usize::from(has_name));
        assert_eq!(remove_leftovers(folder.path()), usize::from(has_name));
        assert_eq!(names(folder.path()), [""; 0]);
    }
}

const PLACE: &str = "MEMFIT_TEST_NEW_FILE";
const NAMED: &str = "MEMFIT_TEST_NEW_FILE_NAMED";

/// A process that is in the middle of writing a file.
fn start_writing(path: &Path, has_name: bool) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--ignored", "--exact", "--nocapture", "new_file::tests::write_until_killed"]);
    command.env(PLACE, path).env(NAMED, if has_name { "1" } else { "0" });
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap().ends_with("writing")), "the process writes");
    child
}

#[test]
#[ignore = "the other half of a test: a process to be killed"]
fn write_until_killed() {
    let Some(path) = std::env::var_os(PLACE) else { return };
    let file = create(Path::new(&path), std::env::var(NAMED).unwrap() == "1").unwrap();
    file.file().write_all(&[7; 10_000]).unwrap();
    println!("writing");
    // Long enough to be killed, and not for ever where the parent fails.
    std::thread::sleep(std::time::Duration::from_secs(60));
}

#[test]
fn a_disk_that_fills_up_leaves_the_old_file_whole() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.keras");
    fs::write(&path, "old").unwrap();
    // A device that is always full.
    let file = OpenOptions::new().write(true).open("/dev/full").unwrap();
    let array = Array { name: "dense/vars/0".to_owned(), dims: vec![3], element: Element::F32 };
    let layout = Layout::new(FileKind::Keras, vec![array], &[]);
    let new = NewFile { path: path.clone(), beside: None, file };
    let error = new.write(&layout, &|_| Bytes::Zeros).unwrap_err();
    let text = error.to_string();
    assert!(text.contains("a.keras") && text.contains("make room") && !error.is_bad_input(), "{text}");
    assert_eq!(fs::read_to_string(&path).unwrap(), "old");
    assert_eq!(names(folder.path()), ["a.keras"]);
}

#[test]
fn a_full_disk_is_an_answer_and_leaves_the_old_file() {
    let folder = tempfile::tempdir().unwrap();
    let Some(_small) = SmallDisk::mount(folder.path()) else {
        println!("skipped: only root can mount a small disk");
        return;
    };
    let path = folder.path().join("a.keras");
    for has_name in WAYS {
        fs::write(&path, "old").unwrap();
        let file = create(&path, has_name).unwrap();
        let error = file.file().write_all(&vec![7; 2 << 20]).unwrap_err();
        let answer = file.refused(error).to_string();
        assert!(answer.ends_with("what stood there before is untouched"), "{answer}");
        drop(file);
        assert_eq!(fs::read_to_string(&path).unwrap(), "old");
        assert_eq!(names(folder.path()), ["a.keras"]);
    }
}

/// A file system of one mebibyte.
struct SmallDisk<'a>(&'a Path);

impl SmallDisk<'_> {
    fn mount(folder: &Path) -> Option<SmallDisk<'_>> {
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=1m", "tmpfs"])
            .arg(folder)
            .stderr(Stdio::null())
            .status();
        mounted.is_ok_and(|status| status.success()).then_some(SmallDisk(folder))
    }
}

impl Drop for SmallDisk<'_> {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.0).status();
    }
}
