//! Truncated, damaged and hostile files: an error that names the part, or exactly what was written.

use std::borrow::Cow;
use std::fs;
use std::ops::Range;
use std::path::Path;

use memfit_files::{Array, Bytes, Element, FileKind, Layout, NewFile, WeightsFile, json_text};

const CONFIG: &str = r#"{"class_name": "Sequential", "config": {"name": "a model", "layers": []}}"#;

fn arrays() -> Vec<Array> {
    let array = |name: &str, dims: &[usize]| Array {
        name: name.to_owned(),
        dims: dims.to_vec(),
        element: Element::F32,
    };
    vec![
        array("layers/conv2d/vars/0", &[3, 3, 16, 32]),
        array("layers/dense/vars/0", &[64, 200]),
        array("layers/dense/vars/1", &[200]),
        array("optimizer/vars/2", &[64, 200]),
    ]
}

fn values(array: &Array, seed: usize) -> Vec<u8> {
    let count = usize::try_from(array.bytes()).unwrap() / 4;
    (0..count).flat_map(|index| ((seed * 100_003 + index * 7) as f32).to_le_bytes()).collect()
}

/// The bytes of a file of this kind.
fn whole(kind: FileKind) -> Vec<u8> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("whole");
    let texts = [("metadata.json", Cow::from("{}")), ("config.json", Cow::from(CONFIG))];
    let arrays = arrays();
    let bodies: Vec<Vec<u8>> = arrays.iter().enumerate().map(|(seed, array)| values(array, seed)).collect();
    let layout = Layout::new(kind, arrays, &texts);
    NewFile::create(&path).unwrap().write(&layout, &|index| Bytes::Borrowed(&bodies[index])).unwrap();
    fs::read(&path).unwrap()
}

/// Opens, verifies and reads everything; the first problem in words.
fn problem(path: &Path, bytes: &[u8]) -> Option<String> {
    let _ = fs::remove_file(path);
    fs::write(path, bytes).unwrap();
    let read = || {
        let file = WeightsFile::open(path)?;
        file.verify()?;
        for (seed, array) in arrays().iter().enumerate() {
            let expected = values(array, seed);
            let mut read = vec![0; expected.len()];
            file.read(&array.name, &array.name, &array.dims, &mut read)?;
            assert_eq!(read, expected, "what is accepted is what was written");
        }
        Ok::<_, memfit_files::FileError>(())
    };
    read().err().map(|error| error.to_string())
}

fn find(bytes: &[u8], part: &[u8]) -> usize {
    bytes.windows(part.len()).position(|window| window == part).unwrap()
}

/// The range of the bytes of an entry. They follow its local header, which has a name and an extra field of
/// 20 bytes.
fn entry(bytes: &[u8], name: &str, next: &str) -> Range<usize> {
    let start = find(bytes, name.as_bytes()) + name.len() + 20;
    let end = if next.is_empty() { find(bytes, b"PK\x01\x02") } else { find(bytes, next.as_bytes()) - 30 };
    start..end
}

#[test]
fn a_file_cut_off_anywhere_says_so() {
    let folder = tempfile::tempdir().unwrap();
    for (kind, name) in [
        (FileKind::Keras, "cut.keras"),
        (FileKind::WeightsH5, "cut.weights.h5"),
        (FileKind::Safetensors, "cut.safetensors"),
    ] {
        let path = folder.path().join(name);
        let bytes = whole(kind);
        assert!(100_000 < bytes.len());
        assert_eq!(problem(&path, &bytes), None);
        let lengths = (0..bytes.len()).step_by(4096).chain(bytes.len() - 200..bytes.len());
        for length in lengths {
            let answer = problem(&path, &bytes[..length]);
            let answer = answer.unwrap_or_else(|| panic!("{name} of {length} bytes was accepted"));
            assert!(answer.contains(name), "{answer}");
        }
    }
}

