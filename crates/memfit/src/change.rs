//! Changed models: the same job at another image size, with one layer replaced, or with another argument of a
//! layer.

use memfit_formats::names_of_layers;
use serde_json::{Map, Value, json};

use crate::model_file::read_config;
use crate::{Error, Job};

/// Classes that are fed, as a job file and as Keras name them.
const INPUTS: [&str; 2] = ["Input", "InputLayer"];

/// A layer's class and arguments within a configuration, for a change.
struct LayerConfig<'a> {
    /// Its names in the graph: one for each copy.
    names: Vec<String>,
    class: &'a mut Value,
    arguments: &'a mut Map<String, Value>,
}

/// The job with its images `to` high and wide instead of `from`; none where no input is such an image.
pub(crate) fn with_image_size(job: &Job, from: [usize; 2], to: [usize; 2]) -> Result<Option<Job>, Error> {
    changed(job, &mut |layer| {
        if !INPUTS.iter().any(|class| *layer.class == **class) {
            return false;
        }
        let mut found = false;
        for (key, first) in [("shape", 0), ("batch_shape", 1), ("batch_input_shape", 1)] {
            let Some(Value::Array(dims)) = layer.arguments.get_mut(key) else { continue };
            let is_image = dims.len() == first + 3 && dims[first] == from[0] && dims[first + 1] == from[1];
            if is_image {
                (dims[first], dims[first + 1]) = (json!(to[0]), json!(to[1]));
                found = true;
            }
        }
        found
    })
}

/// The job with layers of one class replaced by layers of another, which takes the same arguments.
pub(crate) fn with_class(job: &Job, from: &str, to: &str) -> Result<Option<Job>, Error> {
    changed(job, &mut |layer| {
        let found = *layer.class == *from;
        if found {
            *layer.class = json!(to);
        }
        found
    })
}

/// A job with a number of a layer halved.
pub(crate) struct Halved {
    pub job: Job,
    pub argument: &'static str,
    pub before: u64,
    pub after: u64,
}

