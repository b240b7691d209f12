//! cuDNN's algorithms for a convolution: an operation graph describes the convolution, and the library
//! suggests engines with settings for it. Only engines that are deterministic and as exact as requested are
//! kept.

use cudarc::cudnn::sys::{
    self, cudnnBackendAttributeName_t as Name, cudnnBackendAttributeType_t as Type,
    cudnnBackendDescriptorType_t as Kind, cudnnBackendHeurMode_t as Heuristic,
    cudnnBackendNumericalNote_t as Note, cudnnPointwiseMode_t as Mode,
};
use memfit_ir::DType;

use super::backend::{Descriptor, Handle, Pointer};
use super::convolutions::Places;
use super::driver::CudaError;
use super::work::{Convolution, Pass};

/// Engines of one graph that are looked at.
const MOST: usize = 12;

/// With fewer, those are looked at too that the library has for shapes of which it knows nothing better.
const FEW: usize = 4;

/// Suggestions of one kind that are asked for.
const SUGGESTIONS: usize = 48;

/// Operands begin at multiples of this, unless a row of them is no multiple.
const ALIGNMENT: usize = 16;

/// Names of the operands within a graph.
const X: i64 = 1;
const FILTER: i64 = 2;
const Y: i64 = 3;
const BIAS: i64 = 4;
/// Values between operations, which exist in registers alone.
const CONVOLVED: i64 = 5;
const BIASED: i64 = 6;

/// What is asked of a convolution besides where its operands are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key {
    pub(crate) pass: Pass,
    pub(crate) rows: usize,
    pub(crate) input: [usize; 3],
    pub(crate) output: [usize; 3],
    pub(crate) kernel: [usize; 2],
    pub(crate) strides: [usize; 2],
    pub(crate) dilation: [usize; 2],
    pub(crate) pads: [usize; 2],
    pub(crate) groups: usize,
    pub(crate) dtype: DType,
    pub(crate) biased: bool,
    pub(crate) relu: bool,
    pub(crate) adds: bool,
}

impl Key {
    pub(crate) fn of(convolution: &Convolution) -> Key {
        let Convolution {
            pass,
            rows,
            input,
            output,
            kernel,
            strides,
            dilation,
            groups,
            pads,
            dtype,
            relu,
            adds,
            ..
        } = *convolution;
        let biased = convolution.bias.is_some();
        Key { pass, rows, input, output, kernel, strides, dilation, pads, groups, dtype, biased, relu, adds }
    }

    /// Whether bias or ReLU follow the convolution itself.
    pub(crate) fn is_finished(&self) -> bool {
        self.biased || self.relu
    }
}

/// An engine with its settings, ready to run.
pub(crate) struct Engine {
    plan: Descriptor,
    /// The engine's number and its settings.
    pub(crate) name: String,
    pub(crate) workspace: usize,
    /// Whether bias and ReLU, of which there is one at least, are seen to in the same pass.
    pub(crate) finishes: bool,
    /// Whether it reads a bias.
    biased: bool,
}

impl Engine {
    /// Puts the convolution into the library's stream.
    pub(crate) fn run(&self, handle: Handle, places: &Places) -> Result<(), CudaError> {
        assert!(
            self.workspace <= places.workspace_bytes,
            "the plan gives a convolution the workspace that it was asked for"
        );
        let [x, filter, y, bias] = [places.x, places.filter, places.y, places.bias].map(Pointer);
        let (names, pointers) = ([X, FILTER, Y, BIAS], [x, filter, y, bias]);
        let count = if self.biased { 4 } else { 3 };
        let pack = Descriptor::new(Kind::CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR)?
            .with(Name::CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, &names[..count])?
            .with(Name::CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, &pointers[..count])?
            .with(Name::CUDNN_ATTR_VARIANT_PACK_WORKSPACE, &[Pointer(places.workspace)])?
            .finished()?;
        // SAFETY: the plan guarantees the operands, which hold as many elements as the graph says; the
        // workspace is as large as the engine asks.
        unsafe { self.plan.execute(handle, &pack) }
    }
}

