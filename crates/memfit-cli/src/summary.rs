//! `memfit summary`: the layers of a model as Keras shows them, and what each holds.

use std::process::ExitCode;

use clap::Args;
use memfit::{Bytes, Error, LayerTable, TableRow, layer_table};

use crate::arguments::JobArguments;
use crate::out;

/// Which model.
#[derive(Args)]
pub struct SummaryArguments {
    #[command(flatten)]
    pub job: JobArguments,
}

/// Prints the table.
pub fn run(arguments: &SummaryArguments) -> Result<ExitCode, Error> {
    let table = layer_table(&arguments.job.read(Vec::new())?)?;
    out(&if arguments.job.json { table.to_json().to_string() } else { text(&table) });
    Ok(ExitCode::SUCCESS)
}

fn text(table: &LayerTable) -> String {
    let batch = format!("Activations at {}", table.batch);
    let mut lines = vec![
        ["Layer (type)", "Output Shape", "Param #", &batch, "Gradients", "Optimizer", "Connected to"]
            .map(str::to_owned),
    ];
    lines.extend(table.rows.iter().map(cells));
    let sum = |of: fn(&TableRow) -> Bytes| table.rows.iter().map(of).sum::<Bytes>().to_string();
    let (all, trainable) = table.parameters();
    let mut rule = [""; 7].map(str::to_owned);
    let columns = if table.is_sequential { 6 } else { 7 };
    let width = |column: usize| lines.iter().map(|line| line[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns).map(width).collect();
    for (cell, width) in rule.iter_mut().zip(&widths) {
        *cell = "─".repeat(*width);
    }
    lines.insert(1, rule);
    let print = |line: &[String; 7]| {
        let cells = widths.iter().enumerate().map(|(column, width)| {
            let numbers = (2..6).contains(&column);
            if numbers { format!("{:>width$}", line[column]) } else { format!("{:<width$}", line[column]) }
        });
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    let body: Vec<String> = lines.iter().map(print).collect();
    format!(
        "Model: \"{}\"\n{}\n\nTotal params: {all} ({})\nTrainable params: {trainable}\nNon-trainable params: {}\n\
         Activations {}, gradients {}, optimizer {}",
        table.name,
        body.join("\n"),
        sum(|row| row.weights),
        all - trainable,
        sum(|row| row.activations),
        sum(|row| row.gradients),
        sum(|row| row.optimizer),
    )
}

fn cells(row: &TableRow) -> [String; 7] {
    [
        format!("{} ({})", row.layer.name, row.layer.class),
        row.output_shapes().join(", "),
        row.layer.parameters.to_string(),
        row.activations.to_string(),
        row.gradients.to_string(),
        row.optimizer.to_string(),
        row.layer.connected_to.join(", "),
    ]
}
