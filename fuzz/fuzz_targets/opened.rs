//! What a file of any bytes gives: an answer, or arrays that lie within it.

use std::path::PathBuf;

use memfit_files::WeightsFile;

/// Opens the bytes as a file, and reads every array that can be read.
pub fn open_and_read(bytes: &[u8]) {
    // Memory, where the system has it as a folder.
    let folder = PathBuf::from("/dev/shm");
    let folder = if folder.is_dir() { folder } else { std::env::temp_dir() };
    let path = folder.join(format!("memfit-fuzz-{}", std::process::id()));
    std::fs::write(&path, bytes).expect("a scratch file can be written");
    if let Ok(file) = WeightsFile::open(&path) {
        let _ = file.verify();
        let names: Vec<String> = file.names().map(str::to_owned).collect();
        for name in names {
            let dims = file.dims(&name).expect("it was listed").to_vec();
            let _ = file.integer(&name);
            if file.check(&name, &name, &dims).is_ok() {
                let count: usize = dims.iter().product();
                assert!(count * 4 <= bytes.len(), "an array that can be read lies within the file");
                file.read(&name, &name, &dims, &mut vec![0; count * 4]).expect("it was checked");
            }
        }
    }
    let _ = std::fs::remove_file(&path);
}
