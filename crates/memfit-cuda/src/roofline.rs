//! How fast a GPU can be, from what it is: bytes of memory and arithmetic on its tensor cores in a
//! nanosecond. A pure function of its description, so that plans by estimates need no clock.

use super::driver::Description;

/// What a device does in a nanosecond, as well-made kernels reach it, and what beginning a launch takes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Roofline {
    /// Bytes of memory, read and written.
    pub(crate) bytes_per_nano: f64,
    /// Additions and multiplications of products of f16 or bf16.
    pub(crate) flops_per_nano_half: f64,
    /// Those of products in single precision.
    pub(crate) flops_per_nano_single: f64,
    /// What one more launch in a captured graph takes.
    pub(crate) launch_nanos: f64,
}

/// The share of the memory's clock that long reads and writes reach.
const MEMORY_REACHED: f64 = 0.75;

/// The share of the tensor cores' clock that large products reach.
const PRODUCTS_REACHED: f64 = 0.55;

/// How long a device idles between launches of a captured graph.
const LAUNCH_NANOS: f64 = 2000.0;

impl Roofline {
    /// The roofline of a device; `tf32` says whether factors of products in single precision may be rounded.
    pub(crate) fn of(description: &Description, tf32: bool) -> Roofline {
        let Description { multiprocessors, clock_khz, memory_clock_khz, memory_bus_bits, .. } = *description;
        let clocks_per_nano = f64::from(clock_khz) * 1e-6;
        // Memory moves two words of its bus a clock.
        let bytes_per_nano = 2.0 * f64::from(memory_clock_khz) * 1e-6 * f64::from(memory_bus_bits) / 8.0;
        let (half, single) = flops_per_clock(description.capability, tf32);
        let flops = |per_clock: f64| per_clock * f64::from(multiprocessors) * clocks_per_nano;
        let known = |value: f64, otherwise: f64| if 0.0 < value { value } else { otherwise };
        // Where the driver does not report them, the figures of a mid-range device.
        Roofline {
            bytes_per_nano: known(bytes_per_nano, 1000.0) * MEMORY_REACHED,
            flops_per_nano_half: known(flops(half), 200_000.0) * PRODUCTS_REACHED,
            flops_per_nano_single: known(flops(single), 50_000.0) * PRODUCTS_REACHED,
            launch_nanos: LAUNCH_NANOS,
        }
    }

    /// Nanoseconds for some launches, bytes and operations of products: memory and arithmetic work at the
    /// same time.
    pub(crate) fn nanos(&self, launches: usize, bytes: f64, flops: [f64; 2]) -> f64 {
        let arithmetic = flops[0] / self.flops_per_nano_single + flops[1] / self.flops_per_nano_half;
        self.launch_nanos * launches as f64 + arithmetic.max(bytes / self.bytes_per_nano)
    }
}

/// Operations a clock and multiprocessor, of half and of single precision, by compute capability.
fn flops_per_clock((major, minor): (i32, i32), tf32: bool) -> (f64, f64) {
    // Half precision on tensor cores, and plain arithmetic; before compute capability 8.0 there is nothing
    // between the two.
    let (half, plain) = match (major, minor) {
        (..=6, _) => (256.0, 256.0),
        (7, _) => (1024.0, 128.0),
        (8, 0) => (2048.0, 128.0),
        (8, _) => (1024.0, 256.0),
        (9, _) => (4096.0, 256.0),
        (10, _) => (8192.0, 256.0),
        _ => (1024.0, 256.0),
    };
    let single = if tf32 && 8 <= major { half / 2.0 } else { plain };
    (half, single)
}

#[cfg(test)]
mod tests {
    use memfit_ir::Bytes;

    use super::*;

    fn description(capability: (i32, i32), numbers: [i32; 4]) -> Description {
        let [multiprocessors, clock_khz, memory_clock_khz, memory_bus_bits] = numbers;
        Description {
            number: 0,
            name: String::new(),
            capability,
            bytes_total: Bytes::ZERO,
            bus: String::new(),
            multiprocessors,
            clock_khz,
            memory_clock_khz,
            memory_bus_bits,
        }
    }

    #[test]
    fn well_known_devices_are_as_fast_as_their_data_sheets_say() {
        // Terabytes and teraflops a second of the data sheet: memory, dense half precision, single precision
        // with TF32.
        for (name, capability, numbers, sheet) in [
            ("H200", (9, 0), [132, 1_830_000, 3_201_000, 6144], [4.8, 989.0, 495.0]),
            ("A100 40 GB", (8, 0), [108, 1_410_000, 1_215_000, 5120], [1.555, 312.0, 156.0]),
            ("T4", (7, 5), [40, 1_590_000, 5_001_000, 256], [0.32, 65.0, 8.1]),
        ] {
            let roofline = Roofline::of(&description(capability, numbers), true);
            let got = [
                roofline.bytes_per_nano / MEMORY_REACHED / 1e3,
                roofline.flops_per_nano_half / PRODUCTS_REACHED / 1e3,
                roofline.flops_per_nano_single / PRODUCTS_REACHED / 1e3,
            ];
            for (got, sheet) in got.into_iter().zip(sheet) {
                assert!((got / sheet - 1.0).abs() < 0.05, "{name}: {got} instead of {sheet}");
            }
        }
    }

    #[test]
    fn a_device_that_tells_nothing_still_takes_time() {
        let roofline = Roofline::of(&description((99, 0), [0; 4]), true);
        assert_eq!(roofline.nanos(1, 0.0, [0.0; 2]), LAUNCH_NANOS);
        let nanos = roofline.nanos(0, 1e9, [1e12, 0.0]);
        assert!(nanos.is_finite() && 0.0 < nanos);
    }

    #[test]
    fn what_takes_longer_of_memory_and_arithmetic_counts() {
        let roofline = Roofline::of(&description((9, 0), [132, 1_830_000, 3_201_000, 6144]), true);
        let [memory, arithmetic] = [roofline.nanos(0, 1e9, [0.0; 2]), roofline.nanos(0, 0.0, [0.0, 1e15])];
        assert!(memory < arithmetic);
        assert_eq!(roofline.nanos(0, 1e9, [0.0, 1e15]), arithmetic);
    }
}