#[test]
fn a_flipped_byte_of_an_archive_is_found_and_its_part_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("flipped.keras");
    let bytes = whole(FileKind::Keras);
    let config = entry(&bytes, "config.json", "model.weights.h5");
    let weights = entry(&bytes, "model.weights.h5", "");
    assert_eq!(&bytes[config.clone()], CONFIG.as_bytes());
    // Every byte outside the middle of the arrays, and every 997th byte in it.
    let ends = weights.start + 5000..weights.end - 5000;
    let places = (0..bytes.len()).filter(|place| !ends.contains(place) || place % 997 == 0);
    let (mut found, mut harmless) = (0, 0);
    for (round, place) in places.enumerate() {
        let mut damaged = bytes.clone();
        damaged[place] ^= [0x01, 0x80, 0xff][round % 3];
        match problem(&path, &damaged) {
            Some(answer) => {
                found += 1;
                for (range, part) in [(&config, "config.json"), (&weights, "model.weights.h5")] {
                    assert!(!range.contains(&place) || answer.contains(part), "byte {place}: {answer}");
                }
            }
            None => {
                assert!(!config.contains(&place) && !weights.contains(&place), "byte {place} was not missed");
                harmless += 1;
            }
        }
    }
    // Dates, versions, the headers in front of the entries, whose directory counts, and the entry that is not read.
    assert!(harmless < 400 && 5000 < found, "{found} found, {harmless} harmless");
}

/// The last place of a part, which is in the archive's directory where the part is an entry's name.
fn in_directory(bytes: &[u8], name: &str) -> usize {
    bytes.windows(name.len()).rposition(|window| window == name.as_bytes()).unwrap() - 46
}

#[test]
fn a_zip_bomb_is_refused_before_it_unfolds() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("bomb.keras");
    let bytes = whole(FileKind::Keras);
    let answer = |change: &dyn Fn(&mut [u8])| {
        let mut damaged = bytes.clone();
        change(&mut damaged);
        problem(&path, &damaged).expect("a bomb is no model")
    };
    let config = in_directory(&bytes, "config.json");
    let weights = in_directory(&bytes, "model.weights.h5");
    // Sizes in 64 bits follow the name and a head of 4 bytes: the original size, the stored size and the
    // offset.
    let sizes = |directory: usize, name: &str| directory + 46 + name.len() + 4;
    for size in [64 << 20 | 1, 8 << 30, u64::MAX, u64::MAX - 16] {
        let text = answer(&|bytes| {
            let at = sizes(config, "config.json");
            bytes[at..at + 8].copy_from_slice(&size.to_le_bytes());
            bytes[at + 8..at + 16].copy_from_slice(&size.to_le_bytes());
        });
        assert!(text.contains("`config.json`"), "{text}");
        let text = answer(&|bytes| {
            let at = sizes(weights, "model.weights.h5");
            bytes[at..at + 8].copy_from_slice(&size.to_le_bytes());
        });
        assert!(text.contains("two sizes") && text.contains("`model.weights.h5`"), "{text}");
    }
    let text = answer(&|bytes| bytes[config + 10] = 8);
    assert!(text.contains("`config.json` compressed"), "{text}");
    let text = answer(&|bytes| {
        let end = bytes.len() - 22;
        bytes[end + 8..end + 12].copy_from_slice(&[0xff; 4]);
        bytes[end - 20 - 56 + 32..end - 20 - 56 + 40].copy_from_slice(&u64::MAX.to_le_bytes());
    });
    assert!(text.contains("entries, more than any model"), "{text}");
}

