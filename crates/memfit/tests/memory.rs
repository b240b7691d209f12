//! With every provider of the bytes of an arena, a job trains to the same bits; one that gives too little is an answer before training. A program
//! of its own, since jobs measure their process.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on says where it stopped")]

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use memfit::{
    Allocator, BUFFER_SLACK, Buffer, Bytes, DeviceError, Event, Job, MappedPages, Memory, Observer,
    SharedMemory, fit,
};

#[path = "../../../examples/own_memory.rs"]
mod own_memory;

/// Convolutions and half types, with a validation after each epoch: then pages of the training go back and come again.
const JOB: &str = r#"
[[model.layers]]
class = "Input"
shape = [16, 16, 3]
[[model.layers]]
class = "Conv2D"
filters = 8
kernel_size = 3
activation = "relu"
[[model.layers]]
class = "BatchNormalization"
[[model.layers]]
class = "Flatten"
[[model.layers]]
class = "Dense"
units = 4
activation = "softmax"
[data]
rows = 48
validation_split = 0.25
[train]
loss = "sparse_categorical_crossentropy"
optimizer = "adam"
batch = 12
epochs = 3
device = "cpu"
"#;

/// The heap, with some bytes that are not zero before them, so that an arena does not begin where the block does.
#[derive(Debug)]
struct Heap;

impl Allocator for Heap {
    fn allocate(&self, arena: Bytes) -> Result<Box<dyn Memory>, DeviceError> {
        Ok(Box::new(Buffer::new(vec![0xff; arena.to_usize() + BUFFER_SLACK])))
    }
}

/// Gives a page less than it is asked for.
#[derive(Debug)]
struct Stingy;

impl Allocator for Stingy {
    fn allocate(&self, arena: Bytes) -> Result<Box<dyn Memory>, DeviceError> {
        Ok(Box::new(Buffer::new(vec![0; arena.to_usize() - 4096])))
    }
}

/// Gives nothing.
#[derive(Debug)]
struct Refusing;

impl Allocator for Refusing {
    fn allocate(&self, arena: Bytes) -> Result<Box<dyn Memory>, DeviceError> {
        Err(DeviceError::Refused { arena, reason: io::Error::other("the pool is closed") })
    }
}

/// The bits of what every step and epoch gave.
#[derive(Default)]
struct Bits(Vec<u64>);

impl Observer for Bits {
    fn event(&mut self, event: Event<'_>) {
        if let Event::Step { record, .. } = event {
            self.0.push(record.loss.to_bits());
        }
        if let Event::Epoch { means, validation, .. } = event {
            self.0.extend(validation.into_iter().chain([means]).map(|means| means.loss.to_bits()));
        }
    }
}

fn trained(allocator: Option<Arc<dyn Allocator>>) -> Result<Vec<u64>, String> {
    let mut job = Job::parse(JOB, PathBuf::new()).unwrap();
    job.caller.allocator = allocator;
    let mut bits = Bits::default();
    match fit(&job, Some(2), &mut bits) {
        Ok(report) => {
            assert_eq!(report.bytes_peak_predicted, report.bytes_peak_measured);
            Ok(bits.0)
        }
        Err(error) => {
            assert!(bits.0.is_empty(), "no step ran");
            Err(error.to_string())
        }
    }
}

#[test]
fn every_provider_trains_to_the_same_bits() {
    let expected = trained(None).unwrap();
    assert_eq!(expected.len(), 3 * 3 + 3 * 2, "three steps an epoch, and two losses of each");
    let shared = Arc::new(SharedMemory::default());
    let providers: [Arc<dyn Allocator>; 3] =
        [Arc::new(MappedPages), Arc::clone(&shared) as _, Arc::new(Heap)];
    for allocator in providers {
        let name = format!("{allocator:?}");
        assert!(trained(Some(allocator)).unwrap() == expected, "{name}: other bits");
    }
}

#[test]
fn too_little_memory_is_an_answer_with_numbers_before_training() {
    let error = trained(Some(Arc::new(Stingy))).unwrap_err();
    assert!(error.starts_with("the arena needs ") && error.contains("its allocator gave "), "{error}");
    let error = trained(Some(Arc::new(Refusing))).unwrap_err();
    assert!(error.starts_with("an arena of ") && error.contains("(the pool is closed)"), "{error}");
}

#[test]
#[cfg(feature = "cuda")]
fn a_gpu_has_an_arena_of_its_own() {
    let mut job = Job::parse(&JOB.replace("\"cpu\"", "\"cuda\""), PathBuf::new()).unwrap();
    job.caller.allocator = Some(Arc::new(Heap));
    let error = fit(&job, Some(2), &mut Bits::default()).unwrap_err().to_string();
    assert!(error.contains("this device's arena is its own"), "{error}");
}

#[test]
fn a_job_trains_in_memory_of_the_callers() {
    own_memory::main();
}
