//! A refusal for programs.

use memfit_plan::{Change, DoesNotFit, Dominant, Hint, Needed};
use serde_json::{Map, Value, json};

/// Why a job does not fit, and what would: the keys that `memfit plan --json` adds to its answer then.
pub fn refusal_json(answer: &DoesNotFit) -> Map<String, Value> {
    let needed = |one: &Needed| {
        json!({
            "name": one.name,
            "layer": one.layer,
            "kind": one.group.name(),
            "bytes": one.bytes.0,
            "why": one.why.name(),
            "text": one.why.to_string(),
        })
    };
    let hint = |hint: &Hint| {
        json!({
            "kind": hint.kind(),
            "text": hint.to_string(),
            "value": hint.change().and_then(value),
            "budget": hint.budget().map(|bytes| bytes.0),
        })
    };
    let dominant = |Dominant { layer, bytes, share }: &Dominant| json!({"layer": layer, "bytes": bytes.0, "share": share});
    let reason = &answer.reason;
    Map::from_iter([
        ("needed".to_owned(), reason.needed.iter().map(needed).collect()),
        ("needed_others".to_owned(), json!({"count": reason.others, "bytes": reason.bytes_others.0})),
        ("dominant".to_owned(), answer.dominant.as_ref().map_or(Value::Null, dominant)),
        ("hints".to_owned(), answer.hints.iter().map(hint).collect()),
        ("untried".to_owned(), json!(answer.untried)),
    ])
}

/// The number of a change: rows of a batch, bytes of a disk.
fn value(change: Change) -> Option<u64> {
    match change {
        Change::Batch { rows } => Some(rows as u64),
        Change::Budget { mebibytes } | Change::Disk { mebibytes } => Some(mebibytes << 20),
        Change::AllowBatchnormSplit => None,
    }
}
