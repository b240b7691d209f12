//! Matrix products by cuBLASLt: algorithms are chosen once for each shape, by their time where it was
//! measured, and never take more workspace than they are given.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::ffi::c_void;
use std::sync::Mutex;

use cudarc::cublaslt::sys::{self, cublasStatus_t};
use memfit_ir::{ALIGNMENT, Bytes, DType};

use super::candidates::Candidates;
use super::driver::{CudaError, Stream};
use super::times::Times;
use super::work::{Address, Product};

/// Algorithms that are looked at.
const WAYS: usize = 8;

/// No algorithm gains by more.
const WORKSPACE_MOST: usize = 64 << 20;

/// What is asked of a product besides where its matrices are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    sizes: [usize; 4],
    transposed: [bool; 2],
    dtypes: [DType; 2],
    biased: bool,
}

/// A product that was prepared.
struct Prepared {
    operation: sys::cublasLtMatmulDesc_t,
    layouts: [sys::cublasLtMatrixLayout_t; 3],
    candidates: Candidates<sys::cublasLtMatmulAlgo_t>,
}

/// The library.
pub(crate) struct Products {
    handle: sys::cublasLtHandle_t,
    /// Whether f32 may be multiplied in TF32.
    tf32: bool,
    prepared: Mutex<BTreeMap<Key, Prepared>>,
}

// SAFETY: the library's handle may be used from any thread, and a lock guards what was prepared.
unsafe impl Send for Products {}
// SAFETY: as above.
unsafe impl Sync for Products {}

/// Addresses of a product's operands and workspace.
pub(crate) struct Places {
    pub(crate) a: u64,
    pub(crate) b: u64,
    pub(crate) c: u64,
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

    /// The workspace of the best algorithm for a product that needs no more than this.
    pub(crate) fn workspace(&self, product: &Product, limit: Bytes) -> Result<Bytes, CudaError> {
        let mut prepared = self.prepared.lock().expect("no thread panics while it holds the lock");
        let known = self.prepare(&mut prepared, key(product))?;
        Ok(Bytes(best(known, limit.to_usize(), product)?.1 as u64))
    }

    /// Workspaces within a limit that make a difference, with their milliseconds, the least first; none where
    /// nothing was timed.
    pub(crate) fn offered(
        &self,
        product: &Product,
        limit: Bytes,
    ) -> Result<Option<Vec<(usize, f32)>>, CudaError> {
        let mut prepared = self.prepared.lock().expect("no thread panics while it holds the lock");
        Ok(self.prepare(&mut prepared, key(product))?.candidates.offered(limit.to_usize()))
    }

    /// Runs a product.
    pub(crate) fn run(&self, stream: &Stream, product: &Product, places: &Places) -> Result<(), CudaError> {
        let mut prepared = self.prepared.lock().expect("no thread panics while it holds the lock");
        let known = self.prepare(&mut prepared, key(product))?;
        let (algorithm, workspace) = best(known, places.workspace_bytes, product)?;
        self.multiply(stream, product, places, known.operation, known.layouts, &algorithm, workspace)
    }

    /// Times the algorithms for a product, where that was not done yet.
    pub(crate) fn time(
        &self,
        stream: &Stream,
        product: &Product,
        places: &Places,
        times: &Times,
    ) -> Result<(), CudaError> {
        let mut prepared = self.prepared.lock().expect("no thread panics while it holds the lock");
        let known = self.prepare(&mut prepared, key(product))?;
        if known.candidates.is_timed() {
            return Ok(());
        }
        let (operation, layouts) = (known.operation, known.layouts);
        let name = format!("{:?} tf32 {}", key(product), self.tf32);
        known.candidates.time(stream, places.workspace_bytes, times, &name, |algorithm, workspace| {
            self.multiply(stream, product, places, operation, layouts, &algorithm, workspace)
        })
    }

