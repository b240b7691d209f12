//! Matrix products by cuBLASLt: algorithms are chosen once for each shape, by their time where it was measured, and never take
//! more workspace than they are given.

use std::collections::BTreeMap;
use std::ffi::c_void;
use std::sync::Mutex;

use cudarc::cublaslt::sys::{self, cublasStatus_t};
use memfit_ir::{Bytes, DType};

use super::driver::{CudaError, Stream};
use super::work::{Address, Product};

/// What is asked of a product besides where its matrices are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    sizes: [usize; 4],
    transposed: [bool; 2],
    dtypes: [DType; 2],
    biased: bool,
    limit: u64,
}

/// A product that was prepared.
struct Prepared {
    operation: sys::cublasLtMatmulDesc_t,
    layouts: [sys::cublasLtMatrixLayout_t; 3],
    algorithm: sys::cublasLtMatmulAlgo_t,
    workspace: usize,
}

/// The library.
pub(crate) struct Products {
    handle: sys::cublasLtHandle_t,
    /// Whether f32 may be multiplied in TF32.
    tf32: bool,
    prepared: Mutex<BTreeMap<Key, Prepared>>,
}

// SAFETY: the library's handle may be used from any thread, and what was prepared is behind a lock.
unsafe impl Send for Products {}
// SAFETY: as above.
unsafe impl Sync for Products {}

/// Addresses of a product's operands and workspace.
pub(crate) struct Places {
    pub(crate) a: u64,
    pub(crate) b: u64,
    pub(crate) d: u64,
    pub(crate) bias: u64,
    pub(crate) workspace: u64,
    pub(crate) workspace_bytes: usize,
}

fn check(status: cublasStatus_t, what: &str) -> Result<(), CudaError> {
    if status == cublasStatus_t::CUBLAS_STATUS_SUCCESS {
        Ok(())
    } else {
        Err(CudaError(format!("cannot {what}: cuBLASLt answers {status:?}")))
    }
}

impl Products {
    pub(crate) fn open(tf32: bool) -> Result<Products, CudaError> {
        let mut handle = std::ptr::null_mut();
        // SAFETY: the library writes a handle.
        check(unsafe { sys::cublasLtCreate(&mut handle) }, "open cuBLASLt")?;
        Ok(Products { handle, tf32, prepared: Mutex::default() })
    }

    /// The workspace of the best way to compute a product that takes no more than this.
    pub(crate) fn workspace(&self, product: &Product, limit: Bytes) -> Result<Bytes, CudaError> {
        let key = key(product, limit.0);
        let mut prepared = self.prepared.lock().expect("nobody panics with the lock");
        Ok(Bytes(self.prepare(&mut prepared, key)?.workspace as u64))
    }

    /// Runs a product.
    pub(crate) fn run(&self, stream: &Stream, product: &Product, places: &Places) -> Result<(), CudaError> {
        // Beyond this no algorithm wants more, and equal limits share what was prepared.
        let key = key(product, places.workspace_bytes as u64);
        let mut prepared = self.prepared.lock().expect("nobody panics with the lock");
        let known = self.prepare(&mut prepared, key)?;
        let (one, rest) = (1.0f32, f32::from(u8::from(product.adds)));
        let (one, rest) = (std::ptr::from_ref(&one).cast(), std::ptr::from_ref(&rest).cast());
        let [layout_b, layout_a, layout_d] = known.layouts;
        // SAFETY: the plan vouches for the operands, which hold as many elements as the layouts say; the workspace is as large
        // as the algorithm asks.
        unsafe {
            if product.bias.is_some() {
                let attribute = sys::cublasLtMatmulDescAttributes_t::CUBLASLT_MATMUL_DESC_BIAS_POINTER;
                set_operation(known.operation, attribute, &places.bias)?;
            }
            check(
                sys::cublasLtMatmul(
                    self.handle,
                    known.operation,
                    one,
                    places.b as *const c_void,
                    layout_b,
                    places.a as *const c_void,
                    layout_a,
                    rest,
                    places.d as *const c_void,
                    layout_d,
                    places.d as *mut c_void,
                    layout_d,
                    &known.algorithm,
                    places.workspace as *mut c_void,
                    known.workspace,
                    stream.raw().cast(),
                ),
                "multiply matrices",
            )
        }
    }

