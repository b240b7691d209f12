//! What would help, in the syntax of the command.

use memfit::{Change, Error, Lack};

/// An error's message with the options that would help.
pub fn text(error: &Error) -> String {
    let change = |change: Change| match change {
        Change::Budget { mebibytes } => format!("`--budget {mebibytes}MiB`"),
        Change::Batch { rows } => format!("`--batch {rows}`"),
        Change::Disk { mebibytes } => format!("`--disk FOLDER:{mebibytes}MiB`"),
        Change::AllowBatchnormSplit => "`allow_batchnorm_split = true` under [memory]".to_owned(),
    };
    let lack = |lack: Lack| match lack {
        Lack::TrainingData => "`--data x.npy,y.npy` or `x` and `y` under [data]; `--steps N`".to_owned(),
        Lack::Data => "`--data x.npy` or `x` under [data]".to_owned(),
        Lack::Loss => {
            "`--loss NAME` (and `--optimizer NAME`, `--metrics NAMES`) or `loss` under [train]".to_owned()
        }
        Lack::Disk => "`--disk FOLDER:SIZE`".to_owned(),
        Lack::Host => "`--host SIZE`".to_owned(),
    };
    error.text(&change, &lack)
}
