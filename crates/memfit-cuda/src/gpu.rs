//! A GPU that is open: context, stream, libraries and loaded kernels. It can still take memory; a sealed
//! device cannot.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::c_void;
use std::sync::{Arc, Mutex, Weak};

use memfit_ir::{ALIGNMENT, Bytes, Graph, LOW_WORKSPACE, Node, Slot};

use super::call::THREADS;
use super::convolutions::{self, Convolutions};
use super::driver::{self, Context, CudaError, Description, Function, Module, Stream};
use super::memory::{Block, DeviceArena};
use super::products::{self, Products};
use super::roofline::Roofline;
use super::times::Times;
use super::updates::{Updates, WORDS};
use super::work::{Address, Argument, Convolution, Kernel, Lowered, Product, Source, Work};
use super::{call_of, candidates, compiler, libraries, lower, usage};

/// Workspace of a library's algorithm that is looked at, unless none takes so little; how much a launch has
/// is the plan's choice.
const LIBRARY_WORKSPACE: Bytes = Bytes::mib(256);

/// Where the workspace of a library begins.
const LIBRARY_ALIGNMENT: u64 = 256;

/// Bytes of the context, which is set again for every step and micro-batch, and of the word after it that the
/// device sets.
pub(crate) const CONTEXT_BYTES: usize = 64;
const STOPPED_BYTES: usize = 8;

/// An open GPU.
pub struct Gpu {
    // Dropped in this order: what lives in the context before the context.
    products: Products,
    convolutions: Convolutions,
    modules: Mutex<BTreeMap<Source, Loaded>>,
    /// What kernels read as `Context`.
    block: Block,
    pub(crate) stream: Stream,
    /// Copies to the host and from it, one for each direction, which a bus has at the same time.
    pub(crate) out: Stream,
    pub(crate) back: Stream,
    pub(crate) context: Context,
    description: Description,
    pub(crate) roofline: Roofline,
    /// Whether factors of f32 products are rounded to TF32 by kernels of ours too.
    pub(crate) tf32: bool,
    /// Times of the libraries' algorithms on this device.
    times: Times,
    /// What others held of the device before it was opened.
    bytes_others: Bytes,
}

/// A module and its kernels.
struct Loaded {
    module: Module,
    functions: BTreeMap<&'static str, Function>,
}

/// Where the operands of a launch are.
pub(crate) struct Slots<'a> {
    pub(crate) arena: &'a DeviceArena,
    pub(crate) args: &'a [Slot],
    pub(crate) workspace: Slot,
}

impl Gpu {
    /// Opens a GPU by its number, with every library that kernels need. One that is open already is shared.
    pub(crate) fn open(number: usize, tf32: bool) -> Result<Arc<Gpu>, CudaError> {
        type Open = (usize, bool, Weak<Gpu>);
        static OPEN: Mutex<Vec<Open>> = Mutex::new(Vec::new());
        let mut open = OPEN.lock().expect("no thread panics while it holds the lock");
        open.retain(|(_, _, gpu)| 0 < gpu.strong_count());
        let wanted = |known: &&Open| (known.0, known.1) == (number, tf32);
        if let Some(gpu) = open.iter().find(wanted).and_then(|(_, _, gpu)| gpu.upgrade()) {
            return Ok(gpu);
        }
        let gpu = Arc::new(Gpu::new(number, tf32)?);
        open.push((number, tf32, Arc::downgrade(&gpu)));
        Ok(gpu)
    }

