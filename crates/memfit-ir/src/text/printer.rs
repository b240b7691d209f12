//! Writes values: spaces between them, and names in front of fields.

use super::Text;

/// Text that grows.
#[derive(Default)]
pub(crate) struct Printer {
    text: String,
}

impl Printer {
    /// A symbol or a word that follows without a space.
    pub(crate) fn write(&mut self, text: &str) {
        self.text.push_str(text);
    }

    /// A value, after a space where one stands before it.
    pub(crate) fn value(&mut self, value: &impl Text) {
        self.gap();
        value.print(self);
    }

    /// A field with its name; nothing where it has its default.
    pub(crate) fn field<T: Text + PartialEq>(&mut self, name: &str, value: &T, default: Option<&T>) {
        if default != Some(value) {
            self.gap();
            self.text.push_str(name);
            self.text.push('=');
            value.print(self);
        }
    }

    /// All text so far.
    pub(super) fn finish(self) -> String {
        self.text
    }

    fn gap(&mut self) {
        if !self.text.is_empty() && !self.text.ends_with(['{', '(', '[', '\n']) {
            self.text.push(' ');
        }
    }
}
