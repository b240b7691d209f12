//! Kernels compiled for a device, once for all jobs of a user: what was compiled stays in the cache folder.

use std::ffi::{CString, c_char};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use cudarc::nvrtc::sys::{self, nvrtcResult};
use memfit_ir::random;

use super::work::Source;

/// What stands before every kernel.
pub const PRELUDE: &str = include_str!("kernels/prelude.cu");

/// Texts that are compiled at the same time at most; each takes some hundred megabytes of the host while it
/// is.
const THREADS_MOST: usize = 8;

/// What kernels are compiled for on a device of this compute capability: this one alone, so that instructions which no other has can
/// be used too. Texts that use `wgmma` ask the compiler whether they are compiled for `sm_90a`, and have other code for all others.
pub fn architecture((major, minor): (i32, i32)) -> String {
    let own = if (major, minor) == (9, 0) { "a" } else { "" };
    format!("sm_{major}{minor}{own}")
}

/// Whether tensor cores of this compute capability take TF32.
pub fn has_tf32(capability: (i32, i32)) -> bool {
    (8, 0) <= capability
}

/// The compiler's options for an architecture.
pub fn options(architecture: &str) -> [String; 3] {
    // Lambdas that are compiled for several types are functions of the device too.
    let [standard, lambdas] = ["--std=c++17", "--device-as-default-execution-space"].map(str::to_owned);
    [format!("--gpu-architecture={architecture}"), standard, lambdas]
}

/// The whole text of a source.
pub fn text(source: &Source) -> String {
    [PRELUDE, &source.defines, source.text].join("\n")
}

/// Machine code for an architecture such as `sm_90a`, or the compiler's words. The compiler must have been found.
pub fn compile(text: &str, architecture: &str) -> Result<Vec<u8>, String> {
    compile_with(text, &options(architecture)).map(|(code, _)| code)
}

/// The same by options, with what the compiler says of the code: with `--ptxas-options=-v` too, the registers, spills and shared memory
/// of each kernel.
pub fn compile_with(text: &str, options: &[String]) -> Result<(Vec<u8>, String), String> {
    let source = CString::new(text).map_err(|_| "a kernel's text has no zero byte".to_owned())?;
    let options: Vec<CString> =
        options.iter().filter_map(|option| CString::new(option.as_str()).ok()).collect();
    let pointers: Vec<*const c_char> = options.iter().map(|option| option.as_ptr()).collect();
    let mut program = std::ptr::null_mut();
    // SAFETY: the compiler reads texts that end in zero and live until it returns, and writes into buffers of
    // the sizes it asked for; the program is destroyed once.
    unsafe {
        let name = c"memfit.cu".as_ptr();
        let made = sys::nvrtcCreateProgram(
            &mut program,
            source.as_ptr(),
            name,
            0,
            std::ptr::null(),
            std::ptr::null(),
        );
        check(made)?;
        let compiled =
            sys::nvrtcCompileProgram(program, pointers.len() as i32, pointers.as_ptr().cast_mut().cast());
        let result = log_of(program).and_then(|log| {
            if compiled != nvrtcResult::NVRTC_SUCCESS {
                return Err(log);
            }
            let mut size = 0;
            check(sys::nvrtcGetCUBINSize(program, &mut size))?;
            let mut code = vec![0u8; size];
            check(sys::nvrtcGetCUBIN(program, code.as_mut_ptr().cast()))?;
            Ok((code, log))
        });
        sys::nvrtcDestroyProgram(&mut program);
        result
    }
}

/// What the compiler says of a program.
fn log_of(program: sys::nvrtcProgram) -> Result<String, String> {
    let mut size = 0;
    // SAFETY: the compiler writes a number, then a text of that size; the program lives.
    let log = unsafe {
        check(sys::nvrtcGetProgramLogSize(program, &mut size))?;
        let mut log = vec![0u8; size];
        check(sys::nvrtcGetProgramLog(program, log.as_mut_ptr().cast()))?;
        log
    };
    Ok(String::from_utf8_lossy(&log).trim_end_matches('\0').to_owned())
}

/// Machine code from the user's cache, where it is there; else it is compiled and put there. A cache that cannot be read or
/// written is none.
pub(crate) fn compile_cached(text: &str, architecture: &str) -> Result<Vec<u8>, String> {
    let path = cache(text, architecture);
    if let Some(code) = path.as_deref().and_then(|path| read(path, text)) {
        return Ok(code);
    }
    let code = compile(text, architecture)?;
    if let Some(path) = path {
        // Nothing is lost but time where this fails.
        let _ = write(&path, text, &code);
    }
    Ok(code)
}

/// Compiles texts into the user's cache, several at the same time: a first start on a machine waits for
/// little else. Where there is no cache, nothing is gained and nothing done.
pub(crate) fn compile_ahead(texts: &[String], architecture: &str) {
    let next = AtomicUsize::new(0);
    let threads =
        std::thread::available_parallelism().map_or(1, usize::from).min(THREADS_MOST).min(texts.len());
    let work = || {
        while let Some(text) = texts.get(next.fetch_add(1, Ordering::Relaxed)) {
            let missing = cache(text, architecture).is_some_and(|path| read(&path, text).is_none());
            if missing {
                let _ = compile_cached(text, architecture);
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(work);
        }
    });
}

fn check(result: nvrtcResult) -> Result<(), String> {
    if result == nvrtcResult::NVRTC_SUCCESS {
        Ok(())
    } else {
        Err(format!("the compiler answers {result:?}"))
    }
}

fn cache(text: &str, architecture: &str) -> Option<PathBuf> {
    let version = env!("CARGO_PKG_VERSION");
    let name = format!("{:016x}-{}.cubin", random::purpose(text), text.len());
    Some(cache_folder()?.join(format!("kernels-{version}-{architecture}")).join(name))
}

/// Where this user's programs keep files that can be computed again; none where there is no such folder.
pub fn cache_folder() -> Option<PathBuf> {
    let folder =
        |variable: &str| std::env::var_os(variable).map(PathBuf::from).filter(|path| path.is_absolute());
    let folder = folder("XDG_CACHE_HOME").or_else(|| Some(folder("HOME")?.join(".cache")))?;
    Some(folder.join("memfit"))
}

/// A file is the length of the text, the text, and its code: two texts never share a code by mistake.
fn read(path: &Path, text: &str) -> Option<Vec<u8>> {
    let file = fs::read(path).ok()?;
    let (length, rest) = file.split_first_chunk()?;
    let length = usize::try_from(u64::from_le_bytes(*length)).ok()?;
    let known = rest.get(..length)?;
    (known == text.as_bytes()).then(|| rest[length..].to_vec())
}

fn write(path: &Path, text: &str, code: &[u8]) -> std::io::Result<()> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    let temporary = path.with_extension(format!("{}.tmp", std::process::id()));
    fs::write(&temporary, [&(text.len() as u64).to_le_bytes(), text.as_bytes(), code].concat())?;
    fs::rename(&temporary, path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cached_code_is_that_of_its_text_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a").join("kernel.cubin");
        write(&path, "text", b"code").unwrap();
        assert_eq!(read(&path, "text").as_deref(), Some(&b"code"[..]));
        assert_eq!(read(&path, "next"), None);
        fs::write(&path, b"broken").unwrap();
        assert_eq!(read(&path, "text"), None);
    }
}
