//! Rows from .npy files: every type, every range, and every kind of wrong file.

use std::fs;
use std::path::{Path, PathBuf};

use memfit_data::{DataError, Field, Npy, Shuffled, Source};
use memfit_ir::{Bytes, DType};
use tempfile::TempDir;

fn header(description: &str, fortran: &str, shape: &str) -> Vec<u8> {
    let mut text = format!("{{'descr': {description}, 'fortran_order': {fortran}, 'shape': {shape}, }}");
    let length = (10 + text.len() + 1).next_multiple_of(64) - 10;
    text += &" ".repeat(length - text.len() - 1);
    text += "\n";
    let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
    bytes.extend((text.len() as u16).to_le_bytes());
    bytes.extend(text.as_bytes());
    bytes
}

fn write(folder: &TempDir, name: &str, description: &str, shape: &str, data: &[u8]) -> PathBuf {
    let path = folder.path().join(name);
    let mut bytes = header(&format!("'{description}'"), "False", shape);
    bytes.extend(data);
    fs::write(&path, bytes).unwrap();
    path
}

fn field(dims: &[usize], dtype: DType) -> Field {
    Field { name: "x".to_owned(), dims: dims.to_vec(), dtype }
}

fn open(path: &Path, dims: &[usize], dtype: DType) -> Result<Npy, DataError> {
    Npy::open(vec![(path.to_owned(), field(dims, dtype))])
}

fn floats(source: &mut Npy, start: u64, count: usize) -> Result<Vec<f32>, DataError> {
    let mut bytes = vec![0u8; source.fields()[0].bytes(count).to_usize()];
    source.read(0, start, count, &mut bytes)?;
    Ok(bytes.chunks_exact(4).map(|b| f32::from_ne_bytes(b.try_into().unwrap())).collect())
}

fn integers(source: &mut Npy, start: u64, count: usize) -> Result<Vec<i32>, DataError> {
    let mut bytes = vec![0u8; source.fields()[0].bytes(count).to_usize()];
    source.read(0, start, count, &mut bytes)?;
    Ok(bytes.chunks_exact(4).map(|b| i32::from_ne_bytes(b.try_into().unwrap())).collect())
}

fn bytes_of<const SIZE: usize>(values: impl IntoIterator<Item = [u8; SIZE]>) -> Vec<u8> {
    values.into_iter().flatten().collect()
}

#[test]
fn native_floats_go_straight_into_place() {
    let folder = TempDir::new().unwrap();
    let data = bytes_of((0..12).map(|value| (value as f32).to_le_bytes()));
    let mut source = open(&write(&folder, "x.npy", "<f4", "(4, 3)", &data), &[3], DType::F32).unwrap();
    assert_eq!((source.rows(), source.bytes()), (Some(4), Bytes::ZERO));
    assert_eq!(floats(&mut source, 1, 2).unwrap(), [3.0, 4.0, 5.0, 6.0, 7.0, 8.0]);
    assert_eq!(floats(&mut source, 0, 1).unwrap(), [0.0, 1.0, 2.0]);
    assert_eq!(floats(&mut source, 4, 0).unwrap(), []);
}

#[test]
fn much_is_read_in_halves_that_join_without_a_seam() {
    let folder = TempDir::new().unwrap();
    let rows = 5_000_001;
    let data = bytes_of((0..rows).map(|value| (value as f32).to_le_bytes()));
    let path = write(&folder, "x.npy", "<f4", &format!("({rows},)"), &data);
    let mut source = open(&path, &[], DType::F32).unwrap();
    let read = floats(&mut source, 1, rows - 1).unwrap();
    assert!(read.iter().enumerate().all(|(index, value)| *value == (index + 1) as f32));
    // Either half may end too early: the file was long enough when it was opened.
    for left in [15 << 20, 3 << 20] {
        std::fs::File::options().write(true).open(&path).unwrap().set_len(left).unwrap();
        let error = floats(&mut source, 0, rows).unwrap_err();
        assert!(matches!(error, DataError::Truncated { got, .. } if got == left), "{error}");
    }
}

