//! What a device offers beyond running ops one by one: plain data that gradients, jobs and the runner read, so that none of them asks
//! which device it is.

use std::fmt;

use crate::{Bytes, Conv2D, PooledConv2D};

/// What a device offers. The default offers nothing that is optional.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Capabilities {
    /// What its kernels compute as one.
    pub fusions: Fusions,
    /// Whether products read weights rounded to f16 or bf16 beside operands of that type, so that a node rounds them first.
    pub rounds_weights: bool,
    /// Where values go that a plan copies out of the arena.
    pub offload: Offload,
    /// Whose memory the arena is.
    pub arena: ArenaMemory,
    /// The arena is taken in multiples of this: a page, or a GPU's granule.
    pub granule: Bytes,
    /// Steps that may be launched before the readback of the current one: 0 where a launch or a copy is over when it returns.
    pub steps_ahead: usize,
}

/// Which nodes a device computes as one, where not every device does.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Fusions {
    /// The convolutions that it computes by Winograd, each with the 2×2 max pool after it.
    pub winograd_max_pool: Option<Winograd>,
    /// A convolution, its max pool and a dense layer of few units after them.
    pub max_pool_dense: bool,
    /// Neighbours that read the same values: an elementwise node, the sums over its columns, and what recomputes one of its operands.
    pub neighbours: bool,
}

/// Which convolutions a device computes by Winograd, in tiles of two by two pixels, which needs fewer products. The answer depends
/// neither on the number of images, so that the bits of each image do not, nor on their height, so that bands of an image are computed
/// as the whole.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Winograd {
    /// The square filters that it has a transform for.
    pub filters: &'static [WinogradFilter],
    /// The narrowest image.
    pub width_min: usize,
    /// The narrowest image for layers of at least `channels_deep` channels.
    pub width_min_deep: usize,
    /// Channels of both sides from which on `width_min_deep` counts.
    pub channels_deep: usize,
    /// The most products of Winograd for one product of the direct convolution, along a row of pixels. The tile at the end of the row
    /// is included.
    pub products_max: f64,
}

/// A square filter whose convolution can be computed by Winograd.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WinogradFilter {
    /// Taps along an axis.
    pub taps: usize,
    /// Points of a tile along an axis.
    pub points: usize,
    /// The fewest channels on either side.
    pub channels_min: usize,
}

/// Where values go that a plan copies out of the arena.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offload {
    /// To a file in a folder of the user's.
    Disk,
    /// To pinned memory of the host.
    Host,
}

/// Whose memory an arena is, which says what a budget counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArenaMemory {
    /// This process's: the budget covers all that is resident.
    Process,
    /// The device's own: the budget covers what the process holds there.
    Device,
}

impl Default for Capabilities {
    fn default() -> Capabilities {
        Capabilities {
            fusions: Fusions::default(),
            rounds_weights: false,
            offload: Offload::Disk,
            arena: ArenaMemory::Process,
            granule: Bytes(1),
            steps_ahead: 0,
        }
    }
}

impl Winograd {
    /// Whether a convolution of images of these widths, and its gradients, are computed by Winograd. `widths` and `channels` are those
    /// of the input and of the output.
    pub fn takes(&self, conv: &Conv2D, widths: [usize; 2], channels: [usize; 2]) -> bool {
        let mut filters = self.filters.iter();
        let Some(filter) = filters.find(|filter| conv.kernel == [filter.taps; 2]) else { return false };
        // The last tile hangs over where there is an odd number of pixels: on the narrower of both images that counts most.
        let width = widths[0].min(widths[1]);
        let least = channels[0].min(channels[1]);
        let width_min = if least >= self.channels_deep { self.width_min_deep } else { self.width_min };
        let products = (width.div_ceil(2) * filter.points) as f64;
        conv.strides == [1, 1]
            && conv.dilation == [1, 1]
            && conv.groups == 1
            && least >= filter.channels_min
            && width >= width_min
            && products <= self.products_max * (width * conv.kernel[1]) as f64
    }