/// The engines for a convolution, those with the best predicted time first. Where there is a bias or a ReLU,
/// engines that apply them in the same pass come before those that leave them to another pass.
pub(crate) fn engines(handle: Handle, key: &Key, tf32: bool) -> Result<Vec<Engine>, CudaError> {
    let mut found = Vec::new();
    if key.is_finished() {
        found.extend(engines_of(handle, key, true, tf32).unwrap_or_default());
    }
    found.extend(engines_of(handle, key, false, tf32)?);
    Ok(found)
}

fn engines_of(handle: Handle, key: &Key, finishes: bool, tf32: bool) -> Result<Vec<Engine>, CudaError> {
    let graph = graph(handle, key, finishes)?;
    let fma_only = key.dtype == DType::F32 && !tf32;
    let (mut found, mut plain): (Vec<Engine>, Vec<Engine>) = (Vec::new(), Vec::new());
    for (mode, enough) in [(Heuristic::CUDNN_HEUR_MODE_A, MOST), (Heuristic::CUDNN_HEUR_MODE_FALLBACK, FEW)] {
        for configuration in suggestions(&graph, mode).unwrap_or_default() {
            if enough <= found.len() {
                break;
            }
            let Ok((name, notes)) = looked_at(&configuration) else { continue };
            let known = found.iter().any(|engine| engine.name == name);
            if known || !is_exact(&notes, fma_only) {
                continue;
            }
            let plan = Descriptor::new(Kind::CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR)?
                .with(Name::CUDNN_ATTR_EXECUTION_PLAN_HANDLE, &[handle])?
                .with_parts(Name::CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, &[&configuration])?
                .finished();
            // Some of what is suggested cannot be done.
            let Ok(plan) = plan else { continue };
            let workspace = plan.number(Name::CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE)?;
            let workspace = usize::try_from(workspace).unwrap_or(usize::MAX);
            let engine = Engine { plan, name, workspace, finishes, biased: finishes && key.biased };
            if noted(&notes, Note::CUDNN_NUMERICAL_NOTE_STRICT_NAN_PROP) {
                plain.push(engine);
            } else {
                found.push(engine);
            }
        }
    }
    // The plain loop over everything takes a thousand times as long as any other.
    if found.is_empty() {
        found.extend(plain.into_iter().take(1));
    }
    Ok(found)
}

/// Engines with settings that the library suggests for a graph.
fn suggestions(graph: &Descriptor, mode: Heuristic) -> Result<Vec<Descriptor>, CudaError> {
    Descriptor::new(Kind::CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR)?
        .with_parts(Name::CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, &[graph])?
        .with(Name::CUDNN_ATTR_ENGINEHEUR_MODE, &[mode])?
        .finished()?
        .parts(Name::CUDNN_ATTR_ENGINEHEUR_RESULTS, Kind::CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, SUGGESTIONS)
}

/// An engine's number with its settings, and what the library notes about its numbers.
fn looked_at(configuration: &Descriptor) -> Result<(String, Vec<i32>), CudaError> {
    const SETTINGS: usize = 48;
    const NOTES: usize = 32;
    let engine = Name::CUDNN_ATTR_ENGINECFG_ENGINE;
    let engine = configuration.parts(engine, Kind::CUDNN_BACKEND_ENGINE_DESCRIPTOR, 1)?;
    let [engine] = &engine[..] else { return Err(CudaError("cuDNN names no engine".to_owned())) };
    let mut name = engine.number(Name::CUDNN_ATTR_ENGINE_GLOBAL_INDEX)?.to_string();
    let settings = Name::CUDNN_ATTR_ENGINECFG_KNOB_CHOICES;
    for setting in configuration.parts(settings, Kind::CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR, SETTINGS)? {
        let kind =
            setting.enumerated::<1>(Name::CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, Type::CUDNN_TYPE_KNOB_TYPE)?;
        let value = setting.number(Name::CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE)?;
        name += &format!(" {}={value}", kind.first().copied().unwrap_or(-1));
    }
    let notes = engine
        .enumerated::<NOTES>(Name::CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, Type::CUDNN_TYPE_NUMERICAL_NOTE)?;
    Ok((name, notes))
}

