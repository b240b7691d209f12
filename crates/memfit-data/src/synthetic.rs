//! Synthetic rows: every element is a function of a seed and its index, so any range can be computed again.

use memfit_ir::{Bytes, DType, SyntheticValues, Values, random};

use crate::DataError;
use crate::source::{Field, Source, require_rows};

/// Seeded random rows that are drawn when they are read and kept nowhere.
#[derive(Clone, Debug)]
pub struct Synthetic {
    rows: Option<u64>,
    fields: Vec<Field>,
    draws: Vec<(Values, u64)>,
}

impl Synthetic {
    /// Rows of these fields; without a number of rows they do not end. Each field has a sequence of its own, from the
    /// seed and its name.
    pub fn new(seed: u64, rows: Option<u64>, fields: Vec<(Field, Values)>) -> Synthetic {
        for (field, values) in &fields {
            field.require_writable();
            if let Values::Integers { low, high } = values {
                let fits = i64::from(i32::MIN) <= *low && *high <= i64::from(i32::MAX) + 1;
                assert!(low < high && fits, "`{}` draws from {low}..{high}, beyond i32", field.name);
            }
        }
        let draws = fields
            .iter()
            .map(|(field, values)| (*values, random::derive(seed, random::purpose(&field.name))))
            .collect();
        Synthetic { rows, fields: fields.into_iter().map(|(field, _)| field).collect(), draws }
    }
}

impl Source for Synthetic {
    fn rows(&self) -> Option<u64> {
        self.rows
    }

    fn fields(&self) -> &[Field] {
        &self.fields
    }

    fn read(&mut self, field: usize, start: u64, count: usize, to: &mut [u8]) -> Result<(), DataError> {
        require_rows(self.rows, start, count)?;
        let (values, seed) = self.draws[field];
        let field = &self.fields[field];
        field.require_size(count, to);
        // Sources without end wrap around instead of overflowing.
        let first = start.wrapping_mul(field.elements() as u64);
        let is_float = field.dtype == DType::F32;
        match values {
            Values::Uniform { low, high } if is_float => {
                fill(to, first, |index| random::uniform(seed, index, low, high).to_ne_bytes());
            }
            Values::Uniform { low, high } => {
                fill(to, first, |index| (random::uniform(seed, index, low, high) as i32).to_ne_bytes());
            }
            Values::Integers { low, high } if is_float => {
                fill(to, first, |index| (random::integer(seed, index, low, high) as f32).to_ne_bytes());
            }
            Values::Integers { low, high } => {
                fill(to, first, |index| (random::integer(seed, index, low, high) as i32).to_ne_bytes());
            }
            Values::OneHot => one_hot(to, field, start, seed),
        }
        Ok(())
    }

    fn bytes(&self) -> Bytes {
        Bytes::ZERO
    }

    fn synthetic_values(&self, field: usize) -> Option<SyntheticValues> {
        let (values, seed) = self.draws[field];
        Some(SyntheticValues { values, seed })
    }
}

/// Writes four bytes an element, in a loop that is simple enough to be fast.
fn fill(to: &mut [u8], first: u64, draw: impl Fn(u64) -> [u8; 4]) {
    for (element, index) in to.chunks_exact_mut(4).zip(0u64..) {
        element.copy_from_slice(&draw(first.wrapping_add(index)));
    }
}

/// One draw for each vector of the last dimension gives the index of its 1.
fn one_hot(to: &mut [u8], field: &Field, start: u64, seed: u64) {
    let classes = field.dims.last().copied().unwrap_or(1);
    let stretches = (field.elements() / classes.max(1)) as u64;
    let one = if field.dtype == DType::F32 { 1f32.to_ne_bytes() } else { 1i32.to_ne_bytes() };
    to.fill(0);
    let first = start.wrapping_mul(stretches);
    for (stretch, index) in to.chunks_exact_mut((classes * 4).max(1)).zip(0u64..) {
        let class = random::integer(seed, first.wrapping_add(index), 0, classes as i64) as usize;
        stretch[class * 4..class * 4 + 4].copy_from_slice(&one);
    }
}