#[test]
fn other_types_pass_through_a_buffer_that_is_counted() {
    let folder = TempDir::new().unwrap();
    let doubles = bytes_of([0.5f64, -2.0].map(f64::to_le_bytes));
    let mut source = open(&write(&folder, "f8.npy", "<f8", "(2,)", &doubles), &[], DType::F32).unwrap();
    assert_eq!(source.bytes(), Bytes(64 << 10));
    assert_eq!(floats(&mut source, 0, 2).unwrap(), [0.5, -2.0]);
    let labels = bytes_of([7i64, -1].map(i64::to_le_bytes));
    let mut source = open(&write(&folder, "i8.npy", "<i8", "(2,)", &labels), &[], DType::I32).unwrap();
    assert_eq!(integers(&mut source, 0, 2).unwrap(), [7, -1]);
    let pixels = [0u8, 128, 255];
    let mut source = open(&write(&folder, "u1.npy", "|u1", "(3,)", &pixels), &[], DType::F32).unwrap();
    assert_eq!(floats(&mut source, 0, 3).unwrap(), [0.0, 128.0, 255.0]);
    let big = bytes_of([1.5f32, 2.5].map(f32::to_be_bytes));
    let mut source = open(&write(&folder, "big.npy", ">f4", "(2,)", &big), &[], DType::F32).unwrap();
    assert_eq!(floats(&mut source, 1, 1).unwrap(), [2.5]);
    let truths = [1u8, 0];
    let mut source = open(&write(&folder, "bool.npy", "|b1", "(2,)", &truths), &[], DType::I32).unwrap();
    assert_eq!(integers(&mut source, 0, 2).unwrap(), [1, 0]);
}

#[test]
fn ranges_larger_than_the_buffer_join_without_a_seam() {
    let folder = TempDir::new().unwrap();
    let rows = 30_001i64;
    let data = bytes_of((0..rows * 3).map(i64::to_le_bytes));
    let shape = format!("({rows}, 3)");
    let mut source = open(&write(&folder, "x.npy", "<i8", &shape, &data), &[3], DType::I32).unwrap();
    let all = integers(&mut source, 0, rows as usize).unwrap();
    assert!(all.iter().zip(0..).all(|(value, index)| *value == index));
    assert_eq!(integers(&mut source, 30_000, 1).unwrap(), [90_000, 90_001, 90_002]);
}

#[test]
fn axes_of_one_at_the_end_do_not_matter() {
    let folder = TempDir::new().unwrap();
    let labels = write(&folder, "y.npy", "<i4", "(3, 1)", &bytes_of([1i32, 2, 3].map(i32::to_le_bytes)));
    assert_eq!(integers(&mut open(&labels, &[], DType::I32).unwrap(), 1, 2).unwrap(), [2, 3]);
    let image = write(&folder, "x.npy", "|u1", "(1, 2, 2)", &[1, 2, 3, 4]);
    assert!(open(&image, &[2, 2, 1], DType::F32).is_ok());
    assert!(matches!(open(&image, &[1, 2, 2], DType::F32), Err(DataError::Shape { .. })));
}

fn answer(result: Result<impl Sized, DataError>, folder: &TempDir) -> String {
    let error = result.err().expect("the file is wrong");
    error.to_string().replace(&format!("{}/", folder.path().display()), "")
}

#[test]
fn wrong_files_are_reported_before_training() {
    let folder = TempDir::new().unwrap();
    let four = |name: &str, shape: &str| write(&folder, name, "<f4", shape, &[0; 16]);
    let raw = |name: &str, bytes: &[u8]| {
        let path = folder.path().join(name);
        fs::write(&path, bytes).unwrap();
        path
    };
    let mut fortran = header("'<f4'", "True", "(2, 2)");
    fortran.extend([0; 16]);
    let mut long = b"\x93NUMPY\x02\x00".to_vec();
    long.extend(u32::MAX.to_le_bytes());
    let cases: Vec<(PathBuf, &str)> = vec![
        (folder.path().join("none.npy"), "there is no file none.npy; check the path in the job"),
        (raw("empty.npy", b""), "empty.npy is no .npy file: it has no bytes; write it with np.save"),
        (
            raw("text.npy", b"a,b\n1,2\n"),
            "text.npy is no .npy file: magic not found for NPY file; write it with np.save",
        ),
        (
            raw("cut.npy", &header("'<f4'", "False", "(2, 2)")[..50]),
            "cut.npy is no .npy file: failed to fill whole buffer; write it with np.save",
        ),
        (
            raw("long.npy", &long),
            "long.npy is no .npy file: its header claims 4294967295 bytes, over 4096; write it with np.save",
        ),
        (
            four("short.npy", "(3, 2)"),
            "short.npy is cut off: expected 152 bytes, got 144; write or copy it again",
        ),
        (
            four("shape.npy", "(1, 4)"),
            "shape.npy has rows of [4] and `x` takes [2]; reshape the array or change the model's input",
        ),
        (
            four("scalar.npy", "()"),
            "scalar.npy holds a single number instead of rows; write an array with a first axis of rows",
        ),
        (four("zero.npy", "(0, 2)"), "zero.npy has no rows; give a file with at least one"),
        (
            raw("fortran.npy", &fortran),
            "fortran.npy is in Fortran order, so its rows are scattered; write it with np.save(path, np.ascontiguousarray(x))",
        ),
        (
            write(&folder, "complex.npy", "<c8", "(2, 2)", &[0; 32]),
            "complex.npy holds elements of type <c8, which cannot become f32 for `x`; convert them with x.astype(\"float32\") or x.astype(\"int32\")",
        ),
        (
            write(&folder, "huge.npy", "<f4", "(9223372036854775807, 2)", &[]),
            "huge.npy is cut off: expected 18446744073709551615 bytes, got 128; write or copy it again",
        ),
    ];
    for (path, text) in cases {
        assert_eq!(answer(open(&path, &[2], DType::F32), &folder), text);
    }
    let objects = raw("object.npy", &header("'|O'", "False", "(2, 2)"));
    assert!(matches!(open(&objects, &[2], DType::F32), Err(DataError::ElementType { .. })));
    let record = raw("record.npy", &header("[('a', '<f4')]", "False", "(2, 2)"));
    assert!(matches!(open(&record, &[2], DType::F32), Err(DataError::ElementType { .. })));
    assert!(matches!(open(folder.path(), &[2], DType::F32), Err(DataError::Read { .. })));
    let nested = "(".repeat(4000);
    let nested = raw("nested.npy", &header("'<f4'", "False", &nested));
    assert!(matches!(open(&nested, &[2], DType::F32), Err(DataError::NotNpy { .. })));
}

