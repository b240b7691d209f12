//! Runs what a node is lowered to on the processor: kernels are compiled as C++ with a header that emulates a
//! GPU's threads, and run in a process of their own, which is sent memory and sends it back.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::thread;

use memfit_cuda::compiler::PRELUDE;
use memfit_cuda::work::{Address, Argument, Convolution, Kernel, Lowered, Pass, Product, Source, Work};
use memfit_ir::{Bytes, DType};
use tempfile::TempDir;

const DEVICE: &str = include_str!("device.hpp");
const MAIN: &str = include_str!("main.hpp");

/// Instructions of a GPU that have a plain meaning: how their statements begin, and how C++ says them. Texts with others are not run.
const INSTRUCTIONS: [(&str, &str); 18] = [
    (r#"asm("cvt.f32.f16 "#, "y = float_of_f16(x.bits);"),
    (r#"asm("cvt.rn.f16.f32 "#, "y.bits = f16_of_float(x);"),
    (r#"asm("cvt.rn.bf16.f32 "#, "y.bits = bf16_of_float(x);"),
    (r#"asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x * 1.44"#, "y = exp2f(x * 1.4426950408889634f);"),
    (r#"asm("ex2.approx.ftz.f32 "#, "y = exp2f(x);"),
    (r#"asm("max.NaN.f32 "#, "most = a != a || b != b ? NAN : a < b ? b : a;"),
    (r#"asm("cvt.rn.f16x2.f32 "#, "pair = f16_of_float(first) | (u32)f16_of_float(second) << 16;"),
    (r#"asm("cvt.rn.bf16x2.f32 "#, "pair = bf16_of_float(first) | (u32)bf16_of_float(second) << 16;"),
    (r#"asm("cvt.rna.tf32.f32 "#, "bits = tf32_of_float(x);"),
    (r#"asm volatile("cp.async.cg.shared.global "#, "copy_or_zero(to, from, there, 16);"),
    (r#"asm volatile("cp.async.ca.shared.global "#, "copy_or_zero(to, from, there, 4);"),
    (r#"asm volatile("cp.async.wait_all;"#, ";"),
    (r#"asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 "#, "load_tiles_of_halves(to, row, false);"),
    (
        r#"asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 "#,
        "load_tiles_of_halves(to, row, true);",
    ),
    (r#"asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 "#, "multiply_floats(sums, a, b);"),
    (
        r#"asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "#,
        "multiply_halves(sums, a, b0, b1, float_of_bf16);",
    ),
    (
        r#"asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "#,
        "multiply_halves(sums, a, b0, b1, float_of_f16);",
    ),
    (
        r#"asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 "#,
        "multiply_halves(sums, {a0, a1, 0, 0}, b, 0, float_of_f16);",
    ),
];

/// Kernels of texts, by their names.
pub(crate) type Wanted = BTreeMap<Source, BTreeSet<&'static str>>;

/// A program with many kernels in it.
pub(crate) struct Emulator {
    folder: TempDir,
    /// Where a kernel is: its part, and its place there.
    places: BTreeMap<(Source, &'static str), [u64; 2]>,
}

/// Where the operands of a node and its workspace are in the memory that is sent.
pub(crate) struct Places<'a> {
    pub(crate) context: u64,
    pub(crate) operands: &'a [u64],
    pub(crate) workspace: u64,
}

/// The kernels of a node.
pub(crate) fn kernels(lowered: &Lowered) -> impl Iterator<Item = &Kernel> {
    lowered.work.iter().filter_map(|work| match work {
        Work::Kernel(kernel) | Work::Finish(kernel) | Work::Update(kernel) => Some(kernel),
        Work::Zero { .. } | Work::Copy { .. } | Work::Product(_) | Work::Convolution(_) => None,
    })
}

/// The text as C++; none where it holds instructions that only a GPU has.
fn plain(text: &str) -> Option<String> {
    let text = INSTRUCTIONS.iter().fold(without_groups(text), |text, (start, meaning)| {
        let mut parts = text.split(start);
        let mut plain = parts.next().unwrap_or_default().to_owned();
        for part in parts {
            let (_, rest) = part.split_once(");").expect("a statement ends");
            plain += meaning;
            plain += rest;
        }
        plain
    });
    let runs = !text.contains("asm") && !text.contains("multiply_grouped");
    runs.then(|| text.replace("extern \"C\"", ""))
}

/// The text as devices see it that do not multiply by groups of warps.
fn without_groups(text: &str) -> String {
    let Some((before, rest)) = text.split_once("#if WARPGROUPS\n") else { return text.to_owned() };
    let (_, other) = rest.split_once("#else\n").expect("there is another way");
    format!("{before}#if 1\n{other}")
}

/// Whether a text can be run here.
pub(crate) fn is_plain(source: &Source) -> bool {
    plain(source.text).is_some()
}

impl Emulator {
    /// Compiles kernels. None where there is no compiler for C++, an error where a text is not right.
    pub(crate) fn build(wanted: &Wanted) -> Option<Result<Emulator, String>> {
        let known = ["c++", "g++", "clang++"].map(str::to_owned).into_iter();
        let compiler = std::env::var("CXX").ok().into_iter().chain(known).find(|name| {
            let asked =
                Command::new(name).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
            asked.is_ok_and(|status| status.success())
        })?;
        let folder = TempDir::new().unwrap();
        let workers = thread::available_parallelism().map_or(1, usize::from);
        let mut parts: Vec<Part> = (0..workers).map(Part::new).collect();
        let mut places = BTreeMap::new();
        for (index, (source, entries)) in wanted.iter().enumerate() {
            let part = index % workers;
            for (entry, place) in parts[part].add(source, entries) {
                places.insert((source.clone(), entry), [part as u64, place]);
            }
        }
        let result = link(&compiler, folder.path(), &parts);
        Some(result.map(|()| Emulator { folder, places }))
    }

    /// Starts the program.
    pub(crate) fn start(&self) -> Running<'_> {
        let mut command = Command::new(self.folder.path().join("emulator"));
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (to, from) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        Running { emulator: self, child, to, from }
    }
}

/// A text that is compiled alone.
struct Part {
    index: usize,
    text: String,
    table: String,
    count: u64,
}

impl Part {
    fn new(index: usize) -> Part {
        let text = format!("{DEVICE}\n{}\n", plain(PRELUDE).expect("the prelude is plain"));
        Part { index, text, table: String::new(), count: 0 }
    }

    /// Adds a text, in a namespace of its own, and gives the places of its kernels.
    fn add(&mut self, source: &Source, entries: &BTreeSet<&'static str>) -> Vec<(&'static str, u64)> {
        let body = source.defines.clone() + "\n" + &plain(source.text).expect("who asks has looked");
        // What parts have under one name would be one thing when they are linked.
        let space = format!("part_{}_{}", self.index, self.count);
        self.text += &format!("namespace {space} {{\n{body}\n}}\n");
        for line in body.lines().filter_map(|line| line.trim_start().strip_prefix("#define ")) {
            let name = line.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap_or_default();
            self.text += &format!("#undef {name}\n");
        }
        let mut places = Vec::new();
        for entry in entries {
            let call = if *entry == "update_many" { "call_update" } else { "call" };
            self.table += &format!("[](uint64_t* words) {{ emulator::{call}({space}::{entry}, words); }},\n");
            places.push((*entry, self.count));
            self.count += 1;
        }
        places
    }
}

fn link(compiler: &str, folder: &Path, parts: &[Part]) -> Result<(), String> {
    let run = |arguments: &[String]| -> Result<(), String> {
        let done = Command::new(compiler).current_dir(folder).args(arguments).output().unwrap();
        let words = String::from_utf8_lossy(&done.stderr);
        if done.status.success() { Ok(()) } else { Err(words.chars().take(4000).collect()) }
    };
    // Jumps from one stack to another are no mistake here.
    let options = ["-std=c++17", "-w", "-U_FORTIFY_SOURCE", "-fno-stack-protector", "-c"].map(str::to_owned);
    let compile = |name: String, text: String, level: &str| {
        fs::write(folder.join(format!("{name}.cpp")), text).unwrap();
        run(&[&options[..], &[level.to_owned(), format!("{name}.cpp")]].concat())
    };
    // Most kernels run for less time than it takes to make them faster; what stands for libraries does not.
    thread::scope(|scope| {
        let jobs = parts.iter().enumerate().map(|(index, part)| {
            let text = format!(
                "{}\nextern const emulator::Kernel part_{index}[] = {{\n{}nullptr }};\n",
                part.text, part.table
            );
            scope.spawn(move || compile(format!("part_{index}"), text, "-O0"))
        });
        let jobs: Vec<_> = jobs.collect();
        jobs.into_iter().try_for_each(|job| job.join().unwrap())
    })?;
    let names: Vec<String> = (0..parts.len()).map(|index| format!("part_{index}")).collect();
    let declared: String =
        names.iter().map(|name| format!("extern const emulator::Kernel {name}[];\n")).collect();
    let table = format!("const emulator::Kernel* const emulator::parts[] = {{ {} }};\n", names.join(", "));
    compile("main".to_owned(), format!("{DEVICE}\n{MAIN}\n{declared}{table}"), "-O2")?;
    let objects = names.iter().map(|name| format!("{name}.o"));
    let arguments: Vec<String> = objects.chain(["main.o", "-o", "emulator"].map(str::to_owned)).collect();
    run(&arguments)
}

/// The program while it runs.
pub(crate) struct Running<'a> {
    emulator: &'a Emulator,
    child: Child,
    to: ChildStdin,
    from: ChildStdout,
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Running<'_> {
    /// Runs a node's work in memory, with threads in their order or in reverse. On an error it returns a
    /// message, and the program is started again.
    pub(crate) fn run(
        &mut self,
        memory: &mut [u8],
        lowered: &Lowered,
        places: &Places<'_>,
        forwards: bool,
    ) -> Result<(), String> {
        let mut words = vec![u64::from(forwards)];
        words.push(lowered.work.len() as u64);
        for work in &lowered.work {
            self.encode(work, places, &mut words);
        }
        let result = self.exchange(memory, &words);
        if result.is_err() {
            *self = self.emulator.start();
        }
        result
    }

    fn exchange(&mut self, memory: &mut [u8], words: &[u64]) -> Result<(), String> {
        let mut message = (memory.len() as u64).to_ne_bytes().to_vec();
        message.extend_from_slice(memory);
        message.extend(words.iter().flat_map(|word| word.to_ne_bytes()));
        let ended = |_| "the kernel ended the program".to_owned();
        self.to.write_all(&message).map_err(ended)?;
        self.to.flush().map_err(ended)?;
        let mut length = [0; 8];
        self.from.read_exact(&mut length).map_err(ended)?;
        let mut complaint = vec![0; usize::try_from(u64::from_ne_bytes(length)).unwrap()];
        self.from.read_exact(&mut complaint).map_err(ended)?;
        if complaint.is_empty() {
            return self.from.read_exact(memory).map_err(ended);
        }
        Err(String::from_utf8_lossy(&complaint).into_owned())
    }

    fn encode(&self, work: &Work, places: &Places<'_>, words: &mut Vec<u64>) {
        let at = |address: Address| match address {
            Address::Operand(index, offset) => places.operands[index] + offset.0,
            Address::Workspace(offset) => places.workspace + offset.0,
        };
        let place = |address: Option<Address>| address.map_or(0, at);
        match work {
            // The convolution before leaves bias and ReLU to it.
            Work::Kernel(kernel) | Work::Finish(kernel) => {
                let blocks = kernel.blocks.map(u64::from);
                self.encode_kernel(kernel, blocks, &kernel.arguments, places, words);
            }
            Work::Update(kernel) => {
                let Some(Argument::Long(count)) = kernel.arguments.last() else {
                    panic!("the last word of an update is its count of elements")
                };
                let arguments = [&kernel.arguments[..], &[Argument::Context]].concat();
                let blocks = count.cast_unsigned().div_ceil(1024).max(1);
                self.encode_kernel(kernel, [blocks, 1, 1], &arguments, places, words);
            }
            Work::Zero { to, bytes: Bytes(bytes) } => words.extend([1, at(*to), *bytes]),
            Work::Copy { from, to, bytes: Bytes(bytes) } => words.extend([2, at(*from), at(*to), *bytes]),
            Work::Product(product) => {
                let Product { m, n, k, count, transpose_a, transpose_b, adds, .. } = *product;
                words.push(3);
                words.extend([m, n, k, count].map(|size| size as u64));
                let adds = adds || product.c.is_some();
                words.extend([transpose_a, transpose_b, adds, product.bias.is_some()].map(u64::from));
                words.extend([product.dtype, product.dtype_result].map(number_of));
                let c = product.c.unwrap_or(product.d);
                words.extend([product.a, product.b, c, product.d].map(at));
                words.push(place(product.bias));
            }
            Work::Convolution(convolution) => {
                let Convolution { pass, rows, input, output, kernel, strides, dilation, pads, .. } =
                    *convolution;
                words.push(4);
                words.push(match pass {
                    Pass::Forward => 0,
                    Pass::Input => 1,
                    Pass::Filter => 2,
                });
                words.push(rows as u64);
                words.extend(input.into_iter().chain(output).map(|size| size as u64));
                words
                    .extend([kernel, strides, dilation, pads].as_flattened().iter().map(|size| *size as u64));
                words.push(convolution.groups as u64);
                words.push(u64::from(convolution.adds));
                words.push(number_of(convolution.dtype));
                words.extend([at(convolution.x), at(convolution.filter), at(convolution.y)]);
            }
        }
    }

    fn encode_kernel(
        &self,
        kernel: &Kernel,
        blocks: [u64; 3],
        arguments: &[Argument],
        places: &Places<'_>,
        words: &mut Vec<u64>,
    ) {
        words.push(0);
        words.extend(self.emulator.places[&(kernel.source.clone(), kernel.entry)]);
        words.extend(blocks);
        words.extend([u64::from(kernel.threads), arguments.len() as u64]);
        for argument in arguments {
            words.extend(match *argument {
                Argument::At(Address::Operand(index, offset)) => [1, places.operands[index] + offset.0],
                Argument::At(Address::Workspace(offset)) => [1, places.workspace + offset.0],
                Argument::Context => [1, places.context],
                Argument::Null => [0, 0],
                Argument::Long(value) => [0, value.cast_unsigned()],
                Argument::Int(value) => [0, u64::from(value.cast_unsigned())],
                Argument::Float(value) => [0, u64::from(value.to_bits())],
            });
        }
    }
}

/// How the program numbers types.
fn number_of(dtype: DType) -> u64 {
    match dtype {
        DType::F32 => 0,
        DType::F16 => 1,
        DType::BF16 => 2,
        DType::I32 | DType::I64 | DType::U8 | DType::Bool => panic!("libraries multiply floats"),
    }
}
