//! The header of a .npy file of float rows, as NumPy writes it.

/// The header before rows of 32-bit floats.
pub fn npy_header(rows: u64, dims: &[usize]) -> Vec<u8> {
    let sizes: String = dims.iter().map(|size| format!("{size}, ")).collect();
    let mut text = format!("{{'descr': '<f4', 'fortran_order': False, 'shape': ({rows}, {sizes}), }}");
    // The data begins at a multiple of 64, after magic, version, length and a line break.
    let length = (10 + text.len() + 1).next_multiple_of(64) - 10;
    text.push_str(&" ".repeat(length - text.len() - 1));
    text.push('\n');
    let mut header = b"\x93NUMPY\x01\x00".to_vec();
    header.extend(u16::try_from(length).expect("a header of a few dimensions is short").to_le_bytes());
    header.extend(text.as_bytes());
    header
}
