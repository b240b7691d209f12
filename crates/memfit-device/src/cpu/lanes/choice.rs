//! Which of a machine's vector instructions to use: the widest, unless the environment names others.

use super::{Instructions, Level};

/// The variable of the environment that names a level.
pub(crate) const VARIABLE: &str = "MEMFIT_VECTORS";

impl Level {
    /// The level that the environment names, or else the best.
    pub(crate) fn chosen() -> Result<Level, String> {
        match std::env::var_os(VARIABLE) {
            Some(name) if !name.is_empty() => Level::named(&name.to_string_lossy()),
            _ => Ok(Level::best()),
        }
    }

    /// The level of a name; if this machine has none of that name, those that it has.
    fn named(name: &str) -> Result<Level, String> {
        Level::available().find(|level| level.name() == name).ok_or_else(|| {
            let names: Vec<_> = Level::available().map(Level::name).collect();
            format!("{VARIABLE} asks for `{name}`, and this machine has {}", names.join(", "))
        })
    }

    /// What the level is called.
    pub(crate) fn name(self) -> &'static str {
        match self.0 {
            Instructions::Plain => "plain",
            #[cfg(target_arch = "x86_64")]
            Instructions::Avx2 => "avx2",
            #[cfg(target_arch = "x86_64")]
            Instructions::Avx512 => "avx512",
            #[cfg(target_arch = "aarch64")]
            Instructions::Neon => "neon",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_level_is_found_by_its_name_and_no_other() {
        for level in Level::available() {
            assert_eq!(Level::named(level.name()), Ok(level));
        }
        let refused = Level::named("avx1024").unwrap_err();
        assert!(refused.contains("`avx1024`") && refused.contains("plain"), "{refused}");
    }
}