/// The job with a number of a layer halved: the first of these arguments that the layer has.
pub(crate) fn with_half(job: &Job, name: &str, arguments: &[&'static str]) -> Result<Option<Halved>, Error> {
    let mut halved = None;
    let job = changed(job, &mut |layer| {
        if !layer.names.iter().any(|known| known == name) {
            return false;
        }
        let found = arguments.iter().find_map(|argument| {
            let value = layer.arguments.get(*argument)?.as_u64().filter(|value| 1 < *value)?;
            Some((*argument, value))
        });
        let Some((argument, before)) = found else { return false };
        let after = before.div_ceil(2);
        layer.arguments.insert(argument.to_owned(), json!(after));
        halved = Some((argument, before, after));
        true
    })?;
    Ok(job.zip(halved).map(|(job, (argument, before, after))| Halved { job, argument, before, after }))
}

/// The job with each layer passed to `change`, which says whether it changed it; none where nothing was
/// changed.
fn changed(job: &Job, change: &mut dyn FnMut(LayerConfig<'_>) -> bool) -> Result<Option<Job>, Error> {
    let mut job = job.clone();
    let mut any = false;
    if let Some(layers) = &mut job.model.layers {
        let names = names_of_layers(layers)?;
        for (layer, names) in layers.iter_mut().zip(names) {
            let Value::Object(arguments) = layer else { continue };
            let Some(mut class) = arguments.get("class").cloned() else { continue };
            any |= change(LayerConfig { names, class: &mut class, arguments });
            arguments.insert("class".to_owned(), class);
        }
    } else {
        let mut config = match job.caller.config.take() {
            Some(config) => config,
            None => read_config(&job)?,
        };
        any = walk(&mut config, "", change);
        job.caller.config = Some(config);
    }
    Ok(any.then_some(job))
}

/// Every layer of a Keras configuration, models within models too.
fn walk(entry: &mut Value, prefix: &str, change: &mut dyn FnMut(LayerConfig<'_>) -> bool) -> bool {
    let mut any = false;
    if let Some(Value::Array(shape)) = entry.pointer_mut("/config/build_input_shape") {
        // A Sequential model without an input layer is built for this shape.
        let mut arguments = Map::from_iter([("batch_shape".to_owned(), Value::Array(shape.clone()))]);
        let (names, class) = (Vec::new(), &mut json!("InputLayer"));
        any |= change(LayerConfig { names, class, arguments: &mut arguments });
        if let Some(Value::Array(changed)) = arguments.remove("batch_shape") {
            *shape = changed;
        }
    }
    let Some(Value::Array(layers)) = entry.pointer_mut("/config/layers") else { return any };
    for layer in layers {
        let name = layer.pointer("/config/name").and_then(Value::as_str).unwrap_or_default();
        let path = format!("{prefix}{name}");
        if layer.pointer("/config/layers").is_some() {
            any |= walk(layer, &format!("{path}/"), change);
            continue;
        }
        let Some(mut class) = layer.get("class_name").cloned() else { continue };
        if let Some(Value::Object(arguments)) = layer.get_mut("config") {
            any |= change(LayerConfig { names: vec![path], class: &mut class, arguments });
        }
        layer["class_name"] = class;
    }
    any
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(layers: &str) -> Job {
        let text = format!("[model]\nlayers = [{layers}]\n[train]\nloss = \"mse\"\nbatch = 1\nsteps = 1\n");
        Job::parse(&text, "".into()).unwrap()
    }

    #[test]
    fn listed_layers_are_found_by_the_names_they_get() {
        let job = job(
            r#"{class="Input",shape=[8,8,3]},{class="Dense",units=5,repeat=2},{class="Dense",units=9},{class="Flatten"}"#,
        );
        let half = with_half(&job, "dense_1", &["filters", "units"]).unwrap().unwrap();
        assert_eq!((half.argument, half.before, half.after), ("units", 5, 3));
        assert_eq!(half.job.model.layers.unwrap()[1]["units"], 3);
        assert!(with_half(&job, "flatten", &["units"]).unwrap().is_none());
        let image = with_image_size(&job, [8, 8], [4, 6]).unwrap().unwrap();
        assert_eq!(image.model.layers.unwrap()[0]["shape"], json!([4, 6, 3]));
        assert!(with_image_size(&job, [9, 9], [4, 6]).unwrap().is_none());
        let pooled = with_class(&job, "Flatten", "GlobalAveragePooling2D").unwrap().unwrap();
        assert_eq!(pooled.model.layers.unwrap()[3]["class"], "GlobalAveragePooling2D");
    }

    #[test]
    fn layers_of_a_keras_file_are_found_within_models_too() {
        let input =
            json!({"class_name": "InputLayer", "config": {"name": "in", "batch_shape": [null, 8, 8, 3]}});
        let conv = json!({"class_name": "Conv2D", "config": {"name": "conv", "filters": 4}});
        let inner = json!({"class_name": "Functional", "config": {"name": "inner", "layers": [input, conv]}});
        let mut job = job("");
        job.model.layers = None;
        job.caller.config = Some(json!({"class_name": "Sequential", "config": {
            "build_input_shape": [null, 8, 8, 3], "layers": [inner]}}));
        let half = with_half(&job, "inner/conv", &["filters"]).unwrap().unwrap();
        let filters = "/config/layers/0/config/layers/1/config/filters";
        assert_eq!(half.job.caller.config.unwrap().pointer(filters), Some(&json!(2)));
        let image = with_image_size(&job, [8, 8], [4, 4]).unwrap().unwrap().caller.config.unwrap();
        assert_eq!(image["config"]["build_input_shape"], json!([null, 4, 4, 3]));
        let shape = "/config/layers/0/config/layers/0/config/batch_shape";
        assert_eq!(image.pointer(shape), Some(&json!([null, 4, 4, 3])));
    }
}
