//! A plan in one number that knows no names: two plans have the same digest where the same nodes run in the same order at the same
//! offsets. It follows from numbers alone, so that renaming an op, a field or the words of the text form leaves it as it is.

use crate::{Place, Plan, Region, Slot, Step, TensorId};

impl Plan {
    /// The digest of everything in the plan.
    pub fn digest(&self) -> u64 {
        let Plan {
            batch,
            micro_batch,
            rewrites: _,
            bytes_peak,
            bytes_bound,
            bytes_host,
            persistent,
            kept,
            ahead,
            prologue,
            body,
            epilogue,
        } = self;
        let mut digest = Digest::default();
        digest.indices([*batch, *micro_batch]);
        [bytes_peak, bytes_bound, bytes_host].iter().for_each(|bytes| digest.add(bytes.0));
        // Kind by kind; the order in which kinds are applied is always the same.
        match self.region() {
            None => digest.add(0),
            Some(Region { boundary, slices, keeps }) => {
                digest.indices([1, boundary.0, slices, usize::from(keeps)]);
            }
        }
        let tensors: [Vec<TensorId>; 2] = [self.producers_fused().collect(), self.updates_fused().collect()];
        for tensors in tensors {
            digest.index(tensors.len());
            tensors.iter().for_each(|TensorId(tensor)| digest.index(*tensor));
        }
        for slots in [persistent, kept] {
            digest.index(slots.len());
            for (TensorId(tensor), slot) in slots {
                digest.index(*tensor);
                digest.slot(slot);
            }
        }
        digest.index(usize::from(ahead.is_some()));
        ahead.iter().for_each(|slot| digest.slot(slot));
        for steps in [prologue, body, epilogue] {
            digest.index(steps.len());
            steps.iter().for_each(|step| digest.step(step));
        }
        digest.0
    }
}

/// 64 bits of FNV-1a, over numbers.
struct Digest(u64);

impl Default for Digest {
    fn default() -> Digest {
        Digest(0xcbf2_9ce4_8422_2325)
    }
}

impl Digest {
    fn add(&mut self, number: u64) {
        for byte in number.to_le_bytes() {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }

    fn index(&mut self, index: usize) {
        self.add(index as u64);
    }

    fn indices<const N: usize>(&mut self, indices: [usize; N]) {
        indices.into_iter().for_each(|index| self.index(index));
    }

    fn slot(&mut self, Slot { offset, bytes }: &Slot) {
        self.add(offset.0);
        self.add(bytes.0);
    }

    fn step(&mut self, step: &Step) {
        match step {
            Step::Launch { node, args, workspace, fresh } => {
                self.indices([0, node.0, args.len(), usize::from(*fresh)]);
                args.iter().chain([workspace]).for_each(|slot| self.slot(slot));
            }
            Step::Copy { from, to } => {
                self.add(1);
                [from, to].iter().for_each(|place| self.place(place));
            }
            Step::Wait(slot) => {
                self.add(2);
                self.slot(slot);
            }
        }
    }

    fn place(&mut self, place: &Place) {
        match place {
            Place::Feed(TensorId(tensor)) => self.indices([0, *tensor]),
            Place::Arena(slot) => {
                self.add(1);
                self.slot(slot);
            }
            Place::Host(slot) => {
                self.add(2);
                self.slot(slot);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Bytes, NodeId, Rewrite};

    #[test]
    fn every_number_of_a_plan_changes_its_digest() {
        let slot = |offset, bytes| Slot { offset: Bytes(offset), bytes: Bytes(bytes) };
        let launch = |node, offset, workspace, fresh| Step::Launch {
            node: NodeId(node),
            args: vec![slot(offset, 64)],
            workspace: slot(0, workspace),
            fresh,
        };
        let plan = Plan { batch: 4, micro_batch: 2, ..Plan::default() };
        let region = Region { boundary: TensorId(1), slices: 2, keeps: false };
        let plans = [
            plan.clone(),
            Plan { micro_batch: 1, ..plan.clone() },
            Plan { bytes_peak: Bytes(1), ..plan.clone() },
            Plan { bytes_bound: Bytes(1), ..plan.clone() },
            Plan { rewrites: vec![Rewrite::Slice(region)], ..plan.clone() },
            Plan { rewrites: vec![Rewrite::Slice(Region { keeps: true, ..region })], ..plan.clone() },
            Plan { rewrites: vec![Rewrite::FuseProducer(TensorId(0))], ..plan.clone() },
            Plan { rewrites: vec![Rewrite::FuseUpdate(TensorId(0))], ..plan.clone() },
            Plan { persistent: vec![(TensorId(0), slot(0, 64))], ..plan.clone() },
            Plan { kept: vec![(TensorId(0), slot(0, 64))], ..plan.clone() },
            Plan { ahead: Some(slot(0, 64)), ..plan.clone() },
            Plan { body: vec![launch(0, 0, 0, false)], ..plan.clone() },
            Plan { prologue: vec![launch(0, 0, 0, false)], ..plan.clone() },
            Plan { body: vec![launch(1, 0, 0, false)], ..plan.clone() },
            Plan { body: vec![launch(0, 64, 0, false)], ..plan.clone() },
            Plan { body: vec![launch(0, 0, 64, false)], ..plan.clone() },
            Plan { body: vec![launch(0, 0, 0, true)], ..plan.clone() },
            Plan { body: vec![Step::Wait(slot(0, 0))], ..plan },
        ];
        for (index, one) in plans.iter().enumerate() {
            for other in &plans[..index] {
                assert_ne!(one.digest(), other.digest(), "{one:?} and {other:?}");
            }
        }
    }
}
