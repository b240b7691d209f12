//! The driver: a device, its context and stream, memory that comes and goes, and launches. Every call is
//! checked.

use std::ffi::{CStr, CString, c_void};

use cudarc::driver::sys::{self, CUresult};
use memfit_ir::Bytes;

use super::compiler;
use super::libraries::{self, Library};

/// Why the GPU did not do what it was asked, in words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CudaError(pub String);

impl std::fmt::Display for CudaError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for CudaError {}

/// Turns an answer of the driver into a result.
pub(crate) fn check(result: CUresult, what: &str) -> Result<(), CudaError> {
    if result == CUresult::CUDA_SUCCESS {
        return Ok(());
    }
    let mut words = std::ptr::null();
    // SAFETY: the driver hands out a constant text.
    let known =
        unsafe { sys::cuGetErrorString(result, &mut words) } == CUresult::CUDA_SUCCESS && !words.is_null();
    // SAFETY: as above; it ends in zero.
    let words =
        if known { unsafe { CStr::from_ptr(words) }.to_string_lossy() } else { "no reason given".into() };
    Err(CudaError(format!("cannot {what}: {words} ({result:?})")))
}

/// A GPU as the driver describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Description {
    /// Its number.
    pub number: usize,
    /// Its name.
    pub name: String,
    /// Its compute capability, such as 9.0.
    pub capability: (i32, i32),
    /// All its memory.
    pub bytes_total: Bytes,
    /// Its address on the bus, by which other tools name it.
    pub bus: String,
    /// How many multiprocessors it has; this and the following are 0 where the driver does not report them.
    pub multiprocessors: i32,
    /// Their clock.
    pub clock_khz: i32,
    /// The clock of its memory.
    pub memory_clock_khz: i32,
    /// The width of its memory.
    pub memory_bus_bits: i32,
}

impl Description {
    /// What kernels are compiled for.
    pub fn architecture(&self) -> String {
        compiler::architecture(self.capability)
    }
}

/// Every GPU that the driver knows; none where there is no driver.
pub fn descriptions() -> Result<Vec<Description>, CudaError> {
    if libraries::find(Library::Driver).path.is_none() {
        return Ok(Vec::new());
    }
    let mut count = 0;
    // SAFETY: the driver writes one number.
    unsafe {
        let started = sys::cuInit(0);
        if started == CUresult::CUDA_ERROR_NO_DEVICE {
            return Ok(Vec::new());
        }
        check(started, "start the driver")?;
        check(sys::cuDeviceGetCount(&mut count), "count devices")?;
    }
    (0..count).map(describe).collect()
}

fn describe(number: i32) -> Result<Description, CudaError> {
    use sys::CUdevice_attribute::{
        CU_DEVICE_ATTRIBUTE_CLOCK_RATE, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR,
        CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH,
        CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT,
    };
    let (mut device, mut total, mut major, mut minor) = (0, 0usize, 0, 0);
    let (mut name, mut bus) = ([0; 128], [0; 32]);
    // SAFETY: the driver writes numbers, and zero-terminated texts within the lengths that it is given.
    let (name, bus) = unsafe {
        check(sys::cuDeviceGet(&mut device, number), "find the device")?;
        check(sys::cuDeviceGetName(name.as_mut_ptr(), 128, device), "read the device's name")?;
        check(sys::cuDeviceTotalMem_v2(&mut total, device), "read the device's memory")?;
        check(sys::cuDeviceGetPCIBusId(bus.as_mut_ptr(), 32, device), "read the device's address")?;
        for (value, attribute) in [
            (&mut major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR),
            (&mut minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR),
        ] {
            check(sys::cuDeviceGetAttribute(value, attribute, device), "read the compute capability")?;
        }
        (CStr::from_ptr(name.as_ptr()), CStr::from_ptr(bus.as_ptr()))
    };
    let number_of = |attribute: sys::CUdevice_attribute| {
        let mut value = 0;
        // SAFETY: the driver writes one number.
        let answer = unsafe { sys::cuDeviceGetAttribute(&mut value, attribute, device) };
        if answer == CUresult::CUDA_SUCCESS { value } else { 0 }
    };
    Ok(Description {
        number: usize::try_from(number).expect("devices are counted from 0"),
        name: name.to_string_lossy().into_owned(),
        capability: (major, minor),
        bytes_total: Bytes(total as u64),
        bus: bus.to_string_lossy().into_owned(),
        multiprocessors: number_of(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT),
        clock_khz: number_of(CU_DEVICE_ATTRIBUTE_CLOCK_RATE),
        memory_clock_khz: number_of(CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE),
        memory_bus_bits: number_of(CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH),
    })
}

