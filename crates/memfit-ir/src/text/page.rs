//! Lines of a text: a first line with the version, a keyword in front of each line, and a last line that says `end`.

use std::fmt;

use super::{Parser, Printer, Text, VERSION};

/// Where a text is wrong, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TextError {
    /// The line, from 1.
    pub line: usize,
    /// What is wrong.
    pub problem: String,
}

impl fmt::Display for TextError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.problem)
    }
}

impl std::error::Error for TextError {}

/// A text that is written line by line.
#[derive(Default)]
pub(super) struct Writer {
    printer: Printer,
}

impl Writer {
    /// The first line of a text of some kind.
    pub(super) fn new(kind: &str) -> Writer {
        let mut writer = Writer::default();
        writer.printer.write(&format!("memfit {kind} {VERSION}\n"));
        writer
    }

    /// One value.
    pub(super) fn line(&mut self, keyword: &str, value: &impl Text) {
        self.printer.write(keyword);
        self.printer.value(value);
        self.printer.write("\n");
    }

    /// A line for each value, with its number or another key.
    pub(super) fn lines<'a, K: Text + 'a, T: Text + 'a>(
        &mut self,
        keyword: &str,
        values: impl IntoIterator<Item = (K, &'a T)>,
    ) {
        for (key, value) in values {
            self.printer.write(keyword);
            self.printer.value(&key);
            self.printer.value(value);
            self.printer.write("\n");
        }
    }

    /// A line for each value of a list.
    pub(super) fn list<T: Text>(&mut self, keyword: &str, values: &[T]) {
        self.lines(keyword, values.iter().enumerate());
    }

    /// The whole text.
    pub(super) fn end(mut self) -> String {
        self.printer.write("end\n");
        self.printer.finish()
    }
}

/// A text that is read line by line.
pub(super) struct Reader<'a> {
    lines: std::str::Split<'a, char>,
    next: Option<&'a str>,
    /// The number of the next line.
    number: usize,
}

impl<'a> Reader<'a> {
    /// Reads the first line of a text of some kind.
    pub(super) fn new(kind: &str, text: &'a str) -> Result<Reader<'a>, TextError> {
        let mut lines = text.split('\n');
        let next = lines.next();
        let mut reader = Reader { lines, next, number: 1 };
        let first = reader.next.unwrap_or_default();
        let Some(version) = first.strip_prefix("memfit ").and_then(|rest| rest.strip_prefix(kind)) else {
            return Err(reader.error(format!("this is no {kind}: expected `memfit {kind} {VERSION}`")));
        };
        if version.trim() != VERSION.to_string() {
            let version: String = version.trim().chars().take(20).collect();
            return Err(reader.error(format!("version `{version}` of the format, where {VERSION} is known")));
        }
        reader.advance();
        Ok(reader)
    }

    /// One value.
    pub(super) fn line<T: Text>(&mut self, keyword: &str) -> Result<T, TextError> {
        let mut parser = self.begin(keyword).ok_or_else(|| self.expected(keyword))?;
        let value = T::parse(&mut parser).and_then(|value| parser.end().map(|()| value));
        let value = value.map_err(|problem| self.error(problem))?;
        self.advance();
        Ok(value)
    }

    /// All lines that begin with a keyword: line numbers, keys and values.
    pub(super) fn lines<K: Text, T: Text>(&mut self, keyword: &str) -> Result<Vec<(usize, K, T)>, TextError> {
        let mut values = Vec::new();
        while let Some(mut parser) = self.begin(keyword) {
            let pair = K::parse(&mut parser).and_then(|key| T::parse(&mut parser).map(|value| (key, value)));
            let (key, value) = pair
                .and_then(|pair| parser.end().map(|()| pair))
                .map_err(|problem| self.error(format!("{keyword}: {problem}")))?;
            values.push((self.number, key, value));
            self.advance();
        }
        Ok(values)
    }

    /// A list of values, which are numbered; `check` may refuse one.
    pub(super) fn list<T: Text>(
        &mut self,
        keyword: &str,
        check: impl Fn(&T) -> Result<(), String>,
    ) -> Result<Vec<T>, TextError> {
        let mut values = Vec::new();
        for (line, index, value) in self.lines::<usize, T>(keyword)? {
            let error = |problem| TextError { line, problem };
            if index != values.len() {
                return Err(error(format!("expected {keyword} {}, found {index}", values.len())));
            }
            check(&value).map_err(error)?;
            values.push(value);
        }
        Ok(values)
    }

    /// The last line.
    pub(super) fn end(mut self) -> Result<(), TextError> {
        if self.next != Some("end") {
            return Err(self.expected("end"));
        }
        self.advance();
        match (self.next, self.lines.next()) {
            (Some(""), None) => Ok(()),
            (Some(_), _) => Err(self.error("something follows the end".to_owned())),
            (None, _) => Err(self.error("a line break is missing after the end".to_owned())),
        }
    }

    /// The line that was read last.
    pub(super) fn line_before(&self) -> usize {
        self.number - 1
    }

    /// An error in the line that was read last.
    pub(super) fn error_before(&self, problem: String) -> TextError {
        TextError { line: self.line_before(), problem }
    }

    /// What follows the keyword in the next line.
    fn begin(&self, keyword: &str) -> Option<Parser<'a>> {
        let rest = self.next?.strip_prefix(keyword)?;
        rest.starts_with(' ').then(|| Parser::new(rest))
    }

    fn advance(&mut self) {
        self.next = self.lines.next();
        self.number += 1;
    }

    fn expected(&self, keyword: &str) -> TextError {
        let found: String = match self.next {
            None | Some("") => "the end of the text".to_owned(),
            Some(line) => format!("`{}`", line.chars().take(40).collect::<String>()),
        };
        self.error(format!("expected `{keyword}`, found {found}"))
    }

    fn error(&self, problem: String) -> TextError {
        TextError { line: self.number, problem }
    }
}
