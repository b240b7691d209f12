//! Synthetic rows: the published numbers, the same on every reading.

use std::time::Instant;

use memfit_data::{Field, Source, Synthetic, Values};
use memfit_ir::{Bytes, DType, random};

fn one(dims: &[usize], dtype: DType, values: Values) -> Synthetic {
    let field = Field { name: "x".to_owned(), dims: dims.to_vec(), dtype };
    Synthetic::new(3, Some(1000), vec![(field, values)])
}

fn read(source: &mut Synthetic, start: u64, count: usize) -> Vec<u8> {
    let mut bytes = vec![0xAA; source.fields()[0].bytes(count).to_usize()];
    source.read(0, start, count, &mut bytes).expect("the rows are there");
    bytes
}

#[test]
fn any_range_reads_the_same_again() {
    let uniform = Values::Uniform { low: -1.0, high: 1.0 };
    for (dtype, values) in [
        (DType::F32, uniform),
        (DType::I32, Values::Integers { low: -5, high: 9 }),
        (DType::F32, Values::Integers { low: 0, high: 2 }),
        (DType::F32, Values::OneHot),
        (DType::I32, Values::OneHot),
    ] {
        let mut source = one(&[4, 5], dtype, values);
        let all = read(&mut source, 0, 100);
        for (start, count) in [(0, 1), (7, 13), (99, 1), (50, 50)] {
            let bytes = read(&mut source, start, count);
            assert_eq!(bytes, all[start as usize * 80..][..count * 80], "{values:?} from {start}");
        }
        assert_eq!(source.bytes(), Bytes::ZERO);
    }
}

#[test]
fn elements_are_drawn_by_their_place() {
    let seed = random::derive(3, random::purpose("x"));
    let mut source = one(&[2, 3], DType::F32, Values::Uniform { low: -1.0, high: 1.0 });
    for (index, bytes) in (30..).zip(read(&mut source, 5, 2).chunks_exact(4)) {
        let value = f32::from_ne_bytes(bytes.try_into().unwrap());
        assert_eq!(value, random::uniform(seed, index, -1.0, 1.0));
    }
    let mut source = one(&[2, 3], DType::I32, Values::Integers { low: -5, high: 9 });
    for (index, bytes) in (30..).zip(read(&mut source, 5, 2).chunks_exact(4)) {
        let value = i32::from_ne_bytes(bytes.try_into().unwrap());
        assert_eq!(i64::from(value), random::integer(seed, index, -5, 9));
    }
    let mut source = one(&[2, 3], DType::F32, Values::OneHot);
    for (index, bytes) in (10..).zip(read(&mut source, 5, 2).chunks_exact(12)) {
        let stretch: Vec<f32> =
            bytes.chunks_exact(4).map(|b| f32::from_ne_bytes(b.try_into().unwrap())).collect();
        let mut expected = [0.0; 3];
        expected[random::integer(seed, index, 0, 3) as usize] = 1.0;
        assert_eq!(stretch, expected);
    }
}

#[test]
fn fields_have_sequences_of_their_own_and_rows_may_not_end() {
    let field = |name: &str| Field { name: name.to_owned(), dims: vec![8], dtype: DType::F32 };
    let uniform = Values::Uniform { low: 0.0, high: 1.0 };
    let mut source = Synthetic::new(1, None, vec![(field("x"), uniform), (field("y"), uniform)]);
    let (mut x, mut y) = ([0; 32], [0; 32]);
    source.read(0, u64::MAX, 1, &mut x).unwrap();
    source.read(1, u64::MAX, 1, &mut y).unwrap();
    assert_ne!(x, y);
    assert_eq!(source.rows(), None);
    let mut ended = one(&[8], DType::F32, uniform);
    assert!(ended.read(0, 1000, 1, &mut x).is_err());
}

#[test]
fn drawing_is_fast_enough_not_to_matter() {
    let mut source = one(&[1000, 100], DType::F32, Values::Uniform { low: 0.0, high: 1.0 });
    read(&mut source, 0, 10);
    let start = Instant::now();
    read(&mut source, 10, 200);
    let per_second = 20_000_000.0 / start.elapsed().as_secs_f64();
    // A shared and busy machine may be slow; a loop that lost its simplicity is slower still.
    assert!(20e6 < per_second, "{per_second} floats a second");
}
