//! Memory: the arena on the device, taken once, and host memory that the device reads and writes at full
//! speed.

use std::ffi::c_void;
use std::ptr::NonNull;

use cudarc::driver::sys;
use memfit_ir::{ALIGNMENT, Bytes, Slot};

use super::driver::{Context, CudaError, check};

/// One range of device memory: exactly as large as the plan says, rounded to the granule.
pub(crate) struct DeviceArena {
    start: u64,
    bytes: Bytes,
    /// The physical memory that is mapped there.
    handle: Option<sys::CUmemGenericAllocationHandle>,
}

fn properties(context: &Context) -> sys::CUmemAllocationProp {
    // SAFETY: a structure of numbers and pointers, for which zero means "nothing special".
    let mut properties: sys::CUmemAllocationProp = unsafe { std::mem::zeroed() };
    properties.type_ = sys::CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location.type_ = sys::CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE;
    properties.location.id = context.device();
    properties
}

/// The arena is taken in multiples of this.
pub(crate) fn granule(context: &Context) -> Result<Bytes, CudaError> {
    context.make_current()?;
    let mut granule = 0usize;
    let flags = sys::CUmemAllocationGranularity_flags::CU_MEM_ALLOC_GRANULARITY_MINIMUM;
    // SAFETY: the driver writes one number.
    let asked = unsafe { sys::cuMemGetAllocationGranularity(&mut granule, &properties(context), flags) };
    check(asked, "read the granule of device memory")?;
    Ok(Bytes(granule as u64))
}

impl DeviceArena {
    /// Takes `bytes` bytes, a multiple of the granule.
    pub(crate) fn map(context: &Context, bytes: Bytes) -> Result<DeviceArena, CudaError> {
        context.make_current()?;
        let granule = granule(context)?;
        let bytes = bytes.align_up(granule.0);
        let mut arena = DeviceArena { start: 0, bytes, handle: None };
        if bytes == Bytes::ZERO {
            return Ok(arena);
        }
        let size = bytes.to_usize();
        // SAFETY: addresses are reserved for this arena alone, and given back when it is dropped.
        let reserved = unsafe { sys::cuMemAddressReserve(&mut arena.start, size, 0, 0, 0) };
        check(reserved, "reserve addresses for the arena")?;
        arena.take_again(context)?;
        Ok(arena)
    }

    pub(crate) fn bytes(&self) -> Bytes {
        self.bytes
    }

    /// Gives the memory back and keeps the addresses. Nothing runs on it any more.
    pub(crate) fn give_back(&mut self) -> Result<(), CudaError> {
        let Some(handle) = self.handle.take() else { return Ok(()) };
        // SAFETY: what was mapped is unmapped once; the caller has waited for everything that ran there.
        unsafe {
            check(sys::cuMemUnmap(self.start, self.bytes.to_usize()), "unmap the arena")?;
            check(sys::cuMemRelease(handle), "give the arena back")
        }
    }

    /// Takes memory for the same addresses, where there is none.
    pub(crate) fn take_again(&mut self, context: &Context) -> Result<(), CudaError> {
        if self.handle.is_some() || self.bytes == Bytes::ZERO {
            return Ok(());
        }
        context.make_current()?;
        let (properties, size) = (properties(context), self.bytes.to_usize());
        let mut handle = 0;
        // SAFETY: the addresses are reserved for this arena alone; memory is taken for it and mapped there.
        unsafe {
            check(sys::cuMemCreate(&mut handle, size, &properties, 0), "take memory for the arena")?;
            self.handle = Some(handle);
            check(sys::cuMemMap(self.start, size, 0, handle, 0), "map the arena")?;
            let access = sys::CUmemAccessDesc {
                location: properties.location,
                flags: sys::CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
            };
            check(sys::cuMemSetAccess(self.start, size, &access, 1), "open the arena")
        }
    }

    /// The address of a slot, which must lie inside the arena at a multiple of [`ALIGNMENT`].
    pub(crate) fn address(&self, slot: Slot) -> u64 {
        if slot.bytes == Bytes::ZERO {
            return self.start;
        }
        assert!(
            slot.offset.0.is_multiple_of(ALIGNMENT) && slot.end() <= self.bytes,
            "slot {}+{} does not lie in an arena of {} bytes",
            slot.offset.0,
            slot.bytes.0,
            self.bytes.0
        );
        self.start + slot.offset.0
    }
}

impl Drop for DeviceArena {
    fn drop(&mut self) {
        let size = self.bytes.to_usize();
        // SAFETY: what was made is unmade once, in the reverse order; parts that were never made are refused,
        // which is no harm.
        unsafe {
            if let Some(handle) = self.handle {
                sys::cuMemUnmap(self.start, size);
                sys::cuMemRelease(handle);
            }
            if self.start != 0 {
                sys::cuMemAddressFree(self.start, size);
            }
        }
    }
}

/// A few bytes of device memory outside the arena, taken when the device is opened.
pub(crate) struct Block {
    pub(crate) start: u64,
}

impl Block {
    pub(crate) fn new(bytes: usize) -> Result<Block, CudaError> {
        let mut start = 0;
        // SAFETY: the driver writes an address.
        check(unsafe { sys::cuMemAlloc_v2(&mut start, bytes) }, "take a little memory")?;
        Ok(Block { start })
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        // SAFETY: taken once, freed once.
        let _ = unsafe { sys::cuMemFree_v2(self.start) };
    }
}

/// Host memory that stays where it is, so that copies to and from the device run by themselves.
pub(crate) struct Pinned {
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: memory that its owner holds alone.
unsafe impl Send for Pinned {}
// SAFETY: shared access only reads.
unsafe impl Sync for Pinned {}

impl Pinned {
    pub(crate) fn new(bytes: usize) -> Result<Pinned, CudaError> {
        let mut start = std::ptr::null_mut();
        // SAFETY: the driver writes an address.
        check(unsafe { sys::cuMemHostAlloc(&mut start, bytes.max(64), 0) }, "take pinned host memory")?;
        let start =
            NonNull::new(start.cast()).ok_or_else(|| CudaError("no pinned host memory".to_owned()))?;
        Ok(Pinned { start, bytes })
    }

    pub(crate) fn len(&self) -> usize {
        self.bytes
    }

    /// The address of a byte.
    pub(crate) fn at(&self, offset: usize) -> *mut c_void {
        assert!(offset <= self.bytes, "a byte of the buffer");
        // SAFETY: inside, as was just checked.
        unsafe { self.start.as_ptr().add(offset).cast() }
    }

    /// A part, to be read. The device is done with it.
    pub(crate) fn part(&self, offset: usize, bytes: usize) -> &[u8] {
        assert!(offset + bytes <= self.bytes, "a part of the buffer");
        // SAFETY: as above, and borrowed with the buffer.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr().add(offset), bytes) }
    }

    /// A part, to be written. The device is done with it.
    pub(crate) fn part_mut(&mut self, offset: usize, bytes: usize) -> &mut [u8] {
        assert!(offset + bytes <= self.bytes, "a part of the buffer");
        // SAFETY: as above, and borrowed alone.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr().add(offset), bytes) }
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        // SAFETY: taken once, freed once.
        let _ = unsafe { sys::cuMemFreeHost(self.start.as_ptr().cast()) };
    }
}
