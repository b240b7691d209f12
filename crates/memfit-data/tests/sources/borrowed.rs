//! Rows of borrowed arrays.

use memfit_data::{Borrowed, BorrowedArray, BorrowedOrder, DataError, Field, Permutation, Source};
use memfit_ir::DType;

fn field(name: &str, dims: &[usize], dtype: DType) -> Field {
    Field { name: name.to_owned(), dims: dims.to_vec(), dtype }
}

fn read(source: &mut Borrowed<'_>, field: usize, start: u64, count: usize) -> Result<Vec<f32>, DataError> {
    let mut bytes = vec![0; source.fields()[field].bytes(count).to_usize()];
    source.read(field, start, count, &mut bytes)?;
    Ok(bytes.chunks(4).map(|four| f32::from_le_bytes(four.try_into().unwrap())).collect())
}

#[test]
fn rows_come_in_their_own_order_or_in_a_given_one() {
    let fields = [field("x", &[2], DType::F32)];
    let floats: Vec<u8> = (0..6).flat_map(|value| (value as f32).to_le_bytes()).collect();
    let bytes: Vec<u8> = (0..6).collect();
    for (description, bytes) in [("<f4", &floats), ("|u1", &bytes)] {
        let array = BorrowedArray { description, dims: &[3, 2], bytes };
        let mut source = Borrowed::new(&fields, &[array], BorrowedOrder::Stored).unwrap();
        assert_eq!(read(&mut source, 0, 1, 2).unwrap(), [2.0, 3.0, 4.0, 5.0]);
        assert!(matches!(read(&mut source, 0, 2, 2), Err(DataError::BeyondEnd { rows: 3, .. })));
        let mut source = Borrowed::new(&fields, &[array], BorrowedOrder::Rows(&[2, 0])).unwrap();
        assert_eq!(read(&mut source, 0, 0, 2).unwrap(), [4.0, 5.0, 0.0, 1.0]);
        assert!(matches!(
            Borrowed::new(&fields, &[array], BorrowedOrder::Rows(&[3])),
            Err(DataError::BeyondEnd { .. })
        ));
        assert!(matches!(
            Borrowed::new(&fields, &[array], BorrowedOrder::Rows(&[-1])),
            Err(DataError::BeyondEnd { .. })
        ));
    }
}

#[test]
fn an_array_that_does_not_suit_is_named() {
    let fields = [field("x", &[2], DType::F32), field("labels", &[], DType::I32)];
    let x = BorrowedArray { description: "|u1", dims: &[2, 2], bytes: &[1, 2, 3, 4] };
    let half: Vec<u8> = [1.0f32, 1.5].iter().flat_map(|value| value.to_le_bytes()).collect();
    let labels = BorrowedArray { description: "<f4", dims: &[2, 1], bytes: &half };
    let mut source = Borrowed::new(&fields, &[x, labels], BorrowedOrder::Stored).unwrap();
    assert!(matches!(source.read(1, 0, 2, &mut [0; 8]), Err(DataError::NotWhole { row: 1, .. })));
    let text = BorrowedArray { description: "<U5", ..labels };
    let error = Borrowed::new(&fields, &[x, text], BorrowedOrder::Stored).unwrap_err().to_string();
    assert!(error.contains("the array for `labels` holds elements of type <U5"), "{error}");
    let wide = BorrowedArray { dims: &[2, 3], bytes: &[0; 6], ..x };
    assert!(matches!(
        Borrowed::new(&fields, &[wide, labels], BorrowedOrder::Stored),
        Err(DataError::Shape { .. })
    ));
    let long = BorrowedArray { dims: &[3, 2], bytes: &[0; 6], ..x };
    assert!(matches!(
        Borrowed::new(&fields, &[long, labels], BorrowedOrder::Stored),
        Err(DataError::RowsDiffer { .. })
    ));
}

#[test]
fn shuffled_rows_are_those_of_the_permutation_whose_epochs_checkpoints_remember() {
    let fields = [Field { name: "x".to_owned(), dims: vec![1], dtype: DType::F32 }];
    let values: Vec<u8> = (0..50).flat_map(|row| (row as f32).to_le_bytes()).collect();
    let array = BorrowedArray { description: "<f4", dims: &[50, 1], bytes: &values };
    for epoch in [0, 1, 7] {
        let mut permutation = Permutation::new(11, 50);
        permutation.set_epoch(epoch);
        let order = BorrowedOrder::Shuffled { seed: 11, epoch };
        let mut source = Borrowed::new(&fields, &[array], order).unwrap();
        let mut rows = [0; 8];
        source.read(0, 20, 2, &mut rows).unwrap();
        let read: Vec<f32> = rows.as_chunks().0.iter().map(|four| f32::from_le_bytes(*four)).collect();
        assert_eq!(read, [permutation.at(20) as f32, permutation.at(21) as f32]);
        assert_eq!(source.file_row(20), permutation.at(20));
    }
}
