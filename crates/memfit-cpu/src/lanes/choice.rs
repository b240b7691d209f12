//! Which of a machine's vector instructions to use: the widest, unless the environment names others.

use super::{Instructions, Level};

/// The variable of the environment that names a level.
pub(crate) const VARIABLE: &str = "MEMFIT_VECTORS";

impl Level {
    /// The level that the environment names, or else the best.
    pub(crate) fn chosen() -> Result<Level, String> {
        match std::env::var_os(VARIABLE) {
            Some(name) if !name.is_empty() => {
                let name = name.to_string_lossy();
                let refused = |names| format!("{VARIABLE} asks for `{name}`, and this machine has {names}");
                Level::named(&name).map_err(refused)
            }
            _ => Ok(Level::best()),
        }
    }

    /// The level that a run had which goes on.
    pub(crate) fn wanted(name: &str) -> Result<Level, String> {
        Level::named(name).map_err(|names| format!("the run used `{name}`, and this machine has {names}"))
    }

    /// The level of a name; if this machine has none of that name, those that it has.
    fn named(name: &str) -> Result<Level, String> {
        Level::available().find(|level| level.name() == name).ok_or_else(|| {
            let names: Vec<_> = Level::available().map(Level::name).collect();
            names.join(", ")
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
        let refused = Level::wanted("avx1024").unwrap_err();
        assert!(refused.contains("`avx1024`") && refused.contains("plain"), "{refused}");
    }
}