    fn multiply(
        &self,
        stream: &Stream,
        product: &Product,
        places: &Places,
        operation: sys::cublasLtMatmulDesc_t,
        [layout_b, layout_a, layout_d]: [sys::cublasLtMatrixLayout_t; 3],
        algorithm: &sys::cublasLtMatmulAlgo_t,
        workspace: usize,
    ) -> Result<(), CudaError> {
        assert!(
            workspace <= places.workspace_bytes,
            "the plan gives a product the workspace that it was asked for"
        );
        let (one, rest) = (1.0f32, f32::from(u8::from(product.adds || product.c.is_some())));
        let (one, rest) = (std::ptr::from_ref(&one).cast(), std::ptr::from_ref(&rest).cast());
        // SAFETY: the plan guarantees the operands, which hold as many elements as the layouts say; the
        // workspace is as large as the algorithm asks.
        unsafe {
            if product.bias.is_some() {
                let attribute = sys::cublasLtMatmulDescAttributes_t::CUBLASLT_MATMUL_DESC_BIAS_POINTER;
                set_operation(operation, attribute, &places.bias)?;
            }
            check(
                sys::cublasLtMatmul(
                    self.handle,
                    operation,
                    one,
                    places.b as *const c_void,
                    layout_b,
                    places.a as *const c_void,
                    layout_a,
                    rest,
                    places.c as *const c_void,
                    layout_d,
                    places.d as *mut c_void,
                    layout_d,
                    algorithm,
                    places.workspace as *mut c_void,
                    workspace,
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
    ) -> Result<&'a mut Prepared, CudaError> {
        Ok(match prepared.entry(key) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(place) => place.insert(self.make(key)?),
        })
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
        // SAFETY: the library makes descriptors and reads attributes of the sizes it is given. Descriptors
        // stay as long as the program: there are as many as there are shapes.
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
            // Algorithms without workspace may come after all others, and must be known.
            let mut algorithms = self.algorithms(operation, layouts, WORKSPACE_MOST)?;
            algorithms.extend(self.algorithms(operation, layouts, 0)?);
            if algorithms.is_empty() {
                return Err(CudaError(format!("cuBLASLt has no algorithm to multiply {key:?}")));
            }
            Ok(Prepared { operation, layouts, candidates: Candidates::new(algorithms) })
        }
    }

    /// Algorithms that take no more workspace than this, the best by the library's judgement first.
    unsafe fn algorithms(
        &self,
        operation: sys::cublasLtMatmulDesc_t,
        [b, a, d]: [sys::cublasLtMatrixLayout_t; 3],
        limit: usize,
    ) -> Result<Vec<(sys::cublasLtMatmulAlgo_t, usize)>, CudaError> {
        let mut preference = std::ptr::null_mut();
        // SAFETY: the library makes a descriptor, reads an attribute of the size it is given, and writes no
        // more results than there is room for.
        unsafe {
            check(sys::cublasLtMatmulPreferenceCreate(&mut preference), "describe a product")?;
            let attribute =
                sys::cublasLtMatmulPreferenceAttributes_t::CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES;
            let value = std::ptr::from_ref(&limit).cast();
            let set =
                sys::cublasLtMatmulPreferenceSetAttribute(preference, attribute, value, size_of::<usize>());
            check(set, "describe a product")?;
            use sys::cublasLtMatmulPreferenceAttributes_t as Attribute;
            let alignment = u32::try_from(ALIGNMENT).expect("slots begin at small multiples");
            for attribute in [
                Attribute::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES,
                Attribute::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
                Attribute::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES,
                Attribute::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES,
            ] {
                let value = std::ptr::from_ref(&alignment).cast();
                let set =
                    sys::cublasLtMatmulPreferenceSetAttribute(preference, attribute, value, size_of::<u32>());
                check(set, "describe a product")?;
            }
            let mut found: [sys::cublasLtMatmulHeuristicResult_t; WAYS] = std::mem::zeroed();
            let mut number = 0;
            let asked = sys::cublasLtMatmulAlgoGetHeuristic(
                self.handle,
                operation,
                b,
                a,
                d,
                d,
                preference,
                WAYS as i32,
                found.as_mut_ptr(),
                &mut number,
            );
            sys::cublasLtMatmulPreferenceDestroy(preference);
            // Where the library knows none, there is none.
            let known = if asked == cublasStatus_t::CUBLAS_STATUS_SUCCESS {
                usize::try_from(number).unwrap_or(0)
            } else {
                0
            };
            let works = |one: &&sys::cublasLtMatmulHeuristicResult_t| {
                one.state == cublasStatus_t::CUBLAS_STATUS_SUCCESS
            };
            Ok(found[..known].iter().filter(works).map(|one| (one.algo, one.workspaceSize)).collect())
        }
    }
}

/// The algorithm that is chosen within a limit.
fn best(
    known: &Prepared,
    limit: usize,
    product: &Product,
) -> Result<(sys::cublasLtMatmulAlgo_t, usize), CudaError> {
    let best = known.candidates.best(limit).map(|one| (one.algorithm, one.workspace));
    best.ok_or_else(|| CudaError(format!("cuBLASLt has no algorithm to multiply {product:?}")))
}

fn key(product: &Product) -> Key {
    let Product { m, n, k, count, transpose_a, transpose_b, dtype, dtype_result, bias, .. } = *product;
    let biased = bias.is_some_and(|_: Address| true);
    Key {
        sizes: [m, n, k, count],
        transposed: [transpose_a, transpose_b],
        dtypes: [dtype, dtype_result],
        biased,
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

/// A matrix of `rows` rows and `columns` columns, stored column by column; of several, one after the other.
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
    // SAFETY: the library makes a descriptor and reads attributes of the sizes it is given.
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
