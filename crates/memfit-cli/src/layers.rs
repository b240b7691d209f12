//! `memfit layers`: the layers that memfit knows, with their arguments, from the table that models are read by; and the ops that they
//! become.

use std::process::ExitCode;

use clap::Args;
use memfit::{Argument, Error, LayerClass, Operand, OperandList, Presence, Signature, layer_classes};
use serde_json::{Value, json};

use crate::out;

/// Which layers, and how.
#[derive(Args)]
pub struct LayersArguments {
    /// Only classes whose name contains this, in any case.
    pub name: Option<String>,
    /// The ops of training graphs instead: operands, what they do along each axis, cost class, outputs that may stand where an input
    /// stands.
    #[arg(long)]
    pub ops: bool,
    /// Print JSON for programs.
    #[arg(long)]
    pub json: bool,
}

/// Prints the table.
pub fn run(arguments: &LayersArguments) -> Result<ExitCode, Error> {
    let wanted = arguments.name.as_deref().unwrap_or_default().to_lowercase();
    if arguments.ops {
        return ops(arguments, &wanted);
    }
    let mut classes: Vec<&LayerClass> =
        layer_classes().iter().filter(|class| class.name.to_lowercase().contains(&wanted)).collect();
    classes.sort_by_key(|class| class.name);
    if classes.is_empty() {
        return Err(unknown("layer", &wanted, "memfit layers"));
    }
    out(&if arguments.json {
        Value::Array(classes.into_iter().map(object).collect()).to_string()
    } else {
        classes.into_iter().map(text).collect::<Vec<_>>().join("\n\n")
    });
    Ok(ExitCode::SUCCESS)
}

fn ops(arguments: &LayersArguments, wanted: &str) -> Result<ExitCode, Error> {
    let mut signatures = Signature::all();
    signatures.retain(|signature| signature.name.contains(wanted));
    if signatures.is_empty() {
        return Err(unknown("op", wanted, "memfit layers --ops"));
    }
    out(&if arguments.json {
        Value::Array(signatures.iter().map(op).collect()).to_string()
    } else {
        signatures.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
    });
    Ok(ExitCode::SUCCESS)
}

fn unknown(what: &str, wanted: &str, command: &str) -> Error {
    let problem = format!("no {what}'s name contains `{wanted}`; `{command}` lists all");
    Error::Job { place: command.to_owned(), problem }
}

fn op(signature: &Signature) -> Value {
    let operands = |list: &OperandList| -> Vec<Value> {
        let presence = |presence: &Presence| match presence {
            Presence::Always => "always",
            Presence::Optional | Presence::Asked { .. } => "optional",
            Presence::Repeated => "repeated",
        };
        let operand = |(operand, there): &(Operand, Presence)| json!({"name": operand.name(), "presence": presence(there)});
        list.places().iter().map(operand).collect()
    };
    let facts = &signature.facts;
    let last: Vec<String> = facts.axes.last.iter().map(ToString::to_string).collect();
    let in_place: Vec<[&str; 2]> =
        signature.in_place().map(|(output, input)| [output.name(), input.name()]).collect();
    json!({
        "op": signature.name,
        "reads": operands(&signature.inputs),
        "writes": operands(&signature.outputs),
        "changes": operands(&signature.updates),
        "in_place": in_place,
        "axes": {
            "batch": facts.axes.batch.map(|along| along.to_string()),
            "inner": facts.axes.inner.to_string(),
            "last": last,
            "mixes_one": facts.axes.mixed.is_some(),
        },
        "cost": facts.cost_class.to_string(),
        "view": facts.is_view,
        "random": facts.is_random,
        "sum_of_step": facts.is_sum_of_step,
        "batch_norm": facts.is_of_batch_norm,
        "differentiable": facts.is_differentiable,
    })
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
