//! The readback of a step: sums of losses, metrics and penalties, and `found_inf` of its gradients.
//!
//! On an asynchronous device they are copied after the step's last launch, and the next step may be launched
//! before the host reads them; elsewhere they are read where they stand.

use memfit_device::Device;
use memfit_ir::{Bytes, CheckedPlan, Op, Slot, TensorId};

/// The places of a step's readback.
pub(crate) struct Readback {
    /// Each tensor with its slot, and where its floats begin among those that are copied.
    places: Vec<(TensorId, Slot, usize)>,
}

impl Readback {
    pub(crate) fn of(plan: &CheckedPlan) -> Readback {
        let mut places: Vec<(TensorId, Slot, usize)> = Vec::new();
        let mut end = 0;
        for node in &plan.problem().graph.nodes {
            let tells = matches!(
                node.op,
                Op::Loss(_)
                    | Op::Metric(_)
                    | Op::Penalty(_)
                    | Op::ActivityPenalty(_)
                    | Op::CheckFinite(_)
                    | Op::CheckUpdate(_)
            );
            let Some(tensor) = node.updates.first().copied().filter(|_| tells) else { continue };
            if places.iter().any(|(known, _, _)| *known == tensor) {
                continue;
            }
            let plan = plan.plan();
            let mut known = plan.persistent.iter().chain(&plan.kept);
            let (_, slot) = known.find(|(id, _)| *id == tensor).expect("what a step tells is kept");
            places.push((tensor, *slot, end));
            end += slot.bytes.to_usize() / size_of::<f32>();
        }
        Readback { places }
    }

    /// The bytes of one readback.
    pub(crate) fn bytes(&self) -> Bytes {
        self.slots().map(|slot| slot.bytes).sum()
    }

    /// Where it stands when a step is over.
    pub(crate) fn slots(&self) -> impl Iterator<Item = Slot> {
        self.places.iter().map(|(_, slot, _)| *slot)
    }

    /// The readback of a tensor, from the step that used this turn's buffer.
    pub(crate) fn floats<'a>(&self, device: &'a dyn Device, turn: usize, tensor: TensorId) -> &'a [f32] {
        let place = self.places.iter().find(|(known, _, _)| *known == tensor);
        let (_, slot, start) = *place.expect("only what a step tells is asked for");
        match device.readback(turn) {
            None => device.floats(slot),
            Some(floats) => &floats[start..start + slot.bytes.to_usize() / size_of::<f32>()],
        }
    }
}
