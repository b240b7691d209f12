//! "Did you mean": the known name nearest to an unknown one.

/// How alike two names must be, from 0 to 1, for one to be offered for the other.
const ALIKE: f64 = 0.8;

/// The most names that a message lists.
const MOST_LISTED: usize = 40;

/// The nearest of the known names, or all of them where none is near.
pub fn hint<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> String {
    let known: Vec<&str> = known.collect();
    match nearest(name, known.iter().copied()) {
        Some(other) => format!("did you mean `{other}`?"),
        None if !(1..=MOST_LISTED).contains(&known.len()) => "check its spelling".to_owned(),
        None => format!("use one of {}", known.join(", ")),
    }
}

/// The nearest of the known names, where one is near.
pub(crate) fn nearest<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let likeness = |other: &str| strsim::jaro_winkler(&name.to_lowercase(), &other.to_lowercase());
    let near = known.map(|other| (likeness(other), other)).filter(|(likeness, _)| ALIKE <= *likeness);
    near.max_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, other)| other)
}

#[cfg(test)]
mod tests {
    use super::hint;

    #[test]
    fn the_nearest_name_is_offered_and_all_where_none_is_near() {
        let known = ["Dense", "MaxPooling2D", "Conv2D"];
        for (name, text) in [
            ("dense", "did you mean `Dense`?"),
            ("MaxPool2D", "did you mean `MaxPooling2D`?"),
            ("Conv2DLayer", "did you mean `Conv2D`?"),
            ("LSTM", "use one of Dense, MaxPooling2D, Conv2D"),
        ] {
            assert_eq!(hint(name, known.into_iter()), text);
        }
    }
}