/// A device's context, kept while this lives.
pub(crate) struct Context {
    device: sys::CUdevice,
    context: sys::CUcontext,
}

// SAFETY: a context may be made current on any thread.
unsafe impl Send for Context {}
// SAFETY: as above; the driver locks what it must.
unsafe impl Sync for Context {}

impl Context {
    pub(crate) fn open(number: usize) -> Result<Context, CudaError> {
        let number = i32::try_from(number).map_err(|_| CudaError(format!("there is no device {number}")))?;
        let (mut device, mut context) = (0, std::ptr::null_mut());
        // SAFETY: the driver writes a number and a handle.
        unsafe {
            check(sys::cuInit(0), "start the driver")?;
            check(sys::cuDeviceGet(&mut device, number), "find the device")?;
            check(sys::cuDevicePrimaryCtxRetain(&mut context, device), "open the device")?;
        }
        let context = Context { device, context };
        context.make_current()?;
        Ok(context)
    }

    /// Makes the context that of this thread; every call of the driver is for the current one.
    pub(crate) fn make_current(&self) -> Result<(), CudaError> {
        // SAFETY: the handle is alive.
        check(unsafe { sys::cuCtxSetCurrent(self.context) }, "enter the device's context")
    }

    pub(crate) fn device(&self) -> sys::CUdevice {
        self.device
    }

    /// Free and total memory.
    pub(crate) fn bytes_free(&self) -> Result<(Bytes, Bytes), CudaError> {
        let (mut free, mut total) = (0usize, 0usize);
        self.make_current()?;
        // SAFETY: the driver writes two numbers.
        check(unsafe { sys::cuMemGetInfo_v2(&mut free, &mut total) }, "read the free memory")?;
        Ok((Bytes(free as u64), Bytes(total as u64)))
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: retained once, released once. There is no use for an error at this point.
        let _ = unsafe { sys::cuDevicePrimaryCtxRelease_v2(self.device) };
    }
}

/// An order of work on the device.
pub(crate) struct Stream {
    stream: sys::CUstream,
}

// SAFETY: a stream may be used from any thread, one at a time; its owner ensures that.
unsafe impl Send for Stream {}
// SAFETY: as above.
unsafe impl Sync for Stream {}

impl Stream {
    /// A new stream of the current context.
    pub(crate) fn new() -> Result<Stream, CudaError> {
        let mut stream = std::ptr::null_mut();
        // Without waiting for the default stream, which is not used here.
        // SAFETY: the driver writes a handle.
        check(unsafe { sys::cuStreamCreate(&mut stream, 1) }, "make a stream")?;
        Ok(Stream { stream })
    }

    pub(crate) fn raw(&self) -> sys::CUstream {
        self.stream
    }

    /// Waits until everything is done.
    pub(crate) fn synchronise(&self) -> Result<(), CudaError> {
        // SAFETY: the handle is alive.
        check(unsafe { sys::cuStreamSynchronize(self.stream) }, "wait for the device")
    }

    /// Lets nothing that follows run before a moment of another stream.
    pub(crate) fn wait_for(&self, event: &Event) -> Result<(), CudaError> {
        // SAFETY: both handles are alive.
        check(unsafe { sys::cuStreamWaitEvent(self.stream, event.event, 0) }, "wait for a moment")
    }