    fn prepare<'a>(
        &self,
        prepared: &'a mut BTreeMap<Key, Prepared>,
        key: Key,
    ) -> Result<&'a Prepared, CudaError> {
        if !prepared.contains_key(&key) {
            let made = self.make(key)?;
            prepared.insert(key, made);
        }
        Ok(&prepared[&key])
    }

    /// The library counts columns first: row by row, `d = a b` is `dᵀ = bᵀ aᵀ` there.
    fn make(&self, key: Key) -> Result<Prepared, CudaError> {
        use sys::cublasComputeType_t::{CUBLAS_COMPUTE_32F, CUBLAS_COMPUTE_32F_FAST_TF32};
        let [m, n, k, count] = key.sizes;
        let [dtype, dtype_result] = key.dtypes;
        let [transpose_a, transpose_b] = key.transposed;
        let compute =
            if dtype == DType::F32 && self.tf32 { CUBLAS_COMPUTE_32F_FAST_TF32 } else { CUBLAS_COMPUTE_32F };
        let mut operation = std::ptr::null_mut();
        let mut preference = std::ptr::null_mut();
        let limit = usize::try_from(key.limit).unwrap_or(usize::MAX);
        // SAFETY: the library makes descriptors and reads attributes of the sizes it is told. Descriptors stay as long as the
        // program: there are as many as there are shapes.
        unsafe {
            let scale = sys::cudaDataType_t::CUDA_R_32F;
            check(sys::cublasLtMatmulDescCreate(&mut operation, compute, scale), "describe a product")?;
            use sys::cublasLtMatmulDescAttributes_t as Attribute;
            set_operation(operation, Attribute::CUBLASLT_MATMUL_DESC_TRANSA, &transpose(transpose_b))?;
            set_operation(operation, Attribute::CUBLASLT_MATMUL_DESC_TRANSB, &transpose(transpose_a))?;
            if key.biased {
                let epilogue = sys::cublasLtEpilogue_t::CUBLASLT_EPILOGUE_BIAS;
                set_operation(operation, Attribute::CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue)?;
            }
            let layouts = [
                layout(dtype, if transpose_b { [k, n] } else { [n, k] }, count)?,
                layout(dtype, if transpose_a { [m, k] } else { [k, m] }, count)?,
                layout(dtype_result, [n, m], count)?,
            ];
            check(sys::cublasLtMatmulPreferenceCreate(&mut preference), "describe a product")?;
            let attribute =
                sys::cublasLtMatmulPreferenceAttributes_t::CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES;
            let value = std::ptr::from_ref(&limit).cast();
            check(
                sys::cublasLtMatmulPreferenceSetAttribute(preference, attribute, value, size_of::<usize>()),
                "describe a product",
            )?;
            let mut found: [sys::cublasLtMatmulHeuristicResult_t; 1] = std::mem::zeroed();
            let mut number = 0;
            let [b, a, d] = layouts;
            let asked = sys::cublasLtMatmulAlgoGetHeuristic(
                self.handle,
                operation,
                b,
                a,
                d,
                d,
                preference,
                1,
                found.as_mut_ptr(),
                &mut number,
            );
            sys::cublasLtMatmulPreferenceDestroy(preference);
            check(asked, &format!("find a way to multiply {key:?}"))?;
            if number == 0 {
                return Err(CudaError(format!("cuBLASLt knows no way to multiply {key:?}")));
            }
            Ok(Prepared { operation, layouts, algorithm: found[0].algo, workspace: found[0].workspaceSize })
        }
    }
}

fn key(product: &Product, limit: u64) -> Key {
    let Product { m, n, k, count, transpose_a, transpose_b, dtype, dtype_result, bias, .. } = *product;
    let biased = bias.is_some_and(|_: Address| true);
    Key {
        sizes: [m, n, k, count],
        transposed: [transpose_a, transpose_b],
        dtypes: [dtype, dtype_result],
        biased,
        limit,
    }
}

/// `cublasOperation_t`, which has no binding: 0 as it stands, 1 transposed.
fn transpose(is_transposed: bool) -> i32 {
    i32::from(is_transposed)
}

unsafe fn set_operation<T>(
    operation: sys::cublasLtMatmulDesc_t,
    attribute: sys::cublasLtMatmulDescAttributes_t,
    value: &T,
) -> Result<(), CudaError> {
    let pointer = std::ptr::from_ref(value).cast();
    // SAFETY: the caller gives a value of the attribute's type.
    let set = unsafe { sys::cublasLtMatmulDescSetAttribute(operation, attribute, pointer, size_of::<T>()) };
    check(set, "describe a product")
}

/// A matrix of so many rows and columns, stored column by column, several of them one behind the other.
unsafe fn layout(
    dtype: DType,
    [rows, columns]: [usize; 2],
    count: usize,
) -> Result<sys::cublasLtMatrixLayout_t, CudaError> {
    use sys::cublasLtMatrixLayoutAttribute_t::{
        CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET,
    };
    let kind = match dtype {
        DType::F16 => sys::cudaDataType_t::CUDA_R_16F,
        DType::BF16 => sys::cudaDataType_t::CUDA_R_16BF,
        DType::F32 => sys::cudaDataType_t::CUDA_R_32F,
        DType::I32 | DType::I64 | DType::U8 | DType::Bool => {
            return Err(CudaError(format!("there is no product of {dtype}")));
        }
    };
    let mut made = std::ptr::null_mut();
    let (count, stride) = (i32::try_from(count).unwrap_or(i32::MAX), (rows * columns) as i64);
    // SAFETY: the library makes a descriptor and reads attributes of the sizes it is told.
    unsafe {
        let created =
            sys::cublasLtMatrixLayoutCreate(&mut made, kind, rows as u64, columns as u64, rows as i64);
        check(created, "describe a matrix")?;
        if count != 1 {
            let set = |attribute, value: *const c_void, size| {
                check(
                    sys::cublasLtMatrixLayoutSetAttribute(made, attribute, value, size),
                    "describe a matrix",
                )
            };
            set(CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, std::ptr::from_ref(&count).cast(), size_of::<i32>())?;
            set(
                CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET,
                std::ptr::from_ref(&stride).cast(),
                size_of::<i64>(),
            )?;
        }
    }
    Ok(made)
}

impl Drop for Products {
    fn drop(&mut self) {
        // SAFETY: opened once, closed once.
        let _ = unsafe { sys::cublasLtDestroy(self.handle) };
    }
}
