//! Where NVIDIA's libraries are: found at run time, so that nothing is needed to build.

use std::ffi::{CStr, CString};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use cudarc::{cublaslt, cudnn, driver, nvrtc};

/// The libraries that are used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Library {
    /// The driver: comes with the system.
    Driver,
    /// The compiler of kernels.
    Compiler,
    /// Matrix products.
    Products,
    /// Convolutions.
    Convolutions,
}

/// A library as it was looked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// Which.
    pub library: Library,
    /// Where it was found; empty where the system's loader found it. `None` where it is missing.
    pub path: Option<PathBuf>,
    /// Its version, where the library reports one.
    pub version: Option<String>,
}

/// Every library, in the order in which they are opened: later ones lean on earlier ones.
pub const ALL: [Library; 4] = [Library::Driver, Library::Compiler, Library::Products, Library::Convolutions];

impl Library {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Library::Driver => "CUDA driver",
            Library::Compiler => "NVRTC",
            Library::Products => "cuBLASLt",
            Library::Convolutions => "cuDNN",
        }
    }

    /// How to get it.
    pub fn remedy(self) -> &'static str {
        match self {
            Library::Driver => {
                "install NVIDIA's driver, version 580 or newer (525 with libraries of CUDA 12)"
            }
            Library::Compiler => "`pip install nvidia-cuda-nvrtc`, or install the CUDA toolkit 13 or 12",
            Library::Products => "`pip install nvidia-cublas`, or install the CUDA toolkit 13 or 12",
            Library::Convolutions => {
                "`pip install nvidia-cudnn-cu13` (-cu12 beside CUDA 12), or install cuDNN 9"
            }
        }
    }

    /// Names of its file, the best first: nothing is asked of them that CUDA 12 does not have.
    fn files(self) -> &'static [&'static str] {
        match self {
            Library::Driver => &["libcuda.so.1"],
            Library::Compiler => &["libnvrtc.so.13", "libnvrtc.so.12"],
            Library::Products => &["libcublasLt.so.13", "libcublasLt.so.12"],
            Library::Convolutions => &["libcudnn.so.9"],
        }
    }

    /// Whether the bindings find it, which they do by its plain name, also where it was opened from a folder.
    fn is_bound(self) -> bool {
        // SAFETY: opens a library of NVIDIA's, which has no more to say when it is opened.
        unsafe {
            match self {
                Library::Driver => driver::sys::is_culib_present(),
                Library::Compiler => nvrtc::sys::is_culib_present(),
                Library::Products => cublaslt::sys::is_culib_present(),
                Library::Convolutions => cudnn::sys::is_culib_present(),
            }
        }
    }

    /// The version that an open library reports.
    fn version(self) -> Option<String> {
        let (mut major, mut minor) = (0, 0);
        // SAFETY: asks a library that is open for a number.
        unsafe {
            match self {
                Library::Driver => {
                    let asked = driver::sys::cuDriverGetVersion(&mut major);
                    (asked == driver::sys::CUresult::CUDA_SUCCESS)
                        .then(|| format!("for CUDA {}.{}", major / 1000, major % 1000 / 10))
                }
                Library::Compiler => {
                    let asked = nvrtc::sys::nvrtcVersion(&mut major, &mut minor);
                    (asked == nvrtc::sys::nvrtcResult::NVRTC_SUCCESS).then(|| format!("{major}.{minor}"))
                }
                Library::Products => {
                    let version = cublaslt::sys::cublasLtGetVersion();
                    Some(format!("{}.{}.{}", version / 10000, version / 100 % 100, version % 100))
                }
                Library::Convolutions => {
                    let version = cudnn::sys::cudnnGetVersion();
                    Some(format!("{}.{}.{}", version / 10000, version / 100 % 100, version % 100))
                }
            }
        }
    }
}

/// Looks for a library and opens it if it is there, once. An open library takes tens of MiB, so that nothing
/// is opened before it is known to be of use.
pub fn find(library: Library) -> &'static Found {
    static FOUND: [OnceLock<Found>; ALL.len()] = [const { OnceLock::new() }; ALL.len()];
    FOUND[library as usize].get_or_init(|| find_now(library, folders()))
}

/// Looks for all of them.
pub fn find_all() -> impl Iterator<Item = &'static Found> {
    ALL.into_iter().map(find)
}

