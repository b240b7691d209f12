//! Convolutions by cuDNN, NHWC: algorithms are chosen once for each shape and never take more workspace than they are given.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::ffi::c_void;
use std::sync::Mutex;

use cudarc::cudnn::sys::{self, cudnnStatus_t};
use memfit_ir::{Bytes, DType};

use super::candidates::Candidates;
use super::driver::{CudaError, Stream};
use super::times::Times;
use super::work::{Convolution, Pass};

/// What a pass over memory moves, roughly.
const BYTES_PER_MILLISECOND: f32 = 3e9;

/// The library.
pub(crate) struct Convolutions {
    handle: sys::cudnnHandle_t,
    /// No activation, which a pass with a bias asks for.
    identity: sys::cudnnActivationDescriptor_t,
    /// Whether f32 may be multiplied in TF32.
    tf32: bool,
    prepared: Mutex<BTreeMap<Key, Prepared>>,
}

// SAFETY: the handle is used behind the lock alone.
unsafe impl Send for Convolutions {}
// SAFETY: as above.
unsafe impl Sync for Convolutions {}

/// What is asked of a convolution besides where its operands are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    pass: Pass,
    rows: usize,
    input: [usize; 3],
    output: [usize; 3],
    kernel: [usize; 2],
    strides: [usize; 2],
    dilation: [usize; 2],
    pads: [usize; 2],
    groups: usize,
    dtype: DType,
    biased: bool,
}

/// A convolution that was prepared.
struct Prepared {
    descriptors: Descriptors,
    candidates: Candidates<Way>,
}

#[derive(Clone, Copy)]
struct Descriptors {
    x: sys::cudnnTensorDescriptor_t,
    y: sys::cudnnTensorDescriptor_t,
    filter: sys::cudnnFilterDescriptor_t,
    convolution: sys::cudnnConvolutionDescriptor_t,
    /// Where there is a bias.
    bias: sys::cudnnTensorDescriptor_t,
}

#[derive(Clone, Copy, Debug)]
enum Algorithm {
    Forward(sys::cudnnConvolutionFwdAlgo_t),
    Input(sys::cudnnConvolutionBwdDataAlgo_t),
    Filter(sys::cudnnConvolutionBwdFilterAlgo_t),
}

/// One of the ways that the library offers.
#[derive(Clone, Copy)]
struct Way {
    algorithm: Algorithm,
    mathematics: sys::cudnnMathType_t,
    /// Whether the bias is added in the same pass.
    adds_bias: bool,
}

/// Addresses of a convolution's operands and workspace.
pub(crate) struct Places {
    pub(crate) x: u64,
    pub(crate) filter: u64,
    pub(crate) y: u64,
    pub(crate) bias: u64,
    pub(crate) adds: bool,
    pub(crate) workspace: u64,
    pub(crate) workspace_bytes: usize,
}

fn check(status: cudnnStatus_t, what: &str) -> Result<(), CudaError> {
    if status == cudnnStatus_t::CUDNN_STATUS_SUCCESS {
        Ok(())
    } else {
        Err(CudaError(format!("cannot {what}: cuDNN answers {status:?}")))
    }
}

impl Convolutions {
    pub(crate) fn open(stream: &Stream, tf32: bool) -> Result<Convolutions, CudaError> {
        let (mut handle, mut identity) = (std::ptr::null_mut(), std::ptr::null_mut());
        let mode = sys::cudnnActivationMode_t::CUDNN_ACTIVATION_IDENTITY;
        let nan = sys::cudnnNanPropagation_t::CUDNN_PROPAGATE_NAN;
        // SAFETY: the library writes handles, and takes a stream that lives as long.
        unsafe {
            check(sys::cudnnCreate(&mut handle), "open cuDNN")?;
            check(sys::cudnnSetStream(handle, stream.raw().cast()), "give cuDNN a stream")?;
            check(sys::cudnnCreateActivationDescriptor(&mut identity), "describe a convolution")?;
            check(sys::cudnnSetActivationDescriptor(identity, mode, nan, 0.0), "describe a convolution")?;
        }
        Ok(Convolutions { handle, identity, tf32, prepared: Mutex::default() })
    }

    /// The workspace of the best way that takes no more than this.
    pub(crate) fn workspace(&self, convolution: &Convolution, limit: Bytes) -> Result<Bytes, CudaError> {
        let mut prepared = self.prepared.lock().expect("nobody panics with the lock");
        let known = self.prepare(&mut prepared, key(convolution))?;
        let best = known.candidates.best(limit.to_usize()).map(|one| Bytes(one.workspace as u64));
        best.ok_or_else(|| unknown(convolution))
    }

