//! Descriptors of cuDNN's backend interface: each is created, given attributes by their numbers, finalised,
//! and destroyed when it is dropped. The library checks that an attribute has the expected type and count.

use std::ffi::c_void;

use cudarc::cudnn::sys::{
    self, cudnnBackendAttributeName_t as Name, cudnnBackendAttributeType_t as Type,
    cudnnBackendDescriptorType_t as Kind, cudnnStatus_t,
};

use super::driver::CudaError;

/// A descriptor.
pub(crate) struct Descriptor(sys::cudnnBackendDescriptor_t);

/// What an attribute can be.
pub(crate) trait Value: Copy {
    /// The library's word for it.
    const TYPE: Type;
}

/// The library's handle as an attribute.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(crate) struct Handle(pub(crate) sys::cudnnHandle_t);

/// An address on the device.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(crate) struct Pointer(pub(crate) u64);

impl Value for i64 {
    const TYPE: Type = Type::CUDNN_TYPE_INT64;
}
impl Value for f32 {
    const TYPE: Type = Type::CUDNN_TYPE_FLOAT;
}
impl Value for bool {
    const TYPE: Type = Type::CUDNN_TYPE_BOOLEAN;
}
impl Value for Handle {
    const TYPE: Type = Type::CUDNN_TYPE_HANDLE;
}
impl Value for Pointer {
    const TYPE: Type = Type::CUDNN_TYPE_VOID_PTR;
}
impl Value for sys::cudnnDataType_t {
    const TYPE: Type = Type::CUDNN_TYPE_DATA_TYPE;
}
impl Value for sys::cudnnConvolutionMode_t {
    const TYPE: Type = Type::CUDNN_TYPE_CONVOLUTION_MODE;
}
impl Value for sys::cudnnPointwiseMode_t {
    const TYPE: Type = Type::CUDNN_TYPE_POINTWISE_MODE;
}
impl Value for sys::cudnnBackendHeurMode_t {
    const TYPE: Type = Type::CUDNN_TYPE_HEUR_MODE;
}

/// An answer of the library as ours.
pub(crate) fn check(status: cudnnStatus_t, what: &str) -> Result<(), CudaError> {
    if status == cudnnStatus_t::CUDNN_STATUS_SUCCESS {
        Ok(())
    } else {
        Err(CudaError(format!("cannot {what}: cuDNN answers {status:?}")))
    }
}

impl Descriptor {
    /// An empty one.
    pub(crate) fn new(kind: Kind) -> Result<Descriptor, CudaError> {
        let mut made = std::ptr::null_mut();
        // SAFETY: the library makes a descriptor.
        check(unsafe { sys::cudnnBackendCreateDescriptor(kind, &mut made) }, "describe a convolution")?;
        Ok(Descriptor(made))
    }

    /// With an attribute of one number or several.
    pub(crate) fn with<T: Value>(self, name: Name, values: &[T]) -> Result<Descriptor, CudaError> {
        // SAFETY: there are as many values as is said, and the type says what they are.
        unsafe { self.set(name, T::TYPE, values.len(), values.as_ptr().cast())? };
        Ok(self)
    }

    /// With an attribute of other descriptors.
    pub(crate) fn with_parts(self, name: Name, parts: &[&Descriptor]) -> Result<Descriptor, CudaError> {
        let parts: Vec<_> = parts.iter().map(|part| part.0).collect();
        let kind = Type::CUDNN_TYPE_BACKEND_DESCRIPTOR;
        // SAFETY: as above.
        unsafe { self.set(name, kind, parts.len(), parts.as_ptr().cast())? };
        Ok(self)
    }

    unsafe fn set(
        &self,
        name: Name,
        kind: Type,
        count: usize,
        values: *const c_void,
    ) -> Result<(), CudaError> {
        // SAFETY: the caller guarantees the values; the library reads them before it returns.
        let status = unsafe { sys::cudnnBackendSetAttribute(self.0, name, kind, count as i64, values) };
        check(status, "describe a convolution")
            .map_err(|CudaError(words)| CudaError(format!("{words} to {name:?}")))
    }

    /// No attribute is set any more.
    pub(crate) fn finished(self) -> Result<Descriptor, CudaError> {
        // SAFETY: a descriptor that was made by the library.
        check(unsafe { sys::cudnnBackendFinalize(self.0) }, "describe a convolution")?;
        Ok(self)
    }

    /// An attribute of one number.
    pub(crate) fn number(&self, name: Name) -> Result<i64, CudaError> {
        let mut number = [0i64];
        self.get(name, Type::CUDNN_TYPE_INT64, &mut number)?;
        Ok(number[0])
    }

    /// An attribute of up to `MOST` of the library's enumerations, by their numbers.
    pub(crate) fn enumerated<const MOST: usize>(
        &self,
        name: Name,
        kind: Type,
    ) -> Result<Vec<i32>, CudaError> {
        let mut found = [0i32; MOST];
        let count = self.get(name, kind, &mut found)?;
        Ok(found[..count.min(MOST)].to_vec())
    }

    /// An attribute of other descriptors of a kind, of which there are at most `most`.
    pub(crate) fn parts(&self, name: Name, kind: Kind, most: usize) -> Result<Vec<Descriptor>, CudaError> {
        let parts: Result<Vec<Descriptor>, CudaError> = (0..most).map(|_| Descriptor::new(kind)).collect();
        let mut parts = parts?;
        // The library fills descriptors that were made for it.
        let mut places: Vec<_> = parts.iter().map(|part| part.0).collect();
        let count = self.get(name, Type::CUDNN_TYPE_BACKEND_DESCRIPTOR, &mut places)?;
        parts.truncate(count);
        Ok(parts)
    }

    /// How many elements an attribute has; those that have room are written.
    fn get<T>(&self, name: Name, kind: Type, into: &mut [T]) -> Result<usize, CudaError> {
        let mut count = 0i64;
        let room = into.len() as i64;
        let place = into.as_mut_ptr().cast();
        // SAFETY: the library writes no more elements than there is room for.
        let status = unsafe { sys::cudnnBackendGetAttribute(self.0, name, kind, room, &mut count, place) };
        check(status, "read of a convolution")?;
        Ok(usize::try_from(count).unwrap_or(0))
    }

    /// Runs a plan with the pointers of a pack.
    ///
    /// # Safety
    /// The pointers are of operands that are as large as the plan's, and of a workspace that is as large as
    /// it asks.
    pub(crate) unsafe fn execute(&self, handle: Handle, pack: &Descriptor) -> Result<(), CudaError> {
        // SAFETY: the caller guarantees what is pointed to.
        check(unsafe { sys::cudnnBackendExecute(handle.0, self.0, pack.0) }, "convolve")
    }
}

impl Drop for Descriptor {
    fn drop(&mut self) {
        // SAFETY: made once, given back once.
        let _ = unsafe { sys::cudnnBackendDestroyDescriptor(self.0) };
    }
}