    fn new(number: usize, tf32: bool) -> Result<Gpu, CudaError> {
        if let Some(library) = libraries::missing().next() {
            return Err(CudaError(format!("{} is not here; {}", library.name(), library.remedy())));
        }
        let known = driver::descriptions()?;
        let count = known.len();
        let description = known.into_iter().nth(number).ok_or_else(|| {
            CudaError(match count {
                0 => "the driver knows no GPU; run on the CPU".to_owned(),
                _ => format!("there is no GPU {number}: they are counted from 0, and there are {count}"),
            })
        })?;
        let before = usage::of_device(&description.bus);
        let context = Context::open(number)?;
        let (stream, out, back) = (Stream::new()?, Stream::new()?, Stream::new()?);
        let block = Block::new(CONTEXT_BYTES + STOPPED_BYTES)?;
        let products = Products::open(tf32)?;
        let convolutions = Convolutions::open(&stream, tf32)?;
        let modules = Mutex::default();
        let versions = libraries::find_all().filter_map(|found| found.version.as_deref());
        let times =
            Times::open(&versions.fold(description.name.clone(), |name, version| name + " " + version));
        // The two counts of the driver do not begin at the same place, but what opening added is the same in
        // both.
        let (free, total) = context.bytes_free()?;
        let added = before.and_then(|before| {
            let after = usage::of_device(&description.bus)?;
            Some(after.bytes_used.saturating_sub(before.bytes_used))
        });
        let bytes_others = added.map_or(Bytes::ZERO, |added| (total - free).saturating_sub(added));
        let roofline = Roofline::of(&description, tf32);
        let tf32 = tf32 && compiler::has_tf32(description.capability);
        Ok(Gpu {
            products,
            convolutions,
            modules,
            block,
            stream,
            out,
            back,
            context,
            description,
            roofline,
            tf32,
            times,
            bytes_others,
        })
    }

    /// What the driver says of it.
    pub fn description(&self) -> &Description {
        &self.description
    }

    /// What this process holds of the device: what is used less what others used before.
    pub fn bytes_used(&self) -> Result<Bytes, CudaError> {
        let (free, total) = self.context.bytes_free()?;
        Ok(total.saturating_sub(free).saturating_sub(self.bytes_others))
    }

    /// What is free, and what others held when the device was opened.
    pub fn bytes_free(&self) -> Result<(Bytes, Bytes), CudaError> {
        Ok((self.context.bytes_free()?.0, self.bytes_others))
    }

    /// Where kernels read their context.
    pub(crate) fn context_address(&self) -> u64 {
        self.block.start
    }

    /// What runs for a node at `rows` rows that adds to what is there.
    pub(crate) fn lowered(&self, graph: &Graph, node: &Node, rows: usize) -> Lowered {
        lower::lower(&call_of(graph, node, rows, false, self.tf32))
    }

    /// The workspace of a node in micro-batches of up to `rows` rows: that of its kernels, and after it that
    /// of the libraries, with which they can compute at least a row at a time.
    pub(crate) fn workspace(
        &self,
        graph: &Graph,
        node: &Node,
        rows: usize,
    ) -> Result<(Bytes, Bytes), CudaError> {
        let (own, libraries) = self.workspace_at(graph, node, rows, LIBRARY_WORKSPACE)?;
        Ok((own, libraries.max(self.workspace_at(graph, node, 1, Bytes::ZERO)?.1)))
    }

    /// The same at exactly `rows` rows, for the best library algorithms that need no more than a limit, or
    /// else for those that need the least.
    fn workspace_at(
        &self,
        graph: &Graph,
        node: &Node,
        rows: usize,
        limit: Bytes,
    ) -> Result<(Bytes, Bytes), CudaError> {
        let lowered = self.lowered(graph, node, rows);
        let mut libraries = Bytes::ZERO;
        for work in &lowered.work {
            libraries = libraries.max(match work {
                Work::Product(product) => self.products.workspace(product, limit)?,
                Work::Convolution(convolution) => self.convolutions.workspace(convolution, limit)?,
                Work::Kernel(_)
                | Work::Finish(_)
                | Work::Update(_)
                | Work::Zero { .. }
                | Work::Copy { .. } => Bytes::ZERO,
            });
        }
        Ok((lowered.workspace, with_slack(libraries)))
    }