/// Whether results are the same twice, and no factor is rounded more than was asked.
fn is_exact(notes: &[i32], fma_only: bool) -> bool {
    let rounds = noted(notes, Note::CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS)
        || noted(notes, Note::CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION)
        || fma_only && noted(notes, Note::CUDNN_NUMERICAL_NOTE_TENSOR_CORE);
    !rounds && !noted(notes, Note::CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC)
}

fn noted(notes: &[i32], note: Note) -> bool {
    notes.contains(&(note as i32))
}

/// What is to be computed, in the library's words.
fn graph(handle: Handle, key: &Key, finishes: bool) -> Result<Descriptor, CudaError> {
    let kind = data_type(key.dtype)?;
    let image = |name: i64, image: [usize; 3]| {
        let [height, width, channels] = image;
        let dims = [key.rows, channels, height, width];
        let row = image.iter().product::<usize>() * key.dtype.size() as usize;
        tensor(name, kind, dims, alignment(row), false)
    };
    let (x, y) = (image(X, key.input)?, image(Y, key.output)?);
    let filters = [key.output[2], key.input[2] / key.groups, key.kernel[0], key.kernel[1]];
    let filter = tensor(FILTER, kind, filters, ALIGNMENT, false)?;
    let single = sys::cudnnDataType_t::CUDNN_DATA_FLOAT;
    let number = |count: usize| count as i64;
    let [pads, strides, dilation] = [key.pads, key.strides, key.dilation].map(|pair| pair.map(number));
    let convolution = Descriptor::new(Kind::CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR)?
        .with(Name::CUDNN_ATTR_CONVOLUTION_COMP_TYPE, &[single])?
        .with(
            Name::CUDNN_ATTR_CONVOLUTION_CONV_MODE,
            &[sys::cudnnConvolutionMode_t::CUDNN_CROSS_CORRELATION],
        )?
        .with(Name::CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, &[2i64])?
        .with(Name::CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, &pads)?
        .with(Name::CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, &pads)?
        .with(Name::CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, &strides)?
        .with(Name::CUDNN_ATTR_CONVOLUTION_DILATIONS, &dilation)?
        .finished()?;
    let [height, width, channels] = key.output;
    let dims = [key.rows, channels, height, width];
    let convolved = if finishes { Some(tensor(CONVOLVED, single, dims, ALIGNMENT, true)?) } else { None };
    let rest = f32::from(u8::from(key.adds));
    let operation = match key.pass {
        Pass::Forward => Descriptor::new(Kind::CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR)?
            .with_parts(Name::CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC, &[&convolution])?
            .with_parts(Name::CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, &[&x])?
            .with_parts(Name::CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W, &[&filter])?
            .with_parts(
                Name::CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,
                &[convolved.as_ref().unwrap_or(&y)],
            )?
            .with(Name::CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA, &[1.0f32])?
            .with(Name::CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA, &[rest])?
            .finished()?,
        Pass::Input => Descriptor::new(Kind::CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR)?
            .with_parts(Name::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC, &[&convolution])?
            .with_parts(Name::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX, &[&x])?
            .with_parts(Name::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W, &[&filter])?
            .with_parts(Name::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY, &[&y])?
            .with(Name::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA, &[1.0f32])?
            .with(Name::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA, &[rest])?
            .finished()?,
        Pass::Filter => {
            Descriptor::new(Kind::CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR)?
                .with_parts(Name::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC, &[&convolution])?
                .with_parts(Name::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X, &[&x])?
                .with_parts(Name::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW, &[&filter])?
                .with_parts(Name::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY, &[&y])?
                .with(Name::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA, &[1.0f32])?
                .with(Name::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA, &[rest])?
                .finished()?
        }
    };
    let mut operations = vec![operation];
    if let Some(convolved) = &convolved {
        let biased = tensor(BIASED, single, dims, ALIGNMENT, true)?;
        if key.biased {
            let bias = tensor(BIAS, kind, [1, channels, 1, 1], ALIGNMENT, false)?;
            let to = if key.relu { &biased } else { &y };
            operations.push(pointwise(Mode::CUDNN_POINTWISE_ADD, convolved, Some(&bias), to)?);
        }
        if key.relu {
            let from = if key.biased { &biased } else { convolved };
            operations.push(pointwise(Mode::CUDNN_POINTWISE_RELU_FWD, from, None, &y)?);
        }
    }
    let operations: Vec<&Descriptor> = operations.iter().collect();
    Descriptor::new(Kind::CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR)?
        .with(Name::CUDNN_ATTR_OPERATIONGRAPH_HANDLE, &[handle])?
        .with_parts(Name::CUDNN_ATTR_OPERATIONGRAPH_OPS, &operations)?
        .finished()
}

