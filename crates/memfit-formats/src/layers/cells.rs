//! Cells that are run over a sequence, alone or one after the other at each step.

use memfit_ir::TensorId;

use super::recurrent::{inside, run, within};
use crate::error::FormatError;
use crate::listed::snake_case;
use crate::settings::Inner;
use crate::site::Site;

/// RNN: one cell is the layer of that name; of several, each runs over all that the one before it gave.
pub(crate) fn rnn(site: &mut Site<'_>, operands: &[TensorId]) -> Result<TensorId, FormatError> {
    let settings = site.settings;
    let cells = settings.cells("cell");
    let joined = |cell: &Inner| Inner { row: cell.row, settings: cell.settings.with(settings) };
    if !cells.stacked {
        let cell = joined(&cells.cells[0]);
        return inside(site, &cell, site.within.clone(), |site| run(site, cell.row.class, operands, false));
    }
    if operands.len() > 1 {
        return Err(site.unsupported("initial_state", "given", "none for several cells"));
    }
    for argument in ["return_state", "go_backwards"] {
        if settings.flag(argument) {
            return Err(site.unsupported(argument, true, "false for several cells, or a layer for each"));
        }
    }
    let mut x = operands[0];
    for (place, cell) in cells.cells.iter().enumerate() {
        let mut cell = joined(cell);
        if place + 1 < cells.cells.len() {
            cell.settings.set_flag("return_sequences", true);
            cell.settings.set_flag("zero_output_for_mask", false);
        }
        // Keras numbers what a list holds by class.
        let earlier = cells.cells[..place].iter().filter(|other| other.row.name == cell.row.name).count();
        let number = if earlier == 0 { String::new() } else { format!("_{earlier}") };
        let name = format!("cells/{}{number}", snake_case(cell.row.name));
        x = within(site, &cell, &name, |site| run(site, cell.row.class, &[x], false))?;
    }
    Ok(x)
}