    /// The library algorithms for a node at `rows` rows, where they were timed: their workspace, as
    /// [`Gpu::workspace`] counts it, and milliseconds. The fastest comes first, the one with the least
    /// workspace last, with a few between.
    pub(crate) fn algorithms(
        &self,
        graph: &Graph,
        node: &Node,
        rows: usize,
    ) -> Result<Vec<(Bytes, f32)>, CudaError> {
        let mut calls = Vec::new();
        for work in &self.lowered(graph, node, rows).work {
            let offered = match work {
                Work::Product(product) => self.products.offered(product, LIBRARY_WORKSPACE)?,
                Work::Convolution(convolution) => {
                    self.convolutions.offered(convolution, LIBRARY_WORKSPACE)?
                }
                Work::Kernel(_)
                | Work::Finish(_)
                | Work::Update(_)
                | Work::Zero { .. }
                | Work::Copy { .. } => continue,
            };
            // Where one of them was not timed, nothing is known of the node.
            let Some(offered) = offered else { return Ok(Vec::new()) };
            calls.push(offered);
        }
        // A row at a time must be possible in all of them.
        let one_row = self.workspace_at(graph, node, 1, Bytes::ZERO)?.1;
        let algorithms = candidates::few(&candidates::together(&calls), LOW_WORKSPACE - 1);
        let algorithms =
            algorithms.into_iter().map(|(bytes, time)| (with_slack(Bytes(bytes as u64)).max(one_row), time));
        let mut algorithms: Vec<(Bytes, f32)> = algorithms.collect();
        algorithms.dedup_by_key(|(bytes, _)| *bytes);
        Ok(algorithms)
    }

    /// Times the libraries' algorithms for a graph, in memory that is freed afterwards: as much as the
    /// largest of its nodes takes, or less where that is not free. What has no room keeps the library's own
    /// order.
    pub(crate) fn time_libraries(&self, graph: &Graph, rows: usize, most: Bytes) -> Result<(), CudaError> {
        let free = self.context.bytes_free()?.0;
        let room = Bytes(free.0 - free.0 / 16).min(most);
        let need = |node: &Node| -> Bytes {
            let Node { inputs, outputs, updates, .. } = node;
            let operands = inputs.iter().chain(outputs).chain(updates);
            operands.map(|id| graph.tensors[id.0].bytes(rows).align_up(256)).sum()
        };
        let mut calls = Vec::new();
        for node in &graph.nodes {
            let lowered = self.lowered(graph, node, rows);
            let uses = |work: &Work| matches!(work, Work::Product(_) | Work::Convolution(_));
            let bytes = need(node) + lowered.workspace + LIBRARY_WORKSPACE + Bytes(4096);
            if lowered.work.iter().any(uses) && bytes <= room {
                calls.push((node, lowered, bytes));
            }
        }
        let Some(bytes) = calls.iter().map(|(_, _, bytes)| *bytes).max() else { return Ok(()) };
        let arena = DeviceArena::map(&self.context, bytes)?;
        for (node, lowered, _) in calls {
            let Node { inputs, outputs, updates, .. } = node;
            let mut end = Bytes::ZERO;
            let mut place = |bytes: Bytes| {
                let slot = Slot { offset: end, bytes };
                end = slot.end().align_up(256);
                slot
            };
            let operands = inputs.iter().chain(outputs).chain(updates);
            let args: Vec<Slot> = operands.map(|id| place(graph.tensors[id.0].bytes(rows))).collect();
            let workspace = place(lowered.workspace + LIBRARY_WORKSPACE + Bytes(LIBRARY_ALIGNMENT));
            let slots = Slots { arena: &arena, args: &args, workspace };
            for work in &lowered.work {
                match work {
                    Work::Product(product) => {
                        let places = slots.of_product(&lowered, product);
                        self.products.time(&self.stream, product, &places, &self.times)?;
                    }
                    Work::Convolution(convolution) => {
                        let places = slots.of_convolution(&lowered, convolution);
                        self.convolutions.time(&self.stream, convolution, &places, &self.times)?;
                    }
                    Work::Kernel(_)
                    | Work::Finish(_)
                    | Work::Update(_)
                    | Work::Zero { .. }
                    | Work::Copy { .. } => {}
                }
            }
        }
        self.stream.synchronise()
    }