#[test]
fn files_of_different_lengths_are_reported() {
    let folder = TempDir::new().unwrap();
    let x = write(&folder, "x.npy", "<f4", "(2, 2)", &[0; 16]);
    let y = write(&folder, "y.npy", "<i4", "(3,)", &[0; 12]);
    let fields = vec![(x, field(&[2], DType::F32)), (y, field(&[], DType::I32))];
    let text = "y.npy has 3 rows and x.npy has 2; give files of the same rows";
    assert_eq!(answer(Npy::open(fields), &folder), text);
}

#[test]
fn numbers_that_do_not_fit_are_reported_with_their_row() {
    let folder = TempDir::new().unwrap();
    let labels = bytes_of([1.0f32, 2.0, 0.0, 2.5].map(f32::to_le_bytes));
    let path = write(&folder, "labels.npy", "<f4", "(2, 2)", &labels);
    let mut source = open(&path, &[2], DType::I32).unwrap();
    assert_eq!(integers(&mut source, 0, 1).unwrap(), [1, 2]);
    let text = "labels.npy has 2.5 in row 1, and `x` takes whole numbers; round the values or choose a loss for floats";
    assert_eq!(answer(integers(&mut source, 1, 1), &folder), text);
    let far = bytes_of([1i64, 2, 3_000_000_000].map(i64::to_le_bytes));
    let mut source = open(&write(&folder, "far.npy", "<i8", "(3,)", &far), &[], DType::I32).unwrap();
    let text = "far.npy has 3000000000 in row 2, beyond the 32-bit integers that `x` takes; use numbers from -2147483648 to 2147483647";
    assert_eq!(answer(integers(&mut source, 1, 2), &folder), text);
}

#[test]
fn the_end_is_an_answer_and_so_is_a_file_that_shrinks() {
    let folder = TempDir::new().unwrap();
    let path = write(&folder, "x.npy", "<f4", "(4,)", &[0; 16]);
    let mut source = open(&path, &[], DType::F32).unwrap();
    let text = "rows 3 to 5 were asked for and there are 4; ask for rows before the end";
    assert_eq!(answer(floats(&mut source, 3, 2), &folder), text);
    assert!(floats(&mut source, u64::MAX, 2).is_err());
    fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(130).unwrap();
    let text = "x.npy is cut off: expected 136 bytes, got 130; write or copy it again";
    assert_eq!(answer(floats(&mut source, 0, 2), &folder), text);
}

#[test]
fn shuffled_rows_stand_at_their_places() {
    let folder = TempDir::new().unwrap();
    // (type on file, elements of a row, rows of a batch): little, converted, and so much that two threads read.
    let cases = [("<f4", 3, 100), ("<i2", 3, 100), ("<f4", 5000, 1001)];
    for (description, elements, count) in cases {
        let rows = 2 * count as u64;
        // Every element of a row has the row's number.
        let numbers = (0..rows).flat_map(|row| std::iter::repeat_n(row, elements));
        let data = match description {
            "<f4" => bytes_of(numbers.map(|row| (row as f32).to_le_bytes())),
            _ => bytes_of(numbers.map(|row| (row as i16).to_le_bytes())),
        };
        let path = write(&folder, "x.npy", description, &format!("({rows}, {elements})"), &data);
        let source = Box::new(open(&path, &[elements], DType::F32).unwrap());
        let mut shuffled = Shuffled::new(source, 4).unwrap();
        shuffled.set_epoch(3);
        let mut bytes = vec![0; count * elements * 4];
        shuffled.read(0, count as u64, count, &mut bytes).unwrap();
        for (row, position) in bytes.chunks_exact(elements * 4).zip(count as u64..) {
            let wanted = (shuffled.file_row(position) as f32).to_ne_bytes();
            assert!(
                row.chunks_exact(4).all(|element| element == wanted),
                "{description}, position {position}"
            );
        }
    }
}