    /// Begins to capture launches into a graph instead of running them.
    pub(crate) fn begin_capture(&self) -> Result<(), CudaError> {
        let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        // SAFETY: the handle is alive.
        check(unsafe { sys::cuStreamBeginCapture_v2(self.stream, mode) }, "begin a capture")
    }

    /// Ends a capture and instantiates its graph.
    pub(crate) fn end_capture(&self) -> Result<CapturedGraph, CudaError> {
        let (mut graph, mut exec) = (std::ptr::null_mut(), std::ptr::null_mut());
        // SAFETY: the driver writes handles; the graph is destroyed once it was instantiated.
        unsafe {
            check(sys::cuStreamEndCapture(self.stream, &mut graph), "end a capture")?;
            let made = check(sys::cuGraphInstantiateWithFlags(&mut exec, graph, 0), "instantiate a graph");
            sys::cuGraphDestroy(graph);
            made?;
            let captured = CapturedGraph { exec };
            check(sys::cuGraphUpload(exec, self.stream), "upload a graph")?;
            Ok(captured)
        }
    }

    /// Launches a captured graph.
    pub(crate) fn launch_graph(&self, graph: &CapturedGraph) -> Result<(), CudaError> {
        // SAFETY: both handles are alive.
        check(unsafe { sys::cuGraphLaunch(graph.exec, self.stream) }, "launch a graph")
    }

    /// Copies from host memory that stays where it is until the copy is done.
    pub(crate) unsafe fn upload(&self, from: *const c_void, to: u64, bytes: usize) -> Result<(), CudaError> {
        // SAFETY: the caller's promise.
        check(unsafe { sys::cuMemcpyHtoDAsync_v2(to, from, bytes, self.stream) }, "copy to the device")
    }

    /// Copies to host memory that is not read until the copy is done.
    pub(crate) unsafe fn download(&self, from: u64, to: *mut c_void, bytes: usize) -> Result<(), CudaError> {
        // SAFETY: the caller's promise.
        check(unsafe { sys::cuMemcpyDtoHAsync_v2(to, from, bytes, self.stream) }, "copy from the device")
    }

    /// Copies within the device.
    pub(crate) unsafe fn copy(&self, from: u64, to: u64, bytes: usize) -> Result<(), CudaError> {
        // SAFETY: the caller's promise: both ranges are memory of the device.
        check(unsafe { sys::cuMemcpyDtoDAsync_v2(to, from, bytes, self.stream) }, "copy on the device")
    }

    /// Fills a range with a byte.
    pub(crate) unsafe fn fill(&self, to: u64, byte: u8, bytes: usize) -> Result<(), CudaError> {
        // SAFETY: the caller's promise.
        check(unsafe { sys::cuMemsetD8Async(to, byte, bytes, self.stream) }, "clear memory of the device")
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        // SAFETY: made once, destroyed once.
        let _ = unsafe { sys::cuStreamDestroy_v2(self.stream) };
    }
}

/// A captured graph of launches.
pub(crate) struct CapturedGraph {
    exec: sys::CUgraphExec,
}

// SAFETY: a handle that its owner uses from one thread at a time.
unsafe impl Send for CapturedGraph {}

impl Drop for CapturedGraph {
    fn drop(&mut self) {
        // SAFETY: made once, destroyed once.
        let _ = unsafe { sys::cuGraphExecDestroy(self.exec) };
    }
}

/// A moment in a stream.
pub(crate) struct Event {
    event: sys::CUevent,
}

// SAFETY: a handle that its owner uses from one thread at a time.
unsafe impl Send for Event {}
// SAFETY: as above.
unsafe impl Sync for Event {}

impl Event {
    pub(crate) fn new() -> Result<Event, CudaError> {
        let mut event = std::ptr::null_mut();
        // SAFETY: the driver writes a handle.
        check(unsafe { sys::cuEventCreate(&mut event, 0) }, "make an event")?;
        Ok(Event { event })
    }

