//! Lives: when each value is written and which events read it, in one schedule.

use memfit_ir::TensorId;

use crate::figures::CostTables;
use crate::schedule::{Event, Schedule};
use crate::storage::Storage;

/// All lives of a schedule, in the order in which they begin.
pub struct Lives {
    /// The lives.
    pub all: Vec<Life>,
    /// The readers of all lives, in the order of the lives.
    reads: Vec<usize>,
    /// The last life of each tensor, or none.
    last: Vec<u32>,
    /// The first event that updates each tensor.
    pub updated: Vec<usize>,
}

/// One life of a tensor.
#[derive(Clone, Copy, Debug)]
pub struct Life {
    /// Whose.
    pub tensor: TensorId,
    /// The event that writes it.
    pub from: usize,
    /// The bytes it stands in.
    pub stretch: usize,
    /// The life of the same tensor before, or none.
    before: u32,
    /// Its readers: a part of all reads.
    first_read: u32,
    count: u32,
}

/// No life.
const NONE: u32 = u32::MAX;

impl Lives {
    /// Reads them off a schedule.
    pub fn new(figures: &CostTables, schedule: &Schedule, storage: &Storage) -> Lives {
        let tensors = figures.bytes.len();
        let mut reader = Reader {
            all: Vec::with_capacity(schedule.events.len()),
            read: Vec::with_capacity(schedule.events.len() * 2),
            last: vec![NONE; tensors],
        };
        let mut updated = vec![usize::MAX; tensors];
        for (time, event) in schedule.events.iter().enumerate() {
            let operands = storage.operands(time);
            match event {
                Event::Feed(tensor) | Event::In(tensor) => reader.begin(*tensor, time, operands[0].index()),
                Event::Out(tensor) => reader.read(*tensor, time),
                Event::Launch { node, .. } => {
                    let inputs = figures.wiring.inputs(*node);
                    for tensor in inputs {
                        reader.read(*tensor, time);
                    }
                    let outputs = figures.wiring.outputs(*node).iter();
                    for (tensor, within) in outputs.zip(&operands[inputs.len()..]) {
                        reader.begin(*tensor, time, within.index());
                    }
                    for tensor in figures.wiring.updates(*node) {
                        updated[tensor.0] = updated[tensor.0].min(time);
                    }
                }
            }
        }
        let Reader { mut all, read, last } = reader;
        let mut next = 0;
        for life in &mut all {
            life.first_read = next;
            next += life.count;
            life.count = 0;
        }
        let mut reads = vec![0; next as usize];
        for (life, time) in read {
            let life = &mut all[life as usize];
            reads[(life.first_read + life.count) as usize] = time as usize;
            life.count += 1;
        }
        Lives { all, reads, last, updated }
    }

    /// The readers of a life, in order.
    pub fn reads(&self, life: &Life) -> &[usize] {
        &self.reads[life.first_read as usize..(life.first_read + life.count) as usize]
    }

    /// The last event of a life.
    pub fn end(&self, life: &Life) -> usize {
        self.reads(life).last().copied().unwrap_or(life.from)
    }

    /// The life of a tensor that a reader at an event would meet.
    pub fn before(&self, tensor: TensorId, time: usize) -> Option<&Life> {
        let mut life = self.all.get(self.last[tensor.0] as usize)?;
        while life.from >= time {
            life = self.all.get(life.before as usize)?;
        }
        Some(life)
    }
}

struct Reader {
    all: Vec<Life>,
    /// Which life was read when.
    read: Vec<(u32, u32)>,
    last: Vec<u32>,
}

impl Reader {
    fn begin(&mut self, tensor: TensorId, from: usize, stretch: Option<usize>) {
        if let Some(stretch) = stretch {
            let before = std::mem::replace(&mut self.last[tensor.0], self.all.len() as u32);
            self.all.push(Life { tensor, from, stretch, before, first_read: 0, count: 0 });
        }
    }

    fn read(&mut self, tensor: TensorId, time: usize) {
        let last = self.last[tensor.0];
        if last != NONE {
            self.all[last as usize].count += 1;
            self.read.push((last, time as u32));
        }
    }
}
