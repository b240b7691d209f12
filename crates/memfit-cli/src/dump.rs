//! `memfit plan --dump`: a job's graph, problem and plan as texts in a folder.

use std::io::Write;
use std::path::{Path, PathBuf};

use memfit::{Error, Prepared, dump};

use crate::new_file::NewFile;

/// Places for the three files.
pub struct Dump {
    plan: PathBuf,
    files: [NewFile; 3],
}

impl Dump {
    /// Finds out before anything is planned whether the folder can be written.
    pub fn reserve(folder: &Path) -> Result<Dump, Error> {
        std::fs::create_dir_all(folder).map_err(|source| Error::Job {
            place: "--dump".to_owned(),
            problem: format!("cannot make the folder `{}`: {source}; choose another", folder.display()),
        })?;
        let file = |name: &str| NewFile::reserve("--dump", &folder.join(name));
        let files = [file("graph.txt")?, file("problem.txt")?, file("plan.txt")?];
        Ok(Dump { plan: folder.join("plan.txt"), files })
    }

    /// Writes what was planned.
    pub fn write(self, prepared: &Prepared) -> Result<(), Error> {
        let texts = dump(prepared);
        let [graph, problem, plan] = self.files;
        graph.write(&texts.graph)?;
        problem.write(&texts.problem)?;
        match texts.plan {
            Some(text) => {
                plan.write(&text)?;
            }
            // One of an earlier job would be taken for this one's.
            None => match std::fs::remove_file(&self.plan) {
                Err(source) if source.kind() != std::io::ErrorKind::NotFound => {
                    return Err(Error::File { verb: "write", path: self.plan, source });
                }
                Ok(()) | Err(_) => {}
            },
        }
        if !texts.replays {
            let note = "note: planning problem.txt gives another plan than plan.txt, the first that was found to fit";
            let _ = writeln!(std::io::stderr(), "{note}");
        }
        Ok(())
    }
}
