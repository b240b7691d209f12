//! Reads the values of one line, each allocation no larger than the text that it comes from.

use super::Text;

/// How deep values may be nested: an op within an op, a loss within a loss.
const DEPTH: usize = 8;

/// What is left of a line.
pub(crate) struct Parser<'a> {
    rest: &'a str,
    depth: usize,
}

impl<'a> Parser<'a> {
    /// All of a line.
    pub(super) fn new(line: &'a str) -> Parser<'a> {
        Parser { rest: line, depth: 0 }
    }

    /// Letters and digits up to a space or a symbol.
    pub(crate) fn word(&mut self) -> Result<&'a str, String> {
        self.skip_spaces();
        let end = self.rest.find(is_symbol).unwrap_or(self.rest.len());
        let (word, rest) = self.rest.split_at(end);
        if word.is_empty() {
            return Err(format!("a word or a number is missing before `{}`", self.shown()));
        }
        self.rest = rest;
        Ok(word)
    }

    /// A symbol that must be next.
    pub(crate) fn symbol(&mut self, symbol: char) -> Result<(), String> {
        match self.has_symbol(symbol) {
            true => Ok(()),
            false => Err(format!("expected `{symbol}`, found `{}`", self.shown())),
        }
    }

    /// Takes a symbol where it is next.
    pub(super) fn has_symbol(&mut self, symbol: char) -> bool {
        self.skip_spaces();
        match self.rest.strip_prefix(symbol) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    /// Takes a word where it is next.
    pub(super) fn has_word(&mut self, word: &str) -> bool {
        self.skip_spaces();
        match self.rest.strip_prefix(word) {
            Some(rest) if rest.is_empty() || rest.starts_with(is_symbol) => {
                self.rest = rest;
                true
            }
            Some(_) | None => false,
        }
    }

    /// A field with its name, which may be left out where it has a default.
    pub(crate) fn field<T: Text>(&mut self, name: &str, default: Option<T>) -> Result<T, String> {
        self.skip_spaces();
        let value = self.rest.strip_prefix(name).and_then(|rest| rest.strip_prefix('='));
        match (value, default) {
            (Some(rest), _) => {
                self.rest = rest;
                T::parse(self).map_err(|problem| format!("`{name}`: {problem}"))
            }
            (None, Some(default)) => Ok(default),
            (None, None) => Err(format!("expected `{name}=`, found `{}`", self.shown())),
        }
    }

    /// A value within a value of its own kind.
    pub(super) fn nested<T: Text>(&mut self) -> Result<T, String> {
        if self.depth == DEPTH {
            return Err(format!("values are nested more than {DEPTH} deep"));
        }
        self.depth += 1;
        let value = T::parse(self);
        self.depth -= 1;
        value
    }

    /// The next character as it is, spaces too.
    pub(super) fn character(&mut self) -> Result<char, String> {
        let mut characters = self.rest.chars();
        let character = characters.next().ok_or("the line ends too early")?;
        self.rest = characters.as_str();
        Ok(character)
    }

    /// Nothing may be left.
    pub(super) fn end(&mut self) -> Result<(), String> {
        self.skip_spaces();
        match self.rest.is_empty() {
            true => Ok(()),
            false => Err(format!("expected the end of the line, found `{}`", self.shown())),
        }
    }

    fn skip_spaces(&mut self) {
        self.rest = self.rest.trim_start_matches(' ');
    }

    /// The beginning of what is left, for messages.
    fn shown(&self) -> String {
        match self.rest.is_empty() {
            true => "the end of the line".to_owned(),
            false => self.rest.chars().take(20).collect(),
        }
    }
}

fn is_symbol(character: char) -> bool {
    matches!(character, ' ' | '[' | ']' | '{' | '}' | '(' | ')' | '=' | '"' | '@')
}
