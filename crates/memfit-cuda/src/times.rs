//! Times of the libraries' algorithms, remembered in a file of the user's cache folder: one line for each
//! operation that was timed. A line that cannot be read is timed again.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::PathBuf;
use std::sync::Mutex;

use super::compiler;

/// A file that is larger than this is deleted and written again.
const FILE_MOST: u64 = 4 << 20;

/// Times by operation, in the library's order of its algorithms; infinite for an algorithm that failed.
pub(crate) struct Times {
    path: Option<PathBuf>,
    known: Mutex<BTreeMap<String, Vec<f32>>>,
}

impl Times {
    /// Those of a device with libraries of these versions.
    pub(crate) fn open(device: &str) -> Times {
        let plain =
            |letter: char| if letter.is_ascii_alphanumeric() { letter.to_ascii_lowercase() } else { '-' };
        let device: String = device.chars().map(plain).collect();
        let path = compiler::cache_folder().map(|folder| folder.join(format!("ways-{device}.tsv")));
        Times::at(path)
    }

    fn at(path: Option<PathBuf>) -> Times {
        let small = |path: &PathBuf| fs::metadata(path).is_ok_and(|data| data.len() <= FILE_MOST);
        let text = path.as_ref().filter(|path| small(path)).and_then(|path| fs::read_to_string(path).ok());
        let line = |line: &str| -> Option<(String, Vec<f32>)> {
            let (key, times) = line.split_once('\t')?;
            let times: Option<Vec<f32>> = times.split(' ').map(|time| time.parse().ok()).collect();
            let times = times?;
            (times.iter().all(|time| 0.0 < *time)).then(|| (key.to_owned(), times))
        };
        let known = text.iter().flat_map(|text| text.lines()).filter_map(line).collect();
        Times { path, known: Mutex::new(known) }
    }

    /// The times of an operation, where as many algorithms of it were timed.
    pub(crate) fn get(&self, key: &str, algorithms: usize) -> Option<Vec<f32>> {
        let known = self.known.lock().expect("no thread panics while it holds the lock");
        known.get(key).filter(|times| times.len() == algorithms).cloned()
    }

    /// Remembers times. Where the file cannot be written, they are measured again by the next start.
    pub(crate) fn put(&self, key: &str, times: &[f32]) {
        let text = times.iter().map(f32::to_string).collect::<Vec<_>>().join(" ");
        if let Some(path) = &self.path {
            let starts_again = !fs::metadata(path).is_ok_and(|data| data.len() <= FILE_MOST);
            let folder = path.parent().map_or(Ok(()), fs::create_dir_all);
            let file = folder.and_then(|()| {
                OpenOptions::new()
                    .create(true)
                    .write(true)
                    .append(!starts_again)
                    .truncate(starts_again)
                    .open(path)
            });
            // One write for the whole line, so that two programs do not mix theirs.
            let _ = file.and_then(|mut file| file.write_all(format!("{key}\t{text}\n").as_bytes()));
        }
        self.known
            .lock()
            .expect("no thread panics while it holds the lock")
            .insert(key.to_owned(), times.to_vec());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_remembered_and_broken_lines_are_not() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("new").join("ways.tsv");
        let times = Times::at(Some(path.clone()));
        times.put("one", &[0.25, f32::INFINITY]);
        assert_eq!(times.get("one", 2), Some(vec![0.25, f32::INFINITY]));
        let mut text = fs::read_to_string(&path).unwrap();
        text += "two\t0.5 x\nthree\nfour\t-1\n\u{0}\nfive\t2 3";
        fs::write(&path, text).unwrap();
        let again = Times::at(Some(path));
        assert_eq!(again.get("one", 2), Some(vec![0.25, f32::INFINITY]));
        assert_eq!(again.get("one", 3), None);
        assert_eq!((again.get("two", 2), again.get("four", 1)), (None, None));
        assert_eq!(again.get("five", 2), Some(vec![2.0, 3.0]));
    }
}
