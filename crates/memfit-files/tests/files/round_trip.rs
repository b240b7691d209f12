//! What is written is read back, bit for bit; damaged files give answers, never a panic.

use std::borrow::Cow;
use std::fs;
use std::path::Path;

use memfit_files::{Array, Bytes, Element, FileKind, Layout, NewFile, WeightsFile};

fn array(name: impl Into<String>, dims: &[usize]) -> Array {
    Array { name: name.into(), dims: dims.to_vec(), element: Element::F32 }
}

fn values(array: &Array, seed: usize) -> Vec<u8> {
    let count = usize::try_from(array.bytes()).unwrap() / 4;
    (0..count).flat_map(|index| ((seed * 1000 + index) as f32).to_le_bytes()).collect()
}

fn write(path: &Path, kind: FileKind, arrays: &[Array]) {
    let bodies: Vec<Vec<u8>> = arrays.iter().enumerate().map(|(seed, array)| values(array, seed)).collect();
    let texts =
        [("metadata.json", Cow::from("{}")), ("config.json", Cow::from(r#"{"class_name": "Sequential"}"#))];
    let layout = Layout::new(kind, arrays.to_vec(), &texts);
    NewFile::create(path).unwrap().write(&layout, &|index| Bytes::Borrowed(&bodies[index])).unwrap();
    assert_eq!(fs::metadata(path).unwrap().len(), layout.bytes());
}

fn check(kind: FileKind, name: &str, arrays: &[Array]) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(name);
    write(&path, kind, arrays);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "nothing stands beside");
    let file = WeightsFile::open(&path).unwrap();
    assert_eq!(file.kind(), kind);
    assert_eq!(file.names().count(), arrays.len());
    for (seed, array) in arrays.iter().enumerate() {
        let expected = values(array, seed);
        let mut read = vec![0; expected.len()];
        file.read(&array.name, &array.name, &array.dims, &mut read).unwrap();
        assert_eq!(read, expected, "{}", array.name);
    }
}

fn few() -> Vec<Array> {
    vec![
        array("layers/dense/vars/0", &[3, 4]),
        array("layers/dense/vars/1", &[4]),
        array("layers/sequential/layers/dense/vars/0", &[2, 2, 2]),
        array("optimizer/vars/1", &[]),
    ]
}

#[test]
fn every_kind_gives_back_what_was_written() {
    for (kind, name) in [
        (FileKind::Keras, "a.keras"),
        (FileKind::WeightsH5, "a.weights.h5"),
        (FileKind::Safetensors, "a.safetensors"),
    ] {
        check(kind, name, &few());
        assert_eq!(FileKind::of(Path::new(name)), Some(kind));
    }
}

#[test]
fn groups_of_any_size_keep_every_name() {
    for count in [0, 1, 8, 9, 256, 257, 700, 8193] {
        let arrays: Vec<Array> =
            (0..count).map(|index| array(format!("optimizer/vars/{index}"), &[2])).collect();
        check(FileKind::WeightsH5, "many.weights.h5", &arrays);
    }
}

#[test]
fn a_weight_that_is_missing_or_of_another_shape_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.keras");
    write(&path, FileKind::Keras, &few());
    let file = WeightsFile::open(&path).unwrap();
    let missing = file.check("layers/dense_1/vars/0", "dense_1/kernel", &[1]).unwrap_err().to_string();
    assert!(
        missing.contains("a.keras") && missing.contains("dense_1/kernel") && missing.contains("missing"),
        "{missing}"
    );
    let shape = file.check("layers/dense/vars/0", "dense/kernel", &[4, 3]).unwrap_err().to_string();
    assert!(
        shape.contains("dense/kernel") && shape.contains("[4, 3]") && shape.contains("[3, 4]"),
        "{shape}"
    );
}

#[test]
fn forms_that_keras_does_not_write_are_refused_by_name() {
    let reference =
        |name: &str| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../references/keras").join(name);
    let file = WeightsFile::open(&reference("chunked.weights.h5")).unwrap();
    let answer =
        |place: &str, dims: &[usize]| file.check(place, "dense/kernel", dims).unwrap_err().to_string();
    let text = answer("layers/dense/vars/0", &[4, 5]);
    assert!(text.contains("`dense/kernel`") && text.contains("in chunks"), "{text}");
    let text = answer("layers/dense/vars/1", &[5]);
    assert!(text.contains("expected float32, got floats of 8 bytes"), "{text}");
    let Err(error) = WeightsFile::open(&reference("latest.weights.h5")) else { panic!("it should not open") };
    assert!(error.to_string().contains("latest.weights.h5"), "{error}");
}