    /// Compiles and loads the kernels of a graph, so that none is loaded once memory is counted.
    pub(crate) fn load(&self, graph: &Graph, rows: usize) -> Result<(), CudaError> {
        self.context.make_current()?;
        let kernels = super::kernels(graph, rows, self.tf32);
        let known = |source: &Source| {
            self.modules.lock().expect("no thread panics while it holds the lock").contains_key(source)
        };
        let new: BTreeSet<&Source> =
            kernels.iter().map(|kernel| &kernel.source).filter(|source| !known(source)).collect();
        let texts: Vec<String> = new.into_iter().map(compiler::text).collect();
        // What does not compile says so when it is loaded.
        compiler::compile_ahead(&texts, &self.description.architecture());
        for kernel in &kernels {
            self.function(&kernel.source, kernel.entry)?;
        }
        Ok(())
    }

    /// The kernel of a description, compiled and loaded where it was not yet.
    fn function(&self, source: &Source, entry: &'static str) -> Result<Function, CudaError> {
        let mut modules = self.modules.lock().expect("no thread panics while it holds the lock");
        if !modules.contains_key(source) {
            let text = compiler::text(source);
            let code = compiler::compile_cached(&text, &self.description.architecture())
                .map_err(|words| CudaError(format!("the kernel `{}` does not compile: {words}", entry)))?;
            let loaded = Loaded { module: Module::load(&code)?, functions: BTreeMap::new() };
            modules.insert(source.clone(), loaded);
        }
        let loaded = modules.get_mut(source).expect("it was just put there");
        if let Some(function) = loaded.functions.get(entry) {
            return Ok(*function);
        }
        let function = loaded.module.function(entry)?;
        loaded.functions.insert(entry, function);
        Ok(function)
    }

    /// Puts the work of a node into the stream.
    pub(crate) fn run(&self, lowered: &Lowered, slots: &Slots<'_>) -> Result<(), CudaError> {
        let at = |address: Address| slots.at(address);
        let mut is_finished = false;
        for work in &lowered.work {
            match work {
                Work::Kernel(kernel) => self.launch(kernel, slots)?,
                Work::Finish(kernel) => {
                    if !is_finished {
                        self.launch(kernel, slots)?;
                    }
                }
                Work::Update(kernel) => {
                    let weight = self.weight_of(kernel, slots);
                    self.update(&Updates::new(kernel.source.clone(), weight))?;
                }
                // SAFETY: the slots lie in the arena, and hold at least the node's bytes, as `at` has
                // checked.
                Work::Zero { to, bytes } => unsafe { self.stream.fill(at(*to), 0, bytes.to_usize())? },
                Work::Copy { from, to, bytes } => {
                    if at(*from) != at(*to) {
                        // SAFETY: as above.
                        unsafe { self.stream.copy(at(*from), at(*to), bytes.to_usize())? };
                    }
                }
                Work::Product(product) => {
                    self.products.run(&self.stream, product, &slots.of_product(lowered, product))?
                }
                Work::Convolution(convolution) => {
                    is_finished = self.convolve(convolution, lowered, slots)?;
                }
            }
        }
        Ok(())
    }

    /// What an update takes of its weight.
    pub(crate) fn weight_of(&self, kernel: &Kernel, slots: &Slots<'_>) -> [u64; WORDS] {
        let values: Vec<u64> = kernel.arguments.iter().map(|argument| self.value(*argument, slots)).collect();
        values.try_into().expect("an update takes as many words as its kernel has for a weight")
    }

    /// Puts updates that share a launch into the stream.
    pub(crate) fn update(&self, updates: &Updates) -> Result<(), CudaError> {
        let function = self.function(&updates.source, "update_many")?;
        let (mut many, blocks) = updates.packed();
        let mut context = self.block.start;
        let mut pointers = [many.as_mut_ptr().cast(), std::ptr::from_mut(&mut context).cast()];
        // SAFETY: the words are laid out as the kernel's first parameter, which the driver copies, and point
        // into the arena.
        unsafe { driver::launch(&self.stream, function, [blocks, 1, 1], THREADS, &mut pointers) }
    }

