//! Standard output and standard error: lines, errors as text and as JSON, and what happens where they cannot be written.

use std::io::{self, ErrorKind, Write};
use std::path::Path;
use std::process::ExitCode;
use std::sync::OnceLock;

use clap::error::ErrorKind as UsageKind;
use memfit::{About, Error, refusal_json};
use serde_json::{Value, json};

use crate::remedy;

/// Why standard output could not be written, the first time.
static FAILED: OnceLock<io::Error> = OnceLock::new();

/// Writes a line to standard output.
///
/// Where the reader went away (`memfit … | head`), the program ends quietly. Where the line cannot be written for another reason, the
/// work goes on, since a trained model is worth more than its progress; [`finish`] then says so.
pub fn out(line: &str) {
    let mut stdout = io::stdout().lock();
    let written = writeln!(stdout, "{line}").and_then(|()| stdout.flush());
    note(written);
}

/// Writes a line to standard error. Where that cannot be written there is no place left to say so.
pub fn err(line: &str) {
    let _ = writeln!(io::stderr(), "{line}");
}

/// Prints an error: as words on standard error, and as an object on standard output where JSON is asked for.
pub fn failed(error: &Error, is_printed: bool) -> ExitCode {
    let text = remedy::text(error);
    err(&format!("error: {text}"));
    if wants_json() && !is_printed {
        let mut line = event(error.kind(), &text, error.exit_code());
        if let (Error::DoesNotFit(answer), Value::Object(line)) = (error, &mut line) {
            line.insert("budget".to_owned(), json!(answer.budget.0));
            line.insert("bytes_smallest_budget".to_owned(), json!(answer.smallest.0));
            line.extend(refusal_json(answer));
        }
        out(&line.to_string());
    }
    ExitCode::from(error.exit_code())
}

/// Prints what is wrong with the arguments, or the help that was asked for.
pub fn usage(error: &clap::Error) -> ExitCode {
    let asked = matches!(error.kind(), UsageKind::DisplayHelp | UsageKind::DisplayVersion);
    let written = error.print();
    if asked {
        note(written.and_then(|()| io::stdout().flush()));
        return finish(ExitCode::SUCCESS);
    }
    let code = u8::try_from(error.exit_code()).unwrap_or(2);
    if wants_json() {
        out(&event("arguments", error.to_string().trim_end(), code).to_string());
    }
    finish(ExitCode::from(code))
}

/// The exit code of the program: that of its work, or a failure where its output could not be written.
pub fn finish(code: ExitCode) -> ExitCode {
    let Some(error) = FAILED.get() else { return code };
    err(&format!("error: cannot write to standard output: {error}"));
    if code == ExitCode::SUCCESS { ExitCode::FAILURE } else { code }
}

/// Adds to a report what was typed.
pub fn typed(about: &mut About, job: Option<&Path>) {
    if let Some(job) = job {
        about.add("Job", job.display().to_string());
    }
    let words: Vec<String> =
        std::env::args_os().skip(1).map(|word| quoted(&word.to_string_lossy())).collect();
    about.add("Command", ["memfit".to_owned()].into_iter().chain(words).collect::<Vec<_>>().join(" "));
}

/// A word as a shell reads it back.
fn quoted(word: &str) -> String {
    let is_plain = |letter: char| letter.is_alphanumeric() || "-_./:,=%+@".contains(letter);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

fn note(written: io::Result<()>) {
    match written {
        Ok(()) => {}
        Err(error) if error.kind() == ErrorKind::BrokenPipe => std::process::exit(0),
        Err(error) => {
            // The first error is the one that is reported.
            let _ = FAILED.set(error);
        }
    }
}

fn event(kind: &str, text: &str, code: u8) -> Value {
    json!({"event": "error", "kind": kind, "error": text, "exit_code": code})
}

/// Whether `--json` was typed. Asked of the words themselves, since it counts where the arguments could not be read too.
fn wants_json() -> bool {
    std::env::args_os().skip(1).take_while(|word| word != "--").any(|word| word == "--json")
}