/// Those that are missing.
pub fn missing() -> impl Iterator<Item = Library> {
    find_all().filter(|found| found.path.is_none()).map(|found| found.library)
}

fn find_now(library: Library, folders: &[PathBuf]) -> Found {
    let opened = library.files().iter().find_map(|file| {
        let found = folders.iter().map(|folder| folder.join(file)).find(|path| path.exists());
        match found {
            Some(path) => {
                open_beside(&path);
                open(&path).then_some(path)
            }
            None => open(Path::new(file)).then(PathBuf::new),
        }
    });
    let path = opened.filter(|_| library.is_bound());
    let version = path.as_ref().and_then(|_| library.version());
    Found { library, path, version }
}

/// Parts that the compiler looks for by name alone, which would not be found in a folder that the loader does
/// not know.
fn open_beside(path: &Path) {
    let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else { return };
    if !name.as_bytes().starts_with(b"libnvrtc") {
        return;
    }
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        if entry.file_name().as_bytes().starts_with(b"libnvrtc-builtins.so") {
            open(&entry.path());
        }
    }
}

/// Opens a library for all that are opened later, and leaves it open.
fn open(path: &Path) -> bool {
    let Ok(path) = CString::new(path.as_os_str().as_bytes()) else { return false };
    // SAFETY: opens a shared library; NVIDIA's run nothing that depends on this program's state.
    !unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_GLOBAL) }.is_null()
}

/// A function of an open library, by its name. For the few that have no bindings.
pub(crate) fn function(file: &CStr, name: &CStr) -> Option<*mut libc::c_void> {
    // SAFETY: opens a shared library and looks a name up in it.
    let address = unsafe {
        let library = libc::dlopen(file.as_ptr(), libc::RTLD_NOW | libc::RTLD_GLOBAL);
        if library.is_null() {
            return None;
        }
        libc::dlsym(library, name.as_ptr())
    };
    (!address.is_null()).then_some(address)
}

/// Folders to look in before the loader is asked: those that were named, the toolkit's, and those of pip's
/// packages beside a Python that is active or first on the path.
fn folders() -> &'static [PathBuf] {
    static FOLDERS: OnceLock<Vec<PathBuf>> = OnceLock::new();
    FOLDERS.get_or_init(listed_folders)
}

fn listed_folders() -> Vec<PathBuf> {
    let named = |variable: &str| std::env::var_os(variable).map(PathBuf::from);
    let mut found = Vec::new();
    let listed = std::env::var_os("MEMFIT_CUDA_LIBS");
    for folder in listed.iter().flat_map(std::env::split_paths) {
        found.push(folder.clone());
        found.extend(packages(&folder));
    }
    for toolkit in ["CUDA_PATH", "CUDA_HOME"].into_iter().filter_map(named) {
        found.extend([toolkit.join("lib64"), toolkit.join("lib")]);
    }
    let on_path = std::env::var_os("PATH").and_then(|path| {
        std::env::split_paths(&path)
            .find(|folder| folder.join("python3").exists())?
            .parent()
            .map(Path::to_owned)
    });
    let own = std::env::current_exe().ok().and_then(|exe| Some(exe.parent()?.parent()?.to_owned()));
    for prefix in [named("VIRTUAL_ENV"), named("CONDA_PREFIX"), own, on_path].into_iter().flatten() {
        for library in ["lib", "local/lib"] {
            for python in children(&prefix.join(library), "python3") {
                for site in ["site-packages", "dist-packages"] {
                    found.extend(packages(&python.join(site)));
                }
            }
        }
    }
    found.push(PathBuf::from("/usr/local/cuda/lib64"));
    found
}

/// The `nvidia/*/lib` folders of pip's packages below a folder.
fn packages(site: &Path) -> Vec<PathBuf> {
    children(&site.join("nvidia"), "").into_iter().map(|package| package.join("lib")).collect()
}

/// Entries of a folder whose names begin so, in order.
fn children(folder: &Path, prefix: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut found: Vec<PathBuf> = entries
        .filter(|entry| entry.file_name().as_bytes().starts_with(prefix.as_bytes()))
        .map(|entry| entry.path())
        .collect();
    found.sort();
    found
}
