//! `memfit layers`: the layers that memfit knows, with their arguments, from the table that models are read by.

use std::process::ExitCode;

use clap::Args;
use memfit::{Argument, Error, LayerClass, layer_classes};
use serde_json::{Value, json};

use crate::out;

/// Which layers, and how.
#[derive(Args)]
pub struct LayersArguments {
    /// Only classes whose name contains this, in any case.
    pub name: Option<String>,
    /// Print JSON for programs.
    #[arg(long)]
    pub json: bool,
}

/// Prints the table.
pub fn run(arguments: &LayersArguments) -> Result<ExitCode, Error> {
    let wanted = arguments.name.as_deref().unwrap_or_default().to_lowercase();
    let mut classes: Vec<&LayerClass> =
        layer_classes().iter().filter(|class| class.name.to_lowercase().contains(&wanted)).collect();
    classes.sort_by_key(|class| class.name);
    if classes.is_empty() {
        let problem = format!("no layer's name contains `{wanted}`; `memfit layers` lists all");
        return Err(Error::Job { place: "memfit layers".to_owned(), problem });
    }
    out(&if arguments.json {
        Value::Array(classes.into_iter().map(object).collect()).to_string()
    } else {
        classes.into_iter().map(text).collect::<Vec<_>>().join("\n\n")
    });
    Ok(ExitCode::SUCCESS)
}

fn text(class: &LayerClass) -> String {
    let width = class.arguments.iter().map(|argument| argument.name.len()).max().unwrap_or(0);
    let line = |argument: &Argument| {
        let limit = if argument.is_refused() {
            "not supported: null alone".to_owned()
        } else {
            let default =
                argument.default.map_or("must be given".to_owned(), |value| format!("default {value}"));
            format!("{}; {default}", argument.expects.describe())
        };
        format!("  {:<width$}  {limit}", argument.name)
    };
    let head = format!("{} ({})", class.name, class.inputs.describe());
    std::iter::once(head).chain(class.arguments.iter().map(line)).collect::<Vec<_>>().join("\n")
}

fn object(class: &LayerClass) -> Value {
    let argument = |argument: &Argument| {
        let default = argument.default.and_then(|text| serde_json::from_str::<Value>(text).ok());
        json!({
            "name": argument.name,
            "expects": argument.expects.describe(),
            "required": argument.default.is_none(),
            "supported": !argument.is_refused(),
            "default": default,
        })
    };
    let arguments: Vec<Value> = class.arguments.iter().map(argument).collect();
    json!({"class": class.name, "inputs": class.inputs.describe(), "arguments": arguments})
}