    /// Runs a convolution; says whether it has added its bias.
    pub(crate) fn run(&self, convolution: &Convolution, places: &Places) -> Result<bool, CudaError> {
        let mut prepared = self.prepared.lock().expect("nobody panics with the lock");
        let known = self.prepare(&mut prepared, key(convolution))?;
        let best = known.candidates.best(places.workspace_bytes).ok_or_else(|| unknown(convolution))?;
        let run = self.convolve(known.descriptors, best.way, best.workspace, places);
        run.map(|()| best.way.adds_bias).map_err(|CudaError(words)| {
            CudaError(format!("{words}, by {:?} of {:?}", best.way.algorithm, key(convolution)))
        })
    }

    /// Whether some way to compute a convolution takes no more workspace than this.
    pub(crate) fn fits(&self, convolution: &Convolution, limit: usize) -> Result<bool, CudaError> {
        let mut prepared = self.prepared.lock().expect("nobody panics with the lock");
        let known = self.prepare(&mut prepared, key(convolution))?;
        Ok(known.candidates.best(limit).is_some_and(|one| one.workspace <= limit))
    }

    /// Times the ways to compute a convolution, where that was not done yet.
    pub(crate) fn time(
        &self,
        stream: &Stream,
        convolution: &Convolution,
        places: &Places,
        times: &Times,
    ) -> Result<(), CudaError> {
        let mut prepared = self.prepared.lock().expect("nobody panics with the lock");
        let known = self.prepare(&mut prepared, key(convolution))?;
        if known.candidates.is_timed() {
            return Ok(());
        }
        let descriptors = known.descriptors;
        let name = format!("{:?} tf32 {}", key(convolution), self.tf32);
        known.candidates.time(stream, places.workspace_bytes, times, &name, |way, workspace| {
            self.convolve(descriptors, way, workspace, places)
        })?;
        // Whoever does not add the bias leaves it to another pass, which reads and writes the result.
        let elements = convolution.rows * convolution.output.iter().product::<usize>();
        let pass = 2.0 * elements as f32 * convolution.dtype.size() as f32 / BYTES_PER_MILLISECOND;
        known
            .candidates
            .add_time(|way| if convolution.bias.is_some() && !way.adds_bias { pass } else { 0.0 });
        Ok(())
    }

    fn convolve(
        &self,
        descriptors: Descriptors,
        way: Way,
        size: usize,
        places: &Places,
    ) -> Result<(), CudaError> {
        assert!(
            size <= places.workspace_bytes,
            "the plan gives a convolution the workspace that it was asked for"
        );
        let (one, zero) = (1.0f32, f32::from(u8::from(places.adds)));
        let (one, zero) = (std::ptr::from_ref(&one).cast(), std::ptr::from_ref(&zero).cast());
        let Descriptors {
            x: x_shape,
            y: y_shape,
            filter: filter_shape,
            convolution: shape,
            bias: bias_shape,
        } = descriptors;
        let (x, y, filter) = (places.x as *mut c_void, places.y as *mut c_void, places.filter as *mut c_void);
        let workspace = places.workspace as *mut c_void;
        // SAFETY: the plan vouches for the operands, which hold as many elements as the descriptors say; the workspace is as
        // large as the algorithm asks.
        unsafe {
            check(sys::cudnnSetConvolutionMathType(shape, way.mathematics), "convolve")?;
            let status = match way.algorithm {
                Algorithm::Forward(algorithm) if way.adds_bias => sys::cudnnConvolutionBiasActivationForward(
                    self.handle,
                    one,
                    x_shape,
                    x,
                    filter_shape,
                    filter,
                    shape,
                    algorithm,
                    workspace,
                    size,
                    zero,
                    y_shape,
                    y,
                    bias_shape,
                    places.bias as *const c_void,
                    self.identity,
                    y_shape,
                    y,
                ),
                Algorithm::Forward(algorithm) => sys::cudnnConvolutionForward(
                    self.handle,
                    one,
                    x_shape,
                    x,
                    filter_shape,
                    filter,
                    shape,
                    algorithm,
                    workspace,
                    size,
                    zero,
                    y_shape,
                    y,
                ),
                Algorithm::Input(algorithm) => sys::cudnnConvolutionBackwardData(
                    self.handle,
                    one,
                    filter_shape,
                    filter,
                    y_shape,
                    y,
                    shape,
                    algorithm,
                    workspace,
                    size,
                    zero,
                    x_shape,
                    x,
                ),
                Algorithm::Filter(algorithm) => sys::cudnnConvolutionBackwardFilter(
                    self.handle,
                    one,
                    x_shape,
                    x,
                    y_shape,
                    y,
                    shape,
                    algorithm,
                    workspace,
                    size,
                    zero,
                    filter_shape,
                    filter,
                ),
            };
            check(status, "convolve")
        }
    }