#[test]
fn json_that_would_take_the_stack_or_the_memory_is_counted_first() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.json");
    let answer = |text: &str| {
        fs::write(&path, text).unwrap();
        json_text(&path).expect_err("no model is like that").to_string()
    };
    let open = r#"{"class_name": "Sequential", "config": {"layers": ["#;
    for text in ["[".repeat(1_000_000), open.repeat(100_000), format!("{}1", r#"{"a":"#.repeat(1_000_000))] {
        let text = answer(&text);
        assert!(text.contains("model.json") && text.contains("more than 120 deep"), "{text}");
    }
    let text = answer(&format!("[{}]", "{},".repeat(1_000_001)));
    assert!(text.contains("more than 1000000 objects"), "{text}");
    let text = answer(&format!("[{}0]", "0,".repeat(8_000_001)));
    assert!(text.contains("8000000 values"), "{text}");
    let text = answer(&" ".repeat((64 << 20) + 1));
    assert!(text.contains("has 67108865 bytes or more"), "{text}");
    // Brackets within texts count for nothing.
    fs::write(&path, format!(r#"{{"name": "\"{}"}}"#, "[{".repeat(1000))).unwrap();
    assert!(json_text(&path).is_ok());
}

#[test]
fn a_safetensors_header_that_claims_too_much_is_an_answer() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.safetensors");
    let with_header = |length: u64, text: &str| {
        let mut bytes = length.to_le_bytes().to_vec();
        bytes.extend(text.as_bytes());
        problem(&path, &bytes).unwrap()
    };
    for length in [100, 1 << 40, u64::MAX, u64::MAX - 8] {
        let text = with_header(length, "{}");
        assert!(text.contains(&format!("header of {length} bytes and has 10 in all")), "{text}");
    }
    let long = format!("{{{}", " ".repeat(70 << 20));
    let text = with_header(long.len() as u64, &long);
    assert!(text.contains("more than any model needs"), "{text}");
    let deep = format!("{{\"a\":{}", "[".repeat(100_000));
    assert!(with_header(deep.len() as u64, &deep).contains("120 deep"));
    for (entry, word) in [
        (r#"{"a": {"dtype": "F32", "shape": [-1], "data_offsets": [0, 4]}}"#, "damaged at `a`"),
        (r#"{"a": {"dtype": "F32", "shape": [1], "data_offsets": [4]}}"#, "damaged at `a`"),
        (r#"{"a": 3}"#, "damaged at `a`"),
        ("{]", "is no JSON"),
    ] {
        let text = with_header(entry.len() as u64, entry);
        assert!(text.contains(word), "{text}");
    }
    let beyond = [
        r#"{"a": {"dtype": "F32", "shape": [4611686018427387904, 4], "data_offsets": [0, 0]}}"#,
        r#"{"a": {"dtype": "F32", "shape": [2], "data_offsets": [18446744073709551608, 18446744073709551615]}}"#,
        r#"{"a": {"dtype": "F32", "shape": [2], "data_offsets": [8, 0]}}"#,
    ];
    for entry in beyond {
        let mut bytes = (entry.len() as u64).to_le_bytes().to_vec();
        bytes.extend(entry.as_bytes());
        fs::write(&path, bytes).unwrap();
        let file = WeightsFile::open(&path).unwrap();
        let dims = file.dims("a").unwrap().to_vec();
        let text = file.check("a", "dense/kernel", &dims).unwrap_err().to_string();
        assert!(text.contains("`dense/kernel`") && text.contains("does not lie within the file"), "{text}");
    }
}

/// Replaces the number at a place.
fn put(bytes: &mut [u8], place: usize, number: u64) {
    bytes[place..place + 8].copy_from_slice(&number.to_le_bytes());
}

#[test]
fn names_that_lead_in_circles_or_claim_too_much_come_to_an_end() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.weights.h5");
    let bytes = whole(FileKind::WeightsH5);
    let places = |part: &[u8]| -> Vec<usize> {
        (0..bytes.len() - part.len()).filter(|place| bytes[*place..].starts_with(part)).collect()
    };
    let (heaps, trees, nodes) = (places(b"HEAP"), places(b"TREE"), places(b"SNOD"));
    assert!(4 < heaps.len() && heaps.len() == trees.len());
    let answer = |change: &dyn Fn(&mut [u8])| {
        let mut damaged = bytes.clone();
        change(&mut damaged);
        problem(&path, &damaged).expect("it is no model's file")
    };
    for heap in &heaps {
        for length in [(4 << 20) + 1, 1 << 40, u64::MAX] {
            let text = answer(&|bytes| put(bytes, heap + 8, length));
            assert!(text.contains("bytes of names in one group"), "{text}");
        }
        // All names of the file, again and again: no byte describes two groups.
        answer(&|bytes| {
            let all = bytes.len() as u64;
            put(bytes, heap + 8, all);
            put(bytes, heap + 24, 0);
        });
    }
    for tree in &trees {
        let text = answer(&|bytes| put(bytes, tree + 24 + 8, *tree as u64));
        assert!(text.contains("circle") || text.contains("no symbols"), "{text}");
    }
    for node in &nodes {
        // The group's first object is the root.
        let root = u64::from_le_bytes(bytes[64..72].try_into().unwrap());
        let text = answer(&|bytes| put(bytes, node + 8 + 8, root));
        assert!(text.contains("in a circle"), "{text}");
    }
}