#[test]
fn foreign_and_hostile_files_are_answers() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.keras");
    let answer = |bytes: &[u8]| {
        fs::write(&path, bytes).unwrap();
        match WeightsFile::open(&path) {
            Ok(_) => panic!("it should not open"),
            Err(error) => error.to_string(),
        }
    };
    for (bytes, word) in [
        (&b""[..], "neither"),
        (b"hello, this is a text", "neither"),
        (b"PK\x03\x04 cut off", "no whole zip"),
        (b"\x89HDF\r\n\x1a\n\x03", "version 3"),
        (b"\x00\x00\x00\x00\x00\x00\x00\x40{\"a\": 1}", "header of 4611686018427387904 bytes"),
    ] {
        let text = answer(bytes);
        assert!(text.contains(word) && text.contains("a.keras"), "{text}");
    }
}

/// A small generator of our own, so that a failure can be run again.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) % limit as u64) as usize
    }
}

#[test]
fn damaged_files_never_panic_and_never_ask_for_much() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("damaged");
    let mut random = Random(7);
    for kind in [FileKind::Keras, FileKind::WeightsH5, FileKind::Safetensors] {
        write(&path, kind, &few());
        let whole = fs::read(&path).unwrap();
        for round in 0..3000 {
            let mut bytes = whole.clone();
            if round % 3 == 0 {
                bytes.truncate(random.below(bytes.len()));
            }
            for _ in 0..round % 7 {
                if !bytes.is_empty() {
                    let place = random.below(bytes.len());
                    bytes[place] = [0, 0xff, bytes[place] ^ 1 << random.below(8)][random.below(3)];
                }
            }
            // A new file each time: replacing one in place waits for the disk.
            fs::remove_file(&path).unwrap();
            fs::write(&path, &bytes).unwrap();
            let Ok(file) = WeightsFile::open(&path) else { continue };
            let found: Vec<(String, Vec<usize>)> =
                file.names().map(|name| (name.to_owned(), file.dims(name).unwrap().to_vec())).collect();
            for (name, dims) in found {
                if file.check(&name, &name, &dims).is_ok() {
                    let count: usize = dims.iter().product();
                    assert!(count * 4 <= bytes.len(), "an array that can be read lies within the file");
                    file.read(&name, &name, &dims, &mut vec![0; count * 4]).unwrap();
                }
                let _ = file.integer(&name);
            }
        }
    }
}

#[test]
fn the_state_of_a_run_is_read_back_and_its_damage_seen() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.keras");
    let texts = [("config.json", Cow::from("{}"))];
    let layout = || Layout::new(FileKind::Keras, few(), &texts);
    let save = |layout: &Layout, state: Option<&str>| {
        let file = NewFile::create(&path).unwrap();
        file.write_with_state(layout, &|_| Bytes::Zeros, state).unwrap();
        fs::metadata(&path).unwrap().len()
    };
    let read = || WeightsFile::open(&path).unwrap().state();

    assert_eq!(save(&layout(), None), layout().bytes());
    assert_eq!(read().unwrap(), None);
    let roomy = layout().with_state(1000);
    assert_eq!(save(&roomy, None), layout().bytes(), "the room that is not used is given back");
    for state in [r#"{"step": 7}"#.to_owned(), format!("{:1000}", "{}")] {
        let bytes = save(&roomy, Some(&state));
        assert_eq!(bytes + 1000 - state.len() as u64, roomy.bytes());
        assert_eq!(read().unwrap().unwrap(), state);
        WeightsFile::open(&path).unwrap().verify().unwrap();
    }

    save(&roomy, Some(r#"{"step": 7}"#));
    let mut bytes = fs::read(&path).unwrap();
    let place = bytes.windows(7).position(|window| window == br#"step": "#).unwrap();
    bytes[place + 7] = b'8';
    fs::write(&path, bytes).unwrap();
    let answer = read().unwrap_err().to_string();
    assert!(answer.contains("has a memfit.json that was damaged"), "{answer}");
}