    pub(crate) fn record(&self, stream: &Stream) -> Result<(), CudaError> {
        // SAFETY: both handles are alive.
        check(unsafe { sys::cuEventRecord(self.event, stream.stream) }, "mark a moment")
    }

    pub(crate) fn wait(&self) -> Result<(), CudaError> {
        // SAFETY: the handle is alive.
        check(unsafe { sys::cuEventSynchronize(self.event) }, "wait for the device")
    }

    /// Milliseconds since an earlier moment; both have passed.
    pub(crate) fn milliseconds_since(&self, earlier: &Event) -> Result<f32, CudaError> {
        type ElapsedTime = unsafe extern "C" fn(*mut f32, sys::CUevent, sys::CUevent) -> CUresult;
        // The bindings have a newer form alone, which drivers for CUDA 12 are without.
        let address = libraries::function(c"libcuda.so.1", c"cuEventElapsedTime").ok_or_else(|| {
            CudaError("cannot measure a time: the driver has no function for it".to_owned())
        })?;
        let mut milliseconds = 0.0;
        // SAFETY: the driver's function of this name has this form since its first versions, and writes one
        // number.
        let answer = unsafe {
            let elapsed = std::mem::transmute::<*mut c_void, ElapsedTime>(address);
            elapsed(&mut milliseconds, earlier.event, self.event)
        };
        check(answer, "measure a time")?;
        Ok(milliseconds)
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        // SAFETY: made once, destroyed once.
        let _ = unsafe { sys::cuEventDestroy_v2(self.event) };
    }
}

/// Compiled kernels on the device.
pub(crate) struct Module {
    module: sys::CUmodule,
}

// SAFETY: modules are read only once they are loaded.
unsafe impl Send for Module {}
// SAFETY: as above.
unsafe impl Sync for Module {}

/// A kernel that can be launched.
#[derive(Clone, Copy)]
pub(crate) struct Function(sys::CUfunction);

// SAFETY: as for modules.
unsafe impl Send for Function {}
// SAFETY: as above.
unsafe impl Sync for Function {}

impl Module {
    /// Loads machine code into the current context, where it stays as long as this lives.
    pub(crate) fn load(code: &[u8]) -> Result<Module, CudaError> {
        let mut module = std::ptr::null_mut();
        // SAFETY: the driver reads machine code that the compiler made.
        check(unsafe { sys::cuModuleLoadData(&mut module, code.as_ptr().cast()) }, "load a kernel")?;
        Ok(Module { module })
    }

    pub(crate) fn function(&self, name: &str) -> Result<Function, CudaError> {
        let name = CString::new(name).map_err(|_| CudaError("a kernel's name has no zero".to_owned()))?;
        let mut function = std::ptr::null_mut();
        // SAFETY: the driver writes a handle; the name ends in zero.
        unsafe {
            check(sys::cuModuleGetFunction(&mut function, self.module, name.as_ptr()), "find a kernel")?;
            // Loaded now, and not at its first launch, when nothing may be taken any more.
            check(sys::cuFuncLoad(function), "load a kernel")?;
        }
        Ok(Function(function))
    }
}

impl Drop for Module {
    fn drop(&mut self) {
        // SAFETY: loaded once, unloaded once.
        let _ = unsafe { sys::cuModuleUnload(self.module) };
    }
}

/// Launches a kernel. `arguments` point to values of the types that its parameters have.
pub(crate) unsafe fn launch(
    stream: &Stream,
    function: Function,
    blocks: [u32; 3],
    threads: u32,
    arguments: &mut [*mut c_void],
) -> Result<(), CudaError> {
    let [x, y, z] = blocks;
    // SAFETY: the caller's promise.
    let launched = unsafe {
        sys::cuLaunchKernel(
            function.0,
            x,
            y,
            z,
            threads,
            1,
            1,
            0,
            stream.stream,
            arguments.as_mut_ptr(),
            std::ptr::null_mut(),
        )
    };
    check(launched, "launch a kernel")
}
