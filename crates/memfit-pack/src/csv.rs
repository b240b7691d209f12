//! Items and packings as text, in the form that the minimalloc benchmarks use.
//!
//! ```text
//! id,lower,upper,size,alignment,gaps
//! weights,0,9,1024,64,
//! scratch,2,7,512,64,3-4 5-6@0:128
//! ```
//!
//! The columns may stand in any order; `alignment` and `gaps` may be missing. Gaps are separated
//! by spaces; what follows `@` is the window of bytes that stays occupied. Times are half-open.
//! The older names are read too: `start` and `begin` for `lower`, `buffer` and `buffer_id` for
//! `id`, and `end` for `upper`, which is then the last time and not the one after it.

use std::fmt;

use crate::{Gap, Item, Packing, Window};

/// Items by name, as a file holds them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Table {
    /// One name for each item.
    pub ids: Vec<String>,
    /// The items in the order of the file.
    pub items: Vec<Item>,
}

/// What is wrong with a text, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CsvError {
    /// The line, counted from 1.
    pub line: usize,
    /// The column, counted from 1 in fields; 0 where the whole line is meant.
    pub column: usize,
    /// What was expected and what was found.
    pub problem: String,
}

/// Reads items.
///
/// ```
/// let table = memfit_pack::csv::read("id,lower,upper,size\na,0,3,4\nb,3,9,4\n")?;
/// assert_eq!((table.ids[1].as_str(), table.items[1].lower), ("b", 3));
/// # Ok::<(), memfit_pack::csv::CsvError>(())
/// ```
pub fn read(text: &str) -> Result<Table, CsvError> {
    let mut lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    let Some((number, header)) = lines.next() else {
        return Err(CsvError { line: 1, column: 0, problem: "there is no header".to_string() });
    };
    let header = Header::read(number + 1, header)?;
    let mut table = Table::default();
    for (number, line) in lines {
        let row = Row { line: number + 1, fields: line.split(',').map(str::trim).collect() };
        if row.fields.len() != header.count {
            let problem = format!("{} fields under a header of {}", row.fields.len(), header.count);
            return Err(CsvError { line: row.line, column: 0, problem });
        }
        table.ids.push(row.fields[header.id].to_string());
        table.items.push(header.item(&row)?);
    }
    Ok(table)
}

/// Writes items, and their offsets if there is a packing.
pub fn write(table: &Table, packing: Option<&Packing>) -> String {
    let with_alignment = table.items.iter().any(|item| item.alignment > 1);
    let with_gaps = table.items.iter().any(|item| !item.gaps.is_empty());
    let mut text = String::from("id,lower,upper,size");
    for (name, wanted) in
        [(",alignment", with_alignment), (",gaps", with_gaps), (",offset", packing.is_some())]
    {
        text.push_str(if wanted { name } else { "" });
    }
    text.push('\n');
    for (index, (id, item)) in table.ids.iter().zip(&table.items).enumerate() {
        text.push_str(&format!("{id},{},{},{}", item.lower, item.upper, item.size));
        if with_alignment {
            text.push_str(&format!(",{}", item.alignment.max(1)));
        }
        if with_gaps {
            let gaps: Vec<String> = item.gaps.iter().map(write_gap).collect();
            text.push_str(&format!(",{}", gaps.join(" ")));
        }
        if let Some(packing) = packing {
            text.push_str(&format!(",{}", packing.offsets[index]));
        }
        text.push('\n');
    }
    text
}

fn write_gap(gap: &Gap) -> String {
    match gap.window {
        None => format!("{}-{}", gap.lower, gap.upper),
        Some(window) => format!("{}-{}@{}:{}", gap.lower, gap.upper, window.lower, window.upper),
    }
}

/// Where each column stands.
struct Header {
    count: usize,
    id: usize,
    lower: usize,
    upper: usize,
    size: usize,
    alignment: Option<usize>,
    gaps: Option<usize>,
    /// What is added to an upper time: 1 where the file gives the last time instead.
    upper_more: usize,
}

/// One line below the header.
struct Row<'a> {
    line: usize,
    fields: Vec<&'a str>,
}

impl Header {
    fn read(line: usize, text: &str) -> Result<Self, CsvError> {
        let names: Vec<&str> = text.split(',').map(str::trim).collect();
        for (column, name) in names.iter().enumerate() {
            if names[..column].contains(name) {
                let problem = format!("a second column `{name}`");
                return Err(CsvError { line, column: column + 1, problem });
            }
        }
        let find = |known: &[&str]| names.iter().position(|name| known.contains(name));
        let need = |known: &[&str]| {
            let problem = || format!("no column `{}`", known[0]);
            find(known).ok_or_else(|| CsvError { line, column: 0, problem: problem() })
        };
        Ok(Self {
            count: names.len(),
            id: need(&["id", "buffer", "buffer_id"])?,
            lower: need(&["lower", "start", "begin"])?,
            upper: need(&["upper", "end"])?,
            size: need(&["size"])?,
            alignment: find(&["alignment"]),
            gaps: find(&["gaps"]),
            upper_more: usize::from(!names.contains(&"upper")),
        })
    }