    fn prepare<'a>(
        &self,
        prepared: &'a mut BTreeMap<Key, Prepared>,
        key: Key,
    ) -> Result<&'a mut Prepared, CudaError> {
        Ok(match prepared.entry(key) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(place) => {
                let descriptors = self.describe(&key)?;
                let candidates = Candidates::new(self.ways(&key, descriptors)?);
                place.insert(Prepared { descriptors, candidates })
            }
        })
    }

    fn describe(&self, key: &Key) -> Result<Descriptors, CudaError> {
        let what = "describe a convolution";
        let kind = match key.dtype {
            DType::F32 => sys::cudnnDataType_t::CUDNN_DATA_FLOAT,
            DType::F16 => sys::cudnnDataType_t::CUDNN_DATA_HALF,
            DType::BF16 => sys::cudnnDataType_t::CUDNN_DATA_BFLOAT16,
            DType::I32 | DType::I64 | DType::U8 | DType::Bool => {
                return Err(CudaError(format!("there is no convolution of {}", key.dtype)));
            }
        };
        let nhwc = sys::cudnnTensorFormat_t::CUDNN_TENSOR_NHWC;
        let number = |count: usize| i32::try_from(count).unwrap_or(i32::MAX);
        let image = |[height, width, channels]: [usize; 3]| -> Result<_, CudaError> {
            let mut made = std::ptr::null_mut();
            let [n, c, h, w] = [key.rows, channels, height, width].map(number);
            // SAFETY: the library makes a descriptor and sets its numbers.
            unsafe {
                check(sys::cudnnCreateTensorDescriptor(&mut made), what)?;
                check(sys::cudnnSetTensor4dDescriptor(made, nhwc, kind, n, c, h, w), what)?;
            }
            Ok(made)
        };
        let one_pixel = |channels: usize| -> Result<_, CudaError> {
            let mut made = std::ptr::null_mut();
            // SAFETY: as above.
            unsafe {
                check(sys::cudnnCreateTensorDescriptor(&mut made), what)?;
                check(sys::cudnnSetTensor4dDescriptor(made, nhwc, kind, 1, number(channels), 1, 1), what)?;
            }
            Ok(made)
        };
        let (x, y) = (image(key.input)?, image(key.output)?);
        let bias = if key.biased { one_pixel(key.output[2])? } else { std::ptr::null_mut() };
        let (mut filter, mut convolution) = (std::ptr::null_mut(), std::ptr::null_mut());
        let [k, c, r, s] =
            [key.output[2], key.input[2] / key.groups, key.kernel[0], key.kernel[1]].map(number);
        let [[pad_h, pad_w], [u, v], [dilation_h, dilation_w]] =
            [key.pads, key.strides, key.dilation].map(|pair| pair.map(number));
        let mode = sys::cudnnConvolutionMode_t::CUDNN_CROSS_CORRELATION;
        let single = sys::cudnnDataType_t::CUDNN_DATA_FLOAT;
        // SAFETY: as above.
        unsafe {
            check(sys::cudnnCreateFilterDescriptor(&mut filter), what)?;
            check(sys::cudnnSetFilter4dDescriptor(filter, kind, nhwc, k, c, r, s), what)?;
            check(sys::cudnnCreateConvolutionDescriptor(&mut convolution), what)?;
            let set = sys::cudnnSetConvolution2dDescriptor(
                convolution,
                pad_h,
                pad_w,
                u,
                v,
                dilation_h,
                dilation_w,
                mode,
                single,
            );
            check(set, what)?;
            check(sys::cudnnSetConvolutionGroupCount(convolution, number(key.groups)), what)?;
            check(sys::cudnnSetConvolutionMathType(convolution, self.mathematics(key.dtype)), what)?;
        }
        Ok(Descriptors { x, y, filter, convolution, bias })
    }

    fn mathematics(&self, dtype: DType) -> sys::cudnnMathType_t {
        if dtype != DType::F32 {
            sys::cudnnMathType_t::CUDNN_TENSOR_OP_MATH
        } else if self.tf32 {
            sys::cudnnMathType_t::CUDNN_DEFAULT_MATH
        } else {
            sys::cudnnMathType_t::CUDNN_FMA_MATH
        }
    }

    /// The ways that the library offers, the one it believes to be fastest first. Only those that give the same result twice.
    fn ways(&self, key: &Key, descriptors: Descriptors) -> Result<Vec<(Way, usize)>, CudaError> {
        const MOST: usize = 16;
        let Descriptors { x, y, filter, convolution, .. } = descriptors;
        let (mut count, what) = (0, "list the ways to convolve");
        let fma_only = key.dtype == DType::F32 && !self.tf32;
        let mut found = Vec::new();
        macro_rules! collect {
            ($results:expr, $variant:path) => {
                for result in &$results[..usize::try_from(count).unwrap_or(0)] {
                    let works = result.status == cudnnStatus_t::CUDNN_STATUS_SUCCESS;
                    let repeats = result.determinism == sys::cudnnDeterminism_t::CUDNN_DETERMINISTIC;
                    let cores = sys::cudnnMathType_t::CUDNN_TENSOR_OP_MATH;
                    if works && repeats && !(fma_only && result.mathType == cores) {
                        let single = sys::cudnnMathType_t::CUDNN_FMA_MATH;
                        let mathematics = if fma_only { single } else { result.mathType };
                        let way = Way { algorithm: $variant(result.algo), mathematics, adds_bias: false };
                        found.push((way, result.memory));
                    }
                }
            };
        }
        // SAFETY: the library writes at most as many results as there is room for, and says how many.
        unsafe {
            match key.pass {
                Pass::Forward => {
                    let mut results: [sys::cudnnConvolutionFwdAlgoPerf_t; MOST] = std::mem::zeroed();
                    check(
                        sys::cudnnGetConvolutionForwardAlgorithm_v7(
                            self.handle,
                            x,
                            filter,
                            convolution,
                            y,
                            MOST as i32,
                            &mut count,
                            results.as_mut_ptr(),
                        ),
                        what,
                    )?;
                    collect!(results, Algorithm::Forward);
                }
                Pass::Input => {
                    let mut results: [sys::cudnnConvolutionBwdDataAlgoPerf_t; MOST] = std::mem::zeroed();
                    check(
                        sys::cudnnGetConvolutionBackwardDataAlgorithm_v7(
                            self.handle,
                            filter,
                            y,
                            convolution,
                            x,
                            MOST as i32,
                            &mut count,
                            results.as_mut_ptr(),
                        ),
                        what,
                    )?;
                    collect!(results, Algorithm::Input);
                }
                Pass::Filter => {
                    let mut results: [sys::cudnnConvolutionBwdFilterAlgoPerf_t; MOST] = std::mem::zeroed();
                    check(
                        sys::cudnnGetConvolutionBackwardFilterAlgorithm_v7(
                            self.handle,
                            x,
                            y,
                            convolution,
                            filter,
                            MOST as i32,
                            &mut count,
                            results.as_mut_ptr(),
                        ),
                        what,
                    )?;
                    collect!(results, Algorithm::Filter);
                }
            }
        }
        // The one algorithm that can add a bias; last, since only timing tells whether it works.
        if key.biased {
            let precomputed =
                sys::cudnnConvolutionFwdAlgo_t::CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM;
            let fusing: Vec<(Way, usize)> = found
                .iter()
                .filter(|(way, _)| matches!(way.algorithm, Algorithm::Forward(one) if one == precomputed))
                .map(|(way, workspace)| (Way { adds_bias: true, ..*way }, *workspace))
                .collect();
            found.extend(fusing);
        }
        Ok(found)
    }
}

fn unknown(convolution: &Convolution) -> CudaError {
    CudaError(format!("cuDNN knows no way to convolve {:?}", key(convolution)))
}

fn key(convolution: &Convolution) -> Key {
    let Convolution { pass, rows, input, output, kernel, strides, dilation, groups, pads, dtype, .. } =
        *convolution;
    let biased = convolution.bias.is_some();
    Key { pass, rows, input, output, kernel, strides, dilation, pads, groups, dtype, biased }
}

impl Drop for Convolutions {
    fn drop(&mut self) {
        // SAFETY: opened once, closed once.
        let _ = unsafe { sys::cudnnDestroy(self.handle) };
    }
}