    /// The same for a convolution before a max pool, of images of this height, width and channels, to `filters` channels: a tile is a
    /// window of the pool.
    pub fn takes_pooled(&self, pooled: &PooledConv2D, image: [usize; 3], filters: usize) -> bool {
        let [_, width] = pooled.between([image[0], image[1]]);
        self.takes(&pooled.conv, [image[1], width], [image[2], filters])
    }
}

impl fmt::Display for Winograd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, WinogradFilter { taps, channels_min, .. }) in self.filters.iter().enumerate() {
            let comma = if index == 0 { "" } else { ", " };
            write!(f, "{comma}{taps}×{taps} from {channels_min} channels")?;
        }
        Ok(())
    }
}

impl Fusions {
    /// The name of each that is offered.
    pub fn names(&self) -> Vec<&'static str> {
        let Fusions { winograd_max_pool, max_pool_dense, neighbours } = *self;
        let all = [
            (winograd_max_pool.is_some(), "winograd_max_pool"),
            (max_pool_dense, "max_pool_dense"),
            (neighbours, "neighbours"),
        ];
        all.into_iter().filter(|(offered, _)| *offered).map(|(_, name)| name).collect()
    }
}

impl Offload {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Offload::Disk => "disk",
            Offload::Host => "host",
        }
    }
}

impl ArenaMemory {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            ArenaMemory::Process => "process",
            ArenaMemory::Device => "device",
        }
    }
}

/// One line for each, with its name in front.
impl fmt::Display for Capabilities {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Capabilities { fusions, rounds_weights, offload, arena, granule, steps_ahead } = self;
        let (fusions, winograd) = (fusions.names(), fusions.winograd_max_pool);
        let fusions = if fusions.is_empty() { "none".to_owned() } else { fusions.join(", ") };
        let weights = if *rounds_weights { "rounded before products of f16 and bf16" } else { "as they are" };
        writeln!(f, "fusions  {fusions}")?;
        if let Some(winograd) = winograd {
            writeln!(f, "Winograd {winograd}")?;
        }
        writeln!(f, "weights  {weights}")?;
        writeln!(f, "offload  to the {}", offload.name())?;
        writeln!(f, "arena    memory of the {}, in multiples of {granule}", arena.name())?;
        match steps_ahead {
            0 => write!(f, "overlap  none: a launch or a copy is over when it returns"),
            1.. => write!(f, "overlap  copies beside launches; steps ahead: {steps_ahead}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Pads;

    const WINOGRAD: Winograd = Winograd {
        filters: &[WinogradFilter { taps: 5, points: 6, channels_min: 16 }],
        width_min: 14,
        width_min_deep: 7,
        channels_deep: 256,
        products_max: 0.78,
    };

    #[test]
    fn winograd_takes_what_is_wide_and_deep_enough() {
        let pads = Pads::default();
        let conv = Conv2D { kernel: [5, 5], strides: [1, 1], dilation: [1, 1], groups: 1, pads };
        let takes = |width: usize, channels: usize| WINOGRAD.takes(&conv, [width; 2], [channels; 2]);
        assert!(takes(14, 16) && takes(8, 256));
        assert!(!takes(13, 16) && !takes(14, 15) && !takes(6, 256));
        let strided = Conv2D { strides: [2, 1], ..conv.clone() };
        assert!(!WINOGRAD.takes(&strided, [14; 2], [16; 2]));
        let other = Conv2D { kernel: [3, 3], ..conv.clone() };
        assert!(!WINOGRAD.takes(&other, [14; 2], [64; 2]));
    }

    #[test]
    fn every_capability_has_a_line() {
        let plain = Capabilities { granule: Bytes(4096), ..Capabilities::default() };
        let lines = "fusions  none\nweights  as they are\noffload  to the disk\n\
                     arena    memory of the process, in multiples of 4.00 KiB\noverlap  none: a launch or a copy is over when it returns";
        assert_eq!(plain.to_string(), lines);
        let winograd_max_pool = Some(WINOGRAD);
        let fusions = Fusions { winograd_max_pool, max_pool_dense: true, neighbours: false };
        let text = Capabilities { fusions, rounds_weights: true, ..plain }.to_string();
        assert!(
            text.starts_with(
                "fusions  winograd_max_pool, max_pool_dense\nWinograd 5×5 from 16 channels\nweights  rounded"
            ),
            "{text}"
        );
    }
}