    fn item(&self, row: &Row<'_>) -> Result<Item, CsvError> {
        let mut item = Item {
            lower: row.number(self.lower)?,
            upper: row.number::<usize>(self.upper)?.saturating_add(self.upper_more),
            size: row.number(self.size)?,
            alignment: 1,
            gaps: Vec::new(),
        };
        if let Some(column) = self.alignment {
            item.alignment = row.number(column)?;
        }
        if let Some(column) = self.gaps {
            for text in row.fields[column].split_whitespace() {
                let gap = read_gap(text, self.upper_more).ok_or_else(|| {
                    row.error(column, format!("a gap like `3-5` or `3-5@0:16`, not `{text}`"))
                })?;
                item.gaps.push(gap);
            }
        }
        Ok(item)
    }
}

impl Row<'_> {
    fn number<T: std::str::FromStr>(&self, column: usize) -> Result<T, CsvError> {
        let text = self.fields[column];
        text.parse().map_err(|_| self.error(column, format!("a whole number, not `{text}`")))
    }

    fn error(&self, column: usize, expected: String) -> CsvError {
        CsvError { line: self.line, column: column + 1, problem: format!("expected {expected}") }
    }
}

fn read_gap(text: &str, upper_more: usize) -> Option<Gap> {
    let (time, window) = match text.split_once('@') {
        None => (text, None),
        Some((time, window)) => (time, Some(window)),
    };
    let (lower, upper) = time.split_once('-')?;
    let upper = upper.parse::<usize>().ok()?.checked_add(upper_more)?;
    let window = match window.map(|window| window.split_once(':')) {
        None => None,
        Some(None) => return None,
        Some(Some((lower, upper))) => Some(Window { lower: lower.parse().ok()?, upper: upper.parse().ok()? }),
    };
    Some(Gap { lower: lower.parse().ok()?, upper, window })
}

impl fmt::Display for CsvError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.column {
            0 => write!(f, "line {}: {}", self.line, self.problem),
            column => write!(f, "line {}, column {column}: {}", self.line, self.problem),
        }
    }
}

impl std::error::Error for CsvError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_reads_back() {
        let window = Some(Window { lower: 1, upper: 2 });
        let items = vec![
            Item::new(0, 9, 4).aligned(2),
            Item::new(3, 8, 5).resting(Gap { lower: 3, upper: 5, window }).resting(Gap {
                lower: 6,
                upper: 7,
                window: None,
            }),
        ];
        let table = Table { ids: vec!["a".to_string(), "b".to_string()], items };
        let text = write(&table, None);
        assert_eq!(text, "id,lower,upper,size,alignment,gaps\na,0,9,4,2,\nb,3,8,5,1,3-5@1:2 6-7\n");
        assert_eq!(read(&text), Ok(table.clone()));
        let packing = Packing { offsets: vec![0, 4], height: 9, bound: 9 };
        assert!(write(&table, Some(&packing)).ends_with("b,3,8,5,1,3-5@1:2 6-7,4\n"));
    }

    #[test]
    fn older_names_are_read_and_their_end_is_the_last_time() {
        let table = read("buffer_id,start,end,size,gaps\nx,1,3,7,1-1\n").unwrap();
        let gap = Gap { lower: 1, upper: 2, window: None };
        assert_eq!(table.items, [Item::new(1, 4, 7).resting(gap)]);
    }

    #[test]
    fn errors_name_line_and_column() {
        let cases = [
            ("", "line 1: there is no header"),
            ("id,lower,size\n", "line 1: no column `upper`"),
            ("id,lower,lower,size\n", "line 1, column 3: a second column `lower`"),
            ("id,lower,upper,size\na,0,1\n", "line 2: 3 fields under a header of 4"),
            (
                "id,lower,upper,size\na,0,1,2\n\nb,0,-1,2\n",
                "line 4, column 3: expected a whole number, not `-1`",
            ),
            (
                "id,lower,upper,size,gaps\na,0,1,2,3\n",
                "line 2, column 5: expected a gap like `3-5` or `3-5@0:16`, not `3`",
            ),
        ];
        for (text, expected) in cases {
            assert_eq!(read(text).unwrap_err().to_string(), expected, "{text:?}");
        }
    }
}
