//! Who holds how much of a device, by the driver's own count: what `nvidia-smi` shows.

use std::ffi::{CString, c_char, c_int, c_uint, c_void};

use memfit_ir::Bytes;

use super::libraries;

/// What is held of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Usage {
    /// All its memory.
    pub bytes_total: Bytes,
    /// What everybody holds together, the driver's own share too.
    pub bytes_used: Bytes,
    /// What each process that computes there holds: its number, and its bytes where the driver reports them.
    pub processes: Vec<(u32, Option<Bytes>)>,
}

impl Usage {
    /// What this process holds, where the driver reports it.
    pub fn own(&self) -> Option<Bytes> {
        self.processes
            .iter()
            .find(|(process, _)| *process == std::process::id())
            .and_then(|(_, bytes)| *bytes)
    }
}

const LIBRARY: &std::ffi::CStr = c"libnvidia-ml.so.1";

/// `nvmlMemory_t`.
#[repr(C)]
#[derive(Default)]
struct Memory {
    total: u64,
    free: u64,
    used: u64,
}

/// `nvmlProcessInfo_v2_t`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Process {
    number: c_uint,
    bytes: u64,
    instance: c_uint,
    compute_instance: c_uint,
}

/// What is held of the device at an address of the bus; none where the system's management library does not
/// report it.
pub fn of_device(bus: &str) -> Option<Usage> {
    const MOST: usize = 64;
    let bus = CString::new(bus).ok()?;
    let function = |name| libraries::function(LIBRARY, name);
    let (start, find) = (function(c"nvmlInit_v2")?, function(c"nvmlDeviceGetHandleByPciBusId_v2")?);
    let (memory, processes) =
        (function(c"nvmlDeviceGetMemoryInfo")?, function(c"nvmlDeviceGetComputeRunningProcesses_v3")?);
    // SAFETY: these are the functions of these names in NVIDIA's management library, with the types that its
    // header gives them; it writes into structures of its own layout, and no more processes than there is
    // room for.
    unsafe {
        let start: unsafe extern "C" fn() -> c_int = std::mem::transmute(start);
        let find: unsafe extern "C" fn(*const c_char, *mut *mut c_void) -> c_int = std::mem::transmute(find);
        let memory: unsafe extern "C" fn(*mut c_void, *mut Memory) -> c_int = std::mem::transmute(memory);
        let processes: unsafe extern "C" fn(*mut c_void, *mut c_uint, *mut Process) -> c_int =
            std::mem::transmute(processes);
        let (mut device, mut held) = (std::ptr::null_mut(), Memory::default());
        if start() != 0 || find(bus.as_ptr(), &mut device) != 0 || memory(device, &mut held) != 0 {
            return None;
        }
        let (mut count, mut list) = (MOST as c_uint, [Process::default(); MOST]);
        if processes(device, &mut count, list.as_mut_ptr()) != 0 {
            count = 0;
        }
        // All bits are set where the driver does not report it.
        let known = |bytes: u64| (bytes != u64::MAX).then_some(Bytes(bytes));
        let processes =
            list[..(count as usize).min(MOST)].iter().map(|process| (process.number, known(process.bytes)));
        Some(Usage {
            bytes_total: Bytes(held.total),
            bytes_used: Bytes(held.used),
            processes: processes.collect(),
        })
    }
}
