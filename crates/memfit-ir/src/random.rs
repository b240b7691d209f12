//! Counter-based random numbers: a value is a function of a seed and an index, so that any part of a
//! sequence can be drawn again, in any order and on any thread.

/// Mixes a seed and an index into 64 random bits (the finaliser of SplitMix64).
#[inline(always)]
pub fn bits(seed: u64, index: u64) -> u64 {
    let mut z = seed
        .wrapping_mul(0xD134_2543_DE82_EF95)
        .wrapping_add(index.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15));
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// A float in `[0, 1)` with 24 random bits, exact in f32.
#[inline(always)]
pub fn unit(seed: u64, index: u64) -> f32 {
    // Through an i32, which vectors convert directly.
    (bits(seed, index) >> 40) as i32 as f32 / (1u64 << 24) as f32
}

/// A float in `[low, high)`.
#[inline(always)]
pub fn uniform(seed: u64, index: u64, low: f64, high: f64) -> f32 {
    (low + (high - low) * f64::from(unit(seed, index))) as f32
}

/// An integer in `low..high`, which must not be empty.
#[inline(always)]
pub fn integer(seed: u64, index: u64, low: i64, high: i64) -> i64 {
    low + ((bits(seed, index) >> 33) % (high - low) as u64) as i64
}

/// A normal deviate with mean 0 and standard deviation 1 (Box–Muller on two draws).
pub fn normal(seed: u64, index: u64) -> f32 {
    let radius_draw = 1.0 - f64::from(unit(seed, 2 * index));
    let angle_draw = f64::from(unit(seed, 2 * index + 1));
    ((-2.0 * radius_draw.ln()).sqrt() * (std::f64::consts::TAU * angle_draw).cos()) as f32
}

/// A normal deviate drawn again until it lies within two standard deviations.
pub fn truncated_normal(seed: u64, index: u64) -> f32 {
    (0u64..)
        .map(|attempt| normal(derive(seed, attempt), index))
        .find(|value| value.abs() <= 2.0)
        .expect("a deviate within two standard deviations turns up in 95 of 100 draws")
}

/// A seed for a purpose: seeds derived for different purposes are independent.
pub fn derive(seed: u64, purpose: u64) -> u64 {
    bits(seed ^ 0x6D65_6D66_6974, purpose)
}

/// A purpose from a name (FNV-1a).
pub fn purpose(name: &str) -> u64 {
    name.bytes().fold(0xCBF2_9CE4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01B3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn normals_have_their_moments() {
        let count = 100_000u64;
        let moments = |draw: fn(u64, u64) -> f32| {
            let values: Vec<f64> = (0..count).map(|i| f64::from(draw(7, i))).collect();
            let mean = values.iter().sum::<f64>() / count as f64;
            let variance = values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / count as f64;
            (mean, variance)
        };
        let (mean, variance) = moments(normal);
        assert!(mean.abs() < 0.02 && (variance - 1.0).abs() < 0.02, "{mean} {variance}");
        let (mean, variance) = moments(truncated_normal);
        assert!(mean.abs() < 0.02 && (variance - 0.774).abs() < 0.02, "{mean} {variance}");
    }

    #[test]
    fn draws_are_the_published_ones() {
        // As `references/` draws them.
        let drawn = [0, 1, 2].map(|index| bits(1, index));
        assert_eq!(drawn, [0xF4A9_0164_C474_9E1A, 0xBFA9_AE8D_44B4_5A35, 0xD424_F265_4F31_6EE0]);
        assert_eq!(
            [0, 1, 2].map(|index| uniform(1, index, -1.0, 1.0)),
            [0.911_407_6, 0.497_365_7, 0.657_377_5]
        );
        assert_eq!([0, 1, 2].map(|index| integer(1, index, 0, 10)), [2, 2, 0]);
        let mean: f32 = (0..10_000).map(|i| unit(3, i)).sum::<f32>() / 10_000.0;
        assert!((mean - 0.5).abs() < 0.01, "{mean}");
    }
}
