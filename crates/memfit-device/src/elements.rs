//! Elements of a caller's arrays, seen as bytes.

/// A number as NumPy knows it, without padding: every byte of it has a value.
pub trait Element: Copy + sealed::Sealed {
    /// NumPy's name of the type, as in `<f4`.
    const DESCRIPTION: &'static str;
}

mod sealed {
    pub trait Sealed {}
}

macro_rules! elements {
    ($($element:ty => $name:literal),*) => {
        $(
            impl sealed::Sealed for $element {}
            impl Element for $element {
                #[cfg(target_endian = "little")]
                const DESCRIPTION: &'static str = concat!("<", $name);
                #[cfg(target_endian = "big")]
                const DESCRIPTION: &'static str = concat!(">", $name);
            }
        )*
    };
}

elements!(
    f32 => "f4", f64 => "f8", i8 => "i1", i16 => "i2", i32 => "i4", i64 => "i8",
    u8 => "u1", u16 => "u2", u32 => "u4", u64 => "u8", bool => "b1"
);

/// Elements as bytes, in the machine's order.
pub fn bytes_of<E: Element>(elements: &[E]) -> &[u8] {
    // SAFETY: the trait is sealed, and none of its types has padding.
    unsafe { std::slice::from_raw_parts(elements.as_ptr().cast(), size_of_val(elements)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_have_their_bytes() {
        assert_eq!(bytes_of(&[1.0f32, -2.0]), [1.0f32.to_ne_bytes(), (-2.0f32).to_ne_bytes()].concat());
        assert_eq!(bytes_of(&[true, false]), [1, 0]);
        assert_eq!(bytes_of::<i64>(&[]), [0u8; 0]);
        assert_eq!(<u16 as Element>::DESCRIPTION.len(), 3);
    }
}