/// `y = f(x)`, or `y = f(x, b)`, where `b` has one number for a channel.
fn pointwise(
    mode: Mode,
    x: &Descriptor,
    b: Option<&Descriptor>,
    y: &Descriptor,
) -> Result<Descriptor, CudaError> {
    let function = Descriptor::new(Kind::CUDNN_BACKEND_POINTWISE_DESCRIPTOR)?
        .with(Name::CUDNN_ATTR_POINTWISE_MODE, &[mode])?
        .with(Name::CUDNN_ATTR_POINTWISE_MATH_PREC, &[sys::cudnnDataType_t::CUDNN_DATA_FLOAT])?
        .finished()?;
    let mut operation = Descriptor::new(Kind::CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR)?
        .with_parts(Name::CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, &[&function])?
        .with_parts(Name::CUDNN_ATTR_OPERATION_POINTWISE_XDESC, &[x])?;
    if let Some(b) = b {
        operation = operation.with_parts(Name::CUDNN_ATTR_OPERATION_POINTWISE_BDESC, &[b])?;
    }
    operation.with_parts(Name::CUDNN_ATTR_OPERATION_POINTWISE_YDESC, &[y])?.finished()
}

/// Rows, channels, height and width, stored pixel by pixel.
fn tensor(
    name: i64,
    kind: sys::cudnnDataType_t,
    [rows, channels, height, width]: [usize; 4],
    alignment: usize,
    is_virtual: bool,
) -> Result<Descriptor, CudaError> {
    let dims = [rows, channels, height, width].map(|count| count as i64);
    let strides = [height * width * channels, 1, width * channels, channels].map(|count| count as i64);
    Descriptor::new(Kind::CUDNN_BACKEND_TENSOR_DESCRIPTOR)?
        .with(Name::CUDNN_ATTR_TENSOR_UNIQUE_ID, &[name])?
        .with(Name::CUDNN_ATTR_TENSOR_DATA_TYPE, &[kind])?
        .with(Name::CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, &[alignment as i64])?
        .with(Name::CUDNN_ATTR_TENSOR_DIMENSIONS, &dims)?
        .with(Name::CUDNN_ATTR_TENSOR_STRIDES, &strides)?
        .with(Name::CUDNN_ATTR_TENSOR_IS_VIRTUAL, &[is_virtual])?
        .finished()
}

/// The alignment of rows of `row` bytes: a part of the batch may begin at any row.
fn alignment(row: usize) -> usize {
    [ALIGNMENT, 8, 4].into_iter().find(|bytes| row.is_multiple_of(*bytes)).unwrap_or(2)
}

fn data_type(dtype: DType) -> Result<sys::cudnnDataType_t, CudaError> {
    Ok(match dtype {
        DType::F32 => sys::cudnnDataType_t::CUDNN_DATA_FLOAT,
        DType::F16 => sys::cudnnDataType_t::CUDNN_DATA_HALF,
        DType::BF16 => sys::cudnnDataType_t::CUDNN_DATA_BFLOAT16,
        DType::I32 | DType::I64 | DType::U8 | DType::Bool => {
            return Err(CudaError(format!("there is no convolution of {dtype}")));
        }
    })
}