    /// What a kernel is handed for an argument. Every value takes at most eight bytes, and the driver reads
    /// as many as the parameter has.
    fn value(&self, argument: Argument, slots: &Slots<'_>) -> u64 {
        match argument {
            Argument::At(address) => slots.at(address),
            Argument::Null => 0,
            Argument::Context => self.block.start,
            Argument::Long(value) => value.cast_unsigned(),
            Argument::Int(value) => u64::from(value.cast_unsigned()),
            Argument::Float(value) => u64::from(value.to_bits()),
        }
    }

    /// Runs a convolution; where every algorithm needs more workspace than there is, in two parts. Returns
    /// whether it has applied its bias and ReLU.
    fn convolve(
        &self,
        convolution: &Convolution,
        lowered: &Lowered,
        slots: &Slots<'_>,
    ) -> Result<bool, CudaError> {
        let places = slots.of_convolution(lowered, convolution);
        if convolution.rows < 2 || self.convolutions.fits(convolution, places.workspace_bytes)? {
            return self.convolutions.run(convolution, &places);
        }
        // Each part might choose another algorithm, so no part applies bias and ReLU itself.
        for part in convolution.split_rows() {
            self.convolve(&part, lowered, slots)?;
        }
        Ok(false)
    }

    fn launch(&self, kernel: &Kernel, slots: &Slots<'_>) -> Result<(), CudaError> {
        let function = self.function(&kernel.source, kernel.entry)?;
        let mut values: Vec<u64> =
            kernel.arguments.iter().map(|argument| self.value(*argument, slots)).collect();
        let mut pointers: Vec<*mut c_void> =
            values.iter_mut().map(|value| std::ptr::from_mut(value).cast()).collect();
        // SAFETY: `lower` gives arguments in the order and of the types of the kernel's parameters, which the
        // op table tests.
        unsafe { driver::launch(&self.stream, function, kernel.blocks, kernel.threads, &mut pointers) }
    }
}

/// A library's workspace in a slot that begins anywhere.
fn with_slack(libraries: Bytes) -> Bytes {
    let slack = if libraries == Bytes::ZERO { Bytes::ZERO } else { Bytes(LIBRARY_ALIGNMENT) };
    (libraries + slack).align_up(ALIGNMENT)
}

impl Slots<'_> {
    /// What comes after the kernels' own workspace.
    fn rest(&self, lowered: &Lowered) -> (u64, usize) {
        let (start, end) = (self.arena.address(self.workspace), self.workspace.bytes.0);
        assert!(
            lowered.workspace <= self.workspace.bytes,
            "the plan gives kernels the workspace that they ask for"
        );
        let address = (start + lowered.workspace.0).next_multiple_of(LIBRARY_ALIGNMENT);
        (address, (start + end).saturating_sub(address) as usize)
    }

    fn of_product(&self, lowered: &Lowered, product: &Product) -> products::Places {
        let Product { a, b, c, d, bias, .. } = *product;
        let (workspace, workspace_bytes) = self.rest(lowered);
        let bias = bias.map_or(0, |bias| self.at(bias));
        let [a, b, c, d] = [a, b, c.unwrap_or(d), d].map(|address| self.at(address));
        products::Places { a, b, c, d, bias, workspace, workspace_bytes }
    }

    fn of_convolution(&self, lowered: &Lowered, convolution: &Convolution) -> convolutions::Places {
        let [x, filter, y] =
            [convolution.x, convolution.filter, convolution.y].map(|address| self.at(address));
        let (workspace, workspace_bytes) = self.rest(lowered);
        let bias = convolution.bias.map_or(0, |bias| self.at(bias));
        convolutions::Places { x, filter, y, bias, workspace, workspace_bytes }
    }

    fn at(&self, address: Address) -> u64 {
        match address {
            Address::Operand(index, offset) => {
                let slot = self.args[index];
                assert!(offset <= slot.bytes, "an offset lies inside its operand");
                self.arena.address(slot) + offset.0
            }
            Address::Workspace(offset) => {
                assert!(offset <= self.workspace.bytes, "an offset lies inside the workspace");
                self.arena.address(self.workspace) + offset.0
            }
        }
    }
}
